//! Objects made by GCC 12, the compiler of the kernel that tests use.
//!
//! In: assembly text or C. Out: an object file. Panics with the messages of the compiler where a test cannot go on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use thiserror::Error;

/// The compiler does not accept a source.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("does not compile:\n{text}\n{messages}")]
pub struct Rejected {
    /// The source.
    pub text: String,
    /// The messages of the compiler.
    pub messages: String,
}

/// Assembles AT&T text to an object file, with a folder of its own.
pub fn assemble(text: &str) -> Vec<u8> {
    compile(&["-x", "assembler", "-c"], text)
}

/// Compiles C as the kernel does, with `V` defined.
pub fn compile_c(text: &str, v: &str) -> Vec<u8> {
    compile_c_with(text, v, &[])
}

/// The same as assembly, with the compiler's own instructions beside the machine's.
pub fn noted_c(text: &str, v: &str) -> String {
    String::from_utf8(compile_c_with(text, v, &["-S", "-dP"])).unwrap()
}

/// Compiles C as the kernel does, with `V` defined.
///
/// # Errors
/// [`Rejected`].
pub fn try_compile_c(text: &str, v: &str) -> Result<Vec<u8>, Rejected> {
    with_flags(v, &[], |flags| try_compile(flags, text))
}

fn compile_c_with(text: &str, v: &str, more: &[&str]) -> Vec<u8> {
    with_flags(v, more, |flags| compile(flags, text))
}

fn with_flags<T>(v: &str, more: &[&str], compile: impl FnOnce(&[&str]) -> T) -> T {
    let define = format!("-DV={v}");
    let flags = [
        "-x",
        "c",
        "-c",
        "-O2",
        "-std=gnu11",
        "-fno-jump-tables",
        "-mno-red-zone",
        "-mcmodel=kernel",
        "-fno-PIE",
        "-fno-asynchronous-unwind-tables",
        "-fno-stack-protector",
        "-fno-strict-aliasing",
        "-fno-delete-null-pointer-checks",
        "-fcf-protection=none",
        "-mno-sse",
        "-mno-mmx",
        "-mno-80387",
        "-falign-functions=16",
        &define,
    ];
    compile(&[&flags[..], more].concat())
}

fn compile(arguments: &[&str], text: &str) -> Vec<u8> {
    try_compile(arguments, text).unwrap_or_else(|rejected| panic!("{rejected}"))
}

fn try_compile(arguments: &[&str], text: &str) -> Result<Vec<u8>, Rejected> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("unit.o");
    let mut child = Command::new("gcc-12")
        .args(arguments)
        .args(["-o".as_ref(), output.as_os_str(), "-".as_ref()])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gcc-12 is needed: apt-get install gcc-12");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    if !done.status.success() {
        let messages = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(Rejected { text: text.to_owned(), messages });
    }
    Ok(fs::read(output).unwrap())
}
