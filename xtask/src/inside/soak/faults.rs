//! Allocations that fail while `xk` works. A kernel with fault injection makes the so-many-th allocation of one system
//! call fail (`fail-nth`), and nothing of anybody else's; elsewhere, `kernel/faulty` takes the place of `xk.ko` in every
//! other epoch. What fails then must have changed nothing, and must succeed when it is repeated.

use std::fs;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};

use super::report::FaultReport;
use super::{Soak, PAUSE};

const NTH: &str = "/proc/thread-self/fail-nth";
const DEBUGFS: &str = "/sys/kernel/debug";
const FAULTY: &str = "/sys/module/xk_faulty/parameters";
/// No operation takes more allocations by far.
const MOST: u32 = 151;
/// From one to the next, so that early and late ones alternate.
const STRIDE: u32 = 37;
/// After a fault, and without another one.
const ATTEMPTS: u32 = 20;

/// Who makes allocations fail.
#[derive(Debug)]
pub(super) struct Faults {
    /// The kernel.
    nth: bool,
    turn: AtomicU32,
    /// Workers that want none now. Held while `kernel/faulty` is told what fails, so that none begins meanwhile.
    quiet: Mutex<u32>,
    /// `kernel/faulty` is there.
    faulty: AtomicBool,
    injected: AtomicU64,
    failed: AtomicU64,
}

/// Nothing fails while this is there.
struct Quiet<'a>(&'a Faults);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        *self.0.quiet() -= 1;
    }
}

impl Faults {
    pub(super) fn of_this_kernel() -> Result<Self> {
        let nth = Path::new(NTH).exists();
        if nth {
            let set = |file: &str, text: &str| fs::write(format!("{DEBUGFS}/{file}"), text).context(file.to_owned());
            for attribute in ["failslab", "fail_page_alloc"] {
                // A report of each would look like a splat.
                set(&format!("{attribute}/verbose"), "0")?;
                set(&format!("{attribute}/ignore-gfp-wait"), "N")?;
            }
            set("fail_page_alloc/min-order", "0")?;
        }
        Ok(Self {
            nth,
            turn: AtomicU32::new(0),
            quiet: Mutex::new(0),
            faulty: AtomicBool::new(false),
            injected: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Whether `kernel/faulty` is needed.
    pub(super) fn needs_module(&self) -> bool {
        !self.nth
    }

    /// `kernel/faulty` has come, or is about to go.
    pub(super) fn faulty(&self, there: bool) -> Result<()> {
        self.faulty.store(there, Ordering::Relaxed);
        if !there {
            self.injected.fetch_add(parameter("failed")?, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn describe(&self, report: &mut FaultReport) {
        report.by = if self.nth { "fail-nth" } else { "kernel/faulty" }.to_owned();
        report.injected = self.injected.load(Ordering::Relaxed);
        report.failed = self.failed.load(Ordering::Relaxed);
    }

    fn quiet(&self) -> MutexGuard<'_, u32> {
        // The number is right even if a thread panicked.
        self.quiet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work` while nothing fails by itself.
    pub(super) fn quietly<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let mut workers = self.quiet();
        if self.faulty.load(Ordering::Relaxed) {
            fs::write(format!("{FAULTY}/after"), "0")?;
        }
        *workers += 1;
        drop(workers);
        let _quiet = Quiet(self);
        Ok(work())
    }

    /// Does `work`, in which an allocation may fail. If it fails then, `clean` says whether nothing has changed, and it is
    /// repeated.
    pub(super) fn attempt<T>(&self, mut work: impl FnMut() -> Result<T>, clean: impl Fn() -> Result<()>) -> Result<T> {
        let (mut result, injected) = self.once(&mut work)?;
        for _ in 0..ATTEMPTS {
            let Err(error) = &result else { break };
            if !injected && !lingers(error) {
                break;
            }
            eprintln!("soak: with {}: {error:#}", if injected { "a fault" } else { "a probe on a jump" });
            self.failed.fetch_add(injected.into(), Ordering::Relaxed);
            result = self.quietly(|| {
                clean().context("after an allocation failed")?;
                std::thread::sleep(PAUSE);
                work()
            })?;
        }
        result
    }

    /// Also whether an allocation failed meanwhile.
    fn once<T>(&self, work: &mut impl FnMut() -> Result<T>) -> Result<(Result<T>, bool)> {
        if self.faulty.load(Ordering::Relaxed) {
            let before = parameter("failed")?;
            let result = work();
            return Ok((result, parameter("failed")? != before));
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // Every other time there is memory for all of it.
        if !self.nth || turn % 2 == 0 {
            return Ok((work(), false));
        }
        let mut file = fs::OpenOptions::new().read(true).write(true).open(NTH).context(NTH)?;
        file.write_all((1 + turn / 2 * STRIDE % MOST).to_string().as_bytes())?;
        let result = work();
        let mut left = String::new();
        // Reading does not take memory; the file's own buffer may.
        let injected = file.rewind().and_then(|()| file.read_to_string(&mut left)).is_err() || left.trim() == "0";
        file.write_all(b"0")?;
        if injected {
            self.injected.fetch_add(1, Ordering::Relaxed);
        }
        Ok((result, injected))
    }
}

fn parameter(name: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("{FAULTY}/{name}")).context("xk_faulty is not there")?;
    Ok(text.trim().parse()?)
}

/// Lets an allocation of `kernel/faulty` fail now and then: the next one when one has failed.
pub(super) fn starve(soak: &Soak<'_>) -> Result<()> {
    let mut turn: u32 = 0;
    while !soak.over() {
        soak.sleep(PAUSE);
        let workers = soak.faults.quiet();
        if *workers == 0 && parameter("after")? == 0 {
            turn += 1;
            fs::write(format!("{FAULTY}/after"), (1 + turn * STRIDE % MOST).to_string())?;
        }
    }
    Ok(fs::write(format!("{FAULTY}/after"), "0")?)
}

/// As long as a foreign probe stands on a jump of ours, the jump stays when its tune has gone
/// (`backend/detour/retire.c`).
fn lingers(error: &anyhow::Error) -> bool {
    format!("{error:#}").ends_with("a jump of an earlier tune is still there; try again")
}
