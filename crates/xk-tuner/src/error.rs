//! Why a search cannot begin or continue. A failure of one trial is not an error, but an outcome of that trial.

use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;

use crate::description::DescriptionError;
use crate::ebpf::FunctionError;
use crate::engine::Diverged;
use crate::knob::{Hold, KnobError, KnobFault};
use crate::left_out::LeftOut;
use crate::target::{TargetError, Violation};
use crate::Value;

/// Why a search cannot begin or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A description is wrong.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// A file cannot be read or written.
    #[error("{}: {source}{advice}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
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
    /// The machine does not fit the search.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The target does not work even with the default in force.
    #[error("the target does not work with the default in force, so nothing can be compared: {0}")]
    Target(#[source] TargetError),
    /// The default violates a constraint.
    #[error(
        "the default itself violates a constraint ({0}): relax the constraint, or repair the machine first; nothing was \
         changed"
    )]
    Constraint(Violation),
    /// Another tuner is running on this machine.
    #[error("another tuner is running (process {owner}): `xk tune status` shows it, `xk tune stop` ends it")]
    Locked {
        /// Its process, as it wrote it into the lock file.
        owner: String,
    },
    /// `xk tune stop` has blocked tuning.
    #[error("tuning is stopped ({reason}): `xk tune resume` allows it again")]
    Stopped {
        /// Who has stopped it.
        reason: String,
    },
    /// The database of searches.
    #[error("{}: {problem}", path.display())]
    Store {
        /// Its file.
        path: PathBuf,
        /// What happened, and what to do.
        #[source]
        problem: StoreProblem,
    },
    /// The guardian process.
    #[error("the guardian process, which restores knobs when the tuner is killed, {0}: nothing is changed without it")]
    Guardian(#[from] GuardianError),
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { path: path.into(), source, advice: "" }
    }
}

fn joined(left_out: &[LeftOut]) -> String {
    left_out.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Why the machine does not fit a search.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Another process has set a parameter that a module describes.
    #[error("{parameter} ({name}) {hold}; end that process first, or leave the parameter out")]
    Held {
        /// The parameter.
        parameter: String,
        /// Its name in the module, `MODULE:NAME`.
        name: String,
        /// Who has set it.
        hold: Hold,
    },
    /// Something else tunes a constant.
    #[error(
        "{parameter} is already tuned to {value}, and not by this tuner (its default is {default}): `xk unset` it, or \
         leave it out"
    )]
    AlreadyTuned {
        /// The parameter.
        parameter: String,
        /// The value in force.
        value: Value,
        /// The value in the source.
        default: Value,
    },
    /// A search leaves out all of its parameters.
    #[error("{search}: no parameter is left to search: {}", joined(left_out))]
    NothingLeft {
        /// The search.
        search: String,
        /// The parameters, and why each is left out.
        left_out: Vec<LeftOut>,
    },
    /// The target observes a function that cannot be observed.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The recorded trials are not those of this search.
    #[error("search {search}: {source}")]
    Diverged {
        /// Number of the search.
        search: i64,
        /// The first trial that differs.
        source: Diverged,
    },
    /// Something else has changed all parameters.
    #[error("{0} was the last parameter that could be tuned")]
    NoneLeft(String),
    /// Something else has changed a knob while confirmed values were set.
    #[error("something else set {parameter} to {found} at the last moment: nothing is kept")]
    ChangedAtEnd {
        /// The parameter.
        parameter: String,
        /// The value that it has now.
        found: Value,
    },
    /// A kept value cannot be reverted.
    #[error("{parameter}: {source}")]
    Revert {
        /// The parameter.
        parameter: String,
        /// Why.
        source: RevertError,
    },
}

/// Why a kept value cannot be reverted.
#[derive(Debug, thiserror::Error)]
pub enum RevertError {
    /// The knob was not found.
    #[error(transparent)]
    Find(#[from] KnobFault),
    /// The knob does not take the value.
    #[error(transparent)]
    Set(#[from] KnobError),
}

/// What is wrong with the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreProblem {
    /// A newer program has made it.
    #[error("has version {0} of the tables, which a newer xk made: update this one")]
    Newer(i64),
    /// An entry cannot be read.
    #[error("contains {0} that cannot be read: move the file away")]
    Damaged(&'static str),
    /// SQLite reports an error.
    #[error("{source}{}", advice(source))]
    Database {
        /// The error.
        #[from]
        source: rusqlite::Error,
    },
}

fn advice(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            ": another process has held it for five seconds: end that process (`fuser -v` names it), and repeat"
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            ": it is damaged: move it away, and a new one is made; the memories in it are lost"
        }
        Some(ErrorCode::DiskFull) => ": the disk is full: make room, and repeat; what was committed is safe",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => ": run as root, or name another folder with --state",
        _ => "",
    }
}

/// What is wrong with the guardian.
#[derive(Debug, thiserror::Error)]
pub enum GuardianError {
    /// It did not start.
    #[error("could not be started ({0})")]
    Start(#[source] io::Error),
    /// It does not answer.
    #[error("is gone")]
    Gone,
}
