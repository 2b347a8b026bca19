//! Lines of the kernel's source as places: `[MODULE:]UNIT:LINE`, or `[MODULE:]UNIT:FILE:LINE` for a line of a file that the
//! unit includes.

use std::fmt;

/// How the names of source files end.
const SOURCES: [&str; 3] = [".c", ".h", ".S"];

/// A line of the source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// Module of the translation unit, if it was named.
    pub module: Option<String>,
    /// The translation unit.
    pub unit: String,
    /// The file, if it is not the unit itself.
    pub file: Option<String>,
    /// From 1.
    pub number: u64,
}

impl Line {
    /// Reads a line. `None`: the text is something else; `Some(None)`: it names files, but no line.
    pub(crate) fn parse(text: &str) -> Option<Option<Self>> {
        let (files, number) = text.rsplit_once(':')?;
        let mut parts: Vec<&str> = files.split(':').collect();
        let module = match parts.first() {
            Some(first) if !is_source(first) => Some(parts.remove(0).replace('-', "_")),
            _ => None,
        };
        if parts.is_empty() || !parts.iter().all(|part| is_source(part)) {
            return None;
        }
        let line = |number: u64| match parts[..] {
            [unit] => Some(Self { module, unit: unit.to_owned(), file: None, number }),
            [unit, file] => Some(Self { module, unit: unit.to_owned(), file: Some(file.to_owned()), number }),
            _ => None,
        };
        let digits = Some(number).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let number = digits.and_then(|number| number.parse().ok()).filter(|number| *number > 0);
        Some(number.and_then(line))
    }

    /// The file in which the line is.
    #[must_use]
    pub fn file(&self) -> &str {
        self.file.as_deref().unwrap_or(&self.unit)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(module) = &self.module {
            write!(f, "{module}:")?;
        }
        write!(f, "{}:", self.unit)?;
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        write!(f, "{}", self.number)
    }
}

/// Whether a text names a source file: functions and modules have no such names.
fn is_source(text: &str) -> bool {
    text.contains('/') || SOURCES.iter().any(|end| text.len() > end.len() && text.ends_with(end))
}
