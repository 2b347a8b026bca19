//! The database of the tuner: one SQLite file with searches, trials, changed and kept knobs, memories and a journal.
//!
//! A power loss at any moment loses nothing that was committed: there is a write-ahead log, and a commit is on the disk
//! when it returns. Entries of the journal can be added, and not changed (`journal.rs`).
//!
//! Some columns have older names than the types that they store: `search.question` is a [`SearchSpec`](crate::engine::SearchSpec), `held` a
//! [`ChangedKnob`], `trial.trial.kind` an [`Order`](crate::history::Order). They stay as they are: a running tuner of an
//! older version must be able to use the file.

mod error_level;
mod exchange;
mod journal;
mod kept;
mod memory;
mod search;

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use rustix::fs::{flock, FlockOperation};

use crate::error::StoreProblem;
use crate::knob::ChangedKnob;
use crate::Error;

pub use exchange::{ExportedMemory, Forbidden};
pub use journal::{Entry, Mark};
pub use kept::KeptSetting;
pub use memory::{decayed, Context, Memory};
pub use search::{Search, SearchId, State};

/// How long to wait for another process that has locked the database.
const PATIENCE: Duration = Duration::from_secs(5);

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS search (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, context TEXT NOT NULL, signature TEXT NOT NULL,
    question TEXT NOT NULL, state TEXT NOT NULL, conclusion TEXT, begun INTEGER NOT NULL, ended INTEGER);
CREATE TABLE IF NOT EXISTS trial (
    search INTEGER NOT NULL REFERENCES search(id), number INTEGER NOT NULL, trial TEXT NOT NULL, outcome TEXT,
    begun INTEGER NOT NULL, ended INTEGER, PRIMARY KEY (search, number));
CREATE TABLE IF NOT EXISTS held (name TEXT PRIMARY KEY, held TEXT NOT NULL, position INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, kept TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS kept_setting (name TEXT PRIMARY KEY, setting TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS memory (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, context TEXT NOT NULL, signature TEXT NOT NULL,
    setting TEXT NOT NULL, effect REAL NOT NULL, confidence REAL NOT NULL, made INTEGER NOT NULL, used INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS forbidden (
    name TEXT NOT NULL, context TEXT NOT NULL, signature TEXT NOT NULL, setting TEXT NOT NULL, why TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS journal (
    number INTEGER PRIMARY KEY, at INTEGER NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS journal_is_not_changed BEFORE UPDATE ON journal
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER IF NOT EXISTS journal_is_not_shortened BEFORE DELETE ON journal
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
PRAGMA user_version = 1;
";

/// Its file.
const DATABASE: &str = "tuner.sqlite";

/// The database.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    db: Connection,
}

impl Store {
    /// Opens the database in a directory; `None` if no search was made there yet.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_existing(folder: &Path) -> Result<Option<Self>, Error> {
        folder.join(DATABASE).exists().then(|| Self::open(folder)).transpose()
    }

    /// Opens the database in a directory, or creates it.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Store`].
    pub fn open(folder: &Path) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|source| Error::Io {
            path: folder.to_owned(),
            source,
            advice: "; run as root, or name another folder with --state",
        })?;
        let path = folder.join(DATABASE);
        match connect(&path) {
            Ok((_, version)) if version > 1 => Err(Error::Store { path, problem: StoreProblem::Newer(version) }),
            Ok((db, _)) => Ok(Self { path, db }),
            Err(error) => Err(Error::Store { path, problem: error.into() }),
        }
    }

    pub(crate) fn error(&self, error: rusqlite::Error) -> Error {
        Error::Store { path: self.path.clone(), problem: error.into() }
    }

    pub(crate) fn damaged(&self, what: &'static str) -> Error {
        Error::Store { path: self.path.clone(), problem: StoreProblem::Damaged(what) }
    }

    /// Records that a knob is about to be changed.
    ///
    /// # Errors
    /// [`Error::Store`]: it must not be changed then.
    pub fn record(&self, changed: &ChangedKnob) -> Result<(), Error> {
        let text = serde_json::to_string(changed).map_err(|_| self.damaged("a knob"))?;
        self.execute(
            "INSERT INTO held VALUES (?1, ?2, (SELECT ifnull(max(position), 0) + 1 FROM held))
             ON CONFLICT (name) DO UPDATE SET held = ?2",
            (&changed.name, text),
        )
    }

    /// Records that a knob need not be restored any more.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn release(&self, name: &str) -> Result<(), Error> {
        self.execute("DELETE FROM held WHERE name = ?1", [name])
    }

    /// The knobs that are changed now, or were when the tuner was killed; the last change first.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn changed(&self) -> Result<Vec<ChangedKnob>, Error> {
        let texts = self.texts("SELECT held FROM held ORDER BY position DESC", [])?;
        texts.iter().map(|text| serde_json::from_str(text).map_err(|_| self.damaged("a knob"))).collect()
    }

    fn execute(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<(), Error> {
        self.db.execute(sql, parameters).map(drop).map_err(|error| self.error(error))
    }

    /// The first column of each row.
    fn texts(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<Vec<String>, Error> {
        let read = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self.db.prepare(sql)?;
            let rows = statement.query_map(parameters, |row| row.get(0))?;
            rows.collect()
        };
        read().map_err(|error| self.error(error))
    }
}

/// A connection, and the version of the tables. Tables of a newer version are left alone.
fn connect(path: &Path) -> rusqlite::Result<(Connection, i64)> {
    let db = Connection::open(path)?;
    db.busy_timeout(PATIENCE)?;
    let version = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")?;
    if version <= 1 {
        db.execute_batch(TABLES)?;
    }
    let result: String = db.query_row("PRAGMA quick_check", [], |row| row.get(0))?;
    match result.as_str() {
        "ok" => Ok((db, version)),
        _ => {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            Err(rusqlite::Error::SqliteFailure(code, Some(result)))
        }
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The lock that lets only one tuner run on a machine. It is held as long as this or a shared descriptor is open.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock. Waits for a guardian that is still restoring knobs.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Io`].
    pub fn take(folder: &Path, patience: Duration) -> Result<Self, Error> {
        let path = folder.join("lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| Error::io(&path, error))?;
        let start = std::time::Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(_) if start.elapsed() < patience => std::thread::sleep(Duration::from_millis(20)),
                Err(_) => {
                    let owner = fs::read_to_string(&path).unwrap_or_default();
                    return Err(Error::Locked { owner: owner.trim().to_owned() });
                }
            }
        }
        let write = file.set_len(0).and_then(|()| {
            use std::io::Write;
            writeln!(&file, "{}", std::process::id())
        });
        write.map_err(|error| Error::io(&path, error))?;
        Ok(Self { file })
    }

    /// Another descriptor of the same lock.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn share(&self) -> Result<std::os::fd::OwnedFd, Error> {
        self.file.try_clone().map(Into::into).map_err(|error| Error::io("lock", error))
    }
}

#[cfg(test)]
pub(crate) mod tests;
