//! A parameter that a loaded module describes, through xk_tunable.ko.
//!
//! A changed value belongs to this process and has a lease: the kernel restores the previous value when the process dies,
//! and when it is stopped for longer than the lease.

use std::fmt;
use std::io;
use std::time::Duration;

use xk_runtime::{Parameter, ParameterDevice, ParameterError};

use super::{now, Knob, KnobError, KnobFault, FIRST_LEASE};
use crate::modules::{full_name, number, value, Described, ModuleError};
use crate::Value;

/// The parameter.
#[derive(Debug)]
pub struct Module {
    device: ParameterDevice,
    parameter: Parameter,
    held: bool,
    lease: Duration,
    /// Until when the kernel keeps the value at least, on the clock of leases.
    ends: Duration,
}

impl Module {
    /// The parameter `MODULE:NAME`.
    ///
    /// # Errors
    /// [`ModuleError`]: xk_tunable.ko is not loaded, or no module describes it.
    pub fn find(name: &str) -> Result<Self, ModuleError> {
        let device = ParameterDevice::open()?;
        let parameters = device.parameters()?;
        let described = Described { parameters, meters: Vec::new() };
        let parameter = described.parameter(name)?.clone();
        Ok(Self { device, parameter, held: false, lease: FIRST_LEASE, ends: Duration::ZERO })
    }

    /// Whether the module describes such a value.
    #[must_use]
    pub fn takes(&self, value: &Value) -> bool {
        number(&self.parameter.values, value).is_some()
    }

    /// Who has set it, if its value is not permanent.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        let hold = self.parameter.hold.as_ref()?;
        Some(Hold { owner: hold.owner, original: value(&self.parameter.values, hold.original) })
    }

    /// Sets a kept parameter back to its original value, if it still has the kept one. Returns whether it had.
    ///
    /// # Errors
    /// As [`Knob::write`].
    pub fn end_kept(&mut self, kept: &Value, original: &Value) -> Result<bool, KnobError> {
        if self.read()? != *kept {
            return Ok(false);
        }
        super::set(self, original)?;
        self.keep().map(|()| true)
    }

    fn place(&self) -> String {
        full_name(&self.parameter)
    }

    fn missing(&self, error: ParameterError) -> KnobError {
        KnobError::missing(self.place(), error)
    }

    fn refused(&self, value: &Value, cause: impl Into<KnobFault>) -> KnobError {
        KnobError::refused(self.place(), value, cause)
    }

    /// The kernel has restored the value.
    fn lease_ended(&mut self) -> KnobError {
        self.held = false;
        KnobError::LeaseEnded { place: self.place() }
    }

    fn look(&self) -> Result<Parameter, KnobError> {
        self.device.parameter(self.parameter.id).map_err(|error| self.missing(error))
    }
}

/// A parameter that a process has set. The kernel restores it when the process ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The process; `None` if it has ended, and the kernel is about to restore the value.
    pub owner: Option<u32>,
    /// The value before.
    pub original: Value,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner {
            Some(owner) => {
                write!(f, "is held by process {owner}; when that ends, the kernel sets it back to {}", self.original)
            }
            None => write!(
                f,
                "was held by a process that has ended; the kernel is about to set it back to {}",
                self.original
            ),
        }
    }
}

fn is_ours(parameter: &Parameter) -> bool {
    parameter.hold.as_ref().is_some_and(|hold| hold.own)
}

impl Knob for Module {
    fn read(&mut self) -> Result<Value, KnobError> {
        let found = self.look()?;
        if self.held && !is_ours(&found) && now() >= self.ends {
            return Err(self.lease_ended());
        }
        match found.value {
            Ok(number) => Ok(value(&found.values, number)),
            Err(errno) => Err(KnobError::unreadable(self.place(), io::Error::from_raw_os_error(errno))),
        }
    }

    fn write(&mut self, value: &Value) -> Result<(), KnobError> {
        let Some(number) = number(&self.parameter.values, value) else {
            return Err(self.refused(value, KnobFault::UnknownValue));
        };
        let ends = now() + self.lease;
        let done = self.device.set_parameter(self.parameter.id, number, Some(self.lease));
        // A failure may also leave a value that must be restored.
        self.held = is_ours(&self.look()?);
        if done.is_ok() || self.ends.is_zero() {
            self.ends = ends;
        }
        done.map_err(|error| match error {
            ParameterError::Gone(_) => self.missing(error),
            _ => self.refused(value, error),
        })
    }

    fn renew(&mut self, lease: Duration) -> Result<(), KnobError> {
        self.lease = lease;
        if !self.held {
            return Ok(());
        }
        let ends = now() + lease;
        match self.device.lease_parameter(self.parameter.id, Some(lease)) {
            Ok(()) => {
                self.ends = ends;
                Ok(())
            }
            Err(ParameterError::NotHeld(_)) => Err(self.lease_ended()),
            Err(error) => Err(self.missing(error)),
        }
    }

    fn keep(&mut self) -> Result<(), KnobError> {
        if !self.held {
            return Ok(());
        }
        match self.device.keep_parameter(self.parameter.id) {
            Ok(()) => {
                self.held = false;
                Ok(())
            }
            Err(ParameterError::NotHeld(_)) => Err(self.lease_ended()),
            Err(error) => Err(self.missing(error)),
        }
    }
}
