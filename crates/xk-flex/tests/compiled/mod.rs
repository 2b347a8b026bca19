//! Programs of the tests in a guest, compiled for its kernel.

use std::fs;
use std::path::{Path, PathBuf};

use xk_policy::{compile, Headers};
use xk_testing::guest::{info, repository};

/// Compiles programs of `tests/bpf` by their names. Returns the path of each object, which is in the folder.
pub fn compiled<const N: usize>(folder: &Path, names: [&str; N]) -> [String; N] {
    let types = PathBuf::from(format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release")));
    let headers = Headers::new(&types, folder, &info("release")).unwrap();
    names.map(|name| {
        let source = repository().join(format!("crates/xk-flex/tests/bpf/{name}.bpf.c"));
        let object = folder.join(format!("{name}.bpf.o"));
        fs::write(&object, compile(&source, &headers).unwrap_or_else(|error| panic!("{error}"))).unwrap();
        object.display().to_string()
    })
}
