//! A tune that this process loaded.

use std::time::Duration;

use xk_table::{Mode, ScopeTable};

use crate::abi;
use crate::backend::Backend;
use crate::device::Device;
use crate::encode::{AddressOf, Request};
use crate::error::Error;
use crate::status::TuneStatus;
use crate::transition::{Change, Destination, Transition};

/// A constant that can be changed. It stays loaded until it is unloaded, or until
/// the descriptor that loaded it (the [`Device`] and all its clones and tunes) is
/// closed, be it by SIGKILL; [`Tune::detach`] is the explicit way to make it stay.
#[derive(Debug)]
pub struct Tune {
    device: Device,
    id: u32,
}

impl Device {
    /// Arms all sites of `table`, with the default in force: nothing changes yet.
    ///
    /// # Errors
    /// [`Error::Table`] and [`Error::Address`] before the kernel is asked;
    /// [`Error::Busy`], [`Error::Drift`], [`Error::Forbidden`] and [`Error::Refused`] with
    /// the kernel's reason. Nothing is armed then.
    pub fn load(&self, table: &ScopeTable, addresses: &dyn AddressOf) -> Result<Tune, Error> {
        self.load_by(table, addresses, Backend::Kprobe)
    }

    /// As [`Device::load`], and says how control is to reach the updates.
    ///
    /// # Errors
    /// As [`Device::load`]; [`Error::Refused`] also when [`Backend::Detour`] or
    /// [`Backend::Patch`] is not possible at every site.
    pub fn load_by(&self, table: &ScopeTable, addresses: &dyn AddressOf, backend: Backend) -> Result<Tune, Error> {
        let mut request = Request::new(table, addresses, self.anchor(), self.requires_signed(), backend)?;
        match self.ioctl(abi::IOC_LOAD, &mut request.load) {
            Ok(()) => Ok(Tune { device: self.clone(), id: request.load.id }),
            Err(error) => Err(Error::of_code(&error, abi::text(&request.load.error))),
        }
    }
}

impl Tune {
    /// Number by which the kernel knows it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Gives the constant another value, at all its sites at once.
    ///
    /// # Errors
    /// As [`Device::set`].
    pub fn set(&self, value: i64) -> Result<(), Error> {
        self.device.set(self.id, value)
    }

    /// Changes it when that is safe; see [`Device::transition`].
    ///
    /// # Errors
    /// As [`Device::transition`].
    pub fn go(&self, to: Destination, mode: Mode, timeout: Duration) -> Result<Transition, Error> {
        self.device.transition(&[Change { id: self.id, to }], mode, timeout)
    }

    /// Excludes a thread whose stack can never be read; see [`Device::ignore`].
    ///
    /// # Errors
    /// As [`Device::ignore`].
    pub fn ignore(&self, thread: i32) -> Result<(), Error> {
        self.device.ignore(self.id, thread)
    }

    /// What the kernel says about it.
    ///
    /// # Errors
    /// [`Error::NoSuchTune`] if xk.ko or the tune was removed.
    pub fn status(&self) -> Result<TuneStatus, Error> {
        self.device.tunes()?.into_iter().find(|tune| tune.id == self.id).ok_or(Error::NoSuchTune(self.id))
    }

    /// Lets it outlive this process; returns its number.
    ///
    /// # Errors
    /// As [`Device::detach`].
    pub fn detach(self) -> Result<u32, Error> {
        self.device.detach(self.id)?;
        Ok(self.id)
    }

    /// Restores the default.
    ///
    /// # Errors
    /// As [`Device::unload`].
    pub fn unload(self) -> Result<(), Error> {
        self.device.unload(self.id)
    }
}
