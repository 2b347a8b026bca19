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
    /// All, unless the first that are tried tell that only powers of two may agree.
    Hasty,
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
            (true, operator) if operator != Operator::ShiftCount => vec![Self::Hasty, Self::PowersOfTwo, Self::All],
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
    /// Whether one of those that agree in every unit is no power of two.
    pub others: bool,
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
        let Standing { hull, confirmed, others, fitted } = *standing;
        if self.tried.len() == 1 {
            // Two values tell most of what makes a constant unusable.
            return self.pick(hull, FITTED);
        }
        let begun = self.waves == 0;
        let missing = UNSEEN.saturating_sub(confirmed) + if fitted || begun { 0 } else { FITTED };
        let hopeless = !fitted && self.waves == WAVES_WITHOUT_FIT;
        let in_vain = self.domain == Domain::Hasty && !begun && !others;
        if missing == 0 || self.waves == WAVES || hopeless || in_vain {
            return Vec::new();
        }
        let wave = self.pick(hull, missing);
        self.waves += 1;
        wave
    }

    /// What follows the first wave if that says nothing against it: a processor that
    /// would wait for the rest of a wave can begin with it.
    #[must_use]
    pub fn ahead(&self, hull: Range) -> Vec<i64> {
        if self.waves > 0 {
            return Vec::new();
        }
        self.candidates(hull, UNSEEN)
    }

    /// As many values as are wanted, of those that come next.
    fn pick(&mut self, hull: Range, wanted: usize) -> Vec<i64> {
        let wave = self.candidates(hull, wanted);
        self.tried.extend(&wave);
        wave
    }

    fn candidates(&self, hull: Range, wanted: usize) -> Vec<i64> {
        let candidates = match self.domain {
            Domain::PowersOfTwo => self.powers(hull),
            Domain::All | Domain::Hasty if self.waves == 0 => self.first(),
            Domain::All | Domain::Hasty => self.closer(hull),
        };
        let fresh = candidates.into_iter().filter(|&value| self.allowed(value));
        let mut wave: Vec<i64> = Vec::new();
        for value in fresh {
            if wave.len() < wanted && !wave.contains(&value) {
                wave.push(value);
            }
        }
        wave
    }

    fn allowed(&self, value: i64) -> bool {
        let Constant { c_type, operator, .. } = self.constant;
        let sensible = match operator {
            Operator::ShiftCount => (1..=31).contains(&value),
            Operator::Divisor => value != 0,
            _ => true,
        };
        // Zero is a switch, not an amount; and the negative of a positive default is of no use.
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
        // The first two say nothing against others as long as they are all there is.
        let bounds = self.waves > 0;
        let above = self.tried.range(hull.max.saturating_add(1)..).next().copied().filter(|_| bounds);
        let below = self.tried.range(..hull.min).next_back().copied().filter(|_| bounds);
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

#[cfg(test)]
mod tests {
    use super::*;
    use xk_const::{CType, ConstId, Form, SourceRange};

    fn constant(default: i64, operator: Operator) -> Constant {
        let written = default.to_string();
        Constant {
            id: ConstId { path: "x.h".into(), line: 1, value: written.clone(), index: 0 },
            name: None,
            text: String::new(),
            token: written.clone(),
            form: Form::Literal,
            default,
            c_type: CType::Int,
            operator,
            range: SourceRange { path: "x.h".into(), line: 1, start: 0, end: written.len(), written },
            witness: String::new(),
        }
    }

    fn standing(min: i64, max: i64, others: bool) -> Standing {
        Standing { hull: Range::of(min, max), confirmed: 0, others, fitted: true }
    }

    #[test]
    fn two_values_come_first_and_no_value_twice() {
        let constant = constant(100, Operator::Other);
        let mut plan = Plan::new(&constant, Domain::All);
        let first = plan.next(&Standing { fitted: false, ..standing(100, 100, false) });
        assert_eq!(first.len(), FITTED);
        let ahead = plan.ahead(Range::of(100, 100));
        let second = plan.next(&standing(100, 100, true));
        assert_eq!(second.len(), UNSEEN);
        assert_eq!(ahead, second, "what is begun early is what is wanted");
        assert!(plan.ahead(Range::of(100, 100)).is_empty(), "later waves depend on what agreed");
        assert!(!second.iter().any(|value| first.contains(value) || *value == 100));
        let enough = Standing { confirmed: UNSEEN, ..standing(1, 1000, true) };
        assert!(plan.next(&enough).is_empty());
    }

    #[test]
    fn powers_of_two_go_on_when_the_first_two_do_not_match() {
        let constant = constant(8, Operator::Divisor);
        let mut plan = Plan::new(&constant, Domain::PowersOfTwo);
        let nothing = Standing { fitted: false, ..standing(8, 8, false) };
        assert_eq!(plan.next(&nothing), [16, 4]);
        assert_eq!(plan.next(&nothing), [32, 2, 64, 128, 256]);
    }

    #[test]
    fn haste_ends_where_powers_of_two_alone_agree() {
        let constant = constant(1024, Operator::Multiplier);
        assert_eq!(Domain::of(&constant), [Domain::Hasty, Domain::PowersOfTwo, Domain::All]);
        for (domain, others, ends) in
            [(Domain::Hasty, false, true), (Domain::Hasty, true, false), (Domain::All, false, false)]
        {
            let mut plan = Plan::new(&constant, domain);
            for _ in 0..2 {
                assert!(!plan.next(&standing(128, 2048, others)).is_empty(), "{domain:?}");
            }
            assert_eq!(plan.next(&standing(128, 2048, others)).is_empty(), ends, "{domain:?} {others}");
        }
    }
}
