//! Why a text was not sealed, or an envelope is refused.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Format, KeyError, PublicKey};

/// Why a text was not sealed, or an envelope is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// A key, or a directory of keys, cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        error: io::Error,
    },
    /// The key of this machine is damaged.
    #[error("{}: is not a key: remove it, and a new one is made, which must be given to other machines again", .0.display())]
    OwnKey(PathBuf),
    /// The key of another machine is damaged.
    #[error("{}: {problem}", path.display())]
    TrustedKey {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        problem: KeyError,
    },
    /// The envelope cannot be written as JSON.
    #[error("{0}")]
    Unwritable(#[source] serde_json::Error),
    /// It is not an envelope.
    #[error("is not a file of `{command}` ({source})")]
    Envelope {
        /// The command that writes such files.
        command: &'static str,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// It has another format or version.
    #[error("is `{format}` version {version}; this program reads `{}` version {}", wanted.name, wanted.version)]
    Version {
        /// Its format.
        format: String,
        /// Its version.
        version: u32,
        /// What was expected.
        wanted: Format,
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
}

impl SealError {
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }
}
