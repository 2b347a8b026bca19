//! Which policies were loaded together, and from which file.
//!
//! The kernel does not know this. `/run/xk/policies` holds one file for each transaction. The kernel decides what is in
//! force: a file that contradicts it is ignored.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use xk_runtime::{Device, TuneStatus};

const FOLDER: &str = "/run/xk/policies";
/// Where maps are shown.
const PINS: &str = "/sys/fs/bpf/xk";

/// Why a group of policies cannot be named or recorded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The name has other characters, or is too long or empty.
    #[error("`{name}` cannot be a name: letters, digits, `_` and `-`; --name gives another")]
    Name {
        /// The name.
        name: String,
    },
    /// The record cannot be written.
    #[error("{}: {error}; nothing was loaded", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
}

/// A transaction: policies that were loaded together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What a person calls it.
    pub name: String,
    /// The file that was loaded.
    pub source: PathBuf,
    /// Its tunes.
    pub members: Vec<Member>,
    /// Programs that run beside the policies.
    pub companions: Vec<String>,
}

/// One policy of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Number of the tune.
    pub tune: u32,
    /// Its constant, as the kernel knows it.
    pub constant: String,
    /// Name of the program.
    pub program: String,
    /// Its number, which no other program has until the next boot.
    pub program_id: u32,
}

impl Group {
    /// The name for a file, unless one is given: letters, digits, `_`, `-`.
    ///
    /// # Errors
    /// Other characters, none, or too many.
    pub fn name_for(source: &Path, given: Option<&str>) -> Result<String, GroupError> {
        let file = source.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = given.unwrap_or_else(|| file.split('.').next().unwrap_or_default());
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > 60 || !name.chars().all(good) {
            return Err(GroupError::Name { name: name.into() });
        }
        Ok(name.to_owned())
    }

    /// The groups that are in force.
    #[must_use]
    pub fn all(tunes: &[TuneStatus]) -> Vec<Self> {
        Self::all_in(Path::new(FOLDER), tunes)
    }

    fn all_in(folder: &Path, tunes: &[TuneStatus]) -> Vec<Self> {
        let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
        let read = |path: PathBuf| serde_json::from_slice::<Self>(&fs::read(path).ok()?).ok();
        let paths = files.flatten().map(|file| file.path());
        // Nothing else is ours to read: a pipe would never end.
        let records =
            paths.filter(|path| path.is_file() && path.extension().is_some_and(|extension| extension == "json"));
        let mut groups: Vec<Self> = records.filter_map(read).collect();
        groups.retain(|group| group.members.iter().any(|member| member.is_in(tunes)));
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }

    /// The group of a tune.
    #[must_use]
    pub fn of<'a>(groups: &'a [Self], tune: &TuneStatus) -> Option<&'a Self> {
        groups.iter().find(|group| group.members.iter().any(|member| member.is(tune)))
    }

    /// Writes it down.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn record(&self) -> Result<(), GroupError> {
        let folder = Path::new(FOLDER);
        let failed = |error: std::io::Error| GroupError::Record { path: folder.join(&self.name), error };
        fs::create_dir_all(folder).map_err(failed)?;
        let text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        let path = folder.join(format!(".{}", self.name));
        let mut file = fs::File::create(&path).map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        fs::rename(&path, folder.join(format!("{}.json", self.name))).map_err(failed)
    }

    /// Forgets it, and what it showed of its maps.
    pub fn forget(name: &str) {
        // What is not there need not go.
        let _ = fs::remove_file(Path::new(FOLDER).join(format!("{name}.json")));
        let _ = fs::remove_dir_all(Self::pins(name));
    }

    /// Where the maps of a group are shown.
    #[must_use]
    pub fn pins(name: &str) -> PathBuf {
        Path::new(PINS).join(name)
    }

    /// The members that are in force.
    pub fn living<'a>(&'a self, tunes: &'a [TuneStatus]) -> impl Iterator<Item = &'a TuneStatus> {
        tunes.iter().filter(|tune| self.members.iter().any(|member| member.is(tune)))
    }
}

impl Member {
    fn is(&self, tune: &TuneStatus) -> bool {
        let program = tune.policy.as_ref().map(|policy| policy.program);
        tune.id == self.tune && tune.name == self.constant && program == Some(self.program_id)
    }

    fn is_in(&self, tunes: &[TuneStatus]) -> bool {
        tunes.iter().any(|tune| self.is(tune))
    }
}

/// The groups in force, asked of the kernel.
///
/// # Errors
/// The kernel does not list its tunes.
pub fn groups(device: &Device) -> Result<(Vec<TuneStatus>, Vec<Group>), xk_runtime::Error> {
    let tunes = device.tunes()?;
    let groups = Group::all(&tunes);
    Ok((tunes, groups))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn tune() -> TuneStatus {
        TuneStatus {
            id: 1,
            name: "block/blk.h:L335:32:0".into(),
            value: 128,
            default: 32,
            values: xk_table::Values::proved(1, 128),
            detached: true,
            broken: false,
            owner_pid: 7,
            age: std::time::Duration::ZERO,
            lease: None,
            mode: xk_runtime::Mode::Task,
            state: xk_runtime::State::Stable,
            blocking: 0,
            blockers: String::new(),
            scopes: 0,
            ignored: vec![],
            policy: None,
            sites: vec![],
        }
    }

    #[test]
    fn names_come_from_files() {
        let name = |file: &str| Group::name_for(Path::new(file), None).map_err(|error| error.to_string());
        assert_eq!(name("/a/small_plugs.bpf.c"), Ok("small_plugs".into()));
        assert_eq!(name("x-1.bpf.o"), Ok("x-1".into()));
        assert!(name("a b.bpf.c").is_err() && name(".bpf.c").is_err());
        assert_eq!(Group::name_for(Path::new("a b.c"), Some("ab")).unwrap(), "ab");
        assert!(Group::name_for(Path::new("a.c"), Some("../x")).is_err());
    }

    #[test]
    fn what_the_kernel_does_not_know_is_not_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let mut tune = tune();
        tune.policy = Some(xk_runtime::PolicyStatus { program: 42, links: 0, sites: vec![] });
        let member = Member { tune: tune.id, constant: tune.name.clone(), program: "p".into(), program_id: 42 };
        let group = Group { name: "g".into(), source: "g.bpf.c".into(), members: vec![member], companions: vec![] };
        fs::write(folder.path().join("g.json"), serde_json::to_vec(&group).unwrap()).unwrap();
        fs::write(folder.path().join("h.json"), "{").unwrap();
        let pipe = folder.path().join("pipe.json");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(Group::all_in(folder.path(), std::slice::from_ref(&tune)), [group]);
        let other = TuneStatus { id: tune.id + 1, ..tune.clone() };
        assert_eq!(Group::all_in(folder.path(), &[other]), []);
        // Numbers of tunes start again when the module is loaded again.
        tune.policy = Some(xk_runtime::PolicyStatus { program: 43, links: 0, sites: vec![] });
        assert_eq!(Group::all_in(folder.path(), &[tune]), []);
    }
}
