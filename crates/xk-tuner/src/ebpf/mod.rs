//! eBPF programs that count calls and passes ([`Calls`]), and measure the latency of a function ([`Latency`]).
//!
//! In: names of functions or tracepoints. Out: counts and histograms. It refuses names that the kernel cannot trace. The
//! programs are written as instructions, so no compiler is needed.

mod calls;
mod insn;
mod latency;

use std::io;

use thiserror::Error;

pub use calls::Calls;
pub use latency::{is_one_function, Histogram, Latency};

/// A program could not be loaded, attached or read.
#[derive(Debug, Error)]
#[error("{what}: {reason}")]
pub struct WatchError {
    /// What is measured.
    pub what: String,
    /// The error of libbpf or the kernel.
    pub reason: String,
}

/// Why a name does not identify one function of the running kernel.
#[derive(Debug, Error)]
pub enum FunctionError {
    /// The symbols cannot be read.
    #[error("/proc/kallsyms: {0}")]
    Unreadable(#[from] io::Error),
    /// No function has the name.
    #[error("the running kernel has no function `{0}`")]
    None(String),
    /// Several functions have the name.
    #[error("{number} functions of the running kernel are called `{name}`: the name is ambiguous")]
    Several {
        /// Their name.
        name: String,
        /// Their number.
        number: usize,
    },
}
