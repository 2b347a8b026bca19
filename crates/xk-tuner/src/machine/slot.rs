//! One knob of a search, and what the tuner knows about its value.

use std::time::Duration;

use xk_history::Action;

use super::{KeptKnob, MoveError};
use crate::description::{AtEnd, Backing};
use crate::knob::{record, set, ChangedKnob, Knob, KnobError, Plain};
use crate::Value;

/// What the tuner knows about the value of a knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Observed {
    /// The knob did not exist when it was last read. A file of an I/O scheduler, for example, exists only with that
    /// scheduler.
    Absent,
    /// It had this value when the tuner last read or set it. Another value later is the doing of something else.
    LeftAt(Value),
}

/// A knob of a search.
pub(super) struct Slot {
    pub name: String,
    pub knob: Box<dyn Knob>,
    pub backing: Backing,
    /// The value before the search; during a check, the kept value.
    pub original: Value,
    /// Whether the original value is one that an earlier search keeps. The kernel does not restore such a value.
    pub is_kept: bool,
    pub state: Observed,
    pub settle: Duration,
    pub at_end: AtEnd,
}

impl Slot {
    /// How to reach the knob, if the kernel does not restore it by itself.
    pub fn plain(&self) -> Option<&Plain> {
        match &self.backing {
            Backing::Plain(plain) => Some(plain),
            Backing::Constant(_) | Backing::Module(_) => None,
        }
    }

    pub fn exists(&self) -> bool {
        self.state != Observed::Absent
    }

    pub fn is_at(&self, value: &Value) -> bool {
        matches!(&self.state, Observed::LeftAt(known) if known == value)
    }

    pub fn left_at(&mut self, value: Value) {
        self.state = Observed::LeftAt(value);
    }

    /// Takes the value that the knob has now for the tuner's doing.
    pub fn read_state(&mut self) {
        self.state = self.knob.read().map_or(Observed::Absent, Observed::LeftAt);
    }

    /// Checks that nothing else has changed the knob.
    pub fn check(&mut self) -> Result<(), MoveError> {
        let Observed::LeftAt(expected) = self.state.clone() else { return Ok(()) };
        match self.knob.read() {
            Ok(found) if found == expected => Ok(()),
            Ok(found) => Err(MoveError::Yielded { name: self.name.clone(), expected, found }),
            Err(error) => Err(self.error(error)),
        }
    }

    /// The error of a move. If the lease ended, the kernel has changed the knob, and its new value is known.
    pub fn error(&mut self, error: KnobError) -> MoveError {
        let name = self.name.clone();
        if !matches!(error, KnobError::LeaseEnded { .. }) {
            return MoveError::Knob { name, error };
        }
        self.read_state();
        MoveError::LeaseEnded { name, error }
    }

    /// What must be recorded before the knob is set to `value`; `None` if the kernel restores it by itself.
    pub fn before_change_to(&self, value: &Value) -> Option<ChangedKnob> {
        if self.plain().is_none() && !self.is_kept {
            return None;
        }
        let mut ours = Vec::new();
        if let Observed::LeftAt(previous) = &self.state {
            ours.push(previous.clone());
        }
        ours.push(value.clone());
        let (name, backing) = (self.name.clone(), self.backing.clone());
        Some(ChangedKnob { name, backing, original: self.original.clone(), ours })
    }

    /// Sets the knob. A kept value stays in force when this process ends.
    pub fn set(&mut self, value: &Value) -> Result<(), KnobError> {
        set(&mut *self.knob, value)?;
        match self.is_kept && *value == self.original {
            true => self.knob.keep(),
            false => Ok(()),
        }
    }

    /// Whether the knob has a value that the tuner left, and that is not the original one.
    pub fn must_be_restored(&mut self) -> bool {
        match &self.state {
            Observed::Absent => false,
            Observed::LeftAt(left) => *left != self.original && self.knob.read().is_ok_and(|now| now == *left),
        }
    }

    /// What is to be kept: the value in force, if it was changed and the parameter is not to be reverted.
    pub fn to_keep(&self, search: &str) -> Option<KeptKnob> {
        let value = match &self.state {
            Observed::LeftAt(value) if *value != self.original && self.at_end == AtEnd::Keep => value.clone(),
            Observed::Absent | Observed::LeftAt(_) => return None,
        };
        let (name, backing, search) = (self.name.clone(), self.backing.clone(), search.to_owned());
        Some(KeptKnob { name, backing, value, original: self.original.clone(), search })
    }

    /// Keeps this value when the process ends.
    pub fn keep(&mut self, value: &Value) -> Result<(), MoveError> {
        self.knob.keep().map_err(|error| MoveError::Knob { name: self.name.clone(), error })?;
        // The devices of constants and parameters record these.
        if self.plain().is_some() && self.original != *value {
            record(&self.name, Action::Keep, &self.original, value);
        }
        self.original = value.clone();
        Ok(())
    }
}
