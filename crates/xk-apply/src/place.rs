//! A line of a file, and errors that name it.

use std::fmt;
use std::path::PathBuf;

/// The line that declares something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

impl Place {
    /// `error`, which this line causes.
    pub fn at<E>(&self, error: E) -> At<E> {
        At { place: self.clone(), error: Box::new(error) }
    }
}

/// An error, and the line that causes it.
#[derive(Debug)]
pub struct At<E> {
    /// The line.
    pub place: Place,
    /// The error.
    pub error: Box<E>,
}

impl<E: fmt::Display> fmt::Display for At<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&about(&self.place, &self.error))
    }
}

impl<E: std::error::Error> std::error::Error for At<E> {}

/// The message of `error`, which begins with `subject`.
pub(crate) fn about(subject: &impl fmt::Display, error: &impl fmt::Display) -> String {
    let (subject, message) = (subject.to_string(), error.to_string());
    if message.starts_with(&subject) {
        message
    } else {
        format!("{subject}: {message}")
    }
}
