//! A perf-const, through xk.ko.
//!
//! With the default in force, no tune is loaded, so that candidates are compared with the unchanged kernel. With another
//! value, the tune belongs to this process and has a lease: the kernel restores the default when the process dies, and
//! when it is stopped for longer than the lease.

use std::rc::Rc;
use std::time::Duration;

use xk_runtime::{AddressOf, Change, Destination, Device, Error as RuntimeError, RulesError, SymbolsError, Tune};
use xk_table::ScopeTable;

use super::{now, Knob, KnobError, KnobFault, FIRST_LEASE};
use crate::{levels, Value};

/// How long a transition may wait for threads.
const TRANSITION: Duration = Duration::from_secs(5);

/// Finds constants of the running kernel by name.
pub trait Constants {
    /// The knob of a constant.
    ///
    /// # Errors
    /// [`NoConstant`]: there is no table, xk.ko is not loaded, …
    fn find(&self, name: &str) -> Result<Constant, NoConstant>;
}

/// Why a constant has no knob.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoConstant {
    /// The administrator's rules cannot be read, or forbid it.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// There is no scope table.
    #[error("{message}")]
    Table {
        /// Name of the constant.
        name: String,
        /// Why, and what to do.
        message: String,
    },
    /// The symbols of the running kernel cannot be read.
    #[error(transparent)]
    Symbols(#[from] SymbolsError),
    /// xk.ko cannot be queried.
    #[error(transparent)]
    Device(#[from] RuntimeError),
}

/// A constant of the running kernel.
pub struct Constant {
    device: Device,
    addresses: Rc<dyn AddressOf>,
    table: ScopeTable,
    tune: Option<Tune>,
    /// The value of a detached tune that this knob may unload.
    kept: Option<Value>,
    lease: Duration,
    /// Until when the kernel keeps the value at least, on the clock of leases.
    ends: Duration,
}

impl Constant {
    /// The constant of `table`.
    #[must_use]
    pub fn new(device: Device, addresses: Rc<dyn AddressOf>, table: ScopeTable) -> Self {
        let device = device.for_trials();
        Self { device, addresses, table, tune: None, kept: None, lease: FIRST_LEASE, ends: Duration::ZERO }
    }

    /// Those of `levels` that the table accepts; see `levels::accepted`.
    #[must_use]
    pub fn offered(&self, levels: Vec<Value>) -> Vec<Value> {
        levels::accepted(levels, &self.table.values)
    }

    /// Its value in the source, which is in force while no tune is loaded.
    #[must_use]
    pub fn default_value(&self) -> Value {
        Value::Number(self.table.constant.default)
    }

    /// Lets this knob unload a tune that an earlier session kept at this value.
    pub fn take_over(&mut self, value: Value) {
        self.kept = Some(value);
    }

    /// Ends a tune that an earlier session kept, if it still has this value. Returns whether it had.
    ///
    /// # Errors
    /// The error of xk.ko.
    pub fn end_kept(&self, value: &Value) -> Result<bool, RuntimeError> {
        match self.other_tune()? {
            Some(tune) if tune.detached && Value::Number(tune.value) == *value => {
                self.go(tune.id, Destination::Unload).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    fn place(&self) -> String {
        self.table.constant.name.clone().unwrap_or_else(|| self.table.constant.id.clone())
    }

    fn missing(&self, error: RuntimeError) -> KnobError {
        KnobError::missing(self.place(), error)
    }

    /// Why our tune does not answer. If its lease has ended, it is no longer ours.
    fn gone(&mut self, error: RuntimeError) -> KnobError {
        if matches!(error, RuntimeError::NoSuchTune(_)) && now() >= self.ends {
            self.tune = None;
            return KnobError::LeaseEnded { place: self.place() };
        }
        self.missing(error)
    }

    /// Renews the lease of our tune.
    fn extend(&mut self, id: u32) -> Result<(), RuntimeError> {
        self.ends = now() + self.lease;
        self.device.lease(id, Some(self.lease))
    }

    fn refused(&self, value: &Value, cause: impl Into<KnobFault>) -> KnobError {
        KnobError::refused(self.place(), value, cause)
    }

    /// A tune of this constant that does not belong to this process, or belongs to none.
    fn other_tune(&self) -> Result<Option<xk_runtime::TuneStatus>, RuntimeError> {
        let constant = &self.table.constant;
        let is_it = |name: &str| name == constant.id || constant.name.as_deref() == Some(name);
        Ok(self.device.tunes()?.into_iter().find(|tune| is_it(&tune.name)))
    }

    /// Restores the default, if a tune that was taken over holds another value.
    fn unload_kept(&self, default: &Value) -> Result<(), KnobError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        self.end_kept(kept).map(drop).map_err(|error| self.refused(default, error))
    }

    fn go(&self, id: u32, to: Destination) -> Result<(), RuntimeError> {
        self.device.transition(&[Change { id, to }], self.table.mode, TRANSITION).map(drop)
    }
}

impl Knob for Constant {
    fn read(&mut self) -> Result<Value, KnobError> {
        let status = match &self.tune {
            Some(tune) => match tune.status() {
                Ok(status) => Some(status),
                Err(error) => return Err(self.gone(error)),
            },
            None => self.other_tune().map_err(|error| self.missing(error))?,
        };
        match status {
            None => Ok(Value::Number(self.table.constant.default)),
            Some(status) if status.broken => Err(KnobError::unreadable(self.place(), KnobFault::NotEverywhere)),
            Some(status) => Ok(Value::Number(status.value)),
        }
    }

    fn write(&mut self, value: &Value) -> Result<(), KnobError> {
        let Value::Number(number) = *value else {
            return Err(self.refused(value, KnobFault::NotANumber));
        };
        if number == self.table.constant.default {
            let Some(tune) = self.tune.take() else { return self.unload_kept(value) };
            return match self.go(tune.id(), Destination::Unload) {
                Ok(()) | Err(RuntimeError::NoSuchTune(_)) => Ok(()),
                Err(error) => {
                    let failure = self.refused(value, error);
                    self.tune = Some(tune);
                    Err(failure)
                }
            };
        }
        let tune = match self.tune.take() {
            Some(tune) => tune,
            None => self.device.load(&self.table, &*self.addresses).map_err(|error| self.refused(value, error))?,
        };
        let id = tune.id();
        self.tune = Some(tune);
        let done = self.extend(id).and_then(|()| self.go(id, Destination::Value(number)));
        done.map_err(|error| self.refused(value, error))
    }

    fn renew(&mut self, lease: Duration) -> Result<(), KnobError> {
        self.lease = lease;
        let Some(id) = self.tune.as_ref().map(Tune::id) else { return Ok(()) };
        let before = self.ends;
        self.extend(id).map_err(|error| {
            self.ends = before;
            self.gone(error)
        })
    }

    fn keep(&mut self) -> Result<(), KnobError> {
        let Some(tune) = self.tune.take() else { return Ok(()) };
        let id = tune.id();
        self.device.lease(id, None).map_err(|error| self.missing(error))?;
        tune.detach().map(drop).map_err(|error| self.missing(error))
    }
}
