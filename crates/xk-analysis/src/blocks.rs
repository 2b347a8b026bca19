//! Comparing two straight-line pieces of code as a whole, when they do not
//! match instruction by instruction.
//!
//! In: the instructions of both builds from a place where they are paired to
//! the end of the block, and what is known to be equal there. Out: what is
//! equal after them, and the constants that had to be replaced in the
//! deployed build to make it so. The pieces are executed symbolically; a
//! solver must agree that memory and every claimed pair of registers are
//! equal. Nothing is claimed that it did not confirm.

use std::collections::{BTreeMap, HashMap};

use xk_lift::flow::Live;
use xk_lift::insn::{Insn, Node};
use xk_lift::sample::Sample;
use xk_lift::semantics::{is_immediate, step, Substitution};
use xk_lift::state::{arithmetic, Flag, State, REGISTERS};
use xk_lift::term::{TermId, Terms};

use crate::constants::{Differences, Field, VariantConstant};
use crate::product;
use crate::proof::{different, Solver};

/// What is equal at a place: for each register of the variant and each of the
/// deployed build the number of equal low bits; and the flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Equal {
    /// By register of the variant, then of the deployed build.
    pub registers: [[u8; 16]; 16],
    /// All status flags.
    pub flags: bool,
}

/// Two pieces that do the same.
#[derive(Debug)]
pub struct Summary {
    /// What is equal after them.
    pub exit: Equal,
    /// The constants of the deployed piece that must be replaced.
    pub differences: Differences,
    /// The branches after them are taken together (`false`) or the one when
    /// the other is not (`true`); `None` when that is not known.
    pub branch: Option<bool>,
}

struct Pieces<'a> {
    base: &'a [&'a Insn],
    variant: &'a [&'a Insn],
    entry: Equal,
    branch: Option<(u8, u8)>,
    solver: &'a Solver,
}

/// What follows two pieces.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// What may be read there, in the variant.
    pub live: Live,
    /// The condition codes of the branches that end both blocks.
    pub branch: Option<(u8, u8)>,
}

/// A product that is computed at an instruction, and the factor to try for it.
#[derive(Debug, Clone, Copy)]
struct Guess {
    node: Node,
    factor: u64,
    bits: u32,
}

/// Compares `base` and `variant`, which start with what is equal in `entry`.
/// `known` are constants that the deployed build would have (from a fit, or
/// from an earlier comparison). Without a full explanation, products are
/// guessed: a chain that multiplies by one factor against one that multiplies
/// the same value by another.
///
/// Of several explanations the one counts that leaves the most of what is
/// `live` after the pieces equal.
#[must_use]
pub fn compare(
    base: &[&Insn],
    variant: &[&Insn],
    entry: Equal,
    end: End,
    known: &Differences,
    solver: &Solver,
) -> Option<Summary> {
    let End { live, branch } = end;
    let pieces = Pieces { base, variant, entry, branch, solver };
    let all = (0..16).filter(|&r| live.register(r)).count() + 1;
    let with = |extra: &Differences, guess: Option<Guess>| {
        let mut all: Differences = known.iter().chain(extra).map(|(k, o)| (*k, *o)).collect();
        if let Some(Guess { node, factor, bits }) = guess {
            all.insert((node, Field::Product), VariantConstant { value: factor, bits });
        }
        all
    };
    let plain = Differences::new();
    let immediates = pieces.immediates();
    let guesses = pieces.guesses().unwrap_or_default();
    let mut best = pieces.attempt(known);
    for extra in [&plain, &immediates] {
        for guess in std::iter::once(None).chain(guesses.iter().copied().map(Some)) {
            if best.as_ref().is_some_and(|b| b.score(live) == all) {
                return best;
            }
            let next = pieces.attempt(&with(extra, guess));
            if next.as_ref().map_or(0, |n| n.score(live)) > best.as_ref().map_or(0, |b| b.score(live)) {
                best = next;
            }
        }
        if immediates.is_empty() {
            break;
        }
    }
    best
}

impl Summary {
    /// How much of what is live is equal; at least 1.
    fn score(&self, live: Live) -> usize {
        let registers = (0..16).filter(|&r| live.register(r) && self.exit.registers[r].contains(&64)).count();
        let flags_live = Flag::ALL.into_iter().any(|f| live.flag(f));
        registers + usize::from(self.exit.flags || self.branch.is_some() || !flags_live)
    }
}

