//! The value of a parameter: an integer, or words as the kernel writes them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(i64),
    /// Words, separated by one space (`mq-deadline`, `4096 131072 6291456`).
    Words(String),
}

impl Value {
    /// The value in the text of a file or a command: the word in brackets, if there is one.
    #[must_use]
    pub fn read(text: &str) -> Self {
        match bracketed(text) {
            Some(word) => Self::parse(word),
            None => Self::parse(text),
        }
    }

    /// The number in a text, or else its words.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        match text.parse() {
            Ok(number) => Self::Number(number),
            Err(_) => Self::Words(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        }
    }
}

/// The current choice of `none [mq-deadline] kyber`.
fn bracketed(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word)
}

/// The choices that such a text lists; `None` if no word is in brackets.
#[must_use]
pub fn offered(text: &str) -> Option<Vec<Value>> {
    bracketed(text)?;
    let words = text.split_whitespace().map(|word| Value::parse(word.trim_matches(['[', ']'])));
    Some(words.collect())
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Words(words) => f.write_str(words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_is_the_value() {
        assert_eq!(Value::read("none [mq-deadline] kyber\n"), Value::Words("mq-deadline".into()));
        let offered = offered("none [mq-deadline]\n").unwrap();
        assert_eq!(offered, [Value::Words("none".into()), Value::Words("mq-deadline".into())]);
        assert_eq!(super::offered("128\n"), None);
    }

    #[test]
    fn white_space_does_not_matter() {
        assert_eq!(Value::read(" 128\n"), Value::Number(128));
        assert_eq!(Value::read("4096\t131072\t6291456\n"), Value::parse("4096 131072  6291456"));
    }
}
