//! Variants: one translation unit compiled with another value. Objects are cached by what they are
//! made from, written atomically, and safe to build from several threads.
//!
//! A unit is preprocessed once for all values where that gives the same text (`marked.rs`); only the
//! default is always compiled from the unedited tree, because it is what identity is claimed for.
//!
//! Debug information is left out: it does not change code, and compiling is a third faster. The
//! caller compares the default's object with the deployed code, so even this is not taken on trust.

use crate::constant::Constant;
use crate::debug::DEBUG;
use crate::edit::{edit, literal, EditError};
use crate::marked::{marked, written, Marked, QUIET};
use crate::tree::{first_error, BuildTree, FileEdit, TreeError, Unit};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Flags that make compiling quicker and leave the code as it is.
pub const QUICK: [&str; 2] = ["-g0", "-w"];
/// Flags for assembly with the compiler's own instructions (RTL) beside each of the machine's.
pub const NOTED: [&str; 4] = ["-g0", "-w", "-S", "-dP"];

/// Why a variant does not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectedBy {
    /// An assertion about the value, a size or a layout.
    LayoutOrAssert,
    /// Anything else.
    Other,
}

/// Why there is no object.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The compiler rejects the value.
    #[error("{unit} does not compile with {id} = {value}: {message}")]
    Rejected {
        /// The unit.
        unit: String,
        /// The constant.
        id: String,
        /// The value.
        value: i64,
        /// The compiler's first error.
        message: String,
        /// What kind of error that is.
        by: RejectedBy,
    },
    /// The unit's preprocessed text is the same with this value: it does not use the constant.
    #[error("{unit} does not use {id}: its preprocessed text is the same with another value")]
    NotSeen {
        /// The unit.
        unit: String,
        /// The constant.
        id: String,
    },
    /// The compiler has to know the value.
    #[error("{unit} needs the value of {id} when it is compiled: {why}")]
    NotOpaque {
        /// The unit.
        unit: String,
        /// The constant.
        id: String,
        /// What needs it.
        why: String,
    },
    /// The value cannot be written.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The object cannot be stored.
    #[error("cannot write {path}: {error}; free space or choose another folder")]
    Store {
        /// Where.
        path: PathBuf,
        /// The system's words.
        error: std::io::Error,
    },
    /// The tree failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Compiles `unit` with `constant` = `value` into `out_dir` and returns the object. The default
/// value is compiled from the unedited tree.
pub fn build(
    tree: &impl BuildTree,
    constant: &Constant,
    unit: &Unit,
    value: i64,
    out_dir: &Path,
) -> Result<PathBuf, BuildError> {
    build_with(tree, constant, unit, value, out_dir, &QUICK)
}

/// As [`build`], but assembly, with the compiler's own instructions (RTL) beside the machine's.
pub fn build_noted(
    tree: &impl BuildTree,
    constant: &Constant,
    unit: &Unit,
    value: i64,
    out_dir: &Path,
) -> Result<PathBuf, BuildError> {
    build_with(tree, constant, unit, value, out_dir, &NOTED)
}

pub(crate) fn build_with(
    tree: &impl BuildTree,
    constant: &Constant,
    unit: &Unit,
    value: i64,
    out_dir: &Path,
    flags: &[&str],
) -> Result<PathBuf, BuildError> {
    let edits = if value == constant.default { Vec::new() } else { edit(tree, constant, value)? };
    let extension = if flags == NOTED { "s" } else { "o" };
    let key = key(tree, &unit.source, &edits, flags);
    let object = out_dir.join(format!("{}-{key}.{extension}", stem(&unit.source)));
    if object.is_file() {
        return Ok(object);
    }
    std::fs::create_dir_all(out_dir).map_err(store(out_dir))?;
    let way = match way(tree, constant, unit, &edits, out_dir)? {
        // A build with other flags is not for its code alone: debug information names unused functions.
        Way::Text(_) if flags != QUICK && flags != NOTED => Way::Tree,
        way => way,
    };
    stored(out_dir, &object, |folder, fresh| {
        let done = match way {
            Way::Tree => tree.compile(&edits, &unit.source, fresh, flags),
            Way::Text(marked) => {
                let Marked::Pieces(pieces) = &*marked else { return Err(not_seen(constant, unit)) };
                let text = folder.join("unit.i");
                std::fs::write(&text, written(pieces, &literal(constant, value)?)).map_err(store(out_dir))?;
                tree.compile_preprocessed(&text, &unit.source, fresh, flags)
            }
        };
        done.map_err(|error| rejection(error, constant, unit, value))
    })?;
    Ok(object)
}

/// Compiles `unit` as deployed, with debug information, into `out_dir` and returns the object.
pub fn build_debug(tree: &impl BuildTree, unit: &Unit, out_dir: &Path) -> Result<PathBuf, BuildError> {
    let key = key(tree, &unit.source, &[], &DEBUG);
    let object = out_dir.join(format!("{}-{key}.o", stem(&unit.source)));
    if !object.is_file() {
        std::fs::create_dir_all(out_dir).map_err(store(out_dir))?;
        stored(out_dir, &object, |_, fresh| Ok(tree.compile(&[], &unit.source, fresh, &DEBUG)?))?;
    }
    Ok(object)
}

/// Has an object made in a folder of its own, so that it is complete when it has its name.
fn stored(
    out_dir: &Path,
    object: &Path,
    make: impl FnOnce(&Path, &Path) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let folder = tempfile::Builder::new().prefix(".building").tempdir_in(out_dir).map_err(store(out_dir))?;
    let fresh = folder.path().join("unit.o");
    make(folder.path(), &fresh)?;
    std::fs::rename(&fresh, object).map_err(store(out_dir))
}

