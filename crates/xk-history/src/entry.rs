//! An entry of the history.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::who::Who;

/// A change, with who made it, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When it was recorded: right after the change.
    pub at: Timestamp,
    /// The boot, by the number that the kernel drew. A boot reverts everything.
    pub boot: String,
    /// Who.
    #[serde(flatten)]
    pub who: Who,
    /// The command line.
    pub command: String,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The kind of thing.
    pub kind: Kind,
    /// Its name: the ConstID of a constant. Empty for a refused command.
    pub name: String,
    /// What happened to it.
    pub action: Action,
    /// The state before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<State>,
    /// The state after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<State>,
    /// When the kernel ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What else is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Kinds of things that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A performance constant.
    Constant,
    /// A parameter that a loaded module describes.
    Parameter,
    /// A file or a pair of commands that the tuner sets.
    Knob,
    /// An attachment of probes.
    Probe,
    /// A scheduling policy.
    Scheduler,
    /// A command that was refused.
    Command,
}

impl Kind {
    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Parameter => "parameter",
            Self::Knob => "knob",
            Self::Probe => "probe",
            Self::Scheduler => "scheduler",
            Self::Command => "command",
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It has another value.
    Set,
    /// A policy decides its value.
    Policy,
    /// It has its default again, or is gone.
    Revert,
    /// A search keeps the value.
    Keep,
    /// Its lease was changed.
    Lease,
    /// Probes were attached, and stay.
    Attach,
    /// Threads chose a scheduling policy.
    Choose,
    /// A scheduling policy has another weight, other CPUs, or a successor.
    Adjust,
    /// It was found to have ended without a command.
    Ended,
    /// It was found in force, and the change had not been recorded.
    Found,
    /// The command was refused.
    Refused,
}

impl Action {
    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Policy => "policy",
            Self::Revert => "revert",
            Self::Keep => "keep",
            Self::Lease => "lease",
            Self::Attach => "attach",
            Self::Choose => "choose",
            Self::Adjust => "adjust",
            Self::Ended => "ended",
            Self::Found => "found",
            Self::Refused => "refused",
        }
    }
}

/// A value, or a state in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum State {
    /// A number.
    Value(i64),
    /// Words.
    Words(String),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Words(words) => words.fmt(f),
        }
    }
}

impl From<i64> for State {
    fn from(value: i64) -> Self {
        Self::Value(value)
    }
}

impl From<String> for State {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

impl From<&str> for State {
    fn from(words: &str) -> Self {
        Self::Words(words.to_owned())
    }
}

impl Event {
    /// An event without states.
    #[must_use]
    pub fn new(kind: Kind, name: impl Into<String>, action: Action) -> Self {
        Self { kind, name: name.into(), action, from: None, to: None, until: None, note: None }
    }

    /// With the state before.
    #[must_use]
    pub fn from(self, state: impl Into<State>) -> Self {
        Self { from: Some(state.into()), ..self }
    }

    /// With the state after.
    #[must_use]
    pub fn to(self, state: impl Into<State>) -> Self {
        Self { to: Some(state.into()), ..self }
    }

    /// With the moment at which the kernel ends it.
    #[must_use]
    pub fn until(self, moment: Option<Timestamp>) -> Self {
        Self { until: moment, ..self }
    }

    /// With what else is known.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }

    /// The states in words: `32 -> 128`.
    #[must_use]
    pub fn states(&self) -> String {
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => format!("{from} -> {to}"),
            (Some(from), None) => format!("was {from}"),
            (None, Some(to)) => to.to_string(),
            (None, None) => String::new(),
        }
    }
}
