//! What can go wrong between user space and xk.ko, and between user space and xk_tunable.ko.

use std::io;
use std::path::PathBuf;

use thiserror::Error as ThisError;
use xk_table::Incoherent;

use crate::abi;
use crate::descriptor::Unopened;
use crate::symbols::NoAddress;

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
    #[error("xk.ko {module} has interface version {kernel}, this program has {user}: install both from one release")]
    Abi {
        /// Interface version of the module.
        kernel: u32,
        /// Interface version of this crate.
        user: u32,
        /// Version string of the module.
        module: String,
    },
    /// The device exists, but a request failed.
    #[error("/dev/xk: {0}")]
    Device(io::Error),
    /// The value is neither proved nor compiled.
    #[error("{name}: {value} is not one of the accepted values: {values}")]
    OutOfRange {
        /// Constant.
        name: String,
        /// Value that was asked for.
        value: i64,
        /// Values that may be set.
        values: Box<xk_table::Values>,
    },
    /// The scope table contradicts itself or exceeds what the kernel accepts.
    #[error("scope table of {name}: {fault}")]
    Table {
        /// Constant, or the function that is wrong.
        name: String,
        /// What is wrong.
        fault: Box<TableFault>,
    },
    /// A function of the table has no address in the running kernel.
    #[error("{symbol}: {error}")]
    Address {
        /// Function.
        symbol: String,
        /// Why it has none.
        error: AddressError,
    },
    /// The constant, or one of its instructions, is held by another tune.
    #[error("{0}")]
    Busy(String),
    /// Threads were inside until the timeout, or the wait was interrupted.
    #[error("{reason}")]
    Blocked {
        /// What is in force now.
        outcome: Outcome,
        /// The kernel's message.
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
        /// The kernel's message.
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
    /// No attachment of probes has this number.
    #[error("no probes have the number {0}")]
    NoSuchProbes(u32),
    /// More instructions than one attachment holds.
    #[error("{number} instructions, the kernel accepts {}", abi::MAX_PROBE_PLACES)]
    ProbePlaces {
        /// How many.
        number: usize,
    },
    /// The attachment of probes belongs to a process that is still alive.
    #[error("{0}")]
    ProbesOwned(String),
    /// The tune belongs to a process that is still alive.
    #[error("tune {0} belongs to a running process: stop that process, or let it detach the tune")]
    Owned(u32),
}

/// What is in force after a transition was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The values from before, everywhere.
    Unchanged,
    /// The values from before, but for threads that were inside with the new ones and
    /// keep them until they leave.
    Reverting,
}

impl Error {
    /// Of a request about one tune.
    pub(crate) fn of_tune(id: u32, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT) => Self::NoSuchTune(id),
            Some(libc::EPERM) => Self::Owned(id),
            _ => Self::Device(error),
        }
    }

    /// Of a request about one attachment of probes.
    pub(crate) fn of_probes(id: u32, error: &io::Error, reason: &[u8]) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT) => Self::NoSuchProbes(id),
            Some(libc::EPERM) => Self::ProbesOwned(abi::text(reason)),
            _ => Self::of_code(error, abi::text(reason)),
        }
    }

    /// Of a request about one tune for which the kernel says why this process may not make it.
    pub(crate) fn of_tune_with(id: u32, error: io::Error, reason: &[u8]) -> Self {
        match error.raw_os_error() {
            Some(libc::EACCES) => Self::Forbidden(abi::text(reason)),
            _ => Self::of_tune(id, error),
        }
    }

    /// Of a request that the kernel compares with its code: `reason` is its sentence, if it gave one.
    pub(crate) fn of_code(error: &io::Error, reason: String) -> Self {
        let errno = error.raw_os_error().unwrap_or(0);
        let reason = if reason.is_empty() { error.to_string() } else { reason };
        match errno {
            libc::EBUSY => Self::Busy(reason),
            libc::EBADMSG | libc::ENOENT => Self::Drift(reason),
            libc::EACCES | libc::EKEYREJECTED => Self::Forbidden(reason),
            _ => Self::Refused { reason, errno },
        }
    }
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

