//! Why there is no table for a name, or no kernel for an option.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;
use xk_const::SpecError;
use xk_table::{KernelRef, StoreError};

/// A directory of tables exists and cannot be listed.
#[derive(Debug, Error)]
#[error("cannot list {}: {error}", folder.display())]
pub struct ListError {
    /// The directory.
    pub folder: PathBuf,
    /// The error of the operating system.
    pub error: io::Error,
}

/// A name means several constants.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is ambiguous; name one of:{}", lines(candidates))]
pub struct Ambiguous {
    /// What the user wrote.
    pub text: String,
    /// The IDs of these constants.
    pub candidates: Vec<String>,
}

/// Why a name has no table.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The text is neither a name, nor `file:line`, nor an ID.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// It means several constants.
    #[error(transparent)]
    Ambiguous(#[from] Ambiguous),
    /// The file that should contain the table cannot be used.
    #[error(transparent)]
    Unusable(Arc<StoreError>),
    /// Only another kernel build has a table.
    #[error(
        "the scope table of {text} is for kernel {} (build-id {}), and this kernel has build-id {build_id}: run `xk build \
         {text}` for this kernel",
        kernel.release,
        kernel.build_id
    )]
    OtherBuild {
        /// What the user wrote.
        text: String,
        /// The other kernel build.
        kernel: KernelRef,
        /// The build-id of this kernel.
        build_id: String,
    },
    /// No kernel build has a table.
    #[error(
        "no scope table for {text} on this kernel (looked in {}): {}{}",
        alternatives(stores),
        advice(text, similar),
        if *as_root { "; tables that another user built are found with XK_STORE=FOLDER" } else { "" }
    )]
    NoTable {
        /// What the user wrote.
        text: String,
        /// Names of this kernel's tables that look much like it, the most similar one first.
        similar: Vec<String>,
        /// The directories that were searched.
        stores: Vec<PathBuf>,
        /// The command runs under `sudo`, with the directories of root.
        as_root: bool,
    },
}

/// Why an option names no kernel that has tables.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A directory of tables cannot be listed.
    #[error(transparent)]
    List(#[from] ListError),
    /// There are no tables at all.
    #[error("there are no tables for any kernel: run `xk build` ({wanted} asked for)")]
    NoTables {
        /// The release or build-id that was asked for.
        wanted: String,
    },
    /// There are tables, for other kernels.
    #[error("there are no tables for kernel `{wanted}`; there are for:{}", kernels(known))]
    Unknown {
        /// The release or build-id that was asked for.
        wanted: String,
        /// The kernels with tables.
        known: Vec<KernelRef>,
    },
    /// Several kernels match.
    #[error("`{wanted}` means several kernels; name one build-id:{}", kernels(matching))]
    Several {
        /// The release or build-id that was asked for.
        wanted: String,
        /// The kernels that match.
        matching: Vec<KernelRef>,
    },
}

/// What to do about a name without a table.
fn advice(text: &str, similar: &[String]) -> String {
    match similar {
        [] => format!("run `xk build {text}` first"),
        names => format!("did you mean {}? If not, run `xk build {text}` first", names.join(" or ")),
    }
}

fn lines(items: &[String]) -> String {
    items.iter().map(|item| format!("\n  {item}")).collect()
}

fn kernels(kernels: &[KernelRef]) -> String {
    kernels.iter().map(|kernel| format!("\n  {} {}", kernel.release, kernel.build_id)).collect()
}

fn alternatives(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}
