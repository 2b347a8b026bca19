//! Errors of xk-flex.

use xk_flex::Error;

use crate::exit::{Exit, Failure};

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Load(error) => error.into(),
            Error::Object(_) | Error::Io { .. } => Failure::error(error.to_string()),
            refused => Failure::new(Exit::Refused, refused.to_string()),
        }
    }
}
