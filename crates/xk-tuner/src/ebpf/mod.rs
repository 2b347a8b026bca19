//! eBPF programs of the tuner's own, which measure: how often the kernel does something ([`Calls`]), and how long a
//! function takes ([`Latency`]). They are written as instructions, so no compiler is needed.

mod calls;
mod insn;
mod latency;

use std::io;

use thiserror::Error;

pub use calls::Calls;
pub use latency::{is_one_function, Histogram, Latency};

/// A program of ours could not be loaded, attached or read.
#[derive(Debug, Error)]
#[error("{what}: {reason}")]
pub struct WatchError {
    /// What is measured.
    pub what: String,
    /// What libbpf or the kernel said.
    pub reason: String,
}

/// Why a name does not mean one function of the running kernel.
#[derive(Debug, Error)]
pub enum FunctionError {
    /// The symbols cannot be read.
    #[error("/proc/kallsyms: {0}")]
    Unreadable(#[from] io::Error),
    /// There is none.
    #[error("the running kernel has no function `{0}`")]
    None(String),
    /// There are several.
    #[error("{number} functions of the running kernel are called `{name}`: which one is not known")]
    Several {
        /// Their name.
        name: String,
        /// How many.
        number: usize,
    },
}
