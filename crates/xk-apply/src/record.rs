//! What `xk apply` has loaded, and from which lines: the kernel does not know this. `/run/xk` holds one file, which a boot
//! removes together with the tunes. The kernel decides what is in force: an entry that contradicts it is ignored.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{flock, FlockOperation};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use xk_runtime::TuneStatus;

use crate::place::Place;

const FOLDER: &str = "/run/xk";
const FILE: &str = "applied.json";

/// Why the record cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Its file or directory cannot be written or locked.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Its file exists and cannot be read.
    #[error(
        "{}: {error}; what was applied before is not known: `xk status` shows what is in force, `xk unset` and `xk unload` \
         end it; then remove this file",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system, or of the parser.
        error: io::Error,
    },
}

/// The tunes that were applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// One for each constant.
    pub tunes: Vec<Applied>,
}

/// A tune that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Number of the tune. Numbers begin again when `xk.ko` is loaded.
    pub tune: u32,
    /// Process that loaded the tune. Together with the number, it identifies the tune.
    pub owner: i32,
    /// Its constant, by the name that the kernel knows.
    pub constant: String,
    /// The file that declares it.
    pub file: PathBuf,
    /// The line.
    pub line: usize,
    /// The word of the requested backend.
    pub backend: String,
    /// The set of policies that decides, if one does.
    #[serde(rename = "unit")]
    pub set: Option<AppliedSet>,
}

/// Policies that were loaded together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedSet {
    /// Their name.
    pub name: String,
    /// Digest of their source.
    pub digest: String,
    /// Number of the program that decides the constant.
    pub program: u32,
}

impl Applied {
    /// Whether `tune` is this tune.
    #[must_use]
    pub fn is(&self, tune: &TuneStatus) -> bool {
        tune.id == self.tune && tune.name == self.constant && tune.owner_pid == self.owner
    }

    /// The line that declares it.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { file: self.file.clone(), line: self.line }
    }
}

/// The directory of the record, locked for one process at a time.
#[derive(Debug)]
pub struct Keeper {
    folder: PathBuf,
    _lock: File,
}

impl Keeper {
    /// Waits for the lock.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn new() -> Result<Self, RecordError> {
        Self::of(Path::new(FOLDER))
    }

    fn of(folder: &Path) -> Result<Self, RecordError> {
        let failed = |error: io::Error| RecordError::Io { path: folder.to_owned(), error };
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::create(folder.join("apply.lock")).map_err(failed)?;
        flock(lock.as_fd(), FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(Self { folder: folder.to_owned(), _lock: lock })
    }

    /// The recorded tunes that are among `tunes`.
    ///
    /// # Errors
    /// The record cannot be read. It is not known then what was applied.
    pub fn read(&self, tunes: &[TuneStatus]) -> Result<Record, RecordError> {
        let path = self.folder.join(FILE);
        let unreadable = |error: io::Error| RecordError::Unreadable { path: path.clone(), error };
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Record::default()),
            other => other.map_err(unreadable)?,
        };
        let mut record: Record = match serde_json::from_slice(&bytes) {
            Ok(record) => record,
            // Without tunes, every entry would be ignored.
            Err(_) if tunes.is_empty() => Record::default(),
            Err(error) => return Err(unreadable(error.into())),
        };
        record.tunes.retain(|applied| tunes.iter().any(|tune| applied.is(tune)));
        Ok(record)
    }

    /// Writes the record atomically.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, record: &Record) -> Result<(), RecordError> {
        let path = self.folder.join(FILE);
        let failed = |error: io::Error| RecordError::Io { path: path.clone(), error };
        let text = serde_json::to_vec_pretty(record).map_err(|error| failed(error.into()))?;
        let draft = self.folder.join(".applied");
        let mut file = File::create(&draft).map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        fs::rename(&draft, &path).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use xk_harness::example;

    use super::*;

    #[test]
    fn what_the_kernel_does_not_know_is_not_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = Keeper::of(folder.path()).unwrap();
        let tune = example::tune();
        let applied = Applied {
            tune: tune.id,
            owner: tune.owner_pid,
            constant: tune.name.clone(),
            file: "/etc/xk.d/a.toml".into(),
            line: 3,
            backend: "kprobe".into(),
            set: None,
        };
        let record = Record { tunes: vec![applied] };
        assert_eq!(keeper.read(&[]).unwrap(), Record::default());
        keeper.write(&record).unwrap();
        assert_eq!(keeper.read(std::slice::from_ref(&tune)).unwrap(), record);
        assert_eq!(keeper.read(&[]).unwrap(), Record::default());
        // Numbers of tunes begin again with the module.
        let other = TuneStatus { owner_pid: tune.owner_pid + 1, ..tune.clone() };
        assert_eq!(keeper.read(&[other]).unwrap(), Record::default());
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(keeper.read(&[tune]).unwrap_err().to_string().contains("not known"));
        assert_eq!(keeper.read(&[]).unwrap(), Record::default(), "nothing is in force: nothing was lost");
    }
}
