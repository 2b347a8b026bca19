//! Objects for tests.
#![allow(clippy::unwrap_used)]

use std::process::Command;

const PRELUDE: &str = "typedef unsigned long long __u64; typedef long long __s64; typedef unsigned int __u32;\n\
    #include \"xk_flex.bpf.h\"\n";

/// Compiles a source that includes the header.
pub fn compiled(text: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("lines.c"), folder.path().join("lines.o"));
    std::fs::write(&source, format!("{PRELUDE}{text}")).unwrap();
    let mut clang = Command::new("clang-19");
    let headers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf");
    clang.args(["-O2", "-g", "-target", "bpf", "-I", headers, "-c"]).arg(&source).arg("-o").arg(&object);
    assert!(clang.status().unwrap().success());
    std::fs::read(object).unwrap()
}
