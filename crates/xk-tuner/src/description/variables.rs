//! Variables of a subsystem. In: a text with `{disk}`, and the values that the search gives. Out: the text with the
//! values. It refuses variables without a value, and values that could lead to another folder.
//!
//! The braces of a shell command belong to the shell, unless they contain the name of a variable: `awk '{print $1}'` and
//! `${VALUE}` stay as they are.

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

/// Replaces `{disk}` by the value that the search gives. All braces contain a variable.
pub(super) fn substitute(text: &str, with: &Variables) -> Result<String, VariableError> {
    replace(text, |_, name| value(name, with).map(Some))
}

/// Replaces `{disk}` in a shell command. All other braces belong to the shell, as does `${disk}`.
pub(super) fn substitute_in_command(text: &str, with: &Variables) -> Result<String, VariableError> {
    replace(text, |before, name| match with.contains_key(name) && !before.ends_with('$') {
        true => value(name, with).map(Some),
        false => Ok(None),
    })
}

fn value<'w>(name: &str, with: &'w Variables) -> Result<&'w str, VariableError> {
    let value = with.get(name).ok_or_else(|| VariableError::Missing(name.to_owned()))?;
    if value.contains('/') || value.contains("..") {
        return Err(VariableError::NotPlain { name: name.to_owned(), value: value.clone() });
    }
    Ok(value)
}

/// Replaces each pair of braces for which `value` returns a text. It gets the text before the braces, and within them.
fn replace<'w>(
    text: &str,
    value: impl Fn(&str, &str) -> Result<Option<&'w str>, VariableError>,
) -> Result<String, VariableError> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        result += before;
        match after.split_once('}') {
            None => return Ok(result + "{" + after),
            Some((name, after_braces)) => match value(before, name)? {
                Some(value) => {
                    result += value;
                    rest = after_braces;
                }
                // Only the brace itself: a variable may follow within the same pair.
                None => {
                    result.push('{');
                    rest = after;
                }
            },
        }
    }
    Ok(result + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with() -> Variables {
        [("disk".to_owned(), "sda".to_owned())].into()
    }

    #[test]
    fn all_braces_of_a_path_contain_variables() {
        assert_eq!(substitute("/sys/block/{disk}/{disk}", &with()).as_deref(), Ok("/sys/block/sda/sda"));
        assert_eq!(substitute("/a/{open", &with()).as_deref(), Ok("/a/{open"));
        assert_eq!(substitute("/a/{disc}", &with()), Err(VariableError::Missing("disc".into())));
        let up = [("disk".to_owned(), "../x".to_owned())].into();
        assert!(matches!(substitute("/a/{disk}", &up), Err(VariableError::NotPlain { .. })));
    }

    #[test]
    fn braces_of_a_command_belong_to_the_shell() {
        for same in ["awk '{print $1}' f", "echo ${VALUE}", "echo ${disk}", "{ a; b; }", "{", "echo {1..3}"] {
            assert_eq!(substitute_in_command(same, &with()).as_deref(), Ok(same));
        }
        let both = substitute_in_command("{ cat /sys/block/{disk}/stat; } | awk '{print $1}'", &with());
        assert_eq!(both.as_deref(), Ok("{ cat /sys/block/sda/stat; } | awk '{print $1}'"));
        let up = [("disk".to_owned(), "../x".to_owned())].into();
        assert!(matches!(substitute_in_command("cat {disk}", &up), Err(VariableError::NotPlain { .. })));
    }
}
