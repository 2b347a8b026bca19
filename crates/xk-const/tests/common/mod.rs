//! The prepared tree of the newest kernel that the lab has fetched, and helpers over it.
#![allow(dead_code)] // every test uses some of them

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use xk_const::{resolve, users, Constant, Spec, Unit, Users};
use xk_kernel::{KernelId, Source, SourceHints, Tree};

/// The tree, prepared on first use.
pub fn tree() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(|| {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/lab");
        let out = Command::new(lab).args(["info", "amd64", "--json"]).output().expect("lab/lab runs");
        assert!(out.status.success(), "no kernel to test with, run `lab/lab fetch amd64`: {}", text(&out.stderr));
        let info: serde_json::Value = serde_json::from_slice(&out.stdout).expect("lab/lab info prints JSON");
        let field = |name: &str| info[name].as_str().expect("lab/lab info names its files").to_owned();
        let id = KernelId::new(&field("release"), &[], &format!("#1 SMP Debian {}", field("version")));
        let mut hints = SourceHints::in_root(field("root"));
        hints.tarball = Some(field("source_tarball").into());
        hints.config = Some(field("config").into());
        let source = Source::locate(&id, &hints).expect("the kernel's source is complete");
        source.prepare(&cache(), &|line| eprintln!("{line}")).expect("the source tree can be prepared")
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("xk")
}

/// Resolves what must resolve.
pub fn constant(spec: &str) -> Constant {
    let spec = Spec::parse(spec).unwrap();
    resolve(tree(), &spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
}

/// The users of a constant.
pub fn users_of(constant: &Constant) -> Users {
    users(tree(), constant).unwrap()
}

/// The files of units.
pub fn sources(units: &[Unit]) -> Vec<&str> {
    let mut sources: Vec<&str> = units.iter().map(|u| u.source.as_str()).collect();
    sources.dedup();
    sources
}
