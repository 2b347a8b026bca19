//! The repositories of this machine, which the administrator's file names (`xk-config`).

use std::path::PathBuf;

use xk_config::{Config, ConfigError, Place, Word};

use crate::source::{AddressError, Source};

/// The repositories of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// The file that names them, which need not exist.
    pub file: PathBuf,
    /// The repositories, in the order in which they are asked.
    pub list: Vec<Source>,
}

/// Why the repositories are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourcesError {
    /// The file cannot be read or understood.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A text is not the address of a repository.
    #[error("{place}: {error}")]
    Address {
        /// The line.
        place: Place,
        /// What is wrong.
        error: AddressError,
    },
}

impl Sources {
    /// Of this machine.
    ///
    /// # Errors
    /// The file is there and cannot be read or understood.
    pub fn read() -> Result<Self, SourcesError> {
        Self::of(Config::read()?)
    }

    fn of(config: Config) -> Result<Self, SourcesError> {
        let source = |Word { text, place }| text.parse().map_err(|error| SourcesError::Address { place, error });
        let list = config.from.into_iter().map(source).collect::<Result<_, _>>()?;
        Ok(Self { file: config.file, list })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Result<Sources, String> {
        let config = Config::parse(Path::new("/etc/xk/xk.toml"), text).unwrap();
        Sources::of(config).map_err(|error| error.to_string())
    }

    #[test]
    fn repositories_are_read_in_order() {
        let text = "[backend]\nforbid = [\"patch\"]\n[tables]\nfrom = [\"https://example.org/t\", \"/srv/t\"]\n";
        let sources: Vec<String> = parse(text).unwrap().list.iter().map(ToString::to_string).collect();
        assert_eq!(sources, ["https://example.org/t", "/srv/t"]);
        assert_eq!(parse("").unwrap().list, []);
    }

    #[test]
    fn what_is_no_address_is_named_with_its_line() {
        let found = parse("[tables]\nfrom = [\n  \"/srv/t\",\n  \"tables\",\n]\n").unwrap_err();
        assert!(found.starts_with("/etc/xk/xk.toml:4: `tables` is not the address"), "{found}");
    }
}
