//! From C to an object, with the compiler of this machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Error, Headers};

/// In the order in which they are tried.
const COMPILERS: [&str; 2] = ["clang-19", "clang"];

/// Compiles `source`. What it includes is looked for beside it, then in `headers`.
///
/// # Errors
/// [`Error::NoCompiler`]; [`Error::Compile`] with the compiler's output, warnings
/// included: a policy runs in the kernel.
pub fn compile(source: &Path, headers: &Headers) -> Result<Vec<u8>, Error> {
    compile_with(source, headers, None)
}

/// What a policy reads by name, in one kernel build.
#[derive(Debug, Clone)]
pub struct Variables {
    /// C that defines them.
    pub header: String,
    /// The build.
    pub build_id: String,
}

/// As [`compile`], with variables.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(source: &Path, headers: &Headers, variables: Option<&Variables>) -> Result<Vec<u8>, Error> {
    compile_defining(source, headers, variables, &[])
}

/// As [`compile_with`], with these macros.
pub(crate) fn compile_defining(
    source: &Path,
    headers: &Headers,
    variables: Option<&Variables>,
    macros: &[&str],
) -> Result<Vec<u8>, Error> {
    fs::metadata(source).map_err(Error::io(source))?;
    let folder = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
    let object = folder.path().join("policy.bpf.o");
    for compiler in COMPILERS {
        let mut command = Command::new(compiler);
        command.args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-D__TARGET_ARCH_x86"]);
        // The kernel's types are not ours to judge.
        command.args(["-Wno-missing-declarations", "-Wno-unused-function", "-isystem"]).arg(headers.folder());
        command.args(macros.iter().map(|name| format!("-D{name}=")));
        if let Some(Variables { header, build_id }) = variables {
            let path = folder.path().join("xk_vars.h");
            fs::write(&path, header).map_err(Error::io(&path))?;
            command.arg("-I").arg(folder.path()).arg(format!("-DXK_BUILD_ID=\"{build_id}\""));
            // The same policy is the same object, wherever its variables were written down.
            command.arg(format!("-fdebug-prefix-map={}=xk", folder.path().display()));
        }
        command.arg("-c").arg(source).arg("-o").arg(&object);
        let output = match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            other => other.map_err(Error::io(compiler))?,
        };
        if output.status.success() {
            return fs::read(&object).map_err(Error::io(&object));
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Compile { path: source.to_owned(), text });
    }
    Err(Error::NoCompiler)
}
