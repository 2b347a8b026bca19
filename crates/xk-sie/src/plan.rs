//! Which values to compile next.
//!
//! Compiling is what costs, so values come in waves: the first has what a
//! plain constant needs; a later one replaces values for which the compiler
//! chose another shape, closer to the default.

use std::collections::BTreeSet;

use xk_const::{choose_values, Constant, Edges, Operator};
use xk_table::Range;

/// Values that the fit never saw; each is compiled and must agree.
pub const UNSEEN: usize = 5;
/// Values from which the mapping is fitted, besides the default.
pub const FITTED: usize = 2;
/// After so many waves what agrees is enough, or never will be.
const WAVES: usize = 4;
/// After so many waves without two values that match, no closer ones will.
const WAVES_WITHOUT_FIT: usize = 2;

/// Among which values to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// All.
    All,
    /// A compiler divides by these in a way of its own.
    PowersOfTwo,
}

impl Domain {
    /// What to try for a constant, in this order.
    #[must_use]
    pub fn of(constant: &Constant) -> Vec<Self> {
        let power = constant.default >= 2 && constant.default.count_ones() == 1;
        match (power, constant.operator) {
            (true, Operator::Divisor) => vec![Self::PowersOfTwo, Self::All],
            (true, operator) if operator != Operator::ShiftCount => vec![Self::All, Self::PowersOfTwo],
            _ => vec![Self::All],
        }
    }
}

/// What is known so far.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// The range around the default in which everything agrees.
    pub hull: Range,
    /// Values in it that agree and that no fit was made from.
    pub confirmed: usize,
    /// Whether every unit has a fit.
    pub fitted: bool,
}

/// What to compile, wave by wave.
#[derive(Debug)]
pub struct Plan<'a> {
    constant: &'a Constant,
    domain: Domain,
    tried: BTreeSet<i64>,
    waves: usize,
}

impl<'a> Plan<'a> {
    /// For one constant.
    #[must_use]
    pub fn new(constant: &'a Constant, domain: Domain) -> Self {
        Self { constant, domain, tried: BTreeSet::from([constant.default]), waves: 0 }
    }

    /// The next values, when `standing` is known; none when that is enough.
    pub fn next(&mut self, standing: &Standing) -> Vec<i64> {
        let Standing { hull, confirmed, fitted } = *standing;
        let missing = UNSEEN.saturating_sub(confirmed) + if fitted { 0 } else { FITTED };
        let hopeless = !fitted && self.waves == WAVES_WITHOUT_FIT;
        if missing == 0 || self.waves == WAVES || hopeless {
            return Vec::new();
        }
        let candidates = match self.domain {
            Domain::PowersOfTwo => self.powers(hull),
            Domain::All if self.waves == 0 => self.first(),
            Domain::All => self.closer(hull),
        };
        self.waves += 1;
        let fresh = candidates.into_iter().filter(|&value| self.allowed(value));
        let mut wave: Vec<i64> = Vec::new();
        for value in fresh {
            if wave.len() < missing && !wave.contains(&value) {
                wave.push(value);
            }
        }
        self.tried.extend(&wave);
        wave
    }

    fn allowed(&self, value: i64) -> bool {
        let Constant { c_type, operator, .. } = self.constant;
        let sensible = match operator {
            Operator::ShiftCount => (1..=31).contains(&value),
            Operator::Divisor => value != 0,
            _ => true,
        };
        // Zero is a switch, not a magnitude; and nobody tries a negative of a positive.
        let sign = value != 0 && (value > 0) == (self.constant.default > 0) || self.constant.default == 0;
        !self.tried.contains(&value) && sensible && sign && c_type.fits(value)
    }

    /// Values that differ in parity, power and encoding; the largest, the
    /// smallest and 1 bound the range.
    fn first(&self) -> Vec<i64> {
        let Constant { default, c_type, operator, .. } = *self.constant;
        let chosen = choose_values(default, c_type, operator, Edges::Include);
        let mut values: Vec<i64> = chosen.fit.iter().take(FITTED).copied().collect();
        let smallest = chosen.unseen.iter().filter(|&&v| v > 1).min();
        values.extend([chosen.unseen.iter().max(), smallest].into_iter().flatten());
        values.extend(chosen.unseen.iter().filter(|&&v| v == 1));
        values.extend(chosen.fit.get(FITTED));
        values.extend(chosen.unseen);
        values
    }

    /// Powers of two, from the default outwards, up to those known not to agree.
    fn powers(&self, hull: Range) -> Vec<i64> {
        let above = self.tried.range(hull.max.saturating_add(1)..).next().copied();
        let below = self.tried.range(..hull.min).next_back().copied();
        let default = self.constant.default;
        let mut values = Vec::new();
        for n in 1..=20 {
            values.extend(default.checked_shl(n).filter(|&v| v > 0 && v >> n == default));
            values.push(default >> n);
        }
        values.retain(|&v| v >= 2 && above.is_none_or(|end| v < end) && below.is_none_or(|end| end < v));
        values
    }

    /// Values between those that are known not to agree, from the middle of
    /// what is open towards the default.
    fn closer(&self, hull: Range) -> Vec<i64> {
        let default = self.constant.default;
        let above = self.tried.range(hull.max.saturating_add(1)..).next().copied();
        let below = self.tried.range(..hull.min).next_back().copied();
        let middle = |end: i64, part: i64| default + (end - default) / part;
        let mut values = Vec::new();
        for part in [2, 4, 3, 8, 16] {
            values.extend(above.map(|end| middle(end, part)));
            values.extend(below.map(|end| middle(end, part)));
        }
        for step in 1..=6 {
            values.extend([default.saturating_add(step), default.saturating_sub(step)]);
        }
        values.retain(|&v| above.is_none_or(|end| v < end) && below.is_none_or(|end| end < v));
        values
    }
}
