//! Deciding verification conditions: whether two terms are equal for every state, every V
//! of the range, and everything that is assumed on the path.
//!
//! Equal terms have equal names and need no proof. Some concrete states spare the solver
//! hopeless questions. What is left is decided by the solver, and what it shows replaces
//! the other build's term in everything that follows on the path.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use xk_lift::sample::Sample;
use xk_lift::term::{BinOp, Node as Term, TermId, Terms};
use xk_table::{furthest, Range};

use crate::proof::{Claim, Solver};

/// Concrete states that are tried before the solver is asked.
const SAMPLES: u64 = 32;
/// Concrete states that tell different terms apart well enough.
const ENOUGH: usize = 4;

/// Seconds of an ordinary machine for a claim that would only be welcome, for one without which the proof fails,
/// and for one about memory.
const WELCOME_S: u64 = 1;
const NEEDED_S: u64 = 5;
const MEMORY_S: u64 = 3;

/// Seconds that one comparison of two functions may spend on claims that are not decided or do
/// not hold: for every V, and for one value, where most of what is equal is equal by name.
const PATIENCE_ALL_S: f64 = 15.0;
const PATIENCE_ONE_S: f64 = 6.0;

/// How much a claim matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// It would make the relation stronger.
    Welcome,
    /// Without it the proof fails.
    Needed,
}

/// What is known on a path besides the states.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// Terms of one bit that are 1.
    assumed: Vec<TermId>,
    /// Terms that were shown to equal others.
    equal: HashMap<TermId, TermId>,
}

impl Facts {
    /// From here on `condition` is `holds`.
    pub fn assume(&mut self, terms: &mut Terms, condition: TermId, holds: bool) {
        let opposite = terms.not(condition);
        self.assumed.push(if holds { condition } else { opposite });
        for (term, value) in [(condition, holds), (opposite, !holds)] {
            if terms.as_const(term).is_none() {
                let value = terms.constant(value.into(), 1);
                self.equal.insert(term, value);
            }
        }
        self.number(terms, if holds { condition } else { opposite });
    }

    /// Where `condition` says that something is a number, it is.
    fn number(&mut self, terms: &mut Terms, condition: TermId) {
        let Term::Bin(BinOp::Eq, mut term, number) = *terms.node(condition) else { return };
        let Some(mut value) = terms.as_const(number) else { return };
        let bits = terms.bits(term);
        if let Term::Bin(BinOp::Add, rest, offset) = *terms.node(term) {
            if let Some(offset) = terms.as_const(offset) {
                (term, value) = (rest, value.wrapping_sub(offset));
            }
        }
        if terms.as_const(term).is_none() {
            let value = terms.constant(value, bits);
            self.equal.insert(term, value);
        }
    }

    /// `term` with what is known put in.
    pub fn rewrite(&self, terms: &mut Terms, term: TermId) -> TermId {
        if self.equal.is_empty() {
            return term;
        }
        terms.substitute(term, &self.equal)
    }
}

/// Decides claims over one range of V.
pub(crate) struct Claims<'a> {
    solver: &'a Solver,
    /// V and its values; `None` when the other build has one value.
    v: Option<(TermId, Range)>,
    default: i64,
    samples: Vec<Sample>,
    /// Seconds left for claims that are not proved.
    patience: Cell<f64>,
}

impl<'a> Claims<'a> {
    pub fn new(terms: &mut Terms, solver: &'a Solver, range: Option<Range>, default: i64) -> Self {
        let v = range.map(|range| (terms.v(), range));
        let samples = (0..SAMPLES).map(|number| Sample::new(number, Some(sample_v(number, range, default)))).collect();
        let patience = Cell::new(if v.is_some() { PATIENCE_ALL_S } else { PATIENCE_ONE_S });
        Self { solver, v, default, samples, patience }
    }

    /// Whether `ours` equals `theirs`, always. The two may be memories.
    pub fn equal(&self, terms: &mut Terms, facts: &mut Facts, ours: TermId, theirs: TermId, effort: Effort) -> bool {
        let (a, b) = (facts.rewrite(terms, ours), facts.rewrite(terms, theirs));
        if a == b {
            return true;
        }
        let possible =
            self.samples.iter().all(|sample| !sample.satisfies(terms, &facts.assumed) || sample.same(terms, a, b));
        if !possible || !self.refuted(terms, &facts.assumed, self.v, (a, b), effort) {
            return false;
        }
        if terms.as_const(b).is_none() {
            facts.equal.insert(b, a);
        }
        if terms.as_const(theirs).is_none() {
            facts.equal.insert(theirs, a);
        }
        true
    }

