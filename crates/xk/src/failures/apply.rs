//! Errors of xk-apply.

use xk_apply::set::SetError;
use xk_apply::{
    At, Conflict, ExecuteError, FileError, GoalError, Held, IllSite, LoadError, PartNotLoaded, PlanError, RecordError,
    TransitionError, ValueError,
};

use crate::exit::{Exit, Failure};

impl From<ValueError> for Failure {
    fn from(error: ValueError) -> Self {
        match error {
            ValueError::Lookup(error) => error.into(),
            ValueError::Conversion(error) => error.into(),
            ValueError::NotAccepted(error) => error.into(),
            other => Failure::error(other.to_string()),
        }
    }
}

impl From<TransitionError> for Failure {
    fn from(error: TransitionError) -> Self {
        let exit = match error {
            TransitionError::Runtime(error) => return error.into(),
            TransitionError::WeakMode { .. } | TransitionError::Ignored { .. } => Exit::Usage,
            TransitionError::Unloading { .. } | TransitionError::Blocked { .. } => Exit::Blocked,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<IllSite> for Failure {
    fn from(error: IllSite) -> Self {
        let exit = if matches!(error, IllSite::Broken { .. }) { Exit::Drift } else { Exit::Error };
        Failure::new(exit, error.to_string())
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let message = error.to_string();
        Failure { message, ..Failure::from(error.error) }
    }
}

impl From<Held> for Failure {
    fn from(error: Held) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<SetError> for Failure {
    fn from(error: SetError) -> Self {
        let message = error.to_string();
        let exit = match error {
            SetError::Twice { .. } => Exit::Usage,
            SetError::Ill(error) => Failure::from(error).exit,
            SetError::OlderTable { .. } => Exit::Refused,
            SetError::Rules { error, .. } => Failure::from(error).exit,
            SetError::Load(error) => Failure::from(error).exit,
            SetError::Keep { error, .. } | SetError::Runtime(error) => Failure::from(error).exit,
            _ => Exit::Error,
        };
        Failure::new(exit, message)
    }
}

impl From<Conflict> for Failure {
    fn from(error: Conflict) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<PartNotLoaded> for Failure {
    fn from(error: PartNotLoaded) -> Self {
        let message = error.to_string();
        Failure { message, ..Failure::from(*error.error) }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<GoalError> for Failure {
    fn from(error: GoalError) -> Self {
        match error {
            GoalError::Rules(error) => error.into(),
            GoalError::Value(error) => error.into(),
            GoalError::Scoped(error) => (*error).into(),
            GoalError::Group(error) => error.into(),
            GoalError::Source(error) => (*error).into(),
            GoalError::Policy(error) => error.into(),
            GoalError::Parts(error) => error.into(),
            GoalError::Lookup(error) => error.into(),
            other => Failure::error(other.to_string()),
        }
    }
}

impl<E: Into<Failure>> From<At<E>> for Failure {
    fn from(at: At<E>) -> Self {
        (*at.error).into().about(&at.place.to_string())
    }
}

impl From<ExecuteError> for Failure {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::At { place, error } => Failure::from(*error).about(&place.to_string()),
            ExecuteError::Constant { title, error } => Failure::from(*error).about(&title),
            ExecuteError::Unchanged(error) => Failure::from(*error).then("; nothing was changed"),
            ExecuteError::Ill(error) => error.into(),
            ExecuteError::Source(error) => (*error).into(),
            ExecuteError::Policy(error) => error.into(),
            ExecuteError::Parts(error) => error.into(),
            ExecuteError::Give(error) => error.into(),
            ExecuteError::Group(error) => error.into(),
            ExecuteError::Rules(error) => error.into(),
            ExecuteError::Symbols(error) => error.into(),
            ExecuteError::Load(error) => error.into(),
            ExecuteError::Record(error) => error.into(),
            ExecuteError::Transition(error) => error.into(),
            ExecuteError::Runtime(error) => error.into(),
            other => Failure::error(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use xk_apply::{Holder, Place};
    use xk_runtime::Error as RuntimeError;

    use super::*;

    fn place() -> Place {
        Place { file: "a.toml".into(), line: 3 }
    }

    #[test]
    fn the_message_of_a_failure_is_that_of_the_error() {
        let drift = || LoadError { title: "A".into(), error: RuntimeError::Drift("A: expected 1".into()) };
        let nested =
            || ExecuteError::Unchanged(Box::new(ExecuteError::At { place: place(), error: Box::new(drift().into()) }));
        let failure = Failure::from(nested());
        assert_eq!((failure.exit, failure.message), (Exit::Drift, nested().to_string()));
        assert!(nested().to_string().starts_with("a.toml:3: A: expected 1: the running code"));
        let held = || PlanError::Held { title: "A".into(), holder: Holder::Detached { value: 1, owner: "x".into() } };
        let failure = Failure::from(place().at(held()));
        assert_eq!((failure.exit, failure.message), (Exit::Error, place().at(held()).to_string()));
        let weak = || TransitionError::Ignored { title: "A".into() };
        let failure = Failure::from(ExecuteError::At { place: place(), error: Box::new(weak().into()) });
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.starts_with("a.toml:3: A changes only after"), "{}", failure.message);
    }

    #[test]
    fn a_value_that_the_table_refuses_is_refused_and_one_without_a_unit_is_wrong_usage() {
        let table = crate::fixture::table();
        let refused = ValueError::from(xk_table::NotAccepted::new(&table, 0));
        assert_eq!(Failure::from(refused).exit, Exit::Refused);
        let no_unit = table.constant.number("5ms".parse().unwrap(), || Ok(250)).unwrap_err();
        assert_eq!(Failure::from(ValueError::from(no_unit)).exit, Exit::Usage);
    }
}
