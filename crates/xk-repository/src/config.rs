//! The repositories of this machine.
//!
//! In: `/etc/xk/xk.toml`, or the file that `$XK_CONFIG` names. Out: repositories, in order.
//!
//! ```toml
//! [tables]
//! from = ["https://example.org/tables", "/srv/tables"]
//! ```

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use serde::Deserialize;
use toml::Spanned;

use crate::source::{AddressError, Source};

const FILE: &str = "/etc/xk/xk.toml";
const VARIABLE: &str = "XK_CONFIG";

/// The repositories of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file, which need not exist.
    pub file: PathBuf,
    /// The repositories, in the order in which they are asked.
    pub sources: Vec<Source>,
}

/// Why the repositories are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file exists and cannot be read.
    #[error("{}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file is not TOML, or has an unknown key.
    #[error("{}:{line}: {reason}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The message of the parser.
        reason: String,
    },
    /// A text is not the address of a repository.
    #[error("{}:{line}: {error}", file.display())]
    Address {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        error: AddressError,
    },
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    tables: Section,
    /// Other programs read the rest, and refuse what is unknown.
    #[serde(flatten)]
    _rest: IgnoredAny,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
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
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self { file, sources: Vec::new() }),
            Err(error) => Err(ConfigError::Unreadable { file, error }),
        }
    }

    fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let line = |offset: usize| 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count();
        let document: Document = toml::from_str(text).map_err(|error| ConfigError::Syntax {
            file: file.to_owned(),
            line: line(error.span().map_or(0, |span| span.start)),
            reason: error.message().trim().replace('\n', ", "),
        })?;
        let source = |text: &Spanned<String>| {
            let wrong = |error| ConfigError::Address { file: file.to_owned(), line: line(text.span().start), error };
            text.get_ref().parse().map_err(wrong)
        };
        let sources = document.tables.from.iter().map(source).collect::<Result<_, _>>()?;
        Ok(Self { file: file.to_owned(), sources })
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
    fn repositories_are_read_in_order() {
        let text = "[backend]\nforbid = [\"patch\"]\n[tables]\nfrom = [\"https://example.org/t\", \"/srv/t\"]\n";
        let sources: Vec<String> = parse(text).unwrap().sources.iter().map(ToString::to_string).collect();
        assert_eq!(sources, ["https://example.org/t", "/srv/t"]);
        assert_eq!(parse("").unwrap().sources, []);
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, told) in [
            ("[tables]\nfrom = [\n  \"/srv/t\",\n  \"tables\",\n]\n", "/etc/xk/xk.toml:4: `tables` is not the address"),
            ("[tables]\nform = []\n", "/etc/xk/xk.toml:2: unknown field `form`"),
            ("[tables]\nfrom = \"/srv/t\"\n", "/etc/xk/xk.toml:2: "),
            ("[tables\n", "/etc/xk/xk.toml:1: "),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.starts_with(told), "{text}: {found}");
        }
    }
}
