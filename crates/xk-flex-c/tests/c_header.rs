//! The header `include/xk_flex.h`: that it says what the sources say, and that compilers of C and C++ accept it.

#![allow(clippy::unwrap_used)] // a test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cbindgen::{Builder, Config};

/// If set, the header is written.
const WRITE: &str = "XK_WRITE_HEADER";
/// In the order of the header.
const SOURCES: [&str; 5] = ["failure", "extension", "heap", "lock", "ended"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn header() -> PathBuf {
    folder().join("include/xk_flex.h")
}

#[test]
fn the_header_says_what_the_sources_say() {
    let config = Config::from_file(folder().join("cbindgen.toml")).unwrap();
    let sources = SOURCES.map(|name| folder().join(format!("src/{name}.rs")));
    let builder = sources.iter().fold(Builder::new().with_config(config), Builder::with_src);
    let mut written = Vec::new();
    builder.generate().unwrap().write(&mut written);
    let written = String::from_utf8(written).unwrap();
    if std::env::var_os(WRITE).is_some() {
        fs::write(header(), &written).unwrap();
    }
    for path in &sources {
        let text = fs::read_to_string(path).unwrap();
        for exported in text.split("#[no_mangle]").skip(1) {
            let name = exported.split_once("fn ").unwrap().1.split('(').next().unwrap();
            assert!(written.contains(&format!("{name}(")), "{name} is in no header");
        }
    }
    let current = fs::read_to_string(header()).unwrap();
    assert!(current == written, "{}: write it again with {WRITE}=1:\n{written}", header().display());
}

#[test]
fn compilers_accept_it() {
    for (compiler, options) in [
        ("cc", &["-x", "c", "-std=c99"][..]),
        ("cc", &["-x", "c", "-std=c11", "-include", "stdatomic.h"]),
        ("clang-19", &["-x", "c", "-std=c99"]),
        ("clang-19", &["-x", "c++", "-std=c++11"]),
    ] {
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]).args(options).arg(header());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
