//! Knobs: what a parameter is on this machine, and how it is read and set.

mod command;
mod constant;
mod file;
mod held;
mod module;

use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{clock_gettime, ClockId};
use serde::{Deserialize, Serialize};

use crate::Value;

pub use constant::{Constant, Constants, NoConstant};
pub use held::{put_back, Held, PutBack};
pub use module::Module;

/// A lease before the first window gives a better one.
const FIRST_LEASE: Duration = Duration::from_secs(60);

/// The clock of leases: it goes on while the machine sleeps.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// One knob.
pub trait Knob {
    /// The value in force.
    ///
    /// # Errors
    /// [`KnobError::Missing`], [`KnobError::Unreadable`].
    fn read(&mut self) -> Result<Value, KnobError>;

    /// Asks for another value; whether it came into force is what [`set`] finds out.
    ///
    /// # Errors
    /// [`KnobError::Missing`], [`KnobError::Refused`].
    fn write(&mut self, value: &Value) -> Result<(), KnobError>;

    /// The values that it offers; `None` when it does not say.
    ///
    /// # Errors
    /// As [`Knob::read`].
    fn offered(&mut self) -> Result<Option<Vec<Value>>, KnobError> {
        Ok(None)
    }

    /// From now, the kernel puts the default back after so long, whoever is left to ask for it.
    ///
    /// # Errors
    /// [`KnobError::Lapsed`] when that has happened already.
    fn renew(&mut self, _lease: Duration) -> Result<(), KnobError> {
        Ok(())
    }

    /// The value in force stays when this process ends.
    ///
    /// # Errors
    /// [`KnobError::Missing`].
    fn keep(&mut self) -> Result<(), KnobError> {
        Ok(())
    }
}

/// Sets a knob, and reads it back.
///
/// # Errors
/// As [`Knob::write`], and [`KnobError::ReadsBack`].
pub fn set(knob: &mut dyn Knob, value: &Value) -> Result<(), KnobError> {
    knob.write(value)?;
    let found = knob.read()?;
    if found == *value {
        Ok(())
    } else {
        Err(KnobError::ReadsBack { wrote: value.clone(), found })
    }
}

/// A knob that the kernel does not protect: whoever cleans up must know how to reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plain {
    /// A file with a value: sysctl, sysfs, procfs, debugfs, module parameter.
    File(PathBuf),
    /// Two shell commands: one prints the value, one sets `$VALUE`.
    Command {
        /// Prints it.
        get: String,
        /// Sets it.
        set: String,
    },
}

impl Plain {
    /// The knob.
    #[must_use]
    pub fn knob(&self) -> Box<dyn Knob> {
        match self {
            Self::File(path) => Box::new(file::File::new(path)),
            Self::Command { get, set } => Box::new(command::Pair::new(get, set)),
        }
    }

    /// Where it is, for people.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Command { set, .. } => format!("`{set}`"),
        }
    }
}

/// Why a knob was not read or set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    /// It is not there (any more).
    #[error("{place} is not there: {reason}")]
    Missing {
        /// Where it should be.
        place: String,
        /// What the system said.
        reason: String,
    },
    /// The kernel has put the default back: the lease was not renewed in time.
    #[error(
        "{place} has its default again: its lease ended, as the tuner was stopped, or the machine is far slower than the \
         target's timeout says"
    )]
    Lapsed {
        /// Where.
        place: String,
    },
    /// It is there and says nothing.
    #[error("{place} cannot be read: {reason}")]
    Unreadable {
        /// Where.
        place: String,
        /// What the system said.
        reason: String,
    },
    /// The kernel, or a command, did not take the value.
    #[error("{place} does not take {value}: {reason}")]
    Refused {
        /// Where.
        place: String,
        /// The value.
        value: Value,
        /// What the system said.
        reason: String,
    },
    /// It took the value, and has another.
    #[error("was set to {wrote}, but reads back differently: {found}")]
    ReadsBack {
        /// What was asked for.
        wrote: Value,
        /// What is there.
        found: Value,
    },
}
