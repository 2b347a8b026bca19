//! What can go wrong between user space and xk.ko, and between user space and xk_tunable.ko.

use thiserror::Error as ThisError;

use crate::descriptor::Unopened;

/// Why the kernel, or this crate on its behalf, did not do what was asked.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The device may be opened by root only.
    #[error("changing a kernel constant needs root: run it with sudo")]
    NotRoot,
    /// There is no device.
    #[error("the kernel module xk is not loaded: run `modprobe xk`, or `insmod kernel/xk/xk.ko` from a build tree")]
    NotLoaded,
    /// The module was built for another interface.
    #[error(
        "xk.ko {module} speaks interface version {kernel}, this program version {user}: install both from one release"
    )]
    Abi {
        /// Interface version of the module.
        kernel: u32,
        /// Interface version of this crate.
        user: u32,
        /// Version string of the module.
        module: String,
    },
    /// The device exists but could not be opened or asked.
    #[error("/dev/xk: {0}")]
    Device(std::io::Error),
    /// The value is neither proved nor compiled.
    #[error("{name}: {value} is none of the values that may be set: {values}")]
    OutOfRange {
        /// Constant.
        name: String,
        /// Value that was asked for.
        value: i64,
        /// Values that may be set.
        values: Box<xk_table::Values>,
    },
    /// The scope table contradicts itself or exceeds what the kernel accepts.
    #[error("scope table of {name}: {reason}")]
    Table {
        /// Constant.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A function of the table has no address in the running kernel.
    #[error("{symbol}: {reason}")]
    Address {
        /// Function.
        symbol: String,
        /// Why it has none.
        reason: String,
    },
    /// The constant, or one of its instructions, is held by another tune.
    #[error("{0}")]
    Busy(String),
    /// Threads were inside until the bound, or somebody interrupted the wait.
    #[error("{reason}")]
    Blocked {
        /// What is in force now.
        outcome: crate::Outcome,
        /// Sentence of the kernel.
        reason: String,
        /// The threads that were inside, with their stacks.
        report: String,
    },
    /// The running kernel is not the one that was analysed.
    #[error("{0}")]
    Drift(String),
    /// The kernel refused for another reason.
    #[error("{reason}")]
    Refused {
        /// Sentence of the kernel.
        reason: String,
        /// `errno`.
        errno: i32,
    },
    /// This process may not change anything: the descriptor is for reading, it has no
    /// `CAP_SYS_ADMIN`, the kernel is locked down, or what it loads must be signed and is not.
    #[error("{0}")]
    Forbidden(String),
    /// No tune has this number.
    #[error("no tune has the number {0}")]
    NoSuchTune(u32),
    /// The tune belongs to a process that is still alive.
    #[error("tune {0} belongs to a running process: stop that process, or let it detach the tune")]
    Owned(u32),
}

impl From<Unopened> for Error {
    fn from(unopened: Unopened) -> Self {
        match unopened {
            Unopened::NotRoot => Self::NotRoot,
            Unopened::NotLoaded => Self::NotLoaded,
            Unopened::Other(error) => Self::Device(error),
        }
    }
}

/// Why a parameter of a module was not told or set.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum ParameterError {
    /// The device may be opened by root only.
    #[error("parameters of kernel modules need root: run it with sudo")]
    NotRoot,
    /// There is no device.
    #[error(
        "the kernel module xk_tunable is not loaded: run `modprobe xk_tunable`, or `insmod \
         kernel/tunable/xk_tunable.ko` from a build tree"
    )]
    NotLoaded,
    /// The module was built for another interface.
    #[error(
        "xk_tunable.ko {module} speaks interface version {kernel}, this program version {user}: install both from \
         one release"
    )]
    Abi {
        /// Interface version of the module.
        kernel: u32,
        /// Interface version of this crate.
        user: u32,
        /// Version string of the module.
        module: String,
    },
    /// The device exists but could not be opened or asked.
    #[error("/dev/xk_tunable: {0}")]
    Device(std::io::Error),
    /// Another descriptor holds it, or it is being put back.
    #[error("{0}")]
    Busy(String),
    /// Its module does not take the value, or has another one afterwards.
    #[error("{reason}")]
    Refused {
        /// Sentence of the kernel.
        reason: String,
        /// `errno`.
        errno: i32,
    },
    /// This process may not change anything: the descriptor is for reading, it has no
    /// `CAP_SYS_ADMIN`, or the kernel is locked down.
    #[error("{0}")]
    Forbidden(String),
    /// It has gone with its module.
    #[error("{0}")]
    Gone(String),
    /// It is not held (any more), or has been set by somebody else.
    #[error("{0}")]
    NotHeld(String),
}

impl From<Unopened> for ParameterError {
    fn from(unopened: Unopened) -> Self {
        match unopened {
            Unopened::NotRoot => Self::NotRoot,
            Unopened::NotLoaded => Self::NotLoaded,
            Unopened::Other(error) => Self::Device(error),
        }
    }
}
