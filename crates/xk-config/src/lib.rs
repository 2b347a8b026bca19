//! The administrator's file: `/etc/xk/xk.toml`, or the file that `$XK_CONFIG` names.
//!
//! ```toml
//! [backend]
//! forbid = ["patch"]
//!
//! [tables]
//! from = ["https://example.org/tables", "/srv/tables"]
//! ```
//!
//! Out: the words in it, each with its line. What they mean is said by the crates that use them: backends by `xk-runtime`,
//! repositories by `xk-repository`. Refuses a file that cannot be read, is not TOML, or has an unknown key: a rule with a
//! mistyped key would forbid nothing. A file that does not exist says nothing.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

const FILE: &str = "/etc/xk/xk.toml";
const VARIABLE: &str = "XK_CONFIG";

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The file, which need not exist.
    pub file: PathBuf,
    /// Forbidden backends.
    pub forbid: Vec<Word>,
    /// Repositories of tables, in the order in which they are asked.
    pub from: Vec<Word>,
}

/// A word of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The word.
    pub text: String,
    /// Where it is.
    pub place: Place,
}

/// A file and a line in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Why it is not known what the file says.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file exists and cannot be read.
    #[error("{}: {error}: the rules of this machine are unknown; correct or remove the file", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file is not TOML, or has an unknown key.
    #[error("{place}: {reason}")]
    Syntax {
        /// The line.
        place: Place,
        /// The message of the parser.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    backend: Backend,
    #[serde(default)]
    tables: Tables,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Backend {
    #[serde(default)]
    forbid: Vec<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    #[serde(default)]
    from: Vec<Spanned<String>>,
}

impl Config {
    /// Of this machine.
    ///
    /// # Errors
    /// The file is there and cannot be read or understood.
    pub fn read() -> Result<Self, ConfigError> {
        let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        let file = named.map_or_else(|| PathBuf::from(FILE), PathBuf::from);
        match fs::read_to_string(&file) {
            Ok(text) => Self::parse(&file, &text),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self { file, ..Self::default() }),
            Err(error) => Err(ConfigError::Unreadable { file, error }),
        }
    }

    /// The text of this file.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let place = |offset: usize| {
            let line = 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count();
            Place { file: file.to_owned(), line }
        };
        let document: Document = toml::from_str(text).map_err(|error| ConfigError::Syntax {
            place: place(error.span().map_or(0, |span| span.start)),
            reason: error.message().trim().replace('\n', ", "),
        })?;
        let words = |words: Vec<Spanned<String>>| {
            let word = |word: Spanned<String>| Word { place: place(word.span().start), text: word.into_inner() };
            words.into_iter().map(word).collect()
        };
        let (forbid, from) = (words(document.backend.forbid), words(document.tables.from));
        Ok(Self { file: file.to_owned(), forbid, from })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("/etc/xk/xk.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn each_word_has_its_line() {
        let text = "[backend]\nforbid = [\"patch\"]\n[tables]\nfrom = [\n  \"https://example.org/t\", \"/srv/t\"]\n";
        let config = parse(text).unwrap();
        let of = |words: &[Word]| -> Vec<(String, usize)> {
            words.iter().map(|word| (word.text.clone(), word.place.line)).collect()
        };
        assert_eq!(of(&config.forbid), [("patch".into(), 2)]);
        assert_eq!(of(&config.from), [("https://example.org/t".into(), 5), ("/srv/t".into(), 5)]);
        assert_eq!(parse("").unwrap(), Config { file: "/etc/xk/xk.toml".into(), ..Config::default() });
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, told) in [
            ("[backend]\n\nforbit = []\n", "/etc/xk/xk.toml:3: unknown field `forbit`"),
            ("[backends]\n", "/etc/xk/xk.toml:1: unknown field `backends`"),
            ("[backend]\nforbid = \"patch\"\n", "/etc/xk/xk.toml:2: invalid type"),
            ("[backend\n", "/etc/xk/xk.toml:1: "),
            ("[tables]\nform = []\n", "/etc/xk/xk.toml:2: unknown field `form`"),
            ("[tables]\nfrom = \"/srv/t\"\n", "/etc/xk/xk.toml:2: "),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.starts_with(told), "{text}: {found}");
        }
    }
}
