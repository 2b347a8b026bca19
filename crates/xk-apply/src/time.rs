//! An amount of time as a user writes it: `500ms`, `5s`, `10m`.

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};
use thiserror::Error;

/// Why a text is not a time.
#[derive(Debug, Clone, Error)]
pub enum TimeError {
    /// It is not a number with a unit.
    #[error("not a time; write for example 500ms, 5s or 10m")]
    Syntax(#[source] jiff::Error),
    /// It is in months or years.
    #[error("months and years differ in length; the units of time are ms, s, m, h and d")]
    NoFixedLength(#[source] jiff::Error),
    /// It is negative.
    #[error("{0:#} is before now; write for example 500ms, 5s or 10m")]
    Negative(SignedDuration),
}

/// Parses `500ms`, `5s`, `10m`, `2h`, `1d`. A plain number is in seconds. Units may also be written as words, and several
/// may be combined: `1 hour 30 minutes`.
///
/// # Errors
/// [`TimeError`].
pub fn parse_time(text: &str) -> Result<Duration, TimeError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let span: Span = if is_number { format!("{text}s").parse() } else { text.parse() }.map_err(TimeError::Syntax)?;
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(TimeError::NoFixedLength)?;
    Duration::try_from(signed).map_err(|_| TimeError::Negative(signed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, milliseconds) in [
            ("5", 5_000),
            ("0", 0),
            ("5s", 5_000),
            ("250ms", 250),
            ("10m", 600_000),
            ("10min", 600_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1.5s", 1_500),
            ("1 hour", 3_600_000),
            ("2h30m", 9_000_000),
        ] {
            assert_eq!(parse_time(text).unwrap(), Duration::from_millis(milliseconds), "{text}");
        }
        for text in ["", "m", "s", "-1s", "5M", "5 fortnights", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        assert!(parse_time("5y").unwrap_err().to_string().contains("differ in length"));
    }
}
