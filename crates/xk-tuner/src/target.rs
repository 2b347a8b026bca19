//! What is optimised: one window of work, and the numbers that it comes to.
//!
//! A window is a command from its beginning to its end, or some time that passes while a service is at work. Numbers
//! are what the command prints (its last line, and lines before it that read `NAME = NUMBER`), the seconds that it
//! takes, and what running programs say when they are asked (`probe.rs`). One number leads; there may be others, of
//! which a front is kept, and limits on any of them.

mod command;
pub(crate) mod endpoint;
pub(crate) mod exposition;
mod probe;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::ebpf::{is_one_function, FunctionError};
use crate::history::{Goal, Objective};

pub(crate) use command::kill;
pub use endpoint::{AddressError, Endpoint};
pub use exposition::{ExpositionError, Selector, SelectorError};
pub use probe::{Kind, Probe};

/// What the number that leads is called, if it has no name; limits may always call it so.
pub const UNNAMED: &str = "target";

/// How often it is looked whether the window is still wanted.
const TICK: Duration = Duration::from_millis(50);

/// What a window is made of.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// A command for the shell.
    Command(String),
    /// Time, in which something else works.
    Time(Duration),
}

/// Which number leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lead {
    /// The one on the last line of the command.
    Number,
    /// The seconds that the command takes.
    Seconds,
    /// The one of this name.
    Named(String),
}

/// The window, and what is wanted of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The window.
    pub work: Work,
    /// What leads.
    pub lead: Lead,
    /// What it is called.
    pub name: String,
    /// Which way is better.
    pub goal: Goal,
    /// What else is wanted, by name.
    pub others: Vec<Objective>,
    /// What is asked for numbers.
    pub probes: Vec<Probe>,
    /// A longer window is a failure.
    pub timeout: Duration,
}

/// A hard limit on a number of the window, by its name; the one that leads is also called `target`.
#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    /// The name.
    pub name: String,
    /// No more than that.
    pub at_most: Option<f64>,
    /// No less than that.
    pub at_least: Option<f64>,
}

/// What one window said.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The number that is optimised.
    pub value: f64,
    /// The other numbers.
    pub named: BTreeMap<String, f64>,
    /// How long it took.
    pub took: Duration,
}

/// Why a window said nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TargetError {
    /// It did not end.
    #[error("it was still running after {:.1} s, and was killed", .0.as_secs_f64())]
    Timeout(Duration),
    /// It is not wanted any more.
    #[error("it was interrupted")]
    Interrupted,
    /// It ended badly.
    #[error("it failed ({how}){}", words(stderr))]
    Failed {
        /// With this status.
        how: String,
        /// The end of what it said.
        stderr: String,
    },
    /// It printed something else than a number that can be compared.
    #[error("{0}")]
    Nonsense(String),
    /// A program that was asked did not say its number.
    #[error("{0}")]
    Endpoint(String),
}

fn words(stderr: &str) -> String {
    if stderr.is_empty() {
        String::new()
    } else {
        format!(": {stderr}")
    }
}

/// Who wants to know of process groups, and whether a window is still wanted.
pub trait Watch {
    /// A process group was started; `None` when it has ended.
    fn running(&mut self, group: Option<i32>);

    /// Whether to stop.
    fn interrupted(&self) -> bool;
}

