//! Which values of a constant may be set. In: a range that one theorem covers, and values
//! that were compiled one by one. Out: whether a value is among them. Nothing is accepted
//! because it lies between two others.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The largest number of compiled values of one table (`XK_MAX_VALUES`).
pub const MAX_VALUES: usize = 4096;

/// All values from `min` to `max`: both bounds included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
}

impl Range {
    /// All values from `min` to `max`.
    #[must_use]
    pub const fn of(min: i64, max: i64) -> Self {
        Self { min, max }
    }

    /// Whether `value` lies in the range.
    #[must_use]
    pub const fn contains(&self, value: i64) -> bool {
        self.min <= value && value <= self.max
    }

    /// The values around `inside` for which `holds`; none if it does not hold there. What does not hold for a
    /// value must not hold for any that is further away.
    #[must_use]
    pub fn around(self, inside: i64, holds: impl Fn(i64) -> bool) -> Option<Self> {
        let whole = self.contains(inside) && holds(inside);
        whole.then(|| Self::of(furthest(inside, self.min, &holds), furthest(inside, self.max, &holds)))
    }
}

/// The value on the way from `good`, for which `holds`, to `end` up to which it does: nothing holds again after
/// a value for which it does not.
pub fn furthest(good: i64, end: i64, holds: impl Fn(i64) -> bool) -> i64 {
    if holds(end) {
        return end;
    }
    let (mut good, mut bad) = (i128::from(good), i128::from(end));
    while (good - bad).abs() > 1 {
        let middle = (good + bad) / 2;
        if holds(middle as i64) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good as i64
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.min, self.max)
    }
}

/// The values that may be set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Values {
    /// Every value from min to max: shown by one theorem (docs/proofs.md).
    pub proved: Option<Range>,
    /// Why not more is proved, if nothing or less than the constant's type allows is.
    pub unproved: Option<String>,
    /// Values outside of `proved`, ascending, each compiled and compared with the deployed
    /// code.
    pub compiled: Vec<i64>,
    /// Values that were compiled and are not accepted, with the first difference.
    pub refused: BTreeMap<i64, String>,
}

impl Values {
    /// All values from `min` to `max`, proved.
    #[must_use]
    pub fn proved(min: i64, max: i64) -> Self {
        Self { proved: Some(Range::of(min, max)), ..Self::default() }
    }

    /// These values alone, each compiled; they must ascend.
    #[must_use]
    pub fn compiled(values: impl Into<Vec<i64>>) -> Self {
        Self { compiled: values.into(), ..Self::default() }
    }

    /// Whether `value` may be set.
    #[must_use]
    pub fn contains(&self, value: i64) -> bool {
        self.is_proved(value) || self.compiled.binary_search(&value).is_ok()
    }

    /// Whether `value` is one of those that are shown for all.
    #[must_use]
    pub fn is_proved(&self, value: i64) -> bool {
        self.proved.is_some_and(|range| range.contains(value))
    }

    /// The smallest range that holds all of them; one that holds nothing when there are
    /// none. That a value lies in it does not mean that it may be set.
    #[must_use]
    pub fn hull(&self) -> Range {
        let none = Range::of(i64::MAX, i64::MIN);
        let proved = self.proved.unwrap_or(none);
        let first = self.compiled.first().copied().unwrap_or(none.min);
        let last = self.compiled.last().copied().unwrap_or(none.max);
        Range::of(proved.min.min(first), proved.max.max(last))
    }

