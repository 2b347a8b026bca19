//! Scope tables on disk: one JSON file per (kernel build-id, ConstID), written
//! atomically. What is not whole, or belongs to another kernel, is refused.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::scopes::{Escape, Mode, Scope};
use crate::types::{ScopeTable, SCHEMA};

/// The reason that stands in place of safe spans that were never computed.
const NOT_COMPUTED: &str = "the table has no safe spans; `xk build` computes them";

/// A folder of scope tables.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

/// Why a table could not be read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The file system said no.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// There is no table for this constant and kernel.
    #[error("no scope table for {id} on kernel build {build_id}: run `xk build {id}` first")]
    Missing {
        /// ConstID or name.
        id: String,
        /// Kernel build.
        build_id: String,
    },
    /// Not a whole scope table.
    #[error("{path}: not a scope table ({detail}): remove it and run `xk build` again", path = path.display())]
    Corrupt {
        /// File.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// Written by another version.
    #[error("{path}: schema {found}, this xk reads schema {SCHEMA}: build the table again with `xk build`", path = path.display())]
    Schema {
        /// File.
        path: PathBuf,
        /// Version found.
        found: u32,
    },
    /// Belongs to another kernel.
    #[error("{path}: made for kernel build {found}, this kernel is {wanted}: run `xk build` on this kernel", path = path.display())]
    OtherKernel {
        /// File.
        path: PathBuf,
        /// Build-id in the file.
        found: String,
        /// Build-id wanted.
        wanted: String,
    },
}

/// The name of the file for `id`: readable and unique.
pub(crate) fn file_name(id: &str) -> String {
    let digest = Sha256::digest(id.as_bytes());
    let short: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    let readable: String = id.chars().map(plain).take(80).collect();
    format!("{readable}-{short}.json")
}

/// Writes JSON atomically: a reader sees the old file or the new one.
pub(crate) fn write(path: &Path, value: &impl serde::Serialize) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { path: path.into(), source };
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(io)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
    serde_json::to_writer_pretty(&mut file, value).map_err(|e| io(e.into()))?;
    file.write_all(b"\n").map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    file.persist(path).map_err(|e| io(e.error))?;
    Ok(())
}

impl Store {
    /// A store in `root`; the folder is made when the first table is written.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// File of a table. The name is readable and unique: the hash covers the
    /// whole ConstID, so two IDs never share a file.
    #[must_use]
    pub fn path(&self, build_id: &str, const_id: &str) -> PathBuf {
        self.folder(build_id).join(file_name(const_id))
    }

    /// The folder of a kernel's tables.
    pub(crate) fn folder(&self, build_id: &str) -> PathBuf {
        self.root.join(build_id)
    }

    /// Writes `table` atomically: a reader sees the old file or the new one.
    ///
    /// # Errors
    /// [`StoreError::Io`]; nothing is left behind.
    pub fn save(&self, table: &ScopeTable) -> Result<PathBuf, StoreError> {
        let path = self.path(&table.kernel.build_id, &table.constant.id);
        write(&path, table)?;
        Ok(path)
    }

    /// The table of `const_id` for the kernel `build_id`.
    ///
    /// # Errors
    /// Missing, truncated, of another schema, or of another kernel.
    pub fn load(&self, build_id: &str, const_id: &str) -> Result<ScopeTable, StoreError> {
        let path = self.path(build_id, const_id);
        if !path.exists() {
            return Err(StoreError::Missing { id: const_id.into(), build_id: build_id.into() });
        }
        let table = Self::read(&path)?;
        if table.kernel.build_id != build_id {
            return Err(StoreError::OtherKernel { path, found: table.kernel.build_id, wanted: build_id.into() });
        }
        if table.constant.id != const_id {
            return Err(StoreError::Corrupt { path, detail: format!("it describes {}", table.constant.id) });
        }
        Ok(table)
    }

    /// Reads one file, whatever kernel it is for.
    ///
    /// # Errors
    /// As [`Store::load`].
    pub fn read(path: &Path) -> Result<ScopeTable, StoreError> {
        let text = fs::read_to_string(path).map_err(|source| StoreError::Io { path: path.into(), source })?;
        let corrupt = |detail: String| StoreError::Corrupt { path: path.into(), detail };
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| corrupt(e.to_string()))?;
        let found = value.get("schema").and_then(serde_json::Value::as_u64).unwrap_or(0) as u32;
        if found != SCHEMA {
            return Err(StoreError::Schema { path: path.into(), found });
        }
        let mut table: ScopeTable = serde_json::from_value(value).map_err(|e| corrupt(e.to_string()))?;
        assume_whole(&mut table);
        table.check().map_err(|fault| corrupt(fault.to_string()))?;
        Ok(table)
    }

    /// Every readable table of a kernel, by ConstID; unreadable files are
    /// returned beside them, never skipped in silence.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the folder exists but cannot be listed.
    pub fn list(&self, build_id: &str) -> Result<(Vec<ScopeTable>, Vec<StoreError>), StoreError> {
        let folder = self.root.join(build_id);
        let io = |source| StoreError::Io { path: folder.clone(), source };
        if !folder.exists() {
            return Ok((Vec::new(), Vec::new()));
        }
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.extension().is_some_and(|e| e == "json") {
                match Self::read(&path) {
                    Ok(table) => good.push(table),
                    Err(error) => bad.push(error),
                }
            }
        }
        good.sort_by(|x, y| x.constant.id.cmp(&y.constant.id));
        Ok((good, bad))
    }
}

/// Gives whole functions as safe spans to a table that has none, because an earlier version wrote it.
fn assume_whole(table: &mut ScopeTable) {
    if !table.scopes.is_empty() || table.spans.is_empty() {
        return;
    }
    table.mode = Mode::Global;
    for (index, function) in table.functions.iter().enumerate() {
        let spans: Vec<usize> = (0..table.spans.len()).filter(|&i| table.spans[i].function == index).collect();
        let end = u32::try_from(function.bytes.len() / 2).unwrap_or(u32::MAX);
        if spans.is_empty() || end == 0 {
            continue;
        }
        let whole = Some(NOT_COMPUTED.to_owned());
        table.scopes.push(Scope { function: index, ranges: vec![[0, end]], spans, whole, ..Scope::default() });
        table.escapes.push(Escape {
            place: function.symbol.clone(),
            field: "everything that it stores, returns and passes on".into(),
            reason: NOT_COMPUTED.into(),
        });
    }
}
