//! Why memories were not exported or imported.

use std::io;
use std::path::{Path, PathBuf};

use xk_keys::{PublicKey, SealError};

use super::MOST;
use crate::Error;

/// Why memories were not exported or imported.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// A file of memories, or of a key, cannot be used.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        #[source]
        problem: FileProblem,
    },
    /// The database.
    #[error(transparent)]
    Tuner(#[from] Error),
}

impl ExchangeError {
    pub(super) fn file(path: &Path, problem: impl Into<FileProblem>) -> Self {
        Self::File { path: path.to_owned(), problem: problem.into() }
    }
}

/// What is wrong with a file of memories, or of a key.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is nothing to export.
    #[error("there are no memories to export")]
    NothingToExport,
    /// The memories cannot be written as JSON.
    #[error("{0}")]
    Unwritable(#[source] serde_json::Error),
    /// It is too large.
    #[error("is larger than {} MiB, which no file of memories is", MOST >> 20)]
    TooLarge,
    /// A key cannot be used, or the file was not signed as it must be.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Its content is of another version.
    #[error("is signed by {key}, but cannot be understood ({source}): update xk on one of the machines")]
    Content {
        /// The key.
        key: Box<PublicKey>,
        /// Why.
        source: serde_json::Error,
    },
}
