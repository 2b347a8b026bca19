//! A file that is being read: its text, and the line of each part of it.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
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

    pub fn location(&self, span: Range<usize>) -> Location {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        Location { file: self.file.clone(), line: before.matches('\n').count() + 1 }
    }

    pub fn error(&self, span: Range<usize>, problem: impl Into<Problem>) -> DescriptionError {
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
        let signed = word.parse().and_then(|span: Span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
        // A negative time is none.
        let duration = signed.ok().and_then(|signed| Duration::try_from(signed).ok());
        duration.ok_or_else(|| self.error(text.span(), Problem::Time(word.to_owned())))
    }
}
