//! The tables of one kernel build, and which of them a name means.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xk_const::Spec;
use xk_runtime::TuneStatus;
use xk_table::{CriticalSpan, KernelRef, ScopeTable, Store, StoreError};

use crate::error::{Ambiguous, ListError, LookupError};
use crate::folders::{json_files, Folders};
use crate::names::{pick, similar};

/// The tables of one kernel build.
#[derive(Debug)]
pub struct Tables {
    stores: Vec<PathBuf>,
    build_id: String,
    /// Valid tables, by ConstID.
    pub good: Vec<ScopeTable>,
    /// Files that contain no valid table, or one of another kernel.
    pub bad: Vec<Arc<StoreError>>,
}

impl Tables {
    /// These tables, without directories.
    #[must_use]
    pub fn of(build_id: &str, good: Vec<ScopeTable>) -> Self {
        Self { stores: vec![], build_id: build_id.into(), good, bad: vec![] }
    }

    /// Every table for the kernel build `build_id`. If two directories have a table of one constant, that of the first
    /// directory is used.
    ///
    /// # Errors
    /// A directory exists and cannot be listed.
    pub fn read(folders: &Folders, build_id: &str) -> Result<Self, ListError> {
        let (mut good, mut bad) = (Vec::<ScopeTable>::new(), Vec::new());
        for root in &folders.stores {
            for path in json_files(&root.join(build_id))? {
                match Store::read(&path) {
                    Ok(table) if table.kernel.build_id != build_id => bad.push(Arc::new(StoreError::OtherKernel {
                        path,
                        found: table.kernel.build_id,
                        wanted: build_id.into(),
                    })),
                    Ok(table) if good.iter().any(|known| known.constant.id == table.constant.id) => {}
                    Ok(table) => good.push(table),
                    Err(error) => bad.push(Arc::new(error)),
                }
            }
        }
        good.sort_by(|a, b| a.constant.id.cmp(&b.constant.id));
        Ok(Self { stores: folders.stores.clone(), build_id: build_id.into(), good, bad })
    }

    /// The table of the constant that `text` means. If there is none, `folders` are searched for one of another kernel
    /// build, which the error then names.
    ///
    /// # Errors
    /// There is no such table.
    pub fn find(&self, folders: &Folders, text: &str) -> Result<&ScopeTable, LookupError> {
        let spec = Spec::parse(text)?;
        match self.pick(&spec, text)? {
            Some(table) => Ok(table),
            None => Err(self.why_not(folders, &spec, text)),
        }
    }

    /// The table that `spec` means, if there is one.
    ///
    /// # Errors
    /// It means several constants.
    pub fn pick(&self, spec: &Spec, text: &str) -> Result<Option<&ScopeTable>, Ambiguous> {
        pick(spec, text, &self.good, |table| (&table.constant.id, table.constant.name.as_deref()))
    }

    /// The alias of the constant with this ID.
    #[must_use]
    pub fn alias(&self, id: &str) -> Option<&str> {
        self.good.iter().find(|table| table.constant.id == id)?.constant.name.as_deref()
    }

    /// How messages name the constant of a tune: by its alias, if a table knows it.
    #[must_use]
    pub fn title_of<'a>(&'a self, tune: &'a TuneStatus) -> &'a str {
        self.alias(&tune.name).unwrap_or(&tune.name)
    }

    /// The table of a tune. The kernel knows a long ConstID by its alias.
    #[must_use]
    pub fn of_tune(&self, tune: &str) -> Option<&ScopeTable> {
        let is = |table: &&ScopeTable| table.constant.id == tune || table.constant.name.as_deref() == Some(tune);
        self.good.iter().find(is)
    }

    /// The critical span of a tune's site; `None` for a data site, or without a table.
    #[must_use]
    pub fn span(&self, tune: &str, site: usize) -> Option<&CriticalSpan> {
        self.of_tune(tune)?.spans.get(site)
    }

