//! A file with a value, as the kernel has them in /proc/sys, /sys and debugfs.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Knob, KnobError};
use crate::value::{offered, Value};

/// The file.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
}

impl File {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    fn text(&self) -> Result<String, KnobError> {
        fs::read_to_string(&self.path).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &io::Error) -> KnobError {
        let place = self.path.display().to_string();
        match error.kind() {
            io::ErrorKind::NotFound => KnobError::Missing { place, reason: error.to_string() },
            _ => KnobError::Unreadable { place, reason: error.to_string() },
        }
    }
}

impl Knob for File {
    fn read(&mut self) -> Result<Value, KnobError> {
        self.text().map(|text| Value::read(&text))
    }

    fn write(&mut self, value: &Value) -> Result<(), KnobError> {
        // The kernel does not care about truncation; ordinary files, which tests use, do.
        let mut file =
            OpenOptions::new().write(true).truncate(true).open(&self.path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => self.failure(&error),
                _ => self.refused(value, &error),
            })?;
        // In one call: the kernel takes each as a value of its own.
        file.write_all(format!("{value}\n").as_bytes()).map_err(|error| self.refused(value, &error))
    }

    fn offered(&mut self) -> Result<Option<Vec<Value>>, KnobError> {
        self.text().map(|text| offered(&text))
    }
}

impl File {
    fn refused(&self, value: &Value, error: &io::Error) -> KnobError {
        KnobError::Refused { place: self.path.display().to_string(), value: value.clone(), reason: error.to_string() }
    }
}
