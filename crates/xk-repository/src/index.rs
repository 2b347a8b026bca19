//! The index of the tables of one kernel build.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use xk_keys::Format;
use xk_table::{KernelRef, ScopeTable, Store};

/// How an index is sealed.
pub(crate) const FORMAT: Format = Format { name: "xk tables", version: 2, command: "xk tables pack" };

/// The largest index that is read.
pub(crate) const MOST: u64 = 16 << 20;

/// The tables of one kernel build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// The kernel.
    pub kernel: KernelRef,
    /// When it was packed, in seconds since 1970.
    pub made: i64,
    /// Its tables, by ConstID.
    pub tables: Vec<Entry>,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The ConstID. The name of the file follows from it.
    pub id: String,
    /// The name of the constant, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Size of the file in bytes.
    pub size: u64,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
}

impl Entry {
    /// The entry of a table, and the bytes of its file.
    pub(crate) fn new(table: &ScopeTable, bytes: &[u8]) -> Self {
        let constant = &table.constant;
        Self { id: constant.id.clone(), name: constant.name.clone(), size: bytes.len() as u64, sha256: digest(bytes) }
    }

    /// How messages name it.
    #[must_use]
    pub fn title(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// The file, relative to the repository and to a store.
    pub(crate) fn path(&self, build_id: &str) -> PathBuf {
        Store::new("").path(build_id, &self.id)
    }
}

/// The index, relative to the repository.
pub(crate) fn path(build_id: &str) -> PathBuf {
    [build_id, "index.json"].iter().collect()
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}
