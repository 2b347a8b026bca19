//! Instructions per one-byte write to `/dev/null`.
//!
//! In a deterministic guest the time-stamp counter counts instructions. That
//! is checked with a loop of known length, since elsewhere the same figures
//! would be time, and would look as if they meant something.

use std::arch::asm;
use std::arch::x86_64::_rdtsc;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

use anyhow::{ensure, Context, Result};

/// Writes between two looks at the counter: most rounds see no timer tick.
pub const WRITES: u32 = 500;
/// Rounds; the median counts.
pub const ROUNDS: usize = 51;

/// Writes to `/dev/null` and counts.
pub struct Writer {
    null: File,
}

impl Writer {
    /// Opens `/dev/null`.
    ///
    /// # Errors
    /// When it cannot be opened, or when the counter does not count
    /// instructions.
    pub fn new() -> Result<Self> {
        check_unit()?;
        let null = OpenOptions::new().write(true).open("/dev/null").context("/dev/null")?;
        let writer = Self { null };
        writer.median()?;
        Ok(writer)
    }

    /// Instructions per write: the median of [`ROUNDS`] rounds.
    ///
    /// # Errors
    /// When a write fails.
    pub fn median(&self) -> Result<f64> {
        let mut rounds = [0u64; ROUNDS];
        for round in &mut rounds {
            *round = self.round(WRITES)?;
        }
        rounds.sort_unstable();
        Ok(rounds[ROUNDS / 2] as f64 / f64::from(WRITES))
    }

    fn round(&self, writes: u32) -> Result<u64> {
        let fd = self.null.as_raw_fd();
        let mut failed = 0u32;
        let before = counter();
        for _ in 0..writes {
            // SAFETY: one byte is read from a static string.
            failed += u32::from(unsafe { libc::write(fd, c"a".as_ptr().cast(), 1) } != 1);
        }
        let after = counter();
        ensure!(failed == 0, "{failed} of {writes} writes to /dev/null failed");
        Ok(after - before)
    }
}

/// Instructions that this CPU has executed.
#[must_use]
pub fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { _rdtsc() }
}

/// That [`counter`] counts instructions.
///
/// # Errors
/// When it does not.
pub fn check_unit() -> Result<()> {
    const TURNS: u64 = 10_000;
    let shortest = (0..5)
        .map(|_| {
            let before = counter();
            // SAFETY: counts down a register of its own.
            unsafe { asm!("2: dec {turns}", "jnz 2b", turns = inout(reg) TURNS => _) };
            counter() - before
        })
        .min()
        .unwrap_or(0);
    let expected = 2 * TURNS;
    ensure!(
        (expected..expected + 50).contains(&shortest),
        "a loop of {expected} instructions took {shortest} ticks: this is no deterministic guest, run it with \
         `lab/lab run --icount`"
    );
    Ok(())
}
