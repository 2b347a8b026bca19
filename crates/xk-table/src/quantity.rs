//! A value as a user writes it: `128`, `-1`, `0x40`, `4K`, `20ms`.
//!
//! In: text. Out: a number or an amount of time. Refuses text that is not a number, and unknown suffixes.
//! Does not check whether the number is in a range, nor whether a constant is an amount of time
//! (`unit_of_measure.rs`).

use std::str::FromStr;

use thiserror::Error;

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeUnit {
    /// `ns`.
    Nanoseconds,
    /// `us`.
    Microseconds,
    /// `ms`.
    Milliseconds,
    /// `s`.
    Seconds,
}

impl TimeUnit {
    /// How it is written.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            TimeUnit::Nanoseconds => "ns",
            TimeUnit::Microseconds => "us",
            TimeUnit::Milliseconds => "ms",
            TimeUnit::Seconds => "s",
        }
    }

    /// Nanoseconds in one.
    #[must_use]
    pub fn nanoseconds(self) -> i128 {
        match self {
            TimeUnit::Nanoseconds => 1,
            TimeUnit::Microseconds => 1_000,
            TimeUnit::Milliseconds => 1_000_000,
            TimeUnit::Seconds => 1_000_000_000,
        }
    }

    /// The unit written `suffix`.
    #[must_use]
    pub fn of_suffix(suffix: &str) -> Option<Self> {
        [Self::Nanoseconds, Self::Microseconds, Self::Milliseconds, Self::Seconds]
            .into_iter()
            .find(|unit| unit.suffix() == suffix)
    }
}

/// A number, or an amount of time. A number of more than 128 bits becomes the largest one of 128 bits: no range
/// contains either of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// A number in the constant's own unit of measure.
    Number(i128),
    /// An amount of time.
    Time(i128, TimeUnit),
}

/// Why a text is no value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// It does not begin with digits.
    #[error("`{text}` is not a whole number; write for example 128, -1, 0x40, 4K or 20ms")]
    NotNumber {
        /// The text.
        text: String,
    },
    /// It has a decimal fraction.
    #[error("`{text}` is not a whole number; use a smaller unit (1500us for 1.5ms)")]
    Fraction {
        /// The text.
        text: String,
    },
    /// Something unknown follows the number.
    #[error("`{text}`: unknown suffix `{suffix}`; known are K, M, G (times 1024) and ns, us, ms, s")]
    Suffix {
        /// The text.
        text: String,
        /// What follows the number.
        suffix: String,
    },
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text.trim())
    }
}

fn parse(text: &str) -> Result<Quantity, QuantityError> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, rest) = match rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
        Some(rest) => (16, rest),
        None => (10, rest),
    };
    let end = rest.find(|c: char| !c.is_digit(radix)).unwrap_or(rest.len());
    let (digits, suffix) = rest.split_at(end);
    if digits.is_empty() {
        return Err(QuantityError::NotNumber { text: text.into() });
    }
    if suffix.starts_with('.') {
        return Err(QuantityError::Fraction { text: text.into() });
    }
    let number = digits
        .chars()
        .filter_map(|c| c.to_digit(radix))
        .fold(0i128, |sum, digit| sum.saturating_mul(i128::from(radix)).saturating_add(i128::from(digit)));
    let number = if negative { -number } else { number };
    let scaled = |shift: u32| Ok(Quantity::Number(number.saturating_mul(1 << shift)));
    match suffix {
        "" => scaled(0),
        "K" => scaled(10),
        "M" => scaled(20),
        "G" => scaled(30),
        _ => TimeUnit::of_suffix(suffix)
            .map(|unit| Quantity::Time(number, unit))
            .ok_or_else(|| QuantityError::Suffix { text: text.into(), suffix: suffix.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Quantity::{Number, Time};

    fn read(text: &str) -> Result<Quantity, QuantityError> {
        text.parse()
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_may_be_negative() {
        for (text, value) in [("128", 128), ("-1", -1), ("+7", 7), ("0x40", 64), ("-0xFf", -255), (" 5 ", 5)] {
            assert_eq!(read(text), Ok(Number(value)), "{text}");
        }
    }

    #[test]
    fn suffixes_scale_or_name_a_unit() {
        assert_eq!(read("4K"), Ok(Number(4096)));
        assert_eq!(read("-2M"), Ok(Number(-2 << 20)));
        assert_eq!(read("1G"), Ok(Number(1 << 30)));
        assert_eq!(read("0x10K"), Ok(Number(16384)));
        assert_eq!(read("20ms"), Ok(Time(20, TimeUnit::Milliseconds)));
        assert_eq!(read("3s"), Ok(Time(3, TimeUnit::Seconds)));
    }

    #[test]
    fn what_fits_nowhere_is_still_a_number() {
        assert_eq!(read("9223372036854775808"), Ok(Number(1 << 63)));
        assert_eq!(read(&"9".repeat(100)), Ok(Number(i128::MAX)));
        assert_eq!(read("170141183460469231731687303715884105727G"), Ok(Number(i128::MAX)));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "-", "x", "0x", "12q", "4k", "4KB", "1.5ms", "1.5", "5 ms", "ten", "--5", "1e3"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read("12q").is_err_and(|error| error.to_string().contains("unknown suffix `q`")));
    }
}
