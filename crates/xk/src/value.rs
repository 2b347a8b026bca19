//! The value that a person asks for: `128`, `-1`, `0x40`, `4K`, `20ms`.
//!
//! In: text. Out: a number or an amount of time. Refuses text that is no number, and unknown suffixes.
//! Does not check whether the number is in a range, nor whether a constant is an amount of time (`unit.rs`).

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
    pub fn suffix(self) -> &'static str {
        match self {
            TimeUnit::Nanoseconds => "ns",
            TimeUnit::Microseconds => "us",
            TimeUnit::Milliseconds => "ms",
            TimeUnit::Seconds => "s",
        }
    }

    /// Nanoseconds in one.
    pub fn nanoseconds(self) -> i128 {
        match self {
            TimeUnit::Nanoseconds => 1,
            TimeUnit::Microseconds => 1_000,
            TimeUnit::Milliseconds => 1_000_000,
            TimeUnit::Seconds => 1_000_000_000,
        }
    }

    /// The unit written `suffix`.
    pub fn of_suffix(suffix: &str) -> Option<Self> {
        [Self::Nanoseconds, Self::Microseconds, Self::Milliseconds, Self::Seconds]
            .into_iter()
            .find(|unit| unit.suffix() == suffix)
    }
}

/// What was asked for. Numbers too large for 128 bits are kept as the largest:
/// no range holds either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// A number in the constant's own unit.
    Number(i128),
    /// An amount of time.
    Time(i128, TimeUnit),
}

/// Reads a value; the error is a sentence.
pub fn parse(text: &str) -> Result<Quantity, String> {
    let text = text.trim();
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
        return Err(format!("`{text}` is not a whole number; write for example 128, -1, 0x40, 4K or 20ms"));
    }
    if suffix.starts_with('.') {
        return Err(format!("`{text}` is not a whole number; use a smaller unit (1500us for 1.5ms)"));
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
        _ => TimeUnit::of_suffix(suffix).map(|unit| Quantity::Time(number, unit)).ok_or_else(|| {
            format!("`{text}`: unknown suffix `{suffix}`; known are K, M, G (times 1024) and ns, us, ms, s")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Quantity::{Number, Time};

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_may_be_negative() {
        for (text, value) in [("128", 128), ("-1", -1), ("+7", 7), ("0x40", 64), ("-0xFf", -255), (" 5 ", 5)] {
            assert_eq!(parse(text), Ok(Number(value)), "{text}");
        }
    }

    #[test]
    fn suffixes_scale_or_name_a_unit() {
        assert_eq!(parse("4K"), Ok(Number(4096)));
        assert_eq!(parse("-2M"), Ok(Number(-2 << 20)));
        assert_eq!(parse("1G"), Ok(Number(1 << 30)));
        assert_eq!(parse("0x10K"), Ok(Number(16384)));
        assert_eq!(parse("20ms"), Ok(Time(20, TimeUnit::Milliseconds)));
        assert_eq!(parse("3s"), Ok(Time(3, TimeUnit::Seconds)));
    }

    #[test]
    fn what_fits_nowhere_is_still_a_number() {
        assert_eq!(parse("9223372036854775808"), Ok(Number(1 << 63)));
        assert_eq!(parse(&"9".repeat(100)), Ok(Number(i128::MAX)));
        assert_eq!(parse("170141183460469231731687303715884105727G"), Ok(Number(i128::MAX)));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "-", "x", "0x", "12q", "4k", "4KB", "1.5ms", "1.5", "5 ms", "ten", "--5", "1e3"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("12q").is_err_and(|sentence| sentence.contains("unknown suffix `q`")));
    }
}
