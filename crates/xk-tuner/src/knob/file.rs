//! A file with a value, as in /proc/sys, /sys and debugfs.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::format::Format;
use super::{Knob, KnobError};
use crate::value::{offered, Value};

/// The file.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    format: Format,
}

impl File {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), format: Format::of(path) }
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
        self.text().map(|text| self.format.read(&text))
    }

    fn write(&mut self, value: &Value) -> Result<(), KnobError> {
        let current = self.text()?;
        let mut file = OpenOptions::new().write(true).open(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.failure(error),
            _ => self.refused(value, error),
        })?;
        let length = file.metadata().map_err(|error| self.refused(value, error))?.len();
        let lines = self.format.lines(value, &current);
        // The length of an ordinary file is that of its text. Files of the kernel report 0, or a page.
        if length == current.len() as u64 {
            return write_ordinary(&mut file, &lines, current.len()).map_err(|error| self.refused(value, error));
        }
        // One call for each: the kernel takes each call as a value of its own.
        for line in lines {
            file.write_all(format!("{line}\n").as_bytes()).map_err(|error| self.refused(value, error))?;
        }
        Ok(())
    }

    fn offered(&mut self) -> Result<Option<Vec<Value>>, KnobError> {
        self.text().map(|text| offered(&text))
    }

    fn canonical(&self, value: &Value) -> Value {
        self.format.canonical(value)
    }

    fn complete(&mut self, value: &Value) -> Value {
        self.format.complete(value, &self.text().unwrap_or_default())
    }
}

/// Writes an ordinary file in one call. It is not truncated first, because a reader in between, above all the guardian,
/// would find a value that no one has set.
fn write_ordinary(file: &mut fs::File, lines: &[String], before: usize) -> io::Result<()> {
    let text = lines.join("\n") + "\n";
    file.write_all(format!("{text:\n<before$}").as_bytes())?;
    file.set_len(text.len() as u64)
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

    /// As the kernel does it: the file reads back more than was written.
    #[test]
    fn a_quota_is_set_although_it_reads_back_with_its_period() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cpu.max");
        fs::write(&path, "max 100000\n").unwrap();
        let mut knob = File::new(&path);
        let level = knob.complete(&Value::Number(50_000));
        super::super::set(&mut knob, &level).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "50000 100000\n");
        assert_eq!(knob.read().unwrap(), level);
    }

    #[test]
    fn a_weight_is_set_although_it_reads_back_with_a_word() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("io.weight");
        fs::write(&path, "default 100\n").unwrap();
        let mut knob = File::new(&path);
        assert_eq!(knob.read().unwrap(), Value::Number(100));
        super::super::set(&mut knob, &Value::parse("default 200")).unwrap();
        assert_eq!(knob.read().unwrap(), Value::Number(200));
    }
}
