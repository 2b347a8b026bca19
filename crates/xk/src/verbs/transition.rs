//! How values change: what `xk set` and `xk unset` have in common.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use xk_runtime::{Change, Device, Error as RuntimeError, Mode, Outcome, State, Transition, TuneStatus};
use xk_table::ScopeTable;

use crate::context::Tables;
use crate::exit::{Exit, Failure, Result};
use crate::tunes::{title, title_of};

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

/// Between two looks at tunes that end.
const PAUSE: Duration = Duration::from_millis(50);

/// Options of a transition.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// When threads switch to the new value (default: the weakest mode that the constant needs)
    #[arg(long, value_enum)]
    mode: Option<Wanted>,
    /// Give up after this time; the old values stay in force
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    timeout: Duration,
    /// Do not wait for these threads, whose stacks cannot be read; old and new values may meet in them
    #[arg(long, value_name = "THREAD", value_delimiter = ',')]
    ignore_unreadable: Vec<i32>,
}

impl Options {
    /// The mode to use where the tables ask for `needed`; a warning when it is weaker.
    ///
    /// # Errors
    /// When one of `tables` allows no weaker one, or no thread to be left out.
    pub fn mode<'a>(&self, needed: Mode, tables: impl IntoIterator<Item = &'a ScopeTable>) -> Result<Mode> {
        let mode = self.mode.map_or(needed, Mode::from);
        for table in tables {
            strong_enough(table, mode)?;
            self.all_threads(table)?;
        }
        if mode < needed {
            eprintln!(
                "warning: mode {mode} is weaker than {needed}, which these constants need: \
                 old and new values may be mixed for a moment"
            );
        }
        Ok(mode)
    }

    /// Where an update tests a number for order, no thread may be left out, for the reason of [`strong_enough`].
    fn all_threads(&self, table: &ScopeTable) -> Result {
        if self.ignore_unreadable.is_empty() || !table.tests_for_order() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{} changes when every thread was looked at: a thread may hold a number that has passed the value, and the \
             code, which tests for equality, may never stop counting; leave out --ignore-unreadable",
            title(&table.constant)
        )))
    }

    /// Whether threads are to be left out of account.
    pub fn leaves_out(&self) -> bool {
        !self.ignore_unreadable.is_empty()
    }

    /// Refuses what only the table of `tune`, which is gone, says to be sound.
    ///
    /// # Errors
    /// When a mode is weaker than the tune's, or a thread is to be left out.
    pub fn without_table(&self, tune: &TuneStatus, mode: Mode) -> Result {
        if mode < tune.mode {
            return Err(Failure::error(format!(
                "{} was changed in mode {}, and its scope table, which says whether mode {mode} is enough, is gone: leave \
                 out the mode; nothing was changed",
                tune.name, tune.mode
            )));
        }
        if self.leaves_out() {
            return Err(Failure::error(format!(
                "{}: its scope table, which says whether a thread may be left out, is gone: leave out \
                 --ignore-unreadable; nothing was changed",
                tune.name
            )));
        }
        Ok(())
    }

    /// Tunes that are `wanted` and whose process has ended may be waiting for the very threads that are to be left out,
    /// for ever. They wait for them no longer; returns when these tunes are gone.
    ///
    /// # Errors
    /// When a thread may not be left out, or other threads are waited for longer than the bound.
    pub fn finish(&self, device: &Device, tables: &Tables, wanted: impl Fn(&TuneStatus) -> bool) -> Result {
        if !self.leaves_out() {
            return Ok(());
        }
        let started = Instant::now();
        let going = || -> Result<Vec<TuneStatus>> {
            let tunes = device.tunes()?;
            Ok(tunes.into_iter().filter(|tune| tune.state == State::Unloading && wanted(tune)).collect())
        };
        let mut left = going()?;
        for tune in &left {
            tables
                .of_tune(&tune.name)
                .map_or_else(|| self.without_table(tune, tune.mode), |table| self.all_threads(table))?;
            for &thread in &self.ignore_unreadable {
                match device.ignore(tune.id, thread) {
                    // It has gone meanwhile.
                    Ok(()) | Err(RuntimeError::NoSuchTune(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        while let Some(tune) = left.first() {
            if started.elapsed() > self.timeout {
                return Err(Failure::new(
                    Exit::Blocked,
                    format!(
                        "{} still goes back to its default, and other threads are in the way: `xk status` names them; \
                         nothing was changed",
                        title_of(tune, tables)
                    ),
                ));
            }
            std::thread::sleep(PAUSE);
            left = going()?;
        }
        Ok(())
    }

    /// Makes the changes as one.
    pub fn run(
        &self,
        device: &Device,
        changes: &[Change],
        mode: Mode,
    ) -> std::result::Result<Transition, RuntimeError> {
        for &thread in &self.ignore_unreadable {
            for change in changes {
                device.ignore(change.id, thread)?;
            }
            eprintln!("warning: {}", uncovered(thread));
        }
        device.transition(changes, mode, self.timeout)
    }
}

/// Whether the value of `table` may change in `mode`: where an update tests a number for order, a thread may hold one
/// that has passed the value, and the code itself would never meet it.
///
/// # Errors
/// If it may not.
pub fn strong_enough(table: &ScopeTable, mode: Mode) -> Result {
    if mode >= table.mode || !table.tests_for_order() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{} changes in mode {} or a stronger one: in mode {mode} a thread may hold a number that has passed the value, \
         and the code, which tests for equality, may never stop counting; leave out the mode",
        title(&table.constant),
        table.mode
    )))
}

/// What is not promised of this thread.
pub fn uncovered(thread: i32) -> String {
    format!("thread {thread} is not waited for, as its stack cannot be read: old and new values may be mixed in it")
}

/// Why a text is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// What follows the number is unknown.
    #[error("`{unit}` is no unit of time: ms, s, m, h or d")]
    Unit {
        /// What follows the number.
        unit: String,
    },
    /// It does not begin with a number.
    #[error("not a time; write for example 500ms, 5s or 10m")]
    Number(#[from] std::num::ParseIntError),
    /// It exceeds the range of a [`Duration`] in milliseconds.
    #[error("longer than a clock can count")]
    TooLong,
}

/// `500ms`, `5s`, `10m`, `2h`; a plain number is seconds.
///
/// # Errors
/// [`TimeError`].
pub fn parse_time(text: &str) -> std::result::Result<Duration, TimeError> {
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
            "all threads switched in {:.1} ms (mode {mode}, {} stop{})",
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
    fn what_tests_for_order_changes_in_no_weaker_mode() {
        let mut table = crate::fixture::table();
        table.mode = Mode::Task;
        let options = |mode| Options { mode, timeout: Duration::ZERO, ignore_unreadable: Vec::new() };
        let now = options(Some(Wanted::Now));
        assert_eq!(now.mode(Mode::Task, [&table]).ok(), Some(Mode::Now), "with a warning");
        table.spans[0].assembly[0].order = Some(xk_table::Order::AtLeast);
        let refused = now.mode(Mode::Task, [&table]).map_err(|failure| failure.message);
        assert!(refused.as_ref().is_err_and(|why| why.contains("mode task or a stronger one")), "{refused:?}");
        for enough in [None, Some(Wanted::Task), Some(Wanted::Global)] {
            assert!(options(enough).mode(Mode::Task, [&table]).is_ok());
        }
        let without = Options { ignore_unreadable: vec![1], ..options(None) };
        let refused = without.mode(Mode::Task, [&table]).map_err(|failure| failure.message);
        assert!(refused.as_ref().is_err_and(|why| why.contains("leave out --ignore-unreadable")), "{refused:?}");
        table.spans[0].assembly[0].order = None;
        assert!(without.mode(Mode::Task, [&table]).is_ok());
    }

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
