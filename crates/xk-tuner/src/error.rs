//! What can go wrong with a search as a whole; what goes wrong with one trial is an outcome of it.

use std::path::PathBuf;

use crate::knob::KnobError;

/// Why a search cannot begin, or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A description is wrong.
    #[error("{}:{line}: {message}", file.display())]
    Description {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}{advice}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// A knob cannot be used at all.
    #[error("{parameter}: {source}")]
    Knob {
        /// The parameter.
        parameter: String,
        /// Why.
        source: KnobError,
    },
    /// The machine does not fit the description.
    #[error("{0}")]
    Machine(String),
    /// The target does not work even with the default in force.
    #[error("the target does not work with the default in force, so nothing can be compared: {0}")]
    Target(String),
    /// The default crosses a hard limit.
    #[error(
        "the default itself violates a constraint ({0}): relax it, or mend the machine first; nothing was changed"
    )]
    Constraint(String),
    /// Another tuner works on this machine.
    #[error("another tuner is at work ({0}): `xk tune status` shows it, `xk tune stop` ends it")]
    Locked(String),
    /// Somebody asked the tuner to rest.
    #[error("tuning is stopped ({0}): `xk tune resume` allows it again")]
    Stopped(String),
    /// The database of searches.
    #[error("{}: {what}", path.display())]
    Store {
        /// Its file.
        path: PathBuf,
        /// What happened, and what to do.
        what: String,
    },
    /// A file of memories, or a key.
    #[error("{}: {what}", path.display())]
    Exchange {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// The process that cleans up after us.
    #[error(
        "the guardian process, which puts knobs back when the tuner is killed, {0}: nothing is changed without it"
    )]
    Guardian(String),
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source, advice: "" }
    }
}
