//! An amount of time as a user writes it: `500ms`, `5s`, `10m`.

use std::time::Duration;

use thiserror::Error;

/// Why a text is not a time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TimeError {
    /// The unit is unknown.
    #[error("`{unit}` is not a unit of time: ms, s, m, h or d")]
    Unit {
        /// The text after the number.
        unit: String,
    },
    /// It does not begin with a number.
    #[error("not a time; write for example 500ms, 5s or 10m")]
    Number(#[from] std::num::ParseIntError),
    /// It exceeds the range of a [`Duration`] in milliseconds.
    #[error("longer than a clock can count")]
    TooLong,
}

/// Parses `500ms`, `5s`, `10m`, `2h`, `1d`. A plain number is in seconds.
///
/// # Errors
/// [`TimeError`].
pub fn parse_time(text: &str) -> Result<Duration, TimeError> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(TimeError::Unit { unit: unit.to_owned() }),
    };
    let number: u64 = number.parse()?;
    number.checked_mul(milliseconds).map(Duration::from_millis).ok_or(TimeError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_time("2h"), Ok(Duration::from_secs(7200)));
        for text in ["", "m", "-1s", "1.5s", "5 s", "5y", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
