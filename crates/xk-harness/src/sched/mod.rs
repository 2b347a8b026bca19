//! Policies of `xk_sched.ko` under threads of this process. It runs inside a guest, as root; the modules are files, and
//! none of them is loaded before.

pub mod faults;
mod mistakes;
pub mod rounds;
mod threads;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use xk_sched::{Device, Policy};

pub use mistakes::{mistakes, Expected, Mistake};
pub use threads::{class, confine, confine_thread, Thread, SCHED_EXT, SCHED_NORMAL};

/// How long something that must happen may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Loads a module.
///
/// # Errors
/// When the kernel refuses it.
pub fn insmod(path: &Path, parameters: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let parameters = CString::new(parameters)?;
    // SAFETY: the descriptor is open, and the text ends and lives until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    (result == 0).then_some(()).ok_or_else(io::Error::last_os_error)
}

/// Removes a module.
///
/// # Errors
/// When the kernel refuses it.
pub fn rmmod(name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: the text ends and lives until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    (result == 0).then_some(()).ok_or_else(io::Error::last_os_error)
}

/// Returns when `done` says so.
///
/// # Errors
/// When that takes too long, or `done` fails.
pub fn wait_for(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while !done()? {
        if begin.elapsed() > PATIENCE {
            bail!("not after {} s: {what}", PATIENCE.as_secs());
        }
        sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// What the module says about a policy.
///
/// # Errors
/// When it is not loaded.
pub fn policy(device: &Device, name: &str) -> Result<Policy> {
    device.policies()?.into_iter().find(|one| one.name == name).with_context(|| format!("no policy {name}"))
}