impl Pieces<'_> {
    fn entry_states(&self, terms: &mut Terms) -> (State, State) {
        let mut base = State::unknown(terms);
        // Registers that equal one register of the variant equal each other.
        for row in &self.entry.registers {
            let equal: Vec<usize> = (0..16).filter(|&b| row[b] == 64).collect();
            if let Some((&first, rest)) = equal.split_first() {
                rest.iter().for_each(|&other| base.regs[other] = base.regs[first]);
            }
        }
        let mut variant = base.clone();
        for (number, row) in self.entry.registers.iter().enumerate() {
            let (paired, valid) =
                row.iter().copied().enumerate().max_by_key(|&(_, valid)| valid).unwrap_or((number, 0));
            let same = base.regs[paired];
            variant.regs[number] = match valid {
                64 => same,
                0 => terms.symbol(format!("other {}", REGISTERS[number]), 64),
                bits => {
                    let low = terms.extract(same, 0, u32::from(bits));
                    let high = terms.symbol(format!("other {}", REGISTERS[number]), 64 - u32::from(bits));
                    terms.concat(high, low)
                }
            };
        }
        if !self.entry.flags {
            variant.flags = Flag::ALL.map(|flag| terms.symbol(format!("other {flag:?}"), 1));
        }
        (base, variant)
    }

    /// Executes the deployed piece with constants replaced.
    fn execute_base(&self, terms: &mut Terms, state: &mut State, known: &Differences) -> Option<Vec<product::Product>> {
        let mut products = Vec::new();
        for insn in self.base {
            let mut substitution = Substitution::default();
            if let Some(other) = known.get(&(insn.node, Field::Immediate)) {
                substitution.immediate = Some(terms.constant(other.value.into(), 64));
            }
            if let Some(other) = known.get(&(insn.node, Field::Displacement)) {
                substitution.displacement = Some(terms.constant(other.value.into(), 64));
            }
            if let Some(other) = known.get(&(insn.node, Field::Pool)) {
                substitution.pool = Some(terms.constant(other.value.into(), 64));
            }
            step(terms, state, insn, substitution).ok()?;
            let found = product::result(terms, state, insn);
            if let (Some(found), Some(other)) = (found, known.get(&(insn.node, Field::Product))) {
                let factor = terms.constant(other.value.into(), 64);
                product::replace(terms, state, insn, found.leaf, factor);
            }
            products.extend(found);
        }
        Some(products)
    }

    fn execute_variant(&self, terms: &mut Terms, state: &mut State) -> Option<Vec<product::Product>> {
        let mut products = Vec::new();
        for insn in self.variant {
            step(terms, state, insn, Substitution::default()).ok()?;
            products.extend(product::result(terms, state, insn));
        }
        Some(products)
    }

    fn attempt(&self, known: &Differences) -> Option<Summary> {
        let mut terms = Terms::new();
        let (mut base, mut variant) = self.entry_states(&mut terms);
        self.execute_base(&mut terms, &mut base, known)?;
        self.execute_variant(&mut terms, &mut variant)?;
        let samples: Vec<Sample> = (0..48).map(|number| Sample::new(number, None)).collect();
        if !samples.iter().all(|s| s.same(&terms, base.memory, variant.memory)) {
            return None;
        }
        let mut claims = Claims { terms: &mut terms, samples: &samples, solver: self.solver, proved: HashMap::new() };
        // Older stores first: what they wrote is read by what follows.
        for (ours, theirs) in store_values(claims.terms, base.memory, variant.memory) {
            claims.holds(ours, theirs);
        }
        if !claims.holds(base.memory, variant.memory) {
            return None;
        }
        let mut exit = Equal { registers: [[0; 16]; 16], flags: false };
        for (number, row) in exit.registers.iter_mut().enumerate() {
            for (candidate, valid) in row.iter_mut().enumerate() {
                if claims.holds(base.regs[candidate], variant.regs[number]) {
                    *valid = 64;
                }
            }
        }
        exit.flags = Flag::ALL.iter().all(|&f| claims.holds(base.flag(f), variant.flag(f)));
        let branch = self.branch.and_then(|(ours, theirs)| {
            let ours = arithmetic::condition(claims.terms, &base.flags, ours);
            let theirs = arithmetic::condition(claims.terms, &variant.flags, theirs);
            let opposite = claims.terms.not(theirs);
            if claims.holds(ours, theirs) {
                Some(false)
            } else {
                claims.holds(ours, opposite).then_some(true)
            }
        });
        let nodes: Vec<Node> = self.base.iter().map(|insn| insn.node).collect();
        let differences: BTreeMap<_, _> =
            known.iter().filter(|((node, _), _)| nodes.contains(node)).map(|(k, v)| (*k, *v)).collect();
        Some(Summary { exit, differences, branch })
    }

    /// Constants that differ between instructions which are otherwise the same,
    /// along a longest common subsequence of the two pieces.
    fn immediates(&self) -> Differences {
        let (base, variant): (Vec<_>, Vec<_>) =
            (self.base.iter().map(|insn| shape(insn)).collect(), self.variant.iter().map(|insn| shape(insn)).collect());
        let mut length = vec![vec![0u16; variant.len() + 1]; base.len() + 1];
        for i in (0..base.len()).rev() {
            for j in (0..variant.len()).rev() {
                length[i][j] = if base[i].0 == variant[j].0 {
                    length[i + 1][j + 1] + 1
                } else {
                    length[i + 1][j].max(length[i][j + 1])
                };
            }
        }
        let mut found = Differences::new();
        let (mut i, mut j) = (0, 0);
        while i < base.len() && j < variant.len() {
            if base[i].0 == variant[j].0 {
                if let (Some(ours), Some(theirs)) = (base[i].1, variant[j].1) {
                    if ours != theirs {
                        found
                            .insert((self.base[i].node, Field::Immediate), VariantConstant { value: theirs, bits: 64 });
                    }
                }
                (i, j) = (i + 1, j + 1);
            } else if length[i + 1][j] >= length[i][j + 1] {
                i += 1;
            } else {
                j += 1;
            }
        }
        found
    }

    /// Products of the deployed piece whose value the variant multiplies by
    /// another factor, the most likely first.
    fn guesses(&self) -> Option<Vec<Guess>> {
        let mut terms = Terms::new();
        let (mut base, mut variant) = self.entry_states(&mut terms);
        let mut found: Vec<(Node, product::Product)> = Vec::new();
        for insn in self.base {
            step(&mut terms, &mut base, insn, Substitution::default()).ok()?;
            found.extend(product::result(&mut terms, &base, insn).map(|p| (insn.node, p)));
        }
        let others = self.execute_variant(&mut terms, &mut variant)?;
        let mut guesses = Vec::new();
        for &(node, ours) in found.iter().rev().filter(|(_, p)| p.factor > 1) {
            for theirs in others.iter().rev() {
                if theirs.leaf == ours.leaf && theirs.bits == ours.bits && theirs.factor != ours.factor {
                    guesses.push(Guess { node, factor: theirs.factor, bits: theirs.bits });
                }
            }
        }
        guesses.truncate(12);
        Some(guesses)
    }
}

