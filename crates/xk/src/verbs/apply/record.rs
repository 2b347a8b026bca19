//! What `xk apply` has loaded, and from where: what the kernel does not know. One file in
//! `/run/xk`, which a boot empties as it does the kernel. The kernel decides what is in
//! force; an entry that it contradicts means nothing.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{flock, FlockOperation};
use serde::{Deserialize, Serialize};
use xk_runtime::TuneStatus;

use super::file::Place;
use crate::exit::{Failure, Result};

const FOLDER: &str = "/run/xk";
const FILE: &str = "applied.json";

/// The tunes that it has loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// By constant.
    pub tunes: Vec<Applied>,
}

/// One tune.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Its number, which begins anew with the module ...
    pub tune: u32,
    /// ... and the process that loaded it, which does not.
    pub owner: i32,
    /// Its constant, as the kernel knows it.
    pub constant: String,
    /// Where it is declared.
    pub file: PathBuf,
    /// The line.
    pub line: usize,
    /// How control is to reach the updates, in the word of the option.
    pub backend: String,
    /// The policies that it belongs to, if one decides.
    pub unit: Option<AppliedUnit>,
}

/// Policies that were loaded together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedUnit {
    /// What they are called.
    pub name: String,
    /// Of what they were made of.
    pub digest: String,
    /// Number of the program that decides this constant.
    pub program: u32,
}

impl Applied {
    /// Whether the kernel has it still.
    pub fn is(&self, tune: &TuneStatus) -> bool {
        tune.id == self.tune && tune.name == self.constant && tune.owner_pid == self.owner
    }

    /// Where it is declared.
    pub fn place(&self) -> Place {
        Place { file: self.file.clone(), line: self.line }
    }
}

/// The folder, for one process at a time.
#[derive(Debug)]
pub struct Keeper {
    folder: PathBuf,
    _lock: File,
}

impl Keeper {
    /// Waits for its turn.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn new() -> Result<Self> {
        Self::of(Path::new(FOLDER))
    }

    fn of(folder: &Path) -> Result<Self> {
        let failed = |error: std::io::Error| Failure::error(format!("{}: {error}", folder.display()));
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::create(folder.join("apply.lock")).map_err(failed)?;
        flock(lock.as_fd(), FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(Self { folder: folder.to_owned(), _lock: lock })
    }

    /// What is written down, as far as the kernel agrees.
    ///
    /// # Errors
    /// It cannot be read: what was loaded is not known then.
    pub fn read(&self, tunes: &[TuneStatus]) -> Result<Record> {
        let path = self.folder.join(FILE);
        let wrong = |reason: String| {
            Failure::error(format!(
                "{}: {reason}; what was applied before is not known: `xk status` shows what is in force, `xk unset` and \
                 `xk unload` end it; then remove this file",
                path.display()
            ))
        };
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Record::default()),
            other => other.map_err(|error| wrong(error.to_string()))?,
        };
        let mut record: Record = match serde_json::from_slice(&bytes) {
            Ok(record) => record,
            // It means nothing, whatever it said.
            Err(_) if tunes.is_empty() => Record::default(),
            Err(error) => return Err(wrong(error.to_string())),
        };
        record.tunes.retain(|applied| tunes.iter().any(|tune| applied.is(tune)));
        Ok(record)
    }

    /// Writes it down, whole or not at all.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn write(&self, record: &Record) -> Result {
        let path = self.folder.join(FILE);
        let failed = |error: std::io::Error| Failure::error(format!("{}: {error}", path.display()));
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

    use super::*;
    use crate::fixture;

    #[test]
    fn what_the_kernel_does_not_know_is_not_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = Keeper::of(folder.path()).unwrap();
        let tune = fixture::tune();
        let applied = Applied {
            tune: tune.id,
            owner: tune.owner_pid,
            constant: tune.name.clone(),
            file: "/etc/xk.d/a.toml".into(),
            line: 3,
            backend: "kprobe".into(),
            unit: None,
        };
        let record = Record { tunes: vec![applied] };
        assert_eq!(keeper.read(&[]).unwrap(), Record::default());
        keeper.write(&record).unwrap();
        assert_eq!(keeper.read(std::slice::from_ref(&tune)).unwrap(), record);
        assert_eq!(keeper.read(&[]).unwrap(), Record::default());
        // Numbers of tunes begin anew with the module.
        let other = TuneStatus { owner_pid: tune.owner_pid + 1, ..tune.clone() };
        assert_eq!(keeper.read(&[other]).unwrap(), Record::default());
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(keeper.read(&[tune]).unwrap_err().message.contains("not known"));
        assert_eq!(keeper.read(&[]).unwrap(), Record::default(), "nothing is in force: nothing was lost");
    }
}
