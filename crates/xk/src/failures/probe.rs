//! Errors of xk-probe.

use xk_probe::maps::MapsError;
use xk_probe::{Error, PlaceError, PlacesError, ProgramError, SourceError, VariableError};

use crate::exit::{Exit, Failure};

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Self {
        Failure::usage(error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::Image(error) => super::image_exit(error),
            Error::Unreachable { .. } => Exit::Refused,
            Error::Replaced { .. } | Error::Elsewhere { .. } => Exit::Drift,
            Error::NotLoaded { .. } => Exit::Unsupported,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        let exit = match &error {
            SourceError::NoCode { .. } | SourceError::Gone { .. } | SourceError::NotDeployed { .. } => Exit::Refused,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<VariableError> for Failure {
    fn from(error: VariableError) -> Self {
        match error {
            VariableError::Place(error) => error.into(),
            VariableError::Source(error) => error.into(),
            VariableError::Header(error) => error.into(),
            VariableError::NoUnit { .. } | VariableError::TooMany { .. } => {
                Failure::new(Exit::Refused, error.to_string())
            }
            other => Failure::error(other.to_string()),
        }
    }
}

impl From<PlacesError> for Failure {
    fn from(error: PlacesError) -> Self {
        match error {
            PlacesError::Place(error) => error.into(),
            PlacesError::OtherBuild { .. } => Failure::new(Exit::Drift, error.to_string()),
            PlacesError::Elsewhere { .. } => Failure::new(Exit::Refused, error.to_string()),
            other => Failure::error(other.to_string()),
        }
    }
}

impl From<ProgramError> for Failure {
    fn from(error: ProgramError) -> Self {
        match error {
            ProgramError::Policy(error) => error.into(),
            ProgramError::SeveralPrograms { .. } => Failure::usage(error.to_string()),
            other => Failure::error(other.to_string()),
        }
    }
}

impl From<MapsError> for Failure {
    fn from(error: MapsError) -> Self {
        Failure::error(error.to_string())
    }
}
