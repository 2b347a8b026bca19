//! The fetched packages of a supported kernel, and the tree prepared from them.

#![allow(clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use xk_kernel::{KernelId, Source, SourceHints, Tree};

/// A fetched kernel, as `lab/lab info` describes it.
pub struct Kernel {
    /// As `uname -r` names it.
    pub release: String,
    /// Folder of its unpacked packages.
    pub root: PathBuf,
    /// Its boot image.
    pub vmlinuz: PathBuf,
}

/// The fetched kernel of a flavour in `lab/kernels.toml`.
pub fn kernel(name: &str) -> Kernel {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/lab");
    let output = Command::new(&lab).args(["info", name, "--json"]).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {}: {error}", lab.display()));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "this test needs the packages of '{name}': run 'lab/lab fetch {name}'\n{message}");
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).expect("lab info prints JSON");
    let field = |name: &str| info[name].as_str().unwrap_or_else(|| panic!("lab info has no {name}")).to_owned();
    Kernel { release: field("release"), root: field("root").into(), vmlinuz: field("vmlinuz").into() }
}

/// The project's cache folder.
pub fn cache() -> PathBuf {
    if let Some(cache) = std::env::var_os("XK_CACHE") {
        return cache.into();
    }
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).expect("HOME is set").join("xk")
}

/// The prepared tree of the main kernel, which all tests of a process share.
pub fn tree() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(own_tree)
}

/// As [`tree()`], for who keeps it.
pub fn own_tree() -> Tree {
    let kernel = kernel("amd64");
    let id = KernelId::new(&kernel.release, &[], "");
    let source = Source::locate(&id, &SourceHints::in_root(&kernel.root)).unwrap_or_else(|error| panic!("{error}"));
    source.prepare(&cache(), &|step| eprintln!("{step}")).unwrap_or_else(|error| panic!("{error}"))
}