    fn ask(&self, query: String, seconds: u64) -> bool {
        if self.patience.get() <= 0.0 {
            return false;
        }
        let outcome = self.solver.refutes(query, seconds);
        if !outcome.refuted {
            self.patience.set(self.patience.get() - outcome.seconds);
        }
        outcome.refuted
    }

    /// Whether no state tells `a` from `b`. Most claims hold whatever memory holds and whatever
    /// is assumed, and are refuted much faster so.
    fn refuted(
        &self,
        terms: &Terms,
        assumed: &[TermId],
        v: Option<(TermId, Range)>,
        (a, b): (TermId, TermId),
        effort: Effort,
    ) -> bool {
        let pairs = &[(a, b)][..];
        let plain = Claim { assumed: &[], v, pairs, any_memory: true };
        let ask = |claim: &Claim<'_>, seconds: u64| self.ask(claim.counterexample(terms), seconds);
        let seconds = if effort == Effort::Needed { NEEDED_S } else { WELCOME_S };
        if terms.bits(a) > 0 {
            if ask(&plain, seconds) || !assumed.is_empty() && ask(&Claim { assumed, ..plain }, seconds) {
                return true;
            }
            if effort == Effort::Welcome || terms.loads(a) == terms.loads(b) {
                return false;
            }
        }
        ask(&Claim { assumed, any_memory: false, ..plain }, MEMORY_S)
    }

    /// The widest range around the default in which the two are equal; none if that is no
    /// more than the default.
    pub fn widest(&self, terms: &mut Terms, facts: &Facts, ours: TermId, theirs: TermId) -> Option<Range> {
        let (v, whole) = self.v?;
        let (a, b) = (facts.rewrite(terms, ours), facts.rewrite(terms, theirs));
        let holds = |min: i64, max: i64| {
            let within = Some((v, Range::of(min, max)));
            self.refuted(terms, &facts.assumed, within, (a, b), Effort::Welcome)
        };
        let default = self.default;
        if !whole.contains(default) || !holds(default, default) {
            return None;
        }
        let near = |step: i64| {
            whole.contains(default.saturating_add(step))
                && holds(default.min(default + step), default.max(default + step))
        };
        // Claims that hold up to a value hold up to smaller ones.
        let max = if near(1) { furthest(default, whole.max, |end| holds(default, end)) } else { default };
        let min = if near(-1) { furthest(default, whole.min, |end| holds(end, default)) } else { default };
        (min < max).then(|| Range::of(min, max))
    }

    /// Whether `range` has a quarter of all values at least.
    pub fn is_most(&self, range: Range) -> bool {
        let width = |range: Range| i128::from(range.max) - i128::from(range.min);
        self.v.is_some_and(|(_, whole)| width(range) >= width(whole) / 4)
    }

    /// Whether some state, with some V of the range, satisfies what is assumed. Not knowing
    /// is a yes.
    pub fn possible(&self, terms: &Terms, facts: &Facts) -> bool {
        self.samples.iter().any(|sample| sample.satisfies(terms, &facts.assumed))
            || !self.ask(
                Claim { assumed: &facts.assumed, v: self.v, any_memory: true, ..Claim::default() }
                    .counterexample(terms),
                WELCOME_S,
            )
    }

    /// What distinguishes terms that are hardly equal: equal terms have equal digests, unless
    /// what is assumed makes them equal and no concrete state satisfies that.
    pub fn digest(&self, terms: &Terms, facts: &Facts, term: TermId) -> u64 {
        let mut hasher = DefaultHasher::new();
        let among = |satisfying: bool| {
            self.samples.iter().filter(move |sample| !satisfying || sample.satisfies(terms, &facts.assumed))
        };
        let satisfying = among(true).count() >= ENOUGH;
        for sample in among(satisfying) {
            sample.evaluate(terms, term).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Values of V that tell functions of it apart: the ends, the default and its neighbours,
/// small ones, and some in between.
fn sample_v(number: u64, range: Option<Range>, default: i64) -> i64 {
    let Some(Range { min, max }) = range else { return default };
    let width = (max as i128 - min as i128 + 1) as u128;
    let spread = (u128::from(mix(number)) << 64 | u128::from(mix(!number))) % width;
    let value = match number % 12 {
        0 | 6 => default,
        1 => min,
        2 => max,
        3 => default.saturating_add(1),
        4 => default.saturating_sub(1),
        5 => (number / 12) as i64,
        7 => default.saturating_mul(3).saturating_add(1),
        8 => 1 << (mix(number) % 31),
        9 => (mix(number) % 4096) as i64,
        _ => (min as i128 + spread as i128) as i64,
    };
    value.clamp(min, max)
}

fn mix(value: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
