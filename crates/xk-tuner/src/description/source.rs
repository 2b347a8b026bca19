//! A file that is being read: its text, and the line of each part of it.

use std::fs;
use std::ops::Range as Span;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::error::{DescriptionError, Location, Problem};
use super::SCHEMA;

/// The text of a file.
pub(super) struct SourceText {
    file: PathBuf,
    text: String,
}

impl SourceText {
    pub fn read(file: &Path) -> Result<Self, DescriptionError> {
        let text =
            fs::read_to_string(file).map_err(|source| DescriptionError::Read { path: file.to_owned(), source })?;
        Ok(Self { file: file.to_owned(), text })
    }

    pub fn location(&self, span: Span<usize>) -> Location {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        Location { file: self.file.clone(), line: before.matches('\n').count() + 1 }
    }

    pub fn error(&self, span: Span<usize>, problem: impl Into<Problem>) -> DescriptionError {
        self.location(span).error(problem.into())
    }

    pub fn parse<T: for<'de> Deserialize<'de>>(&self) -> Result<T, DescriptionError> {
        toml::from_str(&self.text).map_err(|error| self.error(error.span().unwrap_or(0..0), Problem::Syntax(error)))
    }

    pub fn check_schema(&self, schema: &Spanned<u32>) -> Result<(), DescriptionError> {
        match *schema.get_ref() {
            SCHEMA => Ok(()),
            other => Err(self.error(schema.span(), Problem::Schema(other))),
        }
    }

    /// `200ms`, `5s`, `2m`.
    pub fn duration(&self, text: &Spanned<String>) -> Result<Duration, DescriptionError> {
        let word = text.get_ref().trim();
        let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
        let (number, unit) = word.split_at(digits);
        let factor = match unit {
            "ms" => Some(1),
            "s" => Some(1000),
            "m" => Some(60_000),
            _ => None,
        };
        let milliseconds = factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(factor));
        let duration = milliseconds.map(Duration::from_millis);
        duration.ok_or_else(|| self.error(text.span(), Problem::Time(word.to_owned())))
    }
}
