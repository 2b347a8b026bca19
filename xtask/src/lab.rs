//! The repository's own tools: the lab's kernels and guests, the script that builds modules, the kernel under study
//! and its tables.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;
use xk_kernel::{Image, Source, SourceHints, Tree};

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
    /// How much longer everything takes there.
    #[serde(deserialize_with = "number")]
    pub slowness: u32,
}

/// The lab prints everything as text.
fn number<'de, D: serde::Deserializer<'de>>(text: D) -> Result<u32, D::Error> {
    String::deserialize(text)?.parse().map_err(serde::de::Error::custom)
}

/// How a guest ended.
#[derive(Debug, Deserialize)]
pub struct Ended {
    /// In a word; `finished` is the good one.
    pub verdict: String,
    /// Exit code of the command, if it ended.
    pub command_exit: Option<i32>,
    /// What the kernel complained about.
    pub splats: Vec<Splat>,
    /// Standard output of the command.
    #[serde(skip)]
    pub printed: String,
}

/// A complaint of the kernel.
#[derive(Debug, Deserialize)]
pub struct Splat {
    /// Its first line.
    pub line: String,
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
    kernel_named(KERNEL)
}

/// Where the parts of a kernel of `lab/kernels.toml` are.
///
/// # Errors
/// When there is none of this name, or it was not fetched.
pub fn kernel_named(name: &str) -> Result<Kernel> {
    let text = output(command("lab/lab")?.args(["info", name, "--json"]))?;
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
    let status = boot(KERNEL, script, options, out.path())?;
    ensure!(status.success(), "the guest failed ({status}); see its output above");
    Ok(fs::read_to_string(out.path().join("stdout"))?)
}

/// The command `xk`, built as this program was, beside it.
///
/// # Errors
/// When it does not compile.
pub fn xk() -> Result<PathBuf> {
    let mut build = command("cargo")?;
    build.args(["build", "--quiet", "--package", "xk"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    output(&mut build)?;
    Ok(std::env::current_exe()?.with_file_name("xk"))
}

/// Runs `script` in a guest of this kernel, and says how it ended, be it well or not; what the lab keeps of a guest
/// is in `out` then.
///
/// # Errors
/// When there was no guest.
pub fn run_on(kernel: &str, script: &str, options: &[&str], out: &Path) -> Result<Ended> {
    let status = boot(kernel, script, options, out)?;
    let read = |name: &str| fs::read_to_string(out.join(name));
    let result = read("result.json").with_context(|| format!("no guest ran ({status}); see the lab's output above"))?;
    Ok(Ended { printed: read("stdout").unwrap_or_default(), ..serde_json::from_str(&result)? })
}

fn boot(kernel: &str, script: &str, options: &[&str], out: &Path) -> Result<ExitStatus> {
    let mut lab = command("lab/lab")?;
    lab.args(["run", "--kernel", kernel, "--out"]).arg(out).args(options).arg(script);
    lab.stdout(Stdio::null()).status().context("lab/lab")
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
        bail!("{program} failed ({}); see its output above", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The folder of tables, as `xk build` chooses it.
///
/// # Errors
/// When there is no cache, or a broken build has no folder of its own.
pub fn tables() -> Result<PathBuf> {
    let own = std::env::var_os("XK_STORE").filter(|value| !value.is_empty()).map(PathBuf::from);
    ensure!(
        own.is_some() || !xk_lift::BROKEN_RULE,
        "this xtask was built with the feature broken-rule, and its tables are wrong: set XK_STORE to a folder for them"
    );
    own.map_or_else(|| Ok(cache()?.join("tables")), Ok)
}

/// The image and the prepared tree of the kernel under study.
///
/// # Errors
/// When the lab has not fetched it, or its source is not complete.
pub fn image_and_tree() -> Result<(Image, Tree)> {
    let kernel = kernel()?;
    let image = Image::from_vmlinuz(&kernel.vmlinuz, None)?.with_modules_in(&kernel.root);
    let mut hints = SourceHints::in_root(&kernel.root);
    hints.config_text = image.config().map(str::to_owned);
    let source = Source::locate(image.id(), &hints)?;
    let tree = source.prepare(&cache()?, &|line| eprintln!("prepare: {line}"))?;
    Ok((image, tree))
}
