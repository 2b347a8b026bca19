//! The memory of the tuner: one SQLite file.
//!
//! It survives a power cut at any moment (a write-ahead log, and every commit is on the disk when it returns).
//! The journal can be added to and not changed (`journal.rs`).

mod carry;
mod journal;
mod memory;
mod search;

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode};
use rustix::fs::{flock, FlockOperation};

use crate::knob::Held;
use crate::session::machine::Kept;
use crate::Error;

pub use carry::{Forbidden, Remembrance};
pub use journal::{Entry, Mark};
pub use memory::{Context, Memory};
pub use search::{Begun, Search, SearchId, State};

/// How long another process may hold the database.
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

/// The database.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    db: Connection,
}

impl Store {
    /// Opens the database of a folder, or makes it.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Store`].
    pub fn open(folder: &Path) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|source| Error::Io {
            path: folder.to_owned(),
            source,
            advice: "; run as root, or name another folder with --state",
        })?;
        let path = folder.join("tuner.sqlite");
        let open = || -> rusqlite::Result<(Connection, i64)> {
            let db = Connection::open(&path)?;
            db.busy_timeout(PATIENCE)?;
            let version = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
            db.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")?;
            if version <= 1 {
                db.execute_batch(TABLES)?;
            }
            let sound: String = db.query_row("PRAGMA quick_check", [], |row| row.get(0))?;
            match sound.as_str() {
                "ok" => Ok((db, version)),
                _ => Err(rusqlite::Error::SqliteFailure(
                    rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
                    Some(sound),
                )),
            }
        };
        match open() {
            Ok((_, version)) if version > 1 => Err(Error::Store {
                path,
                what: format!("has version {version} of the tables, which a newer xk made: update this one"),
            }),
            Ok((db, _)) => Ok(Self { path, db }),
            Err(error) => Err(explain(&path, &error)),
        }
    }

    pub(crate) fn explain(&self, error: &rusqlite::Error) -> Error {
        explain(&self.path, error)
    }

    pub(crate) fn damaged(&self, what: &str) -> Error {
        Error::Store { path: self.path.clone(), what: format!("holds {what} that cannot be read: move the file away") }
    }

    /// This knob is about to be changed.
    ///
    /// # Errors
    /// [`Error::Store`]: it must not be changed then.
    pub fn hold(&self, held: &Held) -> Result<(), Error> {
        let text = serde_json::to_string(held).map_err(|_| self.damaged("a knob"))?;
        self.execute(
            "INSERT INTO held VALUES (?1, ?2, (SELECT ifnull(max(position), 0) + 1 FROM held))
             ON CONFLICT (name) DO UPDATE SET held = ?2",
            (&held.name, text),
        )
    }

    /// This knob needs nobody any more.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn release(&self, name: &str) -> Result<(), Error> {
        self.execute("DELETE FROM held WHERE name = ?1", [name])
    }

    /// What is changed right now, or was when the tuner died; the last first.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn held(&self) -> Result<Vec<Held>, Error> {
        let texts = self.texts("SELECT held FROM held ORDER BY position DESC", [])?;
        texts.iter().map(|text| serde_json::from_str(text).map_err(|_| self.damaged("a knob"))).collect()
    }

    /// These knobs keep what was proved better.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn keep(&self, kept: &Kept) -> Result<(), Error> {
        self.execute("INSERT OR REPLACE INTO kept VALUES (?1, ?2)", (&kept.name, self.json(kept)?))
    }

    /// It does not any more.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn keep_no_longer(&self, name: &str) -> Result<(), Error> {
        self.execute("DELETE FROM kept WHERE name = ?1", [name])
    }

    /// The knobs that keep what was proved better.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn kept(&self) -> Result<Vec<Kept>, Error> {
        let texts = self.texts("SELECT kept FROM kept ORDER BY name", [])?;
        texts.iter().map(|text| serde_json::from_str(text).map_err(|_| self.damaged("a knob"))).collect()
    }

    fn execute(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<(), Error> {
        self.db.execute(sql, parameters).map(drop).map_err(|error| self.explain(&error))
    }

    /// The first column of every row.
    fn texts(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<Vec<String>, Error> {
        let read = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self.db.prepare(sql)?;
            let rows = statement.query_map(parameters, |row| row.get(0))?;
            rows.collect()
        };
        read().map_err(|error| self.explain(&error))
    }
}

fn explain(path: &Path, error: &rusqlite::Error) -> Error {
    let advice = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another process has held it for five seconds: end that process (`fuser -v` names it), and repeat"
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "it is damaged: move it away, and a new one is made; what was remembered is lost"
        }
        Some(ErrorCode::DiskFull) => "the disk is full: make room, and repeat; what was committed is safe",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => "run as root, or name another folder with --state",
        _ => "",
    };
    let what = if advice.is_empty() { error.to_string() } else { format!("{error}: {advice}") };
    Error::Store { path: path.to_owned(), what }
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// That only one tuner works on a machine: held as long as this, or what it was shared with, is open.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes it, waiting for a guardian that is cleaning up.
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
                    return Err(Error::Locked(format!("process {}", owner.trim())));
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
