//! Variables of a subsystem. In: a text with `{disk}`, and the values that the search gives. Out: the text with the
//! values. It refuses variables without a value, and values that could lead to another folder.

use std::collections::BTreeMap;

/// The values of a subsystem's variables, by name.
pub type Variables = BTreeMap<String, String>;

/// Why a variable in a description has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// The search does not give it.
    #[error("`{{{0}}}` has no value in `with`")]
    Missing(String),
    /// The value could lead to another folder.
    #[error("{name} = \"{value}\" must be a plain name, without `/`")]
    NotPlain {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
    },
}

/// Replaces `{disk}` by the value that the search gives.
pub(super) fn substitute(text: &str, with: &Variables) -> Result<String, VariableError> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let Some((name, behind)) = behind.split_once('}') else { break };
        let Some(value) = with.get(name) else {
            return Err(VariableError::Missing(name.to_owned()));
        };
        if value.contains('/') || value.contains("..") {
            return Err(VariableError::NotPlain { name: name.to_owned(), value: value.clone() });
        }
        result = result + before + value;
        rest = behind;
    }
    Ok(result + rest)
}
