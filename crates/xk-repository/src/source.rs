//! Where a repository is: a directory, or a server.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use xk_http::{HttpError, Uri, Wanted};

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A directory.
    Folder(PathBuf),
    /// The URL of a directory, by HTTP or HTTPS.
    Http(String),
}

/// A text does not say where a repository is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the address of a repository: write https://HOST/PATH, file:///PATH, or the path of a folder from / on")]
pub struct AddressError(String);

/// Why a file of a repository was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system said no.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a directory, a device or a pipe.
    #[error("is not a file")]
    NoFile,
    /// It is longer than it may be.
    #[error("is longer than {0} bytes")]
    TooLong(u64),
    /// The server.
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl ReadError {
    /// Whether the repository can be read, and does not contain the file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Io(error) => error.kind() == io::ErrorKind::NotFound,
            Self::Http(HttpError::Status(status)) => status.as_u16() == 404,
            _ => false,
        }
    }
}

impl FromStr for Source {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        let path = text.strip_prefix("file://").unwrap_or(text);
        if path.starts_with('/') {
            return Ok(Self::Folder(path.into()));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let is_plain = !rest.contains(['@', '#', '?']) && rest.is_ascii();
        match ["http", "https"].contains(&scheme) && is_plain && uri.host().is_some_and(|host| !host.is_empty()) {
            true => Ok(Self::Http(text.trim_end_matches('/').to_owned())),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Http(url) => url.fmt(f),
        }
    }
}

impl Source {
    /// The address of a file in it.
    pub(crate) fn place(&self, path: &Path) -> String {
        format!("{self}/{}", path.display())
    }

    /// Whether the repository itself is there. A server is asked for files only.
    pub(crate) fn exists(&self) -> bool {
        match self {
            Self::Folder(folder) => folder.is_dir(),
            Self::Http(_) => true,
        }
    }

    /// Reads a file of at most `bytes`. A server has `time` for it.
    pub(crate) fn read(&self, path: &Path, bytes: u64, time: Duration) -> Result<Vec<u8>, ReadError> {
        match self {
            Self::Folder(folder) => {
                let file = File::open(folder.join(path))?;
                if !file.metadata()?.is_file() {
                    return Err(ReadError::NoFile);
                }
                let mut content = Vec::new();
                file.take(bytes + 1).read_to_end(&mut content)?;
                match content.len() as u64 > bytes {
                    true => Err(ReadError::TooLong(bytes)),
                    false => Ok(content),
                }
            }
            Self::Http(_) => {
                let wanted = Wanted { accept: "application/json, */*;q=0.1", time, bytes };
                Ok(xk_http::get(&self.place(path), wanted)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_address_is_a_url_or_an_absolute_path() {
        let folder = |path: &str| Ok(Source::Folder(path.into()));
        assert_eq!("/srv/tables".parse(), folder("/srv/tables"));
        assert_eq!("file:///srv/tables".parse(), folder("/srv/tables"));
        let http = |url: &str| Ok(Source::Http(url.into()));
        assert_eq!("https://example.org/tables/".parse(), http("https://example.org/tables"));
        assert_eq!("http://[::1]:8080".parse(), http("http://[::1]:8080"));
        for text in [
            "",
            "tables",
            "./tables",
            "file://tables",
            "ftp://example.org/",
            "https://",
            "https:///x",
            "https://a@example.org/",
            "https://example.org/?x",
            "https://exämple.org/",
        ] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_files_of_the_right_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let source: Source = folder.path().to_str().unwrap().parse().unwrap();
        let read = |name: &str, most| source.read(Path::new(name), most, Duration::ZERO);
        std::fs::write(folder.path().join("a"), "text").unwrap();
        assert_eq!(read("a", 4).unwrap(), b"text");
        assert!(matches!(read("a", 3), Err(ReadError::TooLong(3))));
        assert!(read("b", 4).unwrap_err().is_missing());
        std::fs::create_dir(folder.path().join("c")).unwrap();
        assert!(matches!(read("c", 4), Err(ReadError::NoFile)));
    }
}