/// An instruction without its immediate, and the immediate.
fn shape(insn: &Insn) -> (String, Option<u64>) {
    let raw = &insn.raw;
    let immediate = (0..raw.op_count()).find(|&i| is_immediate(raw.op_kind(i)) && insn.immediate.is_none());
    let text = insn.text();
    match immediate {
        // In AT&T syntax the immediate comes first: `$5,%eax`.
        Some(index) => {
            let rest = text.split_once(',').map_or("", |(_, rest)| rest);
            (format!("{:?} {rest}", raw.mnemonic()), Some(raw.immediate(index)))
        }
        None => (text, None),
    }
}

/// The values that both memories hold at the same addresses in the same order,
/// oldest first; empty when the stores do not correspond.
fn store_values(terms: &Terms, mut ours: TermId, mut theirs: TermId) -> Vec<(TermId, TermId)> {
    use xk_lift::term::Node as Term;
    let mut values = Vec::new();
    while let (&Term::Store(before_a, at_a, a), &Term::Store(before_b, at_b, b)) =
        (terms.node(ours), terms.node(theirs))
    {
        if at_a != at_b || terms.bits(a) != terms.bits(b) {
            return Vec::new();
        }
        values.push((a, b));
        (ours, theirs) = (before_a, before_b);
    }
    values.reverse();
    values
}

/// Equalities, decided one by one. What is proved replaces the variant's term
/// in everything that follows, so that later claims become smaller.
struct Claims<'a> {
    terms: &'a mut Terms,
    samples: &'a [Sample],
    solver: &'a Solver,
    proved: HashMap<TermId, TermId>,
}

impl Claims<'_> {
    fn holds(&mut self, ours: TermId, theirs: TermId) -> bool {
        let rewritten = self.terms.substitute(theirs, &self.proved);
        if ours == rewritten {
            return true;
        }
        let bits = self.terms.bits(ours);
        let sampled = bits == 0 || self.samples.iter().all(|s| s.same(self.terms, ours, rewritten));
        if !sampled || !self.solver.refutes(different(self.terms, &[(ours, rewritten)]), 30).refuted {
            return false;
        }
        self.proved.insert(rewritten, ours);
        self.proved.insert(theirs, ours);
        true
    }
}
