//! Errors of xk-policy.

use xk_policy::{DeviceError, Error, GiveError, PartsError, ScopedError, SourceError};

use crate::exit::{Exit, Failure};

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::Verifier { .. } | Error::Forbidden { .. } => Exit::Refused,
            Error::NoCompiler | Error::NoFunctions | Error::Types { .. } => Exit::Unsupported,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Policy(error) => error.into(),
            SourceError::Id(error) => error.into(),
            SourceError::Choice(error) => (*error).into(),
            SourceError::Tree(error) => error.into(),
            SourceError::Lookup { place, error } => Failure::from(*error).about(&place),
            SourceError::Constant(error) => error.into(),
            SourceError::PolicySites { place, error } => Failure::from(*error).about(&place),
            SourceError::Sites(error) => (*error).into(),
            SourceError::Header(error) => error.into(),
            other => Failure::error(other.to_string()),
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let exit = match &error {
            DeviceError::NoSite { .. } => Exit::Error,
            DeviceError::Unidentified { .. } => Exit::Refused,
            _ => Exit::Usage,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<ScopedError> for Failure {
    fn from(error: ScopedError) -> Self {
        match error {
            ScopedError::Device(error) => error.into(),
            ScopedError::Sites(error) => (*error).into(),
            other => Failure::usage(other.to_string()),
        }
    }
}

impl From<PartsError> for Failure {
    fn from(error: PartsError) -> Self {
        match error {
            PartsError::Lookup { place, error } => Failure::from(error).about(&place),
            PartsError::OtherBuild { .. } => Failure::new(Exit::Drift, error.to_string()),
            PartsError::TooOften { .. } => Failure::new(Exit::Refused, error.to_string()),
            other => Failure::error(other.to_string()),
        }
    }
}

impl From<GiveError> for Failure {
    fn from(error: GiveError) -> Self {
        match error {
            GiveError::Policy(error) => error.into(),
            GiveError::Runtime(error) => error.into(),
            GiveError::Refused { .. } => Failure::new(Exit::Refused, error.to_string()),
            other => Failure::error(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_load_is_refused() {
        let (what, reason) = (String::from("choose"), String::from("Operation not permitted"));
        let exit = |error: Error| Failure::from(error).exit;
        assert_eq!(exit(Error::Forbidden { what: what.clone(), reason: reason.clone() }), Exit::Refused);
        assert_eq!(exit(Error::Load { what, reason }), Exit::Error);
        assert_eq!(Failure::from(xk_runtime::Error::Forbidden("the kernel is locked down".into())).exit, Exit::Refused);
    }
}
