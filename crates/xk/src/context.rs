//! Where things are: the running kernel, the cache, the scope tables.
//!
//! Tables are looked for in `$XK_STORE`, and only there, when it is set.
//! Otherwise in `tables` of the cache (`$XK_CACHE`, else
//! `${XDG_CACHE_HOME:-$HOME/.cache}/xk`), then in `/var/lib/xk/tables`, where a
//! machine's administrator or a package may put them. They are written to the
//! first of these folders.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use xk_const::Spec;
use xk_kernel::KernelId;
use xk_runtime::SignatureError;
use xk_table::{CriticalSpan, KernelRef, ScopeTable, Store, StoreError};

use crate::exit::{Exit, Failure, Result};
use crate::names;

const SYSTEM: &str = "/var/lib/xk";

/// The folders of this user.
#[derive(Debug)]
pub struct Folders {
    /// Private source trees and objects.
    pub cache: PathBuf,
    /// Where tables are, the folder for new ones first.
    pub stores: Vec<PathBuf>,
}

impl Folders {
    /// As the environment says.
    pub fn new() -> Self {
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
                let mut stores = vec![cache.join("tables"), Path::new(SYSTEM).join("tables")];
                stores.dedup();
                stores
            }
        };
        Self { cache, stores }
    }

    /// Where new tables go.
    pub fn store(&self) -> Store {
        Store::new(&self.stores[0])
    }

    /// Every table for the kernel build `build_id`.
    pub fn tables(&self, build_id: &str) -> Result<Tables> {
        let mut tables = Tables { stores: self.stores.clone(), build_id: build_id.into(), good: vec![], bad: vec![] };
        for root in &self.stores {
            let folder = root.join(build_id);
            for path in json_files(&folder)? {
                match Store::read(&path) {
                    Ok(table) if table.kernel.build_id != build_id => tables.bad.push(StoreError::OtherKernel {
                        path,
                        found: table.kernel.build_id,
                        wanted: build_id.into(),
                    }),
                    // The first folder goes before the second.
                    Ok(table) if tables.good.iter().any(|known| known.constant.id == table.constant.id) => {}
                    Ok(table) => tables.good.push(table),
                    Err(error) => tables.bad.push(error),
                }
            }
        }
        tables.good.sort_by(|a, b| a.constant.id.cmp(&b.constant.id));
        Ok(tables)
    }

    /// Where the signature of a table is: beside it.
    ///
    /// # Errors
    /// [`SignatureError::Misplaced`].
    pub fn signature_file(&self, table: &ScopeTable) -> std::result::Result<PathBuf, SignatureError> {
        let file = |root: &PathBuf| Store::new(root).path(&table.kernel.build_id, &table.constant.id);
        let found = self.stores.iter().map(file).find(|path| path.exists());
        let found = found.ok_or_else(|| SignatureError::Misplaced { constant: table.constant.id.clone() })?;
        Ok(found.with_extension("p7s"))
    }

    /// The kernels for which there are tables.
    pub fn kernels(&self) -> Result<Vec<KernelRef>> {
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
}

/// The files and folders in `folder`; nothing when there is no such folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |error: std::io::Error| Failure::error(format!("cannot list {}: {error}", folder.display()));
    match fs::read_dir(folder) {
        Ok(entries) => {
            let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
            if let Ok(paths) = &mut paths {
                paths.sort();
            }
            paths.map_err(unreadable)
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(Vec::new()),
        Err(error) => Err(unreadable(error)),
    }
}

fn json_files(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "json")).collect())
}

/// The tables of one kernel build.
#[derive(Debug)]
pub struct Tables {
    stores: Vec<PathBuf>,
    build_id: String,
    /// Whole ones, by ConstID.
    pub good: Vec<ScopeTable>,
    /// Files that are none, or are another kernel's.
    pub bad: Vec<StoreError>,
}

impl Tables {
    /// These tables, from nowhere.
    #[cfg(test)]
    pub fn of(build_id: &str, good: Vec<ScopeTable>) -> Self {
        Self { stores: vec![], build_id: build_id.into(), good, bad: vec![] }
    }

    /// The table of the constant that `text` means.
    pub fn find(&self, folders: &Folders, text: &str) -> Result<&ScopeTable> {
        let spec = Spec::parse(text)?;
        match self.pick(&spec, text)? {
            Some(table) => Ok(table),
            None => Err(self.why_not(folders, &spec, text)),
        }
    }

    /// The table that `spec` means, if there is one.
    pub fn pick(&self, spec: &Spec, text: &str) -> Result<Option<&ScopeTable>> {
        names::pick(spec, text, &self.good, |table| (&table.constant.id, table.constant.name.as_deref()))
    }

    /// The alias of the constant with this ID.
    pub fn alias(&self, id: &str) -> Option<&str> {
        self.good.iter().find(|table| table.constant.id == id)?.constant.name.as_deref()
    }

    /// The table of a tune. A long ID is known to the kernel by its alias.
    pub fn of_tune(&self, tune: &str) -> Option<&ScopeTable> {
        let is = |table: &&ScopeTable| table.constant.id == tune || table.constant.name.as_deref() == Some(tune);
        self.good.iter().find(is)
    }

