//! A file with a value, as in /proc/sys, /sys and debugfs.

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
        fs::read_to_string(&self.path).map_err(|error| self.failure(error))
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn failure(&self, error: io::Error) -> KnobError {
        match error.kind() {
            io::ErrorKind::NotFound => KnobError::missing(self.place(), error),
            _ => KnobError::unreadable(self.place(), error),
        }
    }

    fn refused(&self, value: &Value, error: io::Error) -> KnobError {
        KnobError::refused(self.place(), value, error)
    }
}

impl Knob for File {
    fn read(&mut self) -> Result<Value, KnobError> {
        self.text().map(|text| Value::read(&text))
    }

    fn write(&mut self, value: &Value) -> Result<(), KnobError> {
        let before = self.text()?.len();
        let mut file = OpenOptions::new().write(true).open(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.failure(error),
            _ => self.refused(value, error),
        })?;
        let length = file.metadata().map_err(|error| self.refused(value, error))?.len();
        // The length of an ordinary file is that of its text. Files of the kernel report 0, or a page.
        let ordinary = length == before as u64;
        let text = format!("{value}\n");
        let padded = if ordinary { format!("{text:\n<before$}") } else { text.clone() };
        // One call: the kernel takes each call as a value of its own. An ordinary file is not truncated first, because
        // a reader in between, above all the guardian, would find a value that nobody has set.
        file.write_all(padded.as_bytes()).map_err(|error| self.refused(value, error))?;
        if ordinary {
            file.set_len(text.len() as u64).map_err(|error| self.refused(value, error))?;
        }
        Ok(())
    }

    fn offered(&mut self) -> Result<Option<Vec<Value>>, KnobError> {
        self.text().map(|text| offered(&text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A tuner may be killed between any two system calls. Reading beside a `write()` may show a part of it, which a
    /// death cannot leave behind; an empty file is what truncation would leave.
    #[test]
    fn the_file_is_empty_at_no_moment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("knob");
        let values = [Value::Number(7), Value::parse("mq-deadline"), Value::Number(1024)];
        fs::write(&path, "7\n").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut looks = 0_u32;
                while !done.load(Ordering::Relaxed) || looks < 1000 {
                    let now = Value::read(&fs::read_to_string(&path).unwrap());
                    assert_ne!(now, Value::parse(""));
                    looks += 1;
                }
            });
            let mut knob = File::new(&path);
            for value in values.iter().cycle().take(30_000).take_while(|_| !reader.is_finished()) {
                knob.write(value).unwrap();
                assert_eq!(knob.read().unwrap(), *value);
            }
            done.store(true, Ordering::Relaxed);
        });
        File::new(&path).write(&Value::Number(5)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "5\n");
    }
}
