//! Writes a repository.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use xk_keys::Keys;
use xk_table::{KernelRef, ScopeTable, Store};

use crate::error::RepositoryError;
use crate::index::{self, Entry, Index, FORMAT};

/// Writes the tables of a kernel build, and then their index, to the repository in `folder`. The index replaces an earlier
/// one. Files that it no longer names stay.
///
/// # Errors
/// A file or the key cannot be written; a table is of another kernel build. The earlier index stays.
pub fn pack(folder: &Path, keys: &Keys, kernel: &KernelRef, tables: &[&ScopeTable]) -> Result<Index, RepositoryError> {
    let store = Store::new(folder);
    let mut entries = Vec::new();
    for &table in tables {
        if table.kernel != *kernel {
            return Err(RepositoryError::OtherTable { id: table.constant.id.clone(), kernel: table.kernel.clone() });
        }
        let path = store.save(table)?;
        let bytes = fs::read(&path).map_err(|error| RepositoryError::file(&path, error))?;
        entries.push(Entry::new(table, &bytes));
    }
    entries.sort_by(|a, b| a.id.cmp(&b.id));
    let index = Index { kernel: kernel.clone(), tables: entries };
    let path = folder.join(index::path(&kernel.build_id));
    let content = serde_json::to_string(&index).map_err(|error| RepositoryError::file(&path, error.into()))?;
    let sealed = FORMAT.seal(keys, content).map_err(|problem| RepositoryError::seal(path.display(), problem))?;
    replace(&path, sealed.as_bytes()).map_err(|error| RepositoryError::file(&path, error))?;
    Ok(index)
}

/// Writes a file: a reader sees the old one or the new one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    // Others serve it.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(readable)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
