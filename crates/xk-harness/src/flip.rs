//! Changes the values of several tunes together, repeatedly.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use serde::Serialize;
use xk_runtime::{Backend, Change, Destination, Device, Error, Mode, Tune};
use xk_table::ScopeTable;

use crate::family::{table, Family, Loaded};

/// The values. None of them is the default, and no value is followed by itself.
const VALUES: [i64; 5] = [100, 333, 7, 500, 64];

/// Tunes of several families, which change in one transition.
#[derive(Debug)]
pub struct Flipper {
    device: Device,
    tunes: Vec<Tune>,
    next: usize,
}

/// The result of a number of transitions.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Flips {
    /// Completed transitions.
    pub transitions: u64,
    /// Transitions that timed out: the old values stayed in force.
    pub blocked: u64,
    /// Stops of the machine that they needed altogether.
    pub stops: u64,
    /// Their duration altogether, as the kernel measured it.
    pub kernel_seconds: f64,
    /// The duration of the longest.
    pub longest_ms: f64,
    /// Time from the first to the last, by the guest's clock.
    pub seconds: f64,
}

impl Flips {
    /// Adds the result of `others`.
    pub fn add(&mut self, others: &Self) {
        self.transitions += others.transitions;
        self.blocked += others.blocked;
        self.stops += others.stops;
        self.kernel_seconds += others.kernel_seconds;
        self.longest_ms = self.longest_ms.max(others.longest_ms);
        self.seconds += others.seconds;
    }
}

impl Flipper {
    /// Loads the tables of these families.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn load<'a>(module: &Path, families: impl IntoIterator<Item = &'a Family>) -> Result<Self> {
        Self::load_by(module, families, Backend::default())
    }

    /// As [`Flipper::load`], with this backend.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn load_by<'a>(
        module: &Path,
        families: impl IntoIterator<Item = &'a Family>,
        backend: Backend,
    ) -> Result<Self> {
        let tables = families.into_iter().map(|family| table(module, family)).collect::<Result<Vec<_>>>()?;
        Self::load_tables(&tables, backend)
    }

    /// As [`Flipper::load_by`], for tables that exist already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn load_tables(tables: &[ScopeTable], backend: Backend) -> Result<Self> {
        let device = Device::open()?;
        let load = |table| Ok(device.load_by(table, &Loaded, backend)?);
        let tunes = tables.iter().map(load).collect::<Result<Vec<_>>>()?;
        Ok(Self { device, tunes, next: 0 })
    }

    /// The tunes, in the order of the families.
    #[must_use]
    pub fn tunes(&self) -> &[Tune] {
        &self.tunes
    }

    /// Changes all tunes to `value`, in one transition.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn to(&self, value: i64, mode: Mode, timeout: Duration) -> Result<xk_runtime::Transition, Error> {
        self.go(Destination::Value(value), mode, timeout)
    }

    /// Changes all tunes to these destinations, in one transition.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn go(&self, to: Destination, mode: Mode, timeout: Duration) -> Result<xk_runtime::Transition, Error> {
        let changes: Vec<Change> = self.tunes.iter().map(|tune| Change { id: tune.id(), to }).collect();
        self.device.transition(&changes, mode, timeout)
    }

    /// So many transitions, one after the other.
    ///
    /// # Errors
    /// What the kernel said, unless it was that threads were inside.
    pub fn flip(&mut self, transitions: u64, mode: Mode, timeout: Duration) -> Result<Flips> {
        let mut flips = Flips::default();
        let start = Instant::now();
        while flips.transitions < transitions {
            self.next = (self.next + 1) % VALUES.len();
            match self.to(VALUES[self.next], mode, timeout) {
                Ok(done) => {
                    flips.transitions += 1;
                    flips.stops += u64::from(done.stops);
                    flips.kernel_seconds += done.elapsed.as_secs_f64();
                    flips.longest_ms = flips.longest_ms.max(done.elapsed.as_secs_f64() * 1000.0);
                }
                Err(Error::Blocked { .. }) => flips.blocked += 1,
                Err(error) => return Err(error).context("a transition"),
            }
            if flips.blocked > 10 + flips.transitions / 10 {
                bail!("{} transitions were given up, {} completed", flips.blocked, flips.transitions);
            }
        }
        flips.seconds = start.elapsed().as_secs_f64();
        Ok(flips)
    }

    /// What they were loaded by.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Executions at all their sites that kprobes did not let xk see: they used the default.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn missed(&self) -> Result<u64> {
        let ours = |id: u32| self.tunes.iter().any(|tune| tune.id() == id);
        let tunes = self.device.tunes()?.into_iter().filter(|tune| ours(tune.id));
        Ok(tunes.flat_map(|tune| tune.sites).map(|site| site.missed).sum())
    }

    /// Lets them outlive this process; their numbers.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn detach(self) -> Result<Vec<u32>, Error> {
        self.tunes.into_iter().map(Tune::detach).collect()
    }

    /// Unloads them together.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn unload(self, mode: Mode, timeout: Duration) -> Result<(), Error> {
        self.end(mode, timeout)
    }

    /// As [`Flipper::unload`], but what failed may be tried again.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn end(&self, mode: Mode, timeout: Duration) -> Result<(), Error> {
        self.go(Destination::Unload, mode, timeout).map(|_| ())
    }
}
