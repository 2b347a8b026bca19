//! The repository's own tools, as seen from here: the lab's kernels and
//! guests, and the script that builds modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;

/// The kernel of every benchmark.
pub const KERNEL: &str = "amd64";

/// A kernel that the lab has fetched.
#[derive(Debug, Deserialize)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// The folder with `boot/`, `lib/modules/` and `usr/src/`.
    pub root: PathBuf,
    /// The boot image.
    pub vmlinuz: PathBuf,
}

/// The top folder of the repository.
///
/// # Errors
/// When it is gone.
pub fn repository() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    folder.canonicalize().with_context(|| format!("{}", folder.display()))
}

/// Where the tools keep what they fetch and make.
///
/// # Errors
/// When neither `XK_CACHE` nor `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache() -> Result<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("XK_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("xk")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/xk")))
        .context("neither XK_CACHE nor HOME is set")
}

/// Where cargo puts what it builds.
///
/// # Errors
/// As [`repository`].
pub fn target() -> Result<PathBuf> {
    Ok(std::env::var_os("CARGO_TARGET_DIR").map_or(repository()?.join("target"), PathBuf::from))
}

/// Where the parts of [`KERNEL`] are.
///
/// # Errors
/// When it was not fetched.
pub fn kernel() -> Result<Kernel> {
    let text = output(command("lab/lab")?.args(["info", KERNEL, "--json"]))?;
    serde_json::from_str(&text).context("`lab/lab info` did not print what is expected")
}

/// Builds the module in `folder` for `release`; returns its path.
///
/// # Errors
/// When it does not build.
pub fn module(release: &str, folder: &str) -> Result<PathBuf> {
    let paths = output(command("scripts/build-module")?.args([release, folder]))?;
    paths.lines().next().map(PathBuf::from).with_context(|| format!("{folder} has no module"))
}

/// Everything that a guest needs to use `xk` on [`KERNEL`]: the folder of the command, and the module. Tests
/// take the command of cargo's profile `dev`, which the tests of its own crate need anyway.
///
/// # Errors
/// When one of them cannot be built.
pub fn prepared() -> Result<(PathBuf, PathBuf)> {
    let profile = if cfg!(test) { "dev" } else { "release" };
    let printed = output(command("scripts/prepare")?.arg(KERNEL).env("PROFILE", profile))?;
    let mut paths = printed.lines().map(PathBuf::from);
    match (paths.next(), paths.next()) {
        (Some(programs), Some(module)) => Ok((programs, module)),
        _ => bail!("scripts/prepare did not print the folder of xk and the module"),
    }
}

/// Runs `script` in a deterministic guest with one CPU; returns its standard output.
///
/// # Errors
/// When the script fails, or the guest's kernel has something to complain about.
pub fn run_deterministic(script: &str) -> Result<String> {
    run_guest(script, &["--icount", "--cpus", "1"])
}

/// Runs `script` in a guest with these options; returns its standard output.
///
/// # Errors
/// As [`run_deterministic`].
pub fn run_guest(script: &str, options: &[&str]) -> Result<String> {
    let out = tempfile::tempdir()?;
    let status = command("lab/lab")?
        .args(["run", "--kernel", KERNEL, "--out"])
        .arg(out.path())
        .args(options)
        .arg(script)
        .stdout(Stdio::null())
        .status()
        .context("lab/lab")?;
    ensure!(status.success(), "the guest failed ({status}); its words are above");
    Ok(fs::read_to_string(out.path().join("stdout"))?)
}

/// A program, run in the repository's top folder.
///
/// # Errors
/// As [`repository`].
pub fn command(program: &str) -> Result<Command> {
    let mut command = Command::new(program);
    command.current_dir(repository()?);
    Ok(command)
}

/// Standard output of a program; its errors are shown.
///
/// # Errors
/// When it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output().with_context(|| program.clone())?;
    if !output.status.success() {
        bail!("{program} failed ({}); its words are above", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}