    /// The critical span of a tune's site; `None` for a data site, or without a table.
    pub fn span(&self, tune: &str, site: usize) -> Option<&CriticalSpan> {
        self.of_tune(tune)?.spans.get(site)
    }

    fn why_not(&self, folders: &Folders, spec: &Spec, text: &str) -> Failure {
        if let Some(error) = self.bad.iter().find(|error| file_of(error).is_some_and(|path| mentions(path, spec))) {
            let exit = if matches!(error, StoreError::OtherKernel { .. }) { Exit::Drift } else { Exit::Error };
            return Failure::new(exit, error.to_string());
        }
        let others = folders.kernels().unwrap_or_default();
        let elsewhere = others.into_iter().filter(|kernel| kernel.build_id != self.build_id).find(|kernel| {
            let tables = folders.tables(&kernel.build_id);
            tables.is_ok_and(|tables| matches!(tables.pick(spec, text), Ok(Some(_))))
        });
        if let Some(kernel) = elsewhere {
            return Failure::new(
                Exit::Drift,
                format!(
                    "the scope table of {text} is for kernel {} (build-id {}), and this kernel has build-id {}: \
                     run `xk build {text}` for this kernel",
                    kernel.release, kernel.build_id, self.build_id
                ),
            );
        }
        let looked = self.stores.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ");
        let sudo = if std::env::var_os("SUDO_USER").is_some() && std::env::var_os("XK_STORE").is_none() {
            "; tables that another user built are found with XK_STORE=FOLDER"
        } else {
            ""
        };
        Failure::error(format!(
            "no scope table for {text} on this kernel (looked in {looked}): run `xk build {text}` first{sudo}"
        ))
    }
}

fn file_of(error: &StoreError) -> Option<&Path> {
    match error {
        StoreError::Io { path, .. }
        | StoreError::Corrupt { path, .. }
        | StoreError::Schema { path, .. }
        | StoreError::OtherKernel { path, .. } => Some(path),
        StoreError::Missing { .. } => None,
    }
}

/// Whether a file that is no table was meant to be that of `spec`: what is left of it says so.
fn mentions(path: &Path, spec: &Spec) -> bool {
    let Ok(bytes) = fs::read(path) else { return false };
    let text = String::from_utf8_lossy(&bytes);
    match spec {
        Spec::Name(name) => text.contains(&format!("\"{name}\"")),
        Spec::Line { path, line } => text.contains(&format!("\"{path}:L{line}:")),
        Spec::Id(id) => text.contains(&format!("\"{id}\"")),
    }
}

/// The kernel that runs.
pub fn running() -> Result<KernelId> {
    Ok(KernelId::live()?)
}

/// Whose tables to read.
#[derive(Debug, Default, clap::Args)]
pub struct TablesOf {
    /// Use the tables of another kernel, given by release or by a prefix of its build ID
    #[arg(long, value_name = "RELEASE|BUILD-ID")]
    pub kernel: Option<String>,
}

impl TablesOf {
    /// The kernel that is meant, and whether it is the one that runs.
    pub fn choose(&self, folders: &Folders) -> Result<(KernelRef, bool)> {
        let live = running().map(|id| KernelRef { release: id.release, build_id: id.build_id });
        let Some(wanted) = &self.kernel else { return Ok((live?, true)) };
        let known = folders.kernels()?;
        let matching: Vec<&KernelRef> =
            known.iter().filter(|k| k.release == *wanted || k.build_id.starts_with(wanted.as_str())).collect();
        let list = |kernels: &[&KernelRef]| -> String {
            kernels.iter().map(|k| format!("\n  {} {}", k.release, k.build_id)).collect()
        };
        match matching[..] {
            [kernel] => Ok((kernel.clone(), live.is_ok_and(|live| live == *kernel))),
            [] if known.is_empty() => {
                Err(Failure::error(format!("there are no tables for any kernel: run `xk build` ({wanted} asked for)")))
            }
            [] => Err(Failure::error(format!(
                "there are no tables for kernel `{wanted}`; there are for:{}",
                list(&known.iter().collect::<Vec<_>>())
            ))),
            _ => {
                Err(Failure::error(format!("`{wanted}` means several kernels; name one build-id:{}", list(&matching))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(variables: &[(&str, &str)]) -> Folders {
        Folders::of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_environment_decides_where_tables_are() {
        let home = folders(&[("HOME", "/home/x")]);
        assert_eq!(home.cache, Path::new("/home/x/.cache/xk"));
        assert_eq!(home.stores, [Path::new("/home/x/.cache/xk/tables"), Path::new("/var/lib/xk/tables")]);
        let cache = folders(&[("HOME", "/home/x"), ("XDG_CACHE_HOME", "/c"), ("XK_STORE", "")]);
        assert_eq!(cache.stores[0], Path::new("/c/xk/tables"));
        let own = folders(&[("XK_CACHE", "/k"), ("XDG_CACHE_HOME", "/c"), ("XK_STORE", "/s")]);
        assert_eq!((own.cache.as_path(), own.stores), (Path::new("/k"), vec![PathBuf::from("/s")]));
        assert_eq!(folders(&[]).stores, [Path::new("/var/lib/xk/tables")]);
    }
}
