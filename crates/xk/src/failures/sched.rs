//! Errors of xk-sched.

use xk_sched::Error;

use crate::exit::{Exit, Failure};

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::NotLoaded | Error::Abi { .. } => Exit::Unsupported,
            Error::Forbidden(_) | Error::Refused(_) | Error::Ejected(_) => Exit::Refused,
            Error::Name(_) => Exit::Usage,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}
