//! Where tables are.
//!
//! If `$XK_STORE` is set, tables are looked for there only. Otherwise they are looked for in `tables` of the cache
//! (`$XK_CACHE`, else `${XDG_CACHE_HOME:-$HOME/.cache}/xk`), then in `/var/lib/xk/tables`, which is for tables of the
//! administrator, then in `/usr/share/xk/tables`, which is for those of packages. New tables are written to the first of
//! these directories.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use xk_runtime::SignatureError;
use xk_table::{KernelRef, ScopeTable, Store};

use crate::error::{KernelError, ListError};

const SYSTEM: &str = "/var/lib/xk";
/// Tables that packages install.
const PACKAGED: &str = "/usr/share/xk/tables";

/// The directories of this user.
#[derive(Debug, Clone)]
pub struct Folders {
    /// Private source trees and objects.
    pub cache: PathBuf,
    /// The directories of tables; new tables are written to the first.
    pub stores: Vec<PathBuf>,
}

impl Folders {
    /// The directories that the environment selects.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::of(|name| std::env::var_os(name))
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = folder("XK_CACHE")
            .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("xk")))
            .or_else(|| folder("HOME").map(|home| home.join(".cache/xk")))
            .unwrap_or_else(|| PathBuf::from(SYSTEM));
        let stores = match folder("XK_STORE") {
            Some(store) => vec![store],
            None => {
                let mut stores = vec![cache.join("tables"), Path::new(SYSTEM).join("tables"), PACKAGED.into()];
                stores.dedup();
                stores
            }
        };
        Self { cache, stores }
    }

    /// Where new tables are written.
    #[must_use]
    pub fn store(&self) -> Store {
        Store::new(&self.stores[0])
    }

    /// Where tables from elsewhere are written: for root the directory that all users search, else that of new tables.
    #[must_use]
    pub fn destination(&self, is_root: bool) -> &Path {
        let shared = self.stores.iter().find(|store| is_root && **store == Path::new(SYSTEM).join("tables"));
        shared.unwrap_or(&self.stores[0])
    }

    /// The file for the signature of a table: next to the table.
    ///
    /// # Errors
    /// [`SignatureError::Misplaced`].
    pub fn signature_file(&self, table: &ScopeTable) -> Result<PathBuf, SignatureError> {
        let file = |root: &PathBuf| Store::new(root).path(&table.kernel.build_id, &table.constant.id);
        let found = self.stores.iter().map(file).find(|path| path.exists());
        let found = found.ok_or_else(|| SignatureError::Misplaced { constant: table.constant.id.clone() })?;
        Ok(found.with_extension("p7s"))
    }

    /// The kernels that have tables.
    ///
    /// # Errors
    /// A directory exists and cannot be listed.
    pub fn kernels(&self) -> Result<Vec<KernelRef>, ListError> {
        let mut kernels: Vec<KernelRef> = Vec::new();
        for root in &self.stores {
            for folder in entries(root)? {
                let readable = json_files(&folder)?.into_iter().filter_map(|path| Store::read(&path).ok());
                for table in readable {
                    if !kernels.contains(&table.kernel) {
                        kernels.push(table.kernel);
                    }
                }
            }
        }
        kernels.sort_by(|a, b| a.release.cmp(&b.release).then(a.build_id.cmp(&b.build_id)));
        Ok(kernels)
    }

    /// The kernel that has tables, and whose release is `wanted` or whose build-id begins with it.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn kernel(&self, wanted: &str) -> Result<KernelRef, KernelError> {
        let known = self.kernels()?;
        let is_meant = |kernel: &&KernelRef| kernel.release == wanted || kernel.build_id.starts_with(wanted);
        let matching: Vec<&KernelRef> = known.iter().filter(is_meant).collect();
        let wanted = wanted.to_owned();
        match matching[..] {
            [kernel] => Ok(kernel.clone()),
            [] if known.is_empty() => Err(KernelError::NoTables { wanted }),
            [] => Err(KernelError::Unknown { wanted, known }),
            _ => Err(KernelError::Several { wanted, matching: matching.into_iter().cloned().collect() }),
        }
    }
}

/// The files and directories in `folder`, sorted; nothing if there is no such directory.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, ListError> {
    let unreadable = |error| ListError { folder: folder.to_owned(), error };
    match fs::read_dir(folder) {
        Ok(entries) => {
            let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
            let mut paths = paths.map_err(unreadable)?;
            paths.sort();
            Ok(paths)
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(unreadable(error)),
    }
}

/// The JSON files in `folder`, sorted.
pub(crate) fn json_files(folder: &Path) -> Result<Vec<PathBuf>, ListError> {
    Ok(entries(folder)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "json")).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use xk_harness::example;

    use super::*;

    fn folders(variables: &[(&str, &str)]) -> Folders {
        Folders::of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_environment_decides_where_tables_are() {
        let home = folders(&[("HOME", "/home/x")]);
        assert_eq!(home.cache, Path::new("/home/x/.cache/xk"));
        assert_eq!(home.stores, ["/home/x/.cache/xk/tables", "/var/lib/xk/tables", PACKAGED].map(PathBuf::from));
        let cache = folders(&[("HOME", "/home/x"), ("XDG_CACHE_HOME", "/c"), ("XK_STORE", "")]);
        assert_eq!(cache.stores[0], Path::new("/c/xk/tables"));
        let own = folders(&[("XK_CACHE", "/k"), ("XDG_CACHE_HOME", "/c"), ("XK_STORE", "/s")]);
        assert_eq!((own.cache.as_path(), own.stores), (Path::new("/k"), vec![PathBuf::from("/s")]));
        assert_eq!(folders(&[]).stores, ["/var/lib/xk/tables", PACKAGED].map(PathBuf::from));
    }

    #[test]
    fn tables_of_root_are_for_all_users_and_never_where_packages_are() {
        for variables in [&[][..], &[("HOME", "/root")], &[("XK_CACHE", "/k")]] {
            assert_eq!(folders(variables).destination(true), Path::new("/var/lib/xk/tables"), "{variables:?}");
        }
        assert_eq!(folders(&[("HOME", "/home/x")]).destination(false), Path::new("/home/x/.cache/xk/tables"));
        assert_eq!(folders(&[("XK_STORE", "/s")]).destination(true), Path::new("/s"));
    }

    /// Two directories of tables, both empty.
    pub(crate) fn two() -> (tempfile::TempDir, Folders) {
        let root = tempfile::tempdir().unwrap();
        let stores = ["first", "second"].map(|name| root.path().join(name));
        let folders = Folders { cache: root.path().join("cache"), stores: stores.into() };
        (root, folders)
    }

    #[test]
    fn a_kernel_is_named_by_its_release_or_its_build_id() {
        let (_root, folders) = two();
        let message = |wanted: &str| folders.kernel(wanted).unwrap_err().to_string();
        assert!(message("6.12").starts_with("there are no tables for any kernel"));
        let table = example::table();
        let mut other = table.clone();
        other.kernel.build_id = "01ff".into();
        for table in [&table, &other] {
            folders.store().save(table).unwrap();
        }
        assert_eq!(folders.kernel("0123").unwrap(), table.kernel);
        assert!(message("6.1").contains("there are for:\n  6.12.117+deb12-amd64 0123"));
        assert!(message(&table.kernel.release).contains("means several kernels"));
    }
}
