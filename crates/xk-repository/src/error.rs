//! Why a repository was not written, or gave nothing.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use xk_keys::SealError;
use xk_table::{KernelRef, StoreError};

use crate::source::ReadError;

/// Why a repository was not written, or gave nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepositoryError {
    /// A file of this machine cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A file of the repository cannot be read.
    #[error("{place}: {error}")]
    Read {
        /// The file.
        place: String,
        /// Why.
        error: ReadError,
    },
    /// There is no directory.
    #[error("{0}: there is no such folder")]
    NoFolder(String),
    /// It has no tables of this kernel build.
    #[error("{place}: the repository has no tables of kernel build {build_id}")]
    NoTables {
        /// The repository.
        place: String,
        /// The kernel build.
        build_id: String,
    },
    /// The index was altered, or its key is not trusted.
    #[error("{place}: {problem}")]
    Seal {
        /// The file.
        place: String,
        /// What is wrong.
        problem: Box<SealError>,
    },
    /// The index cannot be understood.
    #[error("{place}: its content cannot be understood ({error}): update xk on one of the machines")]
    Content {
        /// The file.
        place: String,
        /// Why.
        error: serde_json::Error,
    },
    /// The index is of another kernel build.
    #[error("{place}: is of kernel build {}, and {wanted} was asked for: the repository is damaged", found.build_id)]
    OtherKernel {
        /// The file.
        place: String,
        /// Its kernel.
        found: Box<KernelRef>,
        /// The build-id that was asked for.
        wanted: String,
    },
    /// A later index of the repository was accepted.
    #[error(
        "{place}: was made {made}, and one that was made {accepted} was accepted before: the repository offers an old index; \
         if that is meant, remove {}", file.display()
    )]
    Older {
        /// The file.
        place: String,
        /// Its date.
        made: String,
        /// The date of the later one.
        accepted: String,
        /// Where dates are kept.
        file: PathBuf,
    },
    /// The index is of the future.
    #[error(
        "{place}: was made {made}, which is in the future: set the clock of this machine, or of the one that packed it"
    )]
    Future {
        /// The file.
        place: String,
        /// Its date.
        made: String,
    },
    /// It is not known which indices were accepted.
    #[error("{}: {error}: which index is old is not known; remove the file to accept any", file.display())]
    Dates {
        /// The file.
        file: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// A table is not what the index says.
    #[error(
        "{place}: is not the file that the index names ({what}): if the repository was being written, repeat; if not, it \
         is damaged"
    )]
    Differs {
        /// The file.
        place: String,
        /// What differs.
        what: String,
    },
    /// A table cannot be used.
    #[error(transparent)]
    Table(#[from] StoreError),
    /// A table to be packed is of another kernel.
    #[error("the table of {id} is of kernel build {}: pack the tables of one build at a time", kernel.build_id)]
    OtherTable {
        /// The constant.
        id: String,
        /// Its kernel.
        kernel: KernelRef,
    },
    /// Another process fetches tables.
    #[error("{}: another process fetches tables just now: repeat when it has ended", .0.display())]
    Busy(PathBuf),
}

impl RepositoryError {
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }

    pub(crate) fn seal(place: impl Display, problem: SealError) -> Self {
        Self::Seal { place: place.to_string(), problem: Box::new(problem) }
    }
}
