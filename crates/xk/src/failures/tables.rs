//! The exit codes of errors of repositories and keys.

use xk_keys::SealError;
use xk_repository::{RepositoryError, SourcesError};

use crate::exit::{Exit, Failure};

/// The exit code of a repository's error.
pub fn exit_of(error: &RepositoryError) -> Exit {
    match error {
        RepositoryError::Seal { .. }
        | RepositoryError::Differs { .. }
        | RepositoryError::Older { .. }
        | RepositoryError::Future { .. } => Exit::Refused,
        RepositoryError::OtherKernel { .. } | RepositoryError::OtherTable { .. } => Exit::Drift,
        _ => Exit::Error,
    }
}

impl From<RepositoryError> for Failure {
    fn from(error: RepositoryError) -> Self {
        let advice = match &error {
            RepositoryError::File { error, .. } => super::disk_full(error),
            _ => "",
        };
        Failure::new(exit_of(&error), error.to_string()).then(advice)
    }
}

impl From<SourcesError> for Failure {
    fn from(error: SourcesError) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<SealError> for Failure {
    fn from(error: SealError) -> Self {
        Failure::error(error.to_string())
    }
}
