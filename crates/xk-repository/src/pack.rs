//! Writes a repository.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use xk_keys::Keys;
use xk_table::{KernelRef, ScopeTable, Store};

use crate::error::RepositoryError;
use crate::index::{self, now, Entry, Index, FORMAT};

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
    let path = folder.join(index::path(&kernel.build_id));
    let made = now().max(before(&path, keys).map_or(i64::MIN, |made| made + 1));
    let index = Index { kernel: kernel.clone(), made, tables: entries };
    let content = serde_json::to_string(&index).map_err(|error| RepositoryError::file(&path, error.into()))?;
    let sealed = FORMAT.seal(keys, content).map_err(|problem| RepositoryError::seal(path.display(), problem))?;
    replace(&path, sealed.as_bytes()).map_err(|error| RepositoryError::file(&path, error))?;
    Ok(index)
}

/// When the index that is replaced was made. The new one is later, even if the clock was put back.
fn before(path: &Path, keys: &Keys) -> Option<i64> {
    let (content, _) = FORMAT.open(keys, &fs::read_to_string(path).ok()?).ok()?;
    serde_json::from_str::<Index>(&content).ok().map(|index| index.made)
}

/// Writes a file: a reader sees the old one or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
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
