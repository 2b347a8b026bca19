//! A prepared build tree: configured, with generated headers, never edited.
//!
//! Compile commands, units and overlays of a tree are methods of [`Tree`] in
//! the files of those names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::kbuild::{write_atomic, PRIVATE_FOLDER};
use crate::source::SourceError;
use crate::toolchain::Toolchain;

/// What a prepared tree knows about itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TreeMeta {
    pub(crate) release: String,
    pub(crate) compiler: String,
    pub(crate) compiler_version: String,
    /// What the top Makefile exports.
    pub(crate) environment: BTreeMap<String, String>,
}

impl TreeMeta {
    fn path(root: &Path) -> PathBuf {
        root.join(PRIVATE_FOLDER).join("tree.json")
    }

    pub(crate) fn write(&self, root: &Path) -> Result<(), SourceError> {
        let path = Self::path(root);
        let text = serde_json::to_vec_pretty(self).map_err(|error| SourceError::io("encode", &path)(error.into()))?;
        write_atomic(&path, &text).map_err(SourceError::io("write", &path))
    }
}

/// A translation unit of the deployed kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeployedUnit {
    /// The source file, relative to the tree.
    pub source: String,
    /// The module that it is linked into, as the file is named (`nvme-core`, `tcp_bbr`); `None` for the image.
    pub module: Option<String>,
    /// The object, as the kernel's build names it; it may reach its folder through `..`.
    pub object: String,
}

/// A prepared source tree of one kernel build. Cheap to share between threads.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    meta: TreeMeta,
    tools: Toolchain,
    config: BTreeMap<String, String>,
    pub(crate) units: OnceLock<Arc<[DeployedUnit]>>,
}

impl Tree {
    /// Opens a tree that [`crate::Source::prepare`] made with the tools of this machine.
    pub fn open(root: &Path) -> Result<Self, SourceError> {
        Self::open_with(root, Toolchain::host())
    }

    /// Opens a tree that [`crate::Source::prepare`] made with these `tools`.
    pub(crate) fn open_with(root: &Path, tools: Toolchain) -> Result<Self, SourceError> {
        let root = fs::canonicalize(root).map_err(SourceError::io("open", root))?;
        let not_tree = |reason: String| SourceError::Tree { root: root.clone(), reason };
        let meta = fs::read(TreeMeta::path(&root)).map_err(|error| not_tree(format!("no tree.json: {error}")))?;
        let meta = serde_json::from_slice(&meta).map_err(|error| not_tree(format!("tree.json: {error}")))?;
        let config_path = root.join(".config");
        let config = fs::read_to_string(&config_path).map_err(SourceError::io("read", &config_path))?;
        let unquoted = |value: &str| value.trim_matches('"').to_owned();
        let config = options(&config).into_iter().map(|(name, value)| (name.to_owned(), unquoted(value))).collect();
        Ok(Self { root, meta, tools, config, units: OnceLock::new() })
    }

    /// The top folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The tools that compile it.
    pub fn tools(&self) -> &Toolchain {
        &self.tools
    }

    /// The release of the kernel that the tree belongs to.
    pub fn release(&self) -> &str {
        &self.meta.release
    }

    /// The compiler's command.
    pub fn compiler(&self) -> &str {
        &self.meta.compiler
    }

    /// The compiler's version text: with [`Tree::release`] and the configuration, what the code depends on.
    pub fn compiler_version(&self) -> &str {
        &self.meta.compiler_version
    }

    /// The value of a configuration option (with or without `CONFIG_`), without quotes; `None` if it is not set.
    pub fn config(&self, option: &str) -> Option<&str> {
        self.config.get(option.strip_prefix("CONFIG_").unwrap_or(option)).map(String::as_str)
    }

    pub(crate) fn environment(&self) -> &BTreeMap<String, String> {
        &self.meta.environment
    }
}

/// The options that a configuration sets; `n` and unset are the same.
pub(crate) fn options(config: &str) -> BTreeMap<&str, &str> {
    let lines = config.lines().filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('='));
    lines.filter(|(_, value)| *value != "n").collect()
}
