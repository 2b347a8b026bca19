//! Two blocks that do not match instruction by instruction, compared as a whole.
//!
//! In: a pair at which the instructions do not match. Out: what is equal after both blocks, and the constants that make it
//! so. Refused: blocks with instructions that the kernel patches or that may fault, and blocks for which the solver finds
//! a difference.
//!
//! The comparison starts as early as possible, because the compiler may have moved instructions: at the earliest pair from
//! which the walk can only have come straight to this one. What is equal there must hold for everything that arrives here,
//! so the walk compares again when another way arrives or when less is equal ([`Walk::reach`]). The constants are first
//! those that the functions of V predict, then those that the walk recorded on its way. Both are guesses:
//! [`blocks::compare`] accepts them only if the solver agrees that the blocks then do the same.

use xk_lift::insn::{Insn, Node};
use xk_lift::object::Object;

use super::forms;
use super::pairing::Pairing;
use super::walk::{Pair, Walk};
use super::Mismatch;
use crate::blocks::{self, Equal, Summary};
use crate::constants::Differences;
use crate::proof::Solver;

/// Straight code of both builds, from a pair to the ends of its blocks.
struct Pieces<'a> {
    entry: Pair,
    base: Vec<&'a Insn>,
    variant: Vec<&'a Insn>,
    /// The instructions that follow: a branch, a call, a return, or the next block.
    exit: Pair,
}

impl Pieces<'_> {
    fn contains(&self, base: Node) -> bool {
        self.base.iter().any(|insn| insn.node == base)
    }

    fn is_copy(&self, variant: Node) -> bool {
        self.variant.iter().any(|insn| insn.node == variant)
    }
}

/// Conditional branches after two pieces.
#[derive(Clone, Copy)]
struct Branches<'a> {
    ours: &'a Insn,
    theirs: &'a Insn,
    conditions: (u8, u8),
}

impl<'a> Walk<'a> {
    /// Compares the rest of the two blocks around `at` as a whole, from where the walk entered them. `None` when that is
    /// not possible or shows no equivalence.
    pub(super) fn compare_whole(&mut self, at: Pair) -> Option<Result<(), Mismatch>> {
        let solver = self.rules.solver?;
        let pieces = self.pieces(at)?;
        let entry = *self.pairings.get(&pieces.entry)?;
        let branches = self.branches_after(&pieces);
        // Otherwise the instruction after the pieces is what does not match. Only branches are compared there.
        let differs_inside = pieces.contains(at.base);
        if !differs_inside && branches.is_none() {
            return None;
        }
        let summary = self.summary(&pieces, &entry, branches, solver)?;
        if !differs_inside && summary.branch.is_none() {
            return None;
        }
        self.compared_whole.insert(at, pieces.entry);
        self.replace_recorded(&pieces, &summary.differences);
        Some(self.go_on_after(&pieces, &entry, &summary, branches))
    }

    fn pieces(&self, at: Pair) -> Option<Pieces<'a>> {
        let (base, variant) = (self.base, self.variant);
        let (base_flow, variant_flow) = self.flows();
        let base_block = base_flow.block(base, at.base);
        let variant_block = variant_flow.block(variant, at.variant);
        let entry = self.entry_of(at, &base_block, &variant_block);
        let (ours, theirs) = (straight(&base_block, entry.base), straight(&variant_block, entry.variant));
        if ours.is_empty() || has_special(base, ours) || has_special(variant, theirs) {
            return None;
        }
        let after = |piece: &[&Insn], from: Node| piece.last().map_or(from, |insn| insn.next());
        let exit = Pair { base: after(ours, entry.base), variant: after(theirs, entry.variant) };
        Some(Pieces { entry, base: ours.to_vec(), variant: theirs.to_vec(), exit })
    }

    fn branches_after(&self, pieces: &Pieces<'_>) -> Option<Branches<'a>> {
        let ours = self.base.insns.get(&pieces.exit.base)?;
        let theirs = self.variant.insns.get(&pieces.exit.variant)?;
        let conditions = forms::condition(ours).zip(forms::condition(theirs))?;
        Some(Branches { ours, theirs, conditions })
    }

    /// What is equal after the pieces, with the constants of one guess.
    fn summary(
        &self,
        pieces: &Pieces<'_>,
        entry: &Pairing,
        branches: Option<Branches<'_>>,
        solver: &Solver,
    ) -> Option<Summary> {
        let (_, variant_flow) = self.flows();
        let end = blocks::End {
            live: variant_flow.live_in(pieces.exit.variant),
            branch: branches.map(|branches| branches.conditions),
        };
        let equal = Equal { registers: entry.registers, flags: entry.flags };
        let recorded = self.recorded(pieces);
        let guesses = [self.rules.expected, &recorded];
        guesses.iter().find_map(|known| blocks::compare(&pieces.base, &pieces.variant, equal, end, known, solver))
    }

    /// The constants that the walk recorded for the pieces.
    fn recorded(&self, pieces: &Pieces<'_>) -> Differences {
        let mut recorded = Differences::new();
        for insn in &pieces.base {
            let places = self.constants.get(&insn.node).into_iter().flatten();
            for (_, fields) in places.filter(|(place, _)| pieces.is_copy(**place)) {
                recorded.extend(fields.iter().map(|(field, other)| ((insn.node, *field), *other)));
            }
        }
        recorded
    }

    /// Replaces what the walk recorded for the pieces: on its way to the mismatch it was a misreading.
    fn replace_recorded(&mut self, pieces: &Pieces<'_>, differences: &Differences) {
        for insn in &pieces.base {
            let places = self.constants.entry(insn.node).or_default();
            places.retain(|place, _| !pieces.is_copy(*place));
            let fields = differences.iter().filter(|((node, _), _)| *node == insn.node);
            places.insert(pieces.entry.variant, fields.map(|((_, field), other)| (*field, *other)).collect());
        }
        self.reached.extend(pieces.base.iter().map(|insn| insn.node));
    }

    fn go_on_after(
        &mut self,
        pieces: &Pieces<'_>,
        entry: &Pairing,
        summary: &Summary,
        branches: Option<Branches<'_>>,
    ) -> Result<(), Mismatch> {
        let junk = [entry.junk[0] & !self.written(&pieces.base), entry.junk[1] & !self.written(&pieces.variant)];
        let pairing = Pairing { registers: summary.exit.registers, flags: summary.exit.flags, junk };
        let Pair { base, variant } = pieces.exit;
        if let (false, Some(inverted), Some(branches)) = (pairing.flags, summary.branch, branches) {
            // The flags differ, the decision does not: on with both branches.
            self.reached.insert(base);
            self.at = Some(pieces.exit);
            return self.successors(branches.ours, branches.theirs, pairing, inverted);
        }
        self.reach(base, variant, pairing);
        Ok(())
    }
}

/// Whether the symbolic execution of `insns` would miss something: the kernel patches one, or one may fault.
fn has_special(object: &Object, insns: &[&Insn]) -> bool {
    insns.iter().any(|insn| {
        object.jump_labels.contains_key(&insn.node)
            || object.fixups.contains_key(&insn.node)
            || object.in_alternative.contains(&insn.node)
    })
}

/// The instructions of `block` from `from` to its end, without the branch, call or return that ends it.
fn straight<'a, 'b>(block: &'b [&'a Insn], from: Node) -> &'b [&'a Insn] {
    let start = block.iter().position(|insn| insn.node == from).unwrap_or(block.len());
    let end = block.len() - usize::from(block.last().is_some_and(|insn| insn.ends_block()));
    &block[start.min(end)..end]
}
