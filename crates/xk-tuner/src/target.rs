//! The target: one window of work, and the numbers that it gives.
//!
//! In: what a description says. Out: a [`Reading`] of one window. It refuses windows that fail or take too long, and
//! numbers that cannot be compared by their ratio.
//!
//! A window is a command from its start to its end, or a time during which a service works. Its numbers are what the
//! command prints (its last line, and lines before it of the form `NAME = NUMBER`), the seconds that it takes, and what
//! running programs answer when they are queried (`probe.rs`). The first target leads. There may be further targets,
//! of which a front is kept, and constraints on any number.

mod command;
mod endpoint;
mod error;
pub(crate) mod exposition;
mod limits;
mod probe;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::ebpf::{is_one_function, FunctionError};
use crate::history::{Goal, Objective};

pub(crate) use command::kill;
pub use endpoint::{AddressError, Endpoint, EndpointError};
pub use error::{AnswerError, NumberError, TargetError};
pub use exposition::{ExpositionError, Selector, SelectorError};
use limits::Limits;
pub use probe::{Probe, Quantity};

/// The name of the first target, if it has none. Constraints may always use this name.
pub const UNNAMED: &str = "target";

/// The pause between two checks whether to stop.
const TICK: Duration = Duration::from_millis(50);

/// What a window consists of.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// A command for the shell.
    Command(String),
    /// A time during which something else works.
    Time(Duration),
}

/// Which number is the first target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lead {
    /// The last line that the command prints.
    Number,
    /// The seconds that the command takes.
    Seconds,
    /// The number of this name.
    Named(String),
}

/// The window, and its targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// What the window consists of.
    pub work: Work,
    /// The number that is the first target.
    pub lead: Lead,
    /// The name of the first target.
    pub name: String,
    /// Whether more of it is better.
    pub goal: Goal,
    /// The further targets.
    pub others: Vec<Objective>,
    /// The numbers that are queried.
    pub probes: Vec<Probe>,
    /// A longer window is a failure.
    pub timeout: Duration,
}

/// A hard limit on a number of the window. The first target is also called `target`.
#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    /// The name.
    pub name: String,
    /// The largest value that is allowed.
    pub at_most: Option<f64>,
    /// The smallest value that is allowed.
    pub at_least: Option<f64>,
}

/// The numbers of one window.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The first target.
    pub value: f64,
    /// All numbers that have a name.
    pub named: BTreeMap<String, f64>,
    /// How long it took.
    pub took: Duration,
}

/// Knows whether to stop, and is told about process groups.
pub trait Watch {
    /// A process group has started; `None`: it has ended.
    fn running(&mut self, group: Option<i32>);

    /// Whether to stop.
    fn interrupted(&self) -> bool;
}

impl Target {
    /// Runs one window, for no longer than `limit`, and until a number that can be queried violates a constraint.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn run(
        &self,
        limit: Duration,
        constraints: &[Constraint],
        watch: &mut dyn Watch,
    ) -> Result<Reading, TargetError> {
        let (start, limit) = (Instant::now(), limit.min(self.timeout));
        let reading = self.window(start, start + limit, constraints, watch);
        reading.map_err(|error| match error {
            TargetError::Timeout(_) => TargetError::Timeout(limit),
            other => other,
        })
    }

    fn window(
        &self,
        start: Instant,
        deadline: Instant,
        constraints: &[Constraint],
        watch: &mut dyn Watch,
    ) -> Result<Reading, TargetError> {
        let before = probe::before(&self.probes, deadline, watch)?;
        let mut limits = Limits::of(&self.probes, constraints, &before, watch);
        let worked = match &self.work {
            Work::Command(command) => {
                command::run(command, deadline.saturating_duration_since(Instant::now()), &mut limits)
            }
            Work::Time(time) => pass(*time, deadline, &limits).map(|took| (String::new(), took)),
        };
        if let Some(violation) = limits.violation() {
            return Err(TargetError::Violated(violation));
        }
        let (stdout, took) = worked?;
        let mut named = named(&stdout);
        named.extend(probe::after(&self.probes, &before, deadline, watch)?);
        let value = match &self.lead {
            Lead::Seconds => took.as_secs_f64(),
            Lead::Number => number(&stdout)?,
            Lead::Named(name) => known(&named, name)?,
        };
        comparable(None, value)?;
        for other in &self.others {
            comparable(Some(&other.name), known(&named, &other.name)?)?;
        }
        named.insert(self.name.clone(), value);
        Ok(Reading { value, named, took: start.elapsed() })
    }

    /// Checks before anything runs that the observed functions exist.
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

    /// The target in words. Searches with the same words and the same goal have the same target.
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

fn known(named: &BTreeMap<String, f64>, name: &str) -> Result<f64, NumberError> {
    named.get(name).copied().ok_or_else(|| NumberError::Missing { name: name.to_owned() })
}

fn comparable(name: Option<&str>, value: f64) -> Result<(), NumberError> {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(NumberError::NotComparable { name: name.map(str::to_owned), value })
}

/// Waits.
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
    /// How the reading violates it, if it does. A missing number is a violation, since the limit cannot be checked.
    #[must_use]
    pub fn violation(&self, reading: &Reading) -> Option<Violation> {
        let known = if self.name == UNNAMED { Some(reading.value) } else { reading.named.get(&self.name).copied() };
        match known {
            Some(value) => self.beyond(value),
            None => Some(Violation::Missing { name: self.name.clone() }),
        }
    }

    /// How this value violates it, if it does.
    fn beyond(&self, value: f64) -> Option<Violation> {
        let name = self.name.clone();
        // NaN is within no limit.
        let above = self.at_most.filter(|&limit| value > limit || value.is_nan());
        let below = self.at_least.filter(|&limit| value < limit || value.is_nan());
        match (above, below) {
            (Some(limit), _) => Some(Violation::Above { name, value, limit }),
            (None, Some(limit)) => Some(Violation::Below { name, value, limit }),
            (None, None) => None,
        }
    }
}

/// How a window violates a constraint.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Violation {
    /// The window has no such number.
    #[error("the target did not print `{name} = NUMBER`")]
    Missing {
        /// Its name.
        name: String,
    },
    /// It is too large.
    #[error("{name} = {value}, at most {limit} is allowed")]
    Above {
        /// Its name.
        name: String,
        /// The value.
        value: f64,
        /// The largest value that is allowed.
        limit: f64,
    },
    /// It is too small.
    #[error("{name} = {value}, at least {limit} is required")]
    Below {
        /// Its name.
        name: String,
        /// The value.
        value: f64,
        /// The smallest value that is allowed.
        limit: f64,
    },
}

fn named(stdout: &str) -> BTreeMap<String, f64> {
    let pairs = stdout.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    });
    pairs.collect()
}

fn number(stdout: &str) -> Result<f64, NumberError> {
    let line = stdout.lines().map(str::trim).rfind(|line| !line.is_empty()).ok_or(NumberError::Nothing)?;
    line.parse().map_err(|_| NumberError::NotANumber { shown: line.chars().take(60).collect() })
}

#[cfg(test)]
mod tests;
