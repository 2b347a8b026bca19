//! The file of the history: one JSON object in each line, the newest last.
//!
//! Processes append one after the other, each with one write that is on the disk when it returns. A write that fails is
//! taken back. Half a line, which a power loss can leave, is no entry, and the next one begins a new line. A file that is
//! full is renamed; the one before it is removed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{flock, FlockOperation};
use thiserror::Error;

use crate::entry::Entry;

const FILE: &str = "changes.jsonl";
/// The file before.
const OLDER: &str = "changes.1.jsonl";
/// The most bytes of a file: some ten thousand changes.
const FULL: u64 = 4 << 20;

/// Why the history cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// A change is missing in it.
    #[error("a change was made, but is not in the history: {}: {error}", path.display())]
    Unwritten {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// It exists, and cannot be read.
    #[error("cannot read the history {}: {error}; it is readable by root", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// What the files contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The oldest first.
    pub entries: Vec<Entry>,
    /// Lines that are no entries: halves that a power loss left, or entries of a newer version.
    pub damaged: usize,
}

/// The files of a directory.
#[derive(Debug, Clone)]
pub struct Journal {
    folder: PathBuf,
}

impl Journal {
    /// In this directory, which need not exist.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Appends entries: all of them, or none.
    ///
    /// # Errors
    /// [`HistoryError::Unwritten`].
    pub fn append(&self, entries: &[Entry]) -> Result<(), HistoryError> {
        let path = self.folder.join(FILE);
        self.try_append(&path, entries).map_err(|error| HistoryError::Unwritten { path, error })
    }

    fn try_append(&self, path: &Path, entries: &[Entry]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        // Closing the directory unlocks it.
        let folder = File::open(&self.folder)?;
        flock(&folder, FlockOperation::LockExclusive)?;
        if fs::metadata(path).is_ok_and(|file| file.len() >= FULL) {
            fs::rename(path, self.folder.join(OLDER))?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let end = file.metadata()?.len();
        let mut text = if ends_with_a_line(&mut file, end)? { Vec::new() } else { b"\n".to_vec() };
        for entry in entries {
            serde_json::to_writer(&mut text, entry)?;
            text.push(b'\n');
        }
        file.write_all(&text).and_then(|()| file.sync_data()).inspect_err(|_| {
            // If this fails, too, readers find half a line, and skip it.
            let _ = file.set_len(end);
        })
    }

    /// The entries.
    ///
    /// # Errors
    /// [`HistoryError::Unreadable`].
    pub fn read(&self) -> Result<History, HistoryError> {
        let mut history = History::default();
        for name in [OLDER, FILE] {
            let path = self.folder.join(name);
            let bytes = match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(|error| HistoryError::Unreadable { path, error })?,
            };
            for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                match serde_json::from_slice(line) {
                    Ok(entry) => history.entries.push(entry),
                    Err(_) => history.damaged += 1,
                }
            }
        }
        Ok(history)
    }
}

fn ends_with_a_line(file: &mut File, end: u64) -> io::Result<bool> {
    let mut last = [b'\n'];
    if end > 0 {
        file.seek(SeekFrom::Start(end - 1))?;
        file.read_exact(&mut last)?;
    }
    Ok(last == *b"\n")
}

/// The number of this boot.
#[must_use]
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::notice::tests::entry;
    use crate::{Action, Event, Kind};

    fn set(to: i64) -> Entry {
        entry(Event::new(Kind::Constant, "A", Action::Set).from(32).to(to))
    }

    fn journal() -> (tempfile::TempDir, Journal) {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::at(folder.path().join("history"));
        (folder, journal)
    }

    #[test]
    fn what_is_appended_is_read_and_nobody_else_reads_it() {
        let (_folder, journal) = journal();
        assert_eq!(journal.read().unwrap(), History::default());
        journal.append(&[set(1), set(2)]).unwrap();
        journal.append(&[set(3)]).unwrap();
        assert_eq!(journal.read().unwrap(), History { entries: vec![set(1), set(2), set(3)], damaged: 0 });
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&journal.folder), mode(&journal.folder.join(FILE))), (0o700, 0o600));
    }

    #[test]
    fn half_a_line_costs_no_other_entry() {
        let (_folder, journal) = journal();
        journal.append(&[set(1), set(2)]).unwrap();
        let path = journal.folder.join(FILE);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        journal.append(&[set(3)]).unwrap();
        assert_eq!(journal.read().unwrap(), History { entries: vec![set(1), set(3)], damaged: 1 });
    }

    #[test]
    fn a_full_file_makes_room_and_the_one_before_stays() {
        let (_folder, journal) = journal();
        journal.append(&[set(1)]).unwrap();
        let path = journal.folder.join(FILE);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(&vec![b'\n'; FULL as usize]).unwrap();
        journal.append(&[set(2)]).unwrap();
        assert!(fs::metadata(&path).unwrap().len() < FULL);
        assert_eq!(journal.read().unwrap().entries, [set(1), set(2)]);
    }

    /// The file is full, so that each of them would make room.
    #[test]
    fn processes_that_append_at_once_lose_nothing() {
        for _ in 0..30 {
            let (_folder, journal) = journal();
            journal.append(&[set(1)]).unwrap();
            File::options().write(true).open(journal.folder.join(FILE)).unwrap().set_len(FULL).unwrap();
            let start = std::sync::Barrier::new(8);
            std::thread::scope(|scope| {
                for thread in 0..8 {
                    let (journal, start) = (journal.clone(), &start);
                    scope.spawn(move || {
                        start.wait();
                        journal.append(&[set(thread)]).unwrap();
                    });
                }
            });
            assert_eq!(journal.read().unwrap().entries.len(), 9);
        }
    }
}