fn store(path: &Path) -> impl Fn(std::io::Error) -> BuildError + '_ {
    |error| BuildError::Store { path: path.to_owned(), error }
}

/// What a failure of the compiler says about the value.
pub(crate) fn rejection(error: TreeError, constant: &Constant, unit: &Unit, value: i64) -> BuildError {
    match error {
        TreeError::Rejected { messages, .. } if starved(&messages) => {
            TreeError::Failed(format!("{}: {}; free space or memory and repeat", unit.source, first_error(&messages)))
                .into()
        }
        TreeError::Rejected { messages, .. } => BuildError::Rejected {
            unit: unit.source.clone(),
            id: constant.id.to_string(),
            value,
            message: first_error(&messages).to_owned(),
            by: classify(&messages),
        },
        other => other.into(),
    }
}

pub(crate) fn not_seen(constant: &Constant, unit: &Unit) -> BuildError {
    BuildError::NotSeen { unit: unit.source.clone(), id: constant.id.to_string() }
}

/// What is compiled.
enum Way {
    /// The unit in the tree, with the edits in place.
    Tree,
    /// Its text, which the preprocessor made before.
    Text(Arc<Marked>),
}

fn way(
    tree: &impl BuildTree,
    constant: &Constant,
    unit: &Unit,
    edits: &[FileEdit],
    out_dir: &Path,
) -> Result<Way, BuildError> {
    let own = unit.source == constant.range.path;
    if edits.is_empty() && own || !unit.source.ends_with(".c") {
        return Ok(Way::Tree);
    }
    let place = format!("{}:{}..{}", constant.range.path, constant.range.start, constant.range.end);
    let digest = digest(&[&tree.stamp(), &unit.source, &place, &constant.range.written]);
    // Remembered, because no object is: a second run would preprocess it again.
    let note = out_dir.join(format!("{}-{digest}.unseen", stem(&unit.source)));
    if note.is_file() {
        return Err(not_seen(constant, unit));
    }
    let marked = marked(tree, &constant.range, &unit.source, &digest)?;
    match &*marked {
        Marked::Absent => {
            let store = |error| BuildError::Store { path: out_dir.to_owned(), error };
            std::fs::File::create(&note).map_err(store)?;
            Err(not_seen(constant, unit))
        }
        Marked::Pieces(_) if !edits.is_empty() && !tree.records_columns(&unit.source)? => Ok(Way::Text(marked)),
        Marked::Entangled if !edits.is_empty() && !own && !differs(tree, unit, edits)? => Err(not_seen(constant, unit)),
        Marked::Pieces(_) | Marked::Entangled => Ok(Way::Tree),
    }
}

/// This value changes what the preprocessor makes of the unit.
fn differs(tree: &impl BuildTree, unit: &Unit, edits: &[FileEdit]) -> Result<bool, BuildError> {
    match tree.preprocess(edits, &unit.source, &QUIET) {
        Ok(text) => Ok(text != tree.preprocess(&[], &unit.source, &QUIET)?),
        // Then compiling reports it.
        Err(TreeError::Rejected { .. }) => Ok(true),
        Err(other) => Err(other.into()),
    }
}

pub(crate) fn stem(unit: &str) -> String {
    unit.trim_end_matches(".c").replace('/', "_")
}

fn key(tree: &impl BuildTree, unit: &str, edits: &[FileEdit], flags: &[&str]) -> String {
    let stamp = tree.stamp();
    let flags = flags.join(" ");
    let mut parts = vec![stamp.as_str(), unit, flags.as_str()];
    for edit in edits {
        parts.extend([edit.path.as_str(), edit.content.as_str()]);
    }
    digest(&parts)
}

pub(crate) fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect()
}

/// Whether the compiler failed for want of disk or memory: that says nothing about the value.
fn starved(messages: &str) -> bool {
    let signs =
        ["No space left on device", "Disk quota exceeded", "Cannot allocate memory", "Killed signal", "out of memory"];
    signs.iter().any(|sign| messages.contains(sign))
}

fn classify(messages: &str) -> RejectedBy {
    const SIGNS: [&str; 9] = [
        "static assertion failed",
        "BUILD_BUG_ON",
        "__compiletime_assert",
        "size of array",
        "size of unnamed array",
        "negative width",
        "array index",
        "duplicate case",
        "exceeds array bounds",
    ];
    let layout = messages.lines().filter(|l| l.contains("error:")).any(|l| SIGNS.iter().any(|sign| l.contains(sign)));
    if layout {
        RejectedBy::LayoutOrAssert
    } else {
        RejectedBy::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_are_told_from_other_errors() {
        let of = |line: &str| classify(&format!("x.c: In function 'f':\nx.c:3:1: {line}\n"));
        assert_eq!(of("error: static assertion failed: \"no\""), RejectedBy::LayoutOrAssert);
        assert_eq!(
            of("error: call to '__compiletime_assert_12' declared with attribute error: BUILD_BUG_ON failed: 1"),
            RejectedBy::LayoutOrAssert
        );
        assert_eq!(of("error: size of array 'a' is negative"), RejectedBy::LayoutOrAssert);
        assert_eq!(of("error: 'y' undeclared"), RejectedBy::Other);
        assert_eq!(of("warning: size of array"), RejectedBy::Other);
    }
}
