//! Groups of seeds that form one expression, such as the `and` and the `add` of a branch-free select.
//!
//! In: a basic block with its seeds. Out: the groups in order, each with the last place before which its update may run.
//! Refused: a seed whose instruction has no semantics.
//!
//! Two executions run side by side over the block, with the deployed constants and with V. What differs between them is
//! *dirty*. A seed that reads something dirty belongs to the same expression: one update for both is shorter than two,
//! and it may be the only one, if the value in between cannot be computed any more. The group ends at the first
//! instruction that uses something dirty and is no such seed, or at a seed that does not depend on the group.
//!
//! Which seeds form a group is a guess. It decides what is tried, not what is accepted (see the parent module): the
//! instructions of a group are always proved together with everything between them.

use std::collections::BTreeSet;

use xk_lift::insn::Insn;
use xk_lift::object::Function;
use xk_lift::semantics::{step, Substitution};
use xk_table::Refusal;

use crate::constants::Field;
use crate::context::Context;
use crate::product;
use crate::twin::{consumed, Twin, MEMORY};

/// A group of seeds that form one expression, as indices into a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeedGroup {
    /// The first seed.
    pub first: usize,
    /// One past the last seed.
    pub end: usize,
    /// The last instruction before which the update may still run. `None` if it can only run at the last seed.
    pub last_before: Option<usize>,
}

/// What an instruction after a seed is to the group of that seed.
enum Relation {
    /// A seed that reads what the group has computed.
    Member,
    /// The state must be right before it: it uses what the group has computed, or has a constant of its own.
    Boundary,
    /// It reads nothing that depends on V.
    Unrelated,
}

impl Context<'_> {
    /// Divides the seeds of a block into groups.
    pub(super) fn groups(&self, function: &Function, block: &[&Insn]) -> Result<Vec<SeedGroup>, Refusal> {
        let mut groups = Vec::new();
        let mut at = 0;
        while let Some(first) = (at..block.len()).find(|&i| self.is_seed(block[i])) {
            let group = self.group(function, block, first)?;
            at = group.end;
            groups.push(group);
        }
        Ok(groups)
    }

    /// The group that begins with the seed at `first`.
    fn group(&self, function: &Function, block: &[&Insn], first: usize) -> Result<SeedGroup, Refusal> {
        let unsupported = |insn: &Insn| Refusal::UnsupportedInstruction {
            place: self.place(function, insn.node),
            instruction: insn.text(),
        };
        let mut twin = Twin::new();
        for insn in &block[self.begin_of_seed(block, first)..=first] {
            twin.step(self, insn).map_err(|_| unsupported(insn))?;
        }
        let mut group = SeedGroup { first, end: first + 1, last_before: None };
        for (insn, index) in block.iter().zip(0..).skip(first + 1) {
            let dirty = twin.dirty(self.live_before(block, index));
            group.last_before = Some(index);
            if self.is_too_late_after(insn, &dirty) {
                break;
            }
            match self.relation(&mut twin, insn, &dirty) {
                Relation::Member => {
                    twin.step(self, insn).map_err(|_| unsupported(insn))?;
                    group.end = index + 1;
                    group.last_before = None;
                }
                Relation::Boundary => break,
                Relation::Unrelated if twin.step(self, insn).is_err() => break,
                Relation::Unrelated => {}
            }
        }
        Ok(group)
    }

    /// Where the instructions of a seed begin. A multiplication is a seed at its last instruction and begins earlier.
    fn begin_of_seed(&self, block: &[&Insn], seed: usize) -> usize {
        let is_product = self.seeds.contains_key(&(block[seed].node, Field::Product));
        if is_product {
            product::chain(block, seed).map_or(seed, |(start, ..)| start)
        } else {
            seed
        }
    }

    /// Whether an update cannot run after `insn`. Three rules, which no obligation about the state at the update's point
    /// expresses:
    /// - control leaves the block there;
    /// - a fault leaves the block with the state before the update;
    /// - code that sees a store may rely on an earlier one (a flag, an unlock), so what is wrong in memory must be
    ///   corrected before the next store.
    fn is_too_late_after(&self, insn: &Insn, dirty: &BTreeSet<usize>) -> bool {
        insn.ends_block()
            || self.object.fixups.contains_key(&insn.node)
            || dirty.contains(&MEMORY) && insn.writes_memory()
    }

    fn relation(&self, twin: &mut Twin, insn: &Insn, dirty: &BTreeSet<usize>) -> Relation {
        let uses_group = carries_on(twin, insn, dirty);
        match (self.is_seed(insn), uses_group) {
            (true, true) => Relation::Member,
            (false, false) => Relation::Unrelated,
            _ => Relation::Boundary,
        }
    }
}

/// Whether `insn` carries something dirty into a new place. Its own constant stays as deployed in both executions, so
/// that only what comes from before counts. An instruction without semantics may do anything.
fn carries_on(twin: &mut Twin, insn: &Insn, dirty: &BTreeSet<usize>) -> bool {
    let mut after = Twin { terms: std::mem::take(&mut twin.terms), ..twin.clone_states() };
    let executed = step(&mut after.terms, &mut after.actual, insn, Substitution::default())
        .and_then(|()| step(&mut after.terms, &mut after.wanted, insn, Substitution::default()));
    let carries = executed.is_err() || consumed(twin, &after, dirty);
    twin.terms = after.terms;
    carries
}
