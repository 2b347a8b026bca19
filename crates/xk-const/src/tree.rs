//! What this crate needs from a prepared source tree: files to read, the units that are deployed,
//! and the compiler, applied to edited copies. Everything else here is pure.

use std::path::{Path, PathBuf};
use xk_kernel::{CompileError, Tree};

/// A translation unit that is part of the deployed kernel.
pub use xk_kernel::DeployedUnit as Unit;

/// New content for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEdit {
    /// File, relative to the root of the tree.
    pub path: String,
    /// Its whole new content.
    pub content: String,
}

/// Why the tree could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The compiler ran and rejected the source.
    #[error("the compiler rejected {unit}: {}", first_error(.messages))]
    Rejected {
        /// The unit that was compiled.
        unit: String,
        /// Everything the compiler said.
        messages: String,
    },
    /// More units may depend on something than could ever be varied.
    #[error("{what} acts in more than {limit} translation units ({found} were found before the search stopped); every one of them would have to be compiled a dozen times, so it is not attempted: choose a constant that is closer to what should change")]
    TooWide {
        /// The constant.
        what: String,
        /// Units found when the search stopped.
        found: usize,
        /// What is still attempted.
        limit: usize,
    },
    /// Anything else: files, processes, a unit without a compile command.
    #[error("{0}")]
    Failed(String),
}

/// The first line in which the compiler reports an error.
pub fn first_error(messages: &str) -> &str {
    let error = |line: &&str| line.contains("error:") || line.contains("Error:");
    messages.lines().find(error).or_else(|| messages.lines().next()).unwrap_or("no message").trim()
}

/// A prepared source tree. Implementations never modify it: edits live in private copies.
pub trait BuildTree: Sync {
    /// Root of the tree.
    fn root(&self) -> &Path;
    /// A folder for this crate's caches.
    fn cache(&self) -> PathBuf;
    /// Identifies the tree: the same text means the same sources, configuration and compiler.
    fn stamp(&self) -> String;
    /// Every unit of the deployed configuration.
    fn units(&self) -> Result<Vec<Unit>, TreeError>;
    /// Compiles a unit as deployed, with `edits` in place and `flags` appended. Fails when an
    /// edited file would be read from the unedited tree.
    fn compile(&self, edits: &[FileEdit], unit: &str, output: &Path, flags: &[&str]) -> Result<(), TreeError>;
    /// Compiles `text`, which [`BuildTree::preprocess`] made of a unit, as the unit itself.
    fn compile_preprocessed(&self, text: &Path, unit: &str, output: &Path, flags: &[&str]) -> Result<(), TreeError>;
    /// Preprocesses a unit, with `edits` in place and `flags` appended. Fails like `compile`.
    fn preprocess(&self, edits: &[FileEdit], unit: &str, flags: &[&str]) -> Result<String, TreeError>;

    /// Whether the object states in which columns of the source its code stands: preprocessed text has others.
    fn records_columns(&self, unit: &str) -> Result<bool, TreeError> {
        let _ = unit;
        Ok(false)
    }

    /// Reads a file of the tree.
    fn read(&self, path: &str) -> Result<Vec<u8>, TreeError> {
        std::fs::read(self.root().join(path)).map_err(|e| TreeError::Failed(format!("cannot read {path}: {e}")))
    }
}

impl From<CompileError> for TreeError {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Rejected { unit, stderr } => TreeError::Rejected { unit, messages: stderr },
            other => TreeError::Failed(other.to_string()),
        }
    }
}

/// A sanitizer that reports where it was called (UBSAN without traps, KASAN) has a line and a column for each check.
fn records_columns(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument.starts_with("-fsanitize="))
}

fn pairs(edits: &[FileEdit]) -> Vec<(&str, &str)> {
    edits.iter().map(|edit| (edit.path.as_str(), edit.content.as_str())).collect()
}

impl BuildTree for Tree {
    fn root(&self) -> &Path {
        Tree::root(self)
    }

    fn cache(&self) -> PathBuf {
        Tree::root(self).join(".xk").join("constants")
    }

    fn stamp(&self) -> String {
        format!("{} {} {}", Tree::root(self).display(), self.release(), self.compiler_version())
    }

    fn units(&self) -> Result<Vec<Unit>, TreeError> {
        Tree::units(self).map(|units| units.to_vec()).map_err(|error| TreeError::Failed(error.to_string()))
    }

    fn records_columns(&self, unit: &str) -> Result<bool, TreeError> {
        Ok(records_columns(&self.compile_command(unit)?.argv))
    }

    fn compile(&self, edits: &[FileEdit], unit: &str, output: &Path, flags: &[&str]) -> Result<(), TreeError> {
        self.overlay(&pairs(edits))?.compile(unit, output, flags).map(drop).map_err(TreeError::from)
    }

    fn compile_preprocessed(&self, text: &Path, unit: &str, output: &Path, flags: &[&str]) -> Result<(), TreeError> {
        Tree::compile_preprocessed(self, text, unit, output, flags).map(drop).map_err(TreeError::from)
    }

    fn preprocess(&self, edits: &[FileEdit], unit: &str, flags: &[&str]) -> Result<String, TreeError> {
        Ok(self.overlay(&pairs(edits))?.preprocess(unit, flags)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sanitizers_record_columns() {
        let of = |text: &str| records_columns(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(of("gcc -O2 -fsanitize=bounds-strict -fsanitize=shift -c"));
        assert!(!of("gcc -O2 -fno-sanitize=bounds -fcf-protection=branch -c"));
    }
}
