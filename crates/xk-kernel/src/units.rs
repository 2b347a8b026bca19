//! The translation units that a configuration builds into the image or into modules.
//!
//! The kernel's own makefiles are evaluated, folder by folder, so that
//! composites, conditional objects and objects in other folders come out as
//! the build sees them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::kbuild::{lock, tail, write_atomic, Kbuild, Makefile, PRIVATE_FOLDER};
use crate::source::SourceError;
use crate::tree::{DeployedUnit, Tree};

impl Tree {
    /// Every translation unit of the deployed kernel, sorted. Takes about 15 s the first time, then a read of a file.
    ///
    /// Objects without a C or assembler source of their own (generated at build time) are not listed.
    pub fn units(&self) -> Result<Arc<[DeployedUnit]>, SourceError> {
        if let Some(units) = self.units.get() {
            return Ok(Arc::clone(units));
        }
        let cached = self.root().join(PRIVATE_FOLDER).join("units.json");
        let lock_path = cached.with_extension("lock");
        let _lock = lock(&lock_path, || ()).map_err(SourceError::io("lock", &lock_path))?;
        let units: Vec<DeployedUnit> =
            match fs::read(&cached).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                Some(units) => units,
                None => {
                    let units = self.evaluate_units()?;
                    let bytes =
                        serde_json::to_vec(&units).map_err(|error| SourceError::io("encode", &cached)(error.into()))?;
                    write_atomic(&cached, &bytes).map_err(SourceError::io("write", &cached))?;
                    units
                }
            };
        Ok(Arc::clone(self.units.get_or_init(|| units.into())))
    }

    fn evaluate_units(&self) -> Result<Vec<DeployedUnit>, SourceError> {
        let private = self.root().join(PRIVATE_FOLDER);
        let out = tempfile::tempdir_in(&private).map_err(SourceError::io("create a folder in", &private))?;
        let kbuild = Kbuild::new(self.root(), self.compiler(), self.tools());
        let output = kbuild.descend(self.environment(), Makefile::Units, Some(out.path()), &[])?;
        if !output.status.success() {
            return Err(SourceError::Make { step: "listing the kernel's units".to_owned(), tail: tail(&output) });
        }
        let mut units = Vec::new();
        for entry in fs::read_dir(out.path()).map_err(SourceError::io("read", out.path()))? {
            let path = entry.map_err(SourceError::io("read", out.path()))?.path();
            let text = fs::read_to_string(&path).map_err(SourceError::io("read", &path))?;
            for (module, object) in objects(&text) {
                units.extend(unit(self.root(), module, object));
            }
        }
        units.sort_unstable();
        units.dedup();
        if units.is_empty() {
            let reason = "its makefiles list no units".to_owned();
            return Err(SourceError::Tree { root: self.root().to_owned(), reason });
        }
        Ok(units)
    }
}

/// The (module, object) pairs of one folder's list.
fn objects(text: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    text.split("xk-end").flat_map(|list| {
        let mut words = list.split_whitespace();
        let module = match words.next() {
            Some("xk-module") => words.next().and_then(module_name),
            _ => None,
        };
        words.map(move |object| (module, object))
    })
}

fn module_name(object: &str) -> Option<&str> {
    object.rsplit('/').next()?.strip_suffix(".o")
}

/// The unit that an object is compiled from.
fn unit(root: &Path, module: Option<&str>, object: &str) -> Option<DeployedUnit> {
    let normal = normalise(object);
    let stem = normal.strip_suffix(".o")?;
    let source = [".c", ".S"].iter().map(|suffix| format!("{stem}{suffix}")).find(|path| root.join(path).is_file())?;
    Some(DeployedUnit { source, module: module.map(str::to_owned), object: object.to_owned() })
}

/// A relative path without `.` and `..`; a `..` at the start is dropped.
pub(crate) fn normalise(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lists_image_and_module_objects() {
        let text = "xk-builtin a/x.o a/y.o xk-end \n xk-module a/m-core.o a/one.o a/../b/two.o xk-end xk-module a/n.o a/n.o xk-end";
        let found: Vec<_> = objects(text).collect();
        let expected = [
            (None, "a/x.o"),
            (None, "a/y.o"),
            (Some("m-core"), "a/one.o"),
            (Some("m-core"), "a/../b/two.o"),
            (Some("n"), "a/n.o"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn paths_are_normalised() {
        assert_eq!(normalise("arch/x86/kvm/../../../virt/kvm/eventfd.o"), "virt/kvm/eventfd.o");
        assert_eq!(normalise("./a//b/."), "a/b");
    }
}
