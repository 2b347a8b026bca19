//! Fetches tables of a kernel build.
//!
//! Tables are written to a directory beside the store's own, are checked there, and are then renamed into their places. So
//! whatever fails before leaves the store as it was, and a table is never half there.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{flock, FlockOperation};
use tempfile::TempDir;
use xk_keys::{Keys, PublicKey};
use xk_table::{ScopeTable, Store};

use crate::accepted::{date, Accepted};
use crate::error::RepositoryError;
use crate::index::{self, digest, Entry, Index, FORMAT, MOST};
use crate::source::Source;

/// The largest table that is read.
const LARGEST: u64 = 256 << 20;

/// How directories for fetched tables begin.
const STAGING: &str = ".fetch-";

/// What a repository has for a kernel build.
#[derive(Debug)]
pub struct Offer {
    source: Source,
    build_id: String,
    time: Duration,
    /// The key that signed the index.
    pub key: PublicKey,
    /// The tables.
    pub index: Index,
}

impl Offer {
    /// Reads the index of a kernel build. A server has `time` for each file.
    ///
    /// # Errors
    /// It is not there, was altered, is of another build, or its key is not trusted.
    pub fn read(source: &Source, keys: &Keys, build_id: &str, time: Duration) -> Result<Self, RepositoryError> {
        let path = index::path(build_id);
        let place = source.place(&path);
        if !source.exists() {
            return Err(RepositoryError::NoFolder(source.to_string()));
        }
        let bytes = source.read(&path, MOST, time).map_err(|error| match error.is_missing() {
            true => RepositoryError::NoTables { place: source.to_string(), build_id: build_id.into() },
            false => RepositoryError::Read { place: place.clone(), error },
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let (content, key) = FORMAT.open(keys, &text).map_err(|problem| RepositoryError::seal(&place, problem))?;
        let index: Index =
            serde_json::from_str(&content).map_err(|error| RepositoryError::Content { place: place.clone(), error })?;
        if index.kernel.build_id != build_id {
            let (found, wanted) = (Box::new(index.kernel), build_id.to_owned());
            return Err(RepositoryError::OtherKernel { place, found, wanted });
        }
        Ok(Self { source: source.clone(), build_id: build_id.into(), time, key, index })
    }

    /// When the index was packed, as a date.
    #[must_use]
    pub fn made(&self) -> String {
        date(self.index.made)
    }

    /// The bytes of a table, if they are those that the index names.
    fn get(&self, entry: &Entry) -> Result<Vec<u8>, RepositoryError> {
        let path = entry.path(&self.build_id);
        let place = self.source.place(&path);
        let differs = |what: String| RepositoryError::Differs { place: place.clone(), what };
        if entry.size > LARGEST {
            return Err(differs(format!("{} bytes, which no table has", entry.size)));
        }
        let bytes = self
            .source
            .read(&path, entry.size, self.time)
            .map_err(|error| RepositoryError::Read { place: place.clone(), error })?;
        if bytes.len() as u64 != entry.size {
            return Err(differs(format!("{} bytes instead of {}", bytes.len(), entry.size)));
        }
        let found = digest(&bytes);
        match found == entry.sha256 {
            true => Ok(bytes),
            false => Err(differs(format!("SHA-256 {found} instead of {}", entry.sha256))),
        }
    }
}

/// Tables that were fetched, and are not in the store yet.
#[derive(Debug)]
pub struct Staging {
    store: PathBuf,
    folder: TempDir,
    _lock: File,
    accepted: Accepted,
    tables: Vec<ScopeTable>,
}

impl Staging {
    /// Prepares to fetch tables into the store in `root`. Removes what an earlier process left when it was killed.
    ///
    /// # Errors
    /// The store cannot be written, or another process fetches tables into it.
    pub fn new(root: &Path) -> Result<Self, RepositoryError> {
        let failed = |error| RepositoryError::file(root, error);
        fs::create_dir_all(root).map_err(failed)?;
        let lock = File::open(root).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => RepositoryError::Busy(root.to_owned()),
            error => failed(error.into()),
        })?;
        for entry in fs::read_dir(root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_string_lossy().starts_with(STAGING) {
                fs::remove_dir_all(entry.path()).map_err(failed)?;
            }
        }
        let folder = tempfile::Builder::new().prefix(STAGING).tempdir_in(root).map_err(failed)?;
        let accepted = Accepted::read(root)?;
        Ok(Self { store: root.to_owned(), folder, _lock: lock, accepted, tables: Vec::new() })
    }

    /// Fetches a table.
    ///
    /// # Errors
    /// The index is older than one that was accepted; the table cannot be read or written, or is not what the index says.
    /// Nothing is in the store.
    pub fn fetch(&mut self, offer: &Offer, entry: &Entry) -> Result<&ScopeTable, RepositoryError> {
        let place = offer.source.place(&index::path(&offer.build_id));
        self.accepted.accept(&offer.source.to_string(), &offer.build_id, offer.index.made, &place)?;
        let bytes = offer.get(entry)?;
        let path = self.folder.path().join(entry.path(&offer.build_id));
        let failed = |error| RepositoryError::file(&path, error);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut file = File::create(&path).map_err(failed)?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        // By the rules of the store: whole, of this kernel build and of this constant.
        let table = Store::new(self.folder.path()).load(&offer.build_id, &entry.id)?;
        self.tables.push(table);
        Ok(&self.tables[self.tables.len() - 1])
    }

    /// The fetched tables.
    #[must_use]
    pub fn tables(&self) -> &[ScopeTable] {
        &self.tables
    }

    /// Moves the tables that `accepts` into the store, and drops the others. Returns the files.
    ///
    /// # Errors
    /// A file cannot be renamed. Each table is the old one or the new one.
    pub fn install(self, accepts: impl Fn(&ScopeTable) -> bool) -> Result<Vec<PathBuf>, RepositoryError> {
        // First: an index whose tables are in the store is accepted.
        self.accepted.write()?;
        let [from, to] = [self.folder.path(), &self.store].map(Store::new);
        let mut installed = Vec::new();
        for table in self.tables.iter().filter(|table| accepts(table)) {
            let [old, new] = [&from, &to].map(|store| store.path(&table.kernel.build_id, &table.constant.id));
            let failed = |error| RepositoryError::file(&new, error);
            if let Some(folder) = new.parent() {
                fs::create_dir_all(folder).map_err(failed)?;
            }
            fs::rename(&old, &new).map_err(failed)?;
            // A signature for xk.ko was made for the bytes of the earlier table.
            match fs::remove_file(new.with_extension("p7s")) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
                _ => installed.push(new),
            }
        }
        Ok(installed)
    }
}

#[cfg(test)]
mod tests;
