//! Why there is no scope table: a refusal, which is a result, or a fault of the environment.

use std::path::PathBuf;

use thiserror::Error;
use xk_const::TreeError;
use xk_lift::object::ObjectError;
use xk_span::error::ConfineError;
use xk_table::Refusal;

use crate::proof::ProofError;

/// Why there is no scope table.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The constant is not usable on this kernel; the reason is a result.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// The source tree failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A variant could not be compiled for a reason that is not its value.
    #[error(transparent)]
    Compile(#[from] xk_const::BuildError),
    /// The layouts could not be compared.
    #[error(transparent)]
    Layout(#[from] xk_const::LayoutError),
    /// An object could not be read.
    #[error("{path}: {source}", path = path.display())]
    Object {
        /// File.
        path: PathBuf,
        /// Cause.
        source: ObjectError,
    },
    /// A file could not be read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The solver is missing.
    #[error(transparent)]
    Solver(#[from] ProofError),
    /// There are no safe spans, for a reason that is not the constant.
    #[error(transparent)]
    Spans(ConfineError),
}

impl From<ConfineError> for BuildError {
    fn from(error: ConfineError) -> Self {
        match error {
            ConfineError::Refused(refusal) => Self::Refused(refusal),
            other => Self::Spans(other),
        }
    }
}
