//! How values change: what `xk set` and `xk unset` have in common.

use std::time::Duration;

use clap::ValueEnum;
use xk_runtime::{Change, Device, Error as RuntimeError, Mode, Outcome, Transition};

use crate::exit::{Exit, Failure};

/// When threads go over to another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    /// At once, whatever a thread is doing with the old value
    Now,
    /// Each thread when it uses the old value no longer
    Task,
    /// All at one moment, when no thread uses the old value
    Global,
}

impl From<Wanted> for Mode {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::Now => Self::Now,
            Wanted::Task => Self::Task,
            Wanted::Global => Self::Global,
        }
    }
}

/// Options of a transition.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// When threads go over to the new value (default: the weakest that the constant needs)
    #[arg(long, value_enum)]
    mode: Option<Wanted>,
    /// Give up after so long, with the old values in force
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    timeout: Duration,
}

impl Options {
    /// The mode to use where the tables ask for `needed`; a warning when it is weaker.
    pub fn mode(&self, needed: Mode) -> Mode {
        let Some(wanted) = self.mode else { return needed };
        let mode = Mode::from(wanted);
        if mode < needed {
            eprintln!(
                "warning: mode {mode} is weaker than {needed}, which these constants need: \
                 old and new values may be mixed for a moment"
            );
        }
        mode
    }

    /// Makes the changes as one.
    pub fn run(
        &self,
        device: &Device,
        changes: &[Change],
        mode: Mode,
    ) -> std::result::Result<Transition, RuntimeError> {
        device.transition(changes, mode, self.timeout)
    }
}

/// `500ms`, `5s`, `10m`, `2h`; a plain number is seconds.
pub fn parse_time(text: &str) -> std::result::Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("`{unit}` is no unit of time: ms, s, m, h or d")),
    };
    let number: u64 = number.parse().map_err(|_| "not a time; write for example 500ms, 5s or 10m".to_owned())?;
    number.checked_mul(milliseconds).map(Duration::from_millis).ok_or_else(|| "longer than a clock can count".into())
}

/// Says who was in the way, and what is in force.
pub fn failure(error: RuntimeError) -> Failure {
    let RuntimeError::Blocked { outcome, reason, report } = error else { return error.into() };
    let now = match outcome {
        Outcome::Unchanged => "the old values are in force everywhere",
        Outcome::Reverting => {
            "the old values are in force, but for these threads, which keep the new ones until they leave \
             (`xk status` shows when)"
        }
    };
    let stacks = if report.is_empty() { String::new() } else { format!("\n{}", report.trim_end()) };
    Failure::new(
        Exit::Blocked,
        format!("{reason}; {now}. Repeat it, with a longer --timeout if these threads sleep for long:{stacks}"),
    )
}

/// How it went.
pub fn describe(done: &Transition, mode: Mode) -> String {
    match mode {
        Mode::Now => "changed at once (mode now)".into(),
        _ => format!(
            "every thread had gone over after {:.1} ms (mode {mode}, {} stop{})",
            done.elapsed.as_secs_f64() * 1e3,
            done.stops,
            if done.stops == 1 { "" } else { "s" }
        ),
    }
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