/// Why a table cannot be given to the kernel.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum TableFault {
    /// It contradicts itself.
    #[error(transparent)]
    Incoherent(#[from] Incoherent),
    /// It permits a patch only, and another backend is to be used.
    #[error("only backend patch is possible: {reason}")]
    OnlyPatch {
        /// Why it permits no update.
        reason: String,
    },
    /// Its signature is not known.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// Its signature is too long.
    #[error("a signature of {length} bytes, the kernel accepts {}", abi::MAX_SIGNATURE)]
    SignatureLength {
        /// Length in bytes.
        length: usize,
    },
    /// It is too long.
    #[error("{length} bytes, the kernel accepts {}", abi::MAX_TABLE)]
    Length {
        /// Length in bytes.
        length: usize,
    },
    /// It has too many sites.
    #[error("{number} sites, the kernel accepts {}", abi::MAX_SITES)]
    Sites {
        /// How many.
        number: usize,
    },
    /// It has too many safe spans.
    #[error("{number} safe spans, the kernel accepts {}", abi::MAX_SCOPES)]
    Scopes {
        /// How many.
        number: usize,
    },
    /// A safe span has too many ranges.
    #[error("{symbol}: {number} ranges of a safe span, the kernel accepts {}", abi::MAX_RANGES)]
    Ranges {
        /// Function of the safe span.
        symbol: String,
        /// How many.
        number: usize,
    },
    /// A site has too many values.
    #[error("{number} values at one site, the kernel accepts {}", xk_table::MAX_IVS)]
    SiteValues {
        /// How many.
        number: usize,
    },
    /// A function is too long.
    #[error("{length} bytes, the kernel accepts {}", abi::MAX_TEXT)]
    TextLength {
        /// Length in bytes.
        length: usize,
    },
    /// Nothing that fits the kernel's field names the constant.
    #[error("the ConstID {id} is too long, and the constant has no name that fits")]
    ConstantName {
        /// The ConstID.
        id: String,
    },
    /// The name of a symbol does not fit.
    #[error("symbol {symbol} is too long")]
    SymbolName {
        /// The symbol.
        symbol: String,
    },
    /// The name of a module does not fit.
    #[error("module {module} is too long")]
    ModuleName {
        /// The module.
        module: String,
    },
}

/// Why the address of a function or an object in the running kernel is not known.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum AddressError {
    /// The symbols of the kernel do not give it.
    #[error(transparent)]
    Symbol(#[from] NoAddress),
    /// The file that holds the address cannot be read.
    #[error("{}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file holds something else.
    #[error("{}: `{text}` is not an address", file.display())]
    NotAnAddress {
        /// The file.
        file: PathBuf,
        /// What is in place of the address.
        text: String,
    },
    /// Only functions of modules are known, and this one is in none.
    #[error("{symbol}: not in a module")]
    NotInModule {
        /// The function.
        symbol: String,
    },
    /// No objects are known.
    #[error("{symbol}: there are no objects")]
    NoObjects {
        /// The object.
        symbol: String,
    },
}

/// Why the signature of a table is not known.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum SignatureError {
    /// The file of the table has another name, and so may its signature.
    #[error(
        "the file of the table of {constant} does not have the name that `xk build` gives it: rename it, or build the \
         table again"
    )]
    Misplaced {
        /// ConstID.
        constant: String,
    },
    /// It exists and cannot be read.
    #[error("its signature cannot be read: {}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// Why a parameter of a module was not read or set.
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
        "xk_tunable.ko {module} has interface version {kernel}, this program has {user}: install both from one release"
    )]
    Abi {
        /// Interface version of the module.
        kernel: u32,
        /// Interface version of this crate.
        user: u32,
        /// Version string of the module.
        module: String,
    },
    /// The device exists, but a request failed.
    #[error("/dev/xk_tunable: {0}")]
    Device(io::Error),
    /// Another descriptor holds it, or it is being reverted.
    #[error("{0}")]
    Busy(String),
    /// Its module does not take the value, or has another one afterwards.
    #[error("{reason}")]
    Refused {
        /// The kernel's message.
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
    /// It is not held any more, or something else has set it.
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