    fn why_not(&self, folders: &Folders, spec: &Spec, text: &str) -> LookupError {
        if let Some(error) = self.bad.iter().find(|error| file_of(error).is_some_and(|path| mentions(path, spec))) {
            return LookupError::Unusable(Arc::clone(error));
        }
        let text = text.to_owned();
        if let Some(kernel) = self.elsewhere(folders, spec, &text) {
            return LookupError::OtherBuild { text, kernel, build_id: self.build_id.clone() };
        }
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let as_root = is_set("SUDO_USER") && !is_set("XK_STORE");
        let names = self.good.iter().map(|table| table.constant.name.as_deref().unwrap_or(&table.constant.id));
        let similar = similar(&text, names);
        LookupError::NoTable { text, similar, stores: self.stores.clone(), as_root }
    }

    /// Another kernel build that has a table of the constant.
    fn elsewhere(&self, folders: &Folders, spec: &Spec, text: &str) -> Option<KernelRef> {
        let others = folders.kernels().unwrap_or_default();
        others.into_iter().filter(|kernel| kernel.build_id != self.build_id).find(|kernel| {
            let tables = Self::read(folders, &kernel.build_id);
            tables.is_ok_and(|tables| matches!(tables.pick(spec, text), Ok(Some(_))))
        })
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

/// Whether a file that contains no valid table was meant for `spec`. The remaining text says so.
fn mentions(path: &Path, spec: &Spec) -> bool {
    let Ok(bytes) = fs::read(path) else { return false };
    let text = String::from_utf8_lossy(&bytes);
    match spec {
        Spec::Name(name) => text.contains(&format!("\"{name}\"")),
        Spec::Line { path, line } => text.contains(&format!("\"{path}:L{line}:")),
        Spec::Id(id) => text.contains(&format!("\"{id}\"")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use xk_harness::example;

    use super::*;
    use crate::folders::tests::two;

    #[test]
    fn the_first_directory_wins() {
        let (_root, folders) = two();
        let mut table = example::table();
        let build_id = table.kernel.build_id.clone();
        assert!(Tables::read(&folders, &build_id).unwrap().good.is_empty());
        Store::new(&folders.stores[1]).save(&table).unwrap();
        assert_eq!(Tables::read(&folders, &build_id).unwrap().good[0].constant.default, 32);
        table.constant.default = 16;
        folders.store().save(&table).unwrap();
        let found = Tables::read(&folders, &build_id).unwrap();
        assert_eq!((found.good.len(), found.good[0].constant.default, found.bad.len()), (1, 16, 0));
    }

    #[test]
    fn a_missing_table_is_explained() {
        let (_root, folders) = two();
        let mut table = example::table();
        let why = |text: &str| {
            let tables = Tables::read(&folders, "0123456789abcdef0123456789abcdef01234567").unwrap();
            tables.find(&folders, text).map(drop).unwrap_err()
        };
        assert!(matches!(why("a b"), LookupError::Spec(_)));
        let LookupError::NoTable { stores, .. } = why("BLK_MAX_REQUEST_COUNT") else { unreachable!() };
        assert_eq!(stores, folders.stores);
        let wanted = table.kernel.build_id.clone();
        table.kernel.build_id = "01ff".into();
        let path = folders.store().save(&table).unwrap();
        let LookupError::OtherBuild { kernel, .. } = why("BLK_MAX_REQUEST_COUNT") else { unreachable!() };
        assert_eq!(kernel, table.kernel);
        // A table of another kernel, in the directory of this one.
        fs::create_dir(folders.stores[0].join(&wanted)).unwrap();
        fs::rename(path, folders.stores[0].join(&wanted).join("a.json")).unwrap();
        let LookupError::Unusable(error) = why("block/blk.h:335") else { unreachable!() };
        assert!(matches!(*error, StoreError::OtherKernel { .. }), "{error}");
        assert!(matches!(why("SHRINK_BATCH"), LookupError::NoTable { .. }));
        let mut table = example::table();
        table.kernel.build_id = wanted;
        folders.store().save(&table).unwrap();
        let message = why("BLK_MAX_REQEST_COUNT").to_string();
        assert!(
            message.contains("did you mean BLK_MAX_REQUEST_COUNT? If not, run `xk build BLK_MAX_REQEST_COUNT`"),
            "{message}"
        );
    }
}