    /// Only those that lie in `range` are left.
    pub fn keep_within(&mut self, range: Range) {
        let both = |proved: Range| Range::of(proved.min.max(range.min), proved.max.min(range.max));
        self.proved = self.proved.map(both).filter(|proved| proved.min <= proved.max);
        self.compiled.retain(|&value| range.contains(value));
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compiled: Vec<String> = self.compiled.iter().map(i64::to_string).collect();
        let compiled = compiled.join(", ");
        match (self.proved, self.compiled.is_empty()) {
            (Some(range), true) => write!(f, "{range} proved"),
            (Some(range), false) => write!(f, "{range} proved, {{{compiled}}} compiled"),
            (None, false) => write!(f, "{{{compiled}}} compiled"),
            (None, true) => f.write_str("no value"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> Values {
        Values { compiled: vec![-4, 128, 256], ..Values::proved(1, 100) }
    }

    #[test]
    fn what_is_neither_proved_nor_compiled_is_not_accepted() {
        let accepted = |values: &Values, these: &[i64]| these.iter().all(|&value| values.contains(value));
        let refused = |values: &Values, these: &[i64]| !these.iter().any(|&value| values.contains(value));
        assert!(accepted(&both(), &[-4, 1, 2, 99, 100, 128, 256]));
        assert!(refused(&both(), &[i64::MIN, -5, -3, 0, 101, 127, 129, 255, 257, i64::MAX]));
        let compiled = Values::compiled([20, 40, 80]);
        assert!(accepted(&compiled, &[20, 40, 80]));
        assert!(refused(&compiled, &[19, 21, 39, 41, 60, 79, 81]));
        let all = Values::proved(i64::MIN, i64::MAX);
        assert!(accepted(&all, &[i64::MIN, 0, i64::MAX]));
        assert!(refused(&Values::default(), &[i64::MIN, 0, i64::MAX]));
    }

    #[test]
    fn the_hull_holds_all_of_them() {
        assert_eq!(both().hull(), Range::of(-4, 256));
        assert_eq!(Values::proved(1, 100).hull(), Range::of(1, 100));
        assert_eq!(Values::compiled([20, 40, 80]).hull(), Range::of(20, 80));
        assert_eq!(Values { compiled: vec![50], ..Values::proved(60, 70) }.hull(), Range::of(50, 70));
        let nothing = Values::default().hull();
        assert!(![i64::MIN, 0, i64::MAX].iter().any(|&value| nothing.contains(value)));
    }

    #[test]
    fn they_are_named_by_what_shows_them() {
        assert_eq!(both().to_string(), "1..=100 proved, {-4, 128, 256} compiled");
        assert_eq!(Values::proved(1, 100).to_string(), "1..=100 proved");
        assert_eq!(Values::compiled([20, 40]).to_string(), "{20, 40} compiled");
        assert_eq!(Values::default().to_string(), "no value");
    }

    #[test]
    fn incoherent_values_are_refused() {
        assert_eq!(both().check(32), Ok(()));
        assert_eq!(Values::compiled([20, 40]).check(20), Ok(()));
        let refused = |values: Values, default: i64| values.check(default).unwrap_err().to_string();
        let compiled = |values: &[i64]| Values { compiled: values.into(), ..Values::proved(1, 100) };
        assert_eq!(refused(Values::proved(100, 1), 50), "100..=1 is no range of values");
        assert_eq!(refused(compiled(&[256, 128]), 32), "compiled values do not ascend: 256 is followed by 128");
        assert_eq!(refused(compiled(&[128, 128]), 32), "compiled values do not ascend: 128 is followed by 128");
        assert_eq!(refused(compiled(&[100, 128]), 32), "100 is both compiled and proved");
        assert_eq!(refused(both(), 127), "default 127 is not one of 1..=100 proved, {-4, 128, 256} compiled");
        assert_eq!(refused(Values::proved(5, 5), 5), "no value but the default 5");
        assert_eq!(refused(Values::compiled([5]), 5), "no value but the default 5");
        assert_eq!(refused(Values::default(), 5), "default 5 is not one of no value");
        let many: Vec<i64> = (0..=MAX_VALUES as i64).collect();
        assert_eq!(refused(Values::compiled(many), 5), "4097 compiled values, at most 4096 are allowed");
        for value in [50, 128] {
            let open = Values { refused: BTreeMap::from([(value, "f+0x4".into())]), ..both() };
            assert_eq!(refused(open, 32), format!("{value} is both refused and accepted"));
        }
        let beside = Values { refused: BTreeMap::from([(127, "f+0x4".into())]), ..both() };
        assert_eq!(beside.check(32), Ok(()));
    }
}
