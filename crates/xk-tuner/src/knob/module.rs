//! A parameter that a loaded module describes, through xk_tunable.ko.
//!
//! What is set is held by this process and has a lease: the kernel puts back what was there when the process dies,
//! and also when it merely stops.

use std::time::Duration;

use xk_runtime::{Parameter, ParameterDevice, ParameterError};

use super::{now, Knob, KnobError, FIRST_LEASE};
use crate::modules::{number, place_of, value, Described, ModuleError};
use crate::Value;

/// The parameter.
#[derive(Debug)]
pub struct Module {
    device: ParameterDevice,
    parameter: Parameter,
    held: bool,
    lease: Duration,
    /// The kernel keeps the value at least until then; on its clock.
    ends: Duration,
}

impl Module {
    /// The parameter `MODULE:NAME`.
    ///
    /// # Errors
    /// [`ModuleError`]: xk_tunable.ko is not loaded, or no module describes it.
    pub fn find(place: &str) -> Result<Self, ModuleError> {
        let device = ParameterDevice::open()?;
        let parameters = device.parameters()?;
        let described = Described { parameters, meters: Vec::new() };
        let parameter = described.parameter(place)?.clone();
        Ok(Self { device, parameter, held: false, lease: FIRST_LEASE, ends: Duration::ZERO })
    }

    /// Whether the module has such a value.
    #[must_use]
    pub fn takes(&self, value: &Value) -> bool {
        number(&self.parameter.values, value).is_some()
    }

    /// A sentence, if somebody holds it: its value will change by itself.
    #[must_use]
    pub fn held_by(&self) -> Option<String> {
        let hold = self.parameter.hold.as_ref()?;
        let who = hold.owner.map_or("is about to be put back".into(), |pid| format!("is held by process {pid}"));
        Some(format!("{who}: it goes back to {} by itself", value(&self.parameter.values, hold.original)))
    }

    /// Puts back what an earlier session kept, if it still has that value; whether it did.
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
        place_of(&self.parameter)
    }

    fn missing(&self, error: &ParameterError) -> KnobError {
        KnobError::Missing { place: self.place(), reason: error.to_string() }
    }

    fn refused(&self, value: &Value, reason: String) -> KnobError {
        KnobError::Refused { place: self.place(), value: value.clone(), reason }
    }

    /// What has become of a hold that is no longer ours.
    fn lapsed(&mut self) -> KnobError {
        self.held = false;
        KnobError::Lapsed { place: self.place() }
    }

    fn look(&self) -> Result<Parameter, KnobError> {
        self.device.parameter(self.parameter.id).map_err(|error| self.missing(&error))
    }
}

fn is_ours(parameter: &Parameter) -> bool {
    parameter.hold.as_ref().is_some_and(|hold| hold.own)
}

impl Knob for Module {
    fn read(&mut self) -> Result<Value, KnobError> {
        let found = self.look()?;
        if self.held && !is_ours(&found) && now() >= self.ends {
            return Err(self.lapsed());
        }
        match found.value {
            Ok(number) => Ok(value(&found.values, number)),
            Err(errno) => Err(KnobError::Unreadable {
                place: self.place(),
                reason: std::io::Error::from_raw_os_error(errno).to_string(),
            }),
        }
    }

    fn write(&mut self, value: &Value) -> Result<(), KnobError> {
        let Some(number) = number(&self.parameter.values, value) else {
            return Err(self.refused(value, "the module does not describe such a value".into()));
        };
        let ends = now() + self.lease;
        let done = self.device.set_parameter(self.parameter.id, number, Some(self.lease));
        // A failure may leave something to be put back, too.
        self.held = is_ours(&self.look()?);
        if done.is_ok() || self.ends.is_zero() {
            self.ends = ends;
        }
        done.map_err(|error| match error {
            ParameterError::Gone(_) => self.missing(&error),
            _ => self.refused(value, error.to_string()),
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
            Err(ParameterError::NotHeld(_)) => Err(self.lapsed()),
            Err(error) => Err(self.missing(&error)),
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
            Err(ParameterError::NotHeld(_)) => Err(self.lapsed()),
            Err(error) => Err(self.missing(&error)),
        }
    }
}
