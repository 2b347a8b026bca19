//! Knobs: how the parameters of this machine are read and set.
//!
//! In: what a description says about a knob. Out: a [`Knob`], which reads and writes one value. [`set`] also reads the value
//! back: it refuses a knob that accepts a value and does not have it afterwards.

mod changed;
mod command;
mod constant;
mod file;
mod format;
mod module;
mod sibling;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{clock_gettime, ClockId};
use serde::{Deserialize, Serialize};
use xk_history::{Action, Event, Kind, State};
use xk_runtime::{Error as RuntimeError, ParameterError};

use crate::modules::ModuleError;
use crate::Value;

pub use changed::{restore, ChangedKnob, Restored};
pub use command::CommandError;
pub use constant::{Constant, Constants, NoConstant};
pub use module::{Hold, Module};
pub use sibling::in_force_instead_of;

/// The lease of a knob that is changed before its first renewal.
const FIRST_LEASE: Duration = Duration::from_secs(60);

/// The clock of leases. It advances while the machine sleeps.
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

    /// Requests another value. [`set`] finds out whether it is in force.
    ///
    /// # Errors
    /// [`KnobError::Missing`], [`KnobError::Refused`].
    fn write(&mut self, value: &Value) -> Result<(), KnobError>;

    /// The values that it lists; `None` if it lists none.
    ///
    /// # Errors
    /// As [`Knob::read`].
    fn offered(&mut self) -> Result<Option<Vec<Value>>, KnobError> {
        Ok(None)
    }

    /// The form in which values of this knob are compared, and in which [`Knob::read`] returns them.
    fn canonical(&self, value: &Value) -> Value {
        value.clone()
    }

    /// A value of a description, with what it leaves out taken from the value in force.
    fn complete(&mut self, value: &Value) -> Value {
        value.clone()
    }

    /// Lets the kernel restore the default after this time from now, even if this process has exited.
    ///
    /// # Errors
    /// [`KnobError::LeaseEnded`] if the kernel has already done so.
    fn renew(&mut self, _lease: Duration) -> Result<(), KnobError> {
        Ok(())
    }

    /// Keeps the value in force when this process ends.
    ///
    /// # Errors
    /// [`KnobError::Missing`].
    fn keep(&mut self) -> Result<(), KnobError> {
        Ok(())
    }
}

/// Records in the history that a file or a pair of commands keeps another value.
pub(crate) fn record(name: &str, action: Action, from: &Value, to: &Value) {
    let state = |value: &Value| match value {
        Value::Number(number) => State::Value(*number),
        words => State::Words(words.to_string()),
    };
    xk_history::record(vec![Event::new(Kind::Knob, name, action).from(state(from)).to(state(to))]);
}

/// Sets a knob, and reads the value back.
///
/// # Errors
/// As [`Knob::write`], and [`KnobError::ReadsBack`].
pub fn set(knob: &mut dyn Knob, value: &Value) -> Result<(), KnobError> {
    knob.write(value)?;
    let found = knob.read()?;
    if found == knob.canonical(value) {
        Ok(())
    } else {
        Err(KnobError::ReadsBack { wrote: value.clone(), found })
    }
}

/// A knob that the kernel does not restore by itself. The guardian must know how to reach it.
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

    /// Where it is, for messages.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Command { set, .. } => format!("`{set}`"),
        }
    }
}

/// The kind of knob that a parameter has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backing {
    /// A perf-const, by name.
    Constant(String),
    /// A parameter that a loaded module describes: `MODULE:NAME`.
    Module(String),
    /// A file or a pair of commands.
    Plain(Plain),
}

impl Backing {
    /// The knob.
    ///
    /// # Errors
    /// [`KnobError::Missing`].
    pub fn knob(&self, constants: &dyn Constants) -> Result<Box<dyn Knob>, KnobError> {
        Ok(match self {
            Self::Plain(plain) => plain.knob(),
            Self::Constant(name) => Box::new(constants.find(name).map_err(|error| KnobError::missing(name, error))?),
            Self::Module(name) => Box::new(Module::find(name).map_err(|error| KnobError::missing(name, error))?),
        })
    }
}

/// Why a knob was not read or set.
#[derive(Debug, thiserror::Error)]
pub enum KnobError {
    /// It does not exist, or not any more.
    #[error("{place} is not there: {cause}")]
    Missing {
        /// Where it should be.
        place: String,
        /// Why.
        #[source]
        cause: Box<KnobFault>,
    },
    /// Its lease was not renewed in time, so the kernel has restored the default.
    #[error(
        "{place} has its default again, because its lease ended: the tuner was stopped, or the machine is much slower \
         than the timeout of the target"
    )]
    LeaseEnded {
        /// Where it is.
        place: String,
    },
    /// It exists, but has no value that can be read.
    #[error("{place} cannot be read: {cause}")]
    Unreadable {
        /// Where it is.
        place: String,
        /// Why.
        #[source]
        cause: Box<KnobFault>,
    },
    /// Another file is in force instead. Setting one resets the other, so that neither could be restored.
    #[error(
        "{place} is 0 because {} = {value} is in force; setting one resets the other, and the kernel does not go back: \
         tune the other one", other.display()
    )]
    Shadowed {
        /// Where it is.
        place: String,
        /// The other file.
        other: PathBuf,
        /// The value of the other file.
        value: String,
    },
    /// The kernel, or a command, rejected the value.
    #[error("{place} does not take {value}: {cause}")]
    Refused {
        /// Where it is.
        place: String,
        /// The value.
        value: Value,
        /// Why.
        #[source]
        cause: Box<KnobFault>,
    },
    /// It accepted a value, and has another.
    #[error("was set to {wrote}, but reads back differently: {found}")]
    ReadsBack {
        /// The value that was written.
        wrote: Value,
        /// The value that was read.
        found: Value,
    },
}

impl KnobError {
    pub(crate) fn missing(place: impl Into<String>, cause: impl Into<KnobFault>) -> Self {
        Self::Missing { place: place.into(), cause: Box::new(cause.into()) }
    }

    fn unreadable(place: impl Into<String>, cause: impl Into<KnobFault>) -> Self {
        Self::Unreadable { place: place.into(), cause: Box::new(cause.into()) }
    }

    fn refused(place: impl Into<String>, value: &Value, cause: impl Into<KnobFault>) -> Self {
        Self::Refused { place: place.into(), value: value.clone(), cause: Box::new(cause.into()) }
    }
}

/// The cause of a [`KnobError`].
#[derive(Debug, thiserror::Error)]
pub enum KnobFault {
    /// A file, or what a module returns.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A command.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// There is no table of a constant, or it may not be used.
    #[error(transparent)]
    NoConstant(#[from] NoConstant),
    /// xk.ko.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// No module describes the parameter.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// xk_tunable.ko.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// A constant is set to words.
    #[error("it is not a number")]
    NotANumber,
    /// The module does not describe the value.
    #[error("the module does not describe such a value")]
    UnknownValue,
    /// Not every site of a constant has the value.
    #[error("its value is not in force at every site; `xk status` shows where")]
    NotEverywhere,
}
