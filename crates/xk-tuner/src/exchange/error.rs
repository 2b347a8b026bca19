//! Why memories were not exported or imported.

use std::io;
use std::path::{Path, PathBuf};

use super::key::{KeyError, PublicKey};
use super::{FORMAT, MOST, VERSION};
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
    /// It is not a file of memories.
    #[error("is not a file of `xk tune export` ({0})")]
    Envelope(#[source] serde_json::Error),
    /// It has another version.
    #[error("is `{format}` version {version}; this program reads `{FORMAT}` version {VERSION}")]
    Version {
        /// Its format.
        format: String,
        /// Its version.
        version: u32,
    },
    /// It does not contain a key.
    #[error("its key: {0}")]
    Key(#[source] KeyError),
    /// It does not contain a signature.
    #[error("its signature is not a signature")]
    Signature,
    /// Its signature is of another content, or another key.
    #[error("was altered, or was not signed with the key that it names ({0})")]
    Altered(Box<PublicKey>),
    /// Its key is not trusted.
    #[error(
        "is signed with a key that is not trusted here: {key}. If you know whose key it is (`xk tune key` on that machine \
         prints it), put it into a file NAME.pub in {}, and repeat", folder.display()
    )]
    Untrusted {
        /// The key.
        key: Box<PublicKey>,
        /// Where trusted keys are.
        folder: PathBuf,
    },
    /// Its content is of another version.
    #[error("is signed by {key}, but cannot be understood ({source}): update xk on one of the machines")]
    Content {
        /// The key.
        key: Box<PublicKey>,
        /// Why.
        source: serde_json::Error,
    },
    /// The key of this machine is damaged.
    #[error("is not a key: remove it, and a new one is made, which must be given to other machines again")]
    OwnKey,
    /// The key of another machine is damaged.
    #[error(transparent)]
    TrustedKey(#[from] KeyError),
}