impl Target {
    /// One window, of no more than `limit`.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn run(&self, limit: Duration, watch: &mut dyn Watch) -> Result<Reading, TargetError> {
        let (start, limit) = (Instant::now(), limit.min(self.timeout));
        let reading = self.window(start, start + limit, watch);
        reading.map_err(|error| match error {
            TargetError::Timeout(_) => TargetError::Timeout(limit),
            other => other,
        })
    }

    fn window(&self, start: Instant, deadline: Instant, watch: &mut dyn Watch) -> Result<Reading, TargetError> {
        let before = probe::before(&self.probes, deadline, watch)?;
        let (stdout, took) = match &self.work {
            Work::Command(command) => command::run(command, deadline.saturating_duration_since(Instant::now()), watch)?,
            Work::Time(time) => (String::new(), pass(*time, deadline, watch)?),
        };
        let mut named = named(&stdout);
        named.extend(probe::after(&self.probes, &before, deadline, watch)?);
        let value = match &self.lead {
            Lead::Seconds => took.as_secs_f64(),
            Lead::Number => number(&stdout)?,
            Lead::Named(name) => known(&named, name)?,
        };
        comparable("", value)?;
        for other in &self.others {
            comparable(&format!("{} = ", other.name), known(&named, &other.name)?)?;
        }
        named.insert(self.name.clone(), value);
        Ok(Reading { value, named, took: start.elapsed() })
    }

    /// What can be found out before anything runs: whether the functions that are watched are there.
    ///
    /// # Errors
    /// [`FunctionError`].
    pub fn check(&self) -> Result<(), FunctionError> {
        let mut functions = self.probes.iter().filter_map(|probe| match &probe.endpoint {
            Endpoint::Function(name) => Some(name),
            _ => None,
        });
        functions.try_for_each(|name| is_one_function(name))
    }

    /// In words: searches with the same words, and the same goal, want the same.
    #[must_use]
    pub fn words(&self) -> String {
        let mut words = match &self.work {
            Work::Command(command) => command.clone(),
            Work::Time(time) => format!("{} s", time.as_secs_f64()),
        };
        for probe in &self.probes {
            words += &format!("; {} = {probe}", probe.name);
        }
        for other in &self.others {
            words += &format!("; {} {}", other.goal.word(), other.name);
        }
        words
    }
}

fn known(named: &BTreeMap<String, f64>, name: &str) -> Result<f64, TargetError> {
    named.get(name).copied().ok_or_else(|| TargetError::Nonsense(format!("it did not print `{name} = NUMBER`")))
}

fn comparable(name: &str, value: f64) -> Result<(), TargetError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(TargetError::Nonsense(format!(
        "it says {name}{value}, but only numbers above 0 can be compared by their ratio"
    )))
}

/// Lets time pass.
fn pass(time: Duration, deadline: Instant, watch: &dyn Watch) -> Result<Duration, TargetError> {
    let start = Instant::now();
    while start.elapsed() < time {
        if watch.interrupted() {
            return Err(TargetError::Interrupted);
        }
        if Instant::now() >= deadline {
            return Err(TargetError::Timeout(start.elapsed()));
        }
        std::thread::sleep(TICK.min(time.saturating_sub(start.elapsed())));
    }
    Ok(start.elapsed())
}

impl Constraint {
    /// A sentence, if it is violated. A number that is not there is a violation: nobody can say that it holds.
    #[must_use]
    pub fn violation(&self, reading: &Reading) -> Option<String> {
        let known = if self.name == UNNAMED { Some(reading.value) } else { reading.named.get(&self.name).copied() };
        let Some(value) = known else {
            return Some(format!("the target did not print `{} = NUMBER`", self.name));
        };
        // What is not a number is within no limit.
        let too_much = self.at_most.filter(|&most| value > most || value.is_nan());
        let too_little = self.at_least.filter(|&least| value < least || value.is_nan());
        let much = too_much.map(|most| format!("{} = {value}, at most {most} is allowed", self.name));
        much.or_else(|| too_little.map(|least| format!("{} = {value}, at least {least} is demanded", self.name)))
    }
}

fn named(stdout: &str) -> BTreeMap<String, f64> {
    let pairs = stdout.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    });
    pairs.collect()
}

fn number(stdout: &str) -> Result<f64, TargetError> {
    let Some(line) = stdout.lines().map(str::trim).rfind(|line| !line.is_empty()) else {
        return Err(TargetError::Nonsense("it printed nothing; its last line must be a number".into()));
    };
    line.parse().map_err(|_| {
        let shown: String = line.chars().take(60).collect();
        TargetError::Nonsense(format!("its last line is `{shown}`, which is no number"))
    })
}

#[cfg(test)]
mod tests;
