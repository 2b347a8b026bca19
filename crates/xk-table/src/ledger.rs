//! What became of constants, so that a long run goes on where it ended.
//!
//! One file per constant beside the tables of its kernel: the key under which the result
//! was made, the outcome, and, for a table, the digest of its file. Written atomically.
//! An entry is used again only under the same key, and while its table is untouched.
//! Entries and tables of several machines are merged by copying files.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::store::{file_name, write, Store, StoreError};

/// The outcomes for one kernel.
#[derive(Debug, Clone)]
pub struct Ledger {
    folder: PathBuf,
    store: Store,
    build_id: String,
}

/// A file.
#[derive(Debug, Serialize, Deserialize)]
struct Entry<T> {
    key: String,
    table: Option<TableFile>,
    outcome: T,
}

/// A table that belongs to an outcome, as it was then.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TableFile {
    id: String,
    digest: String,
}

impl Ledger {
    /// In `folder`, for tables of the kernel `build_id` in `store`.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, store: Store, build_id: &str) -> Self {
        Self { folder: folder.into(), store, build_id: build_id.into() }
    }

    /// Beside the tables themselves, where nothing takes it for a table.
    #[must_use]
    pub fn beside(store: Store, build_id: &str) -> Self {
        Self::new(store.folder(build_id).join("outcomes"), store, build_id)
    }

    /// What became of `name` earlier, if it would be the same now.
    #[must_use]
    pub fn get<T: DeserializeOwned>(&self, name: &str, key: &str) -> Option<T> {
        let entry: Entry<T> = serde_json::from_slice(&fs::read(self.path(name)).ok()?).ok()?;
        let untouched = entry.table.as_ref().is_none_or(|table| self.digest(&table.id).as_ref() == Some(table));
        (entry.key == key && untouched).then_some(entry.outcome)
    }

    /// Keeps what became of `name`; `table` is the ConstID of its table, if it has one.
    ///
    /// # Errors
    /// [`StoreError::Io`]; nothing is left behind.
    pub fn put<T: Serialize>(&self, name: &str, key: &str, table: Option<&str>, outcome: T) -> Result<(), StoreError> {
        let file = table.and_then(|id| self.digest(id));
        if table.is_some() && file.is_none() {
            // It was removed: there is nothing to continue.
            return Ok(());
        }
        let entry = Entry { key: key.to_owned(), table: file, outcome };
        write(&self.path(name), &entry)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(file_name(name))
    }

    fn digest(&self, id: &str) -> Option<TableFile> {
        let path: &Path = &self.store.path(&self.build_id, id);
        let digest = Sha256::digest(fs::read(path).ok()?).iter().map(|byte| format!("{byte:02x}")).collect();
        Some(TableFile { id: id.into(), digest })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_used_again_as_long_as_nothing_changed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let ledger = Ledger::beside(store.clone(), "00");
        let get = |key: &str| ledger.get::<String>("a.c:L1:2:0", key);
        assert_eq!(get("k"), None);
        ledger.put("a.c:L1:2:0", "k", None, "refused").unwrap();
        assert_eq!((get("k").as_deref(), get("other")), (Some("refused"), None));

        let table = store.path("00", "a.c:L1:2:0");
        fs::write(&table, "one").unwrap();
        ledger.put("a.c:L1:2:0", "k", Some("a.c:L1:2:0"), "usable").unwrap();
        assert_eq!(get("k").as_deref(), Some("usable"));
        fs::write(&table, "two").unwrap();
        assert_eq!(get("k"), None);
        fs::remove_file(&table).unwrap();
        assert_eq!(get("k"), None);

        ledger.put("a.c:L1:2:0", "k", None, "refused").unwrap();
        fs::write(ledger.path("a.c:L1:2:0"), "{\"key\": \"k\"").unwrap();
        assert_eq!(get("k"), None);
        assert!(store.list("00").unwrap().1.is_empty());
    }
}
