//! The levels of one parameter.
//!
//! In: a range and its steps, or choices. Out: the levels, in order. It refuses empty ranges, and ranges with more levels
//! than a search can try.

use serde::{Deserialize, Serialize};

use xk_table::Values;

use crate::Value;

/// The largest number of levels of a parameter.
const MOST: usize = 4096;

/// How to step through a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Steps {
    /// By addition of the step.
    Linear,
    /// By multiplication with the step, 2 by default.
    Exponential,
}

/// Why a range has no levels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The range is empty.
    #[error("min = {min} is greater than max = {max}")]
    Empty {
        /// The smallest value.
        min: i64,
        /// The largest value.
        max: i64,
    },
    /// The step never reaches another value.
    #[error("step = {0}: linear steps add at least 1")]
    LinearStep(i64),
    /// The factor never reaches another value.
    #[error("step = {0}: exponential steps multiply by 2 or more")]
    ExponentialStep(i64),
    /// Multiples of a negative number do not grow.
    #[error("min = {0}: exponential steps cannot start below 0")]
    BelowZero(i64),
    /// More levels than a search can try.
    #[error("the range from {min} to {max} has more than {MOST} values: use larger steps")]
    TooMany {
        /// The smallest value.
        min: i64,
        /// The largest value.
        max: i64,
    },
}

/// The levels from `min` to `max`, including both. `step` is a summand or a factor.
///
/// # Errors
/// [`RangeError`].
pub fn numbers(min: i64, max: i64, steps: Steps, step: i64) -> Result<Vec<Value>, RangeError> {
    if min > max {
        return Err(RangeError::Empty { min, max });
    }
    let next: Box<dyn Fn(i64) -> Option<i64>> = match steps {
        Steps::Linear if step < 1 => return Err(RangeError::LinearStep(step)),
        Steps::Exponential if step < 2 => return Err(RangeError::ExponentialStep(step)),
        Steps::Exponential if min < 0 => return Err(RangeError::BelowZero(min)),
        Steps::Linear => Box::new(move |value| value.checked_add(step)),
        // A multiple of 0 is 0, so 1 is next.
        Steps::Exponential => Box::new(move |value| if value == 0 { Some(1) } else { value.checked_mul(step) }),
    };
    let mut levels = vec![min];
    let mut value = min;
    while let Some(following) = next(value).filter(|&following| following < max) {
        if levels.len() == MOST {
            return Err(RangeError::TooMany { min, max });
        }
        levels.push(following);
        value = following;
    }
    if max > min {
        levels.push(max);
    }
    Ok(levels.into_iter().map(Value::Number).collect())
}

/// Those of `levels` that a table accepts. If only single values were compiled, steps rarely hit them, so all compiled values
/// between the first and the last level are offered instead.
#[must_use]
pub fn accepted(mut levels: Vec<Value>, values: &Values) -> Vec<Value> {
    let number = |level: &Value| if let Value::Number(number) = level { Some(*number) } else { None };
    let ends = levels.first().and_then(number).zip(levels.last().and_then(number));
    match (values.proved, ends) {
        (None, Some((first, last))) => {
            let within = values.compiled.iter().filter(|&&value| first <= value && value <= last);
            within.map(|&value| Value::Number(value)).collect()
        }
        _ => {
            levels.retain(|level| number(level).is_some_and(|number| values.contains(number)));
            levels
        }
    }
}

/// `levels` including `default`, and the index of `default`. Numbers keep their order.
#[must_use]
pub fn with_default(mut levels: Vec<Value>, default: &Value, ordered: bool) -> (Vec<Value>, usize) {
    if let Some(index) = levels.iter().position(|level| level == default) {
        return (levels, index);
    }
    let index = if ordered { levels.iter().position(|level| level > default).unwrap_or(levels.len()) } else { 0 };
    levels.insert(index, default.clone());
    (levels, index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(min: i64, max: i64, steps: Steps, step: i64) -> Vec<i64> {
        let levels = numbers(min, max, steps, step).unwrap();
        levels.iter().map(|level| if let Value::Number(number) = level { *number } else { panic!() }).collect()
    }

    #[test]
    fn both_ends_are_levels() {
        assert_eq!(of(1, 10, Steps::Linear, 4), [1, 5, 9, 10]);
        assert_eq!(of(16, 128, Steps::Exponential, 2), [16, 32, 64, 128]);
        assert_eq!(of(16, 100, Steps::Exponential, 2), [16, 32, 64, 100]);
        assert_eq!(of(0, 4, Steps::Exponential, 2), [0, 1, 2, 4]);
        assert_eq!(of(7, 7, Steps::Linear, 1), [7]);
        assert_eq!(of(i64::MAX - 1, i64::MAX, Steps::Exponential, 2), [i64::MAX - 1, i64::MAX]);
    }

    #[test]
    fn ranges_without_values_are_refused() {
        assert!(numbers(2, 1, Steps::Linear, 1).unwrap_err().to_string().contains("greater"));
        assert!(numbers(0, 9, Steps::Linear, 0).is_err());
        assert!(numbers(1, 9, Steps::Exponential, 1).is_err());
        assert!(numbers(-1, 9, Steps::Exponential, 2).is_err());
        assert!(numbers(0, i64::MAX, Steps::Linear, 1).unwrap_err().to_string().contains("larger steps"));
    }

    #[test]
    fn only_what_may_be_set_is_offered() {
        let offered = |values: &Values, (min, max)| -> Vec<String> {
            let levels = numbers(min, max, Steps::Exponential, 2).unwrap();
            accepted(levels, values).iter().map(ToString::to_string).collect()
        };
        assert_eq!(offered(&Values::proved(3, 40), (1, 64)), ["4", "8", "16", "32"]);
        let both = Values { compiled: vec![50, 64], ..Values::proved(3, 40) };
        assert_eq!(offered(&both, (1, 64)), ["4", "8", "16", "32", "64"]);
        let compiled = Values::compiled([5, 20, 40, 80]);
        assert_eq!(offered(&compiled, (8, 64)), ["20", "40"]);
        assert!(offered(&compiled, (21, 39)).is_empty());
        assert!(accepted(vec![Value::parse("none")], &Values::proved(3, 40)).is_empty());
        assert!(accepted(vec![Value::parse("none")], &compiled).is_empty());
    }

    #[test]
    fn the_default_takes_its_place() {
        let numbers = numbers(16, 128, Steps::Exponential, 2).unwrap();
        assert_eq!(with_default(numbers.clone(), &Value::Number(100), true).1, 3);
        assert_eq!(with_default(numbers.clone(), &Value::Number(8), true).1, 0);
        assert_eq!(with_default(numbers.clone(), &Value::Number(999), true).1, 4);
        assert_eq!(with_default(numbers, &Value::Number(32), true).1, 1);
    }
}
