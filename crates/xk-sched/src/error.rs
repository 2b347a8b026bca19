//! What can go wrong, with what to do.

use std::io;

use crate::abi;

/// Why a request to xk_sched.ko failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device may be opened by root only.
    #[error("scheduling policies need root: run it with sudo")]
    NotRoot,
    /// There is no device.
    #[error(
        "the kernel module xk_sched is not loaded: run `modprobe xk_sched`, or `insmod xk_sched.ko` after \
         `scripts/build-module $(uname -r) kernel/xk_sched`; the kernel needs CONFIG_SCHED_CLASS_EXT (docs/sched.md)"
    )]
    NotLoaded,
    /// The module was built for another interface.
    #[error(
        "xk_sched.ko {module} has interface version {kernel}, this program has {}: install both from one release",
        abi::ABI_VERSION
    )]
    Abi {
        /// Interface version of the module.
        kernel: u32,
        /// Version string of the module.
        module: String,
    },
    /// The device exists, but a request failed.
    #[error("/dev/xk_sched: {0}")]
    Device(io::Error),
    /// No policy can have this name.
    #[error("'{0}' is no name of a policy: names have 1 to 31 bytes; `xk sched list` shows those that are loaded")]
    Name(String),
    /// No policy has this name.
    #[error("{0}")]
    NoSuchPolicy(String),
    /// No thread has this number.
    #[error("{0}")]
    NoSuchThread(String),
    /// The policy was ejected, or sched_ext has ended the module's scheduler.
    #[error("{0}")]
    Ejected(String),
    /// This process may not change anything: it has no `CAP_SYS_ADMIN`, the descriptor is for reading, or the kernel is
    /// locked down.
    #[error("{0}")]
    Forbidden(String),
    /// The kernel did not change the class of a thread.
    #[error("{0}")]
    Refused(String),
}
