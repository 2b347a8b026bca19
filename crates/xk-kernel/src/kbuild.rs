//! Running the kernel's own build description.
//!
//! In: a tree and the name of its compiler. Out: the environment that the top
//! Makefile computes, and what makefiles of ours print when they run in it.
//! The user's environment does not reach the build: variables such as
//! `KCFLAGS` or `ARCH` would change the code.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::{flock, FlockOperation};

use crate::source::SourceError;
use crate::toolchain::{Toolchain, PASSED_ON};

/// Our files inside a tree.
pub(crate) const PRIVATE_FOLDER: &str = ".xk";
/// What a make tells its sub-makes about itself, and what belongs to one process.
const NOT_CAPTURED: [&str; 9] =
    ["MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MAKE_TERMERR", "XK_OUT", "PWD", "OLDPWD", "_"];

/// The makefiles that run in a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Makefile {
    Environment,
    Command,
    Units,
}

impl Makefile {
    fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Environment => ("environment.mk", include_str!("kbuild/environment.mk")),
            Self::Command => ("command.mk", include_str!("kbuild/command.mk")),
            Self::Units => ("units.mk", include_str!("kbuild/units.mk")),
        }
    }

    /// Puts the makefile into the tree and gives its path.
    fn install(self, root: &Path) -> Result<PathBuf, SourceError> {
        let (name, text) = self.file();
        let folder = root.join(PRIVATE_FOLDER);
        let path = folder.join(name);
        if fs::read_to_string(&path).is_ok_and(|present| present == text) {
            return Ok(path);
        }
        fs::create_dir_all(&folder).map_err(SourceError::io("create", &folder))?;
        write_atomic(&path, text.as_bytes()).map_err(SourceError::io("write", &path))?;
        Ok(path)
    }
}

/// A tree whose makefiles can be run.
pub(crate) struct Kbuild<'a> {
    root: &'a Path,
    compiler: &'a str,
    tools: &'a Toolchain,
    rust: bool,
}

impl<'a> Kbuild<'a> {
    pub(crate) fn new(root: &'a Path, compiler: &'a str, tools: &'a Toolchain) -> Self {
        Self { root, compiler, tools, rust: false }
    }

    /// Whether the configuration has code in Rust. It is not compiled, but the tools must be those of the
    /// configuration. Otherwise the build must not find a compiler that would change the configuration.
    pub(crate) fn with_rust(self, rust: bool) -> Self {
        Self { rust, ..self }
    }

    fn make(&self) -> Command {
        let mut make = self.tools.command("make", self.root);
        // The host programs are built by the same compiler: it is the one that is known to be here.
        make.arg(format!("CC={}", self.compiler)).arg(format!("HOSTCC={}", self.compiler));
        if !self.rust {
            make.args(["RUSTC=false", "BINDGEN=false"]);
        }
        make
    }

    /// Runs goals of the kernel's top Makefile.
    pub(crate) fn top_level(&self, goals: &[&str]) -> Result<(), SourceError> {
        let mut make = self.make();
        make.arg(jobs()).args(goals);
        run(make, &format!("make {}", goals.join(" "))).map(drop)
    }

    /// The environment that the top Makefile gives to the makefiles below it.
    pub(crate) fn capture_environment(&self) -> Result<BTreeMap<String, String>, SourceError> {
        let makefile = Makefile::Environment.install(self.root)?;
        let out = self.root.join(PRIVATE_FOLDER).join("environment");
        let mut make = self.make();
        // The top Makefile runs itself again unless it believes that it already did.
        // What it exports on the way stands here; 6.12 does without the last three.
        make.env("sub_make_done", "1").env("LC_COLLATE", "C").env("LC_NUMERIC", "C").env("XK_OUT", &out);
        make.env("KBUILD_CHECKSRC", "0").env("objtree", ".").env("srcroot", ".");
        make.args(["-rR", "--no-print-directory", "-f"]).arg(makefile).arg("xk-environment");
        run(make, "make xk-environment")?;
        let bytes = fs::read(&out).map_err(SourceError::io("read", &out))?;
        let text = String::from_utf8_lossy(&bytes);
        let variables = text.split('\0').filter_map(|entry| entry.split_once('='));
        let kept = variables.filter(|(name, _)| !NOT_CAPTURED.contains(name) && !PASSED_ON.contains(name));
        Ok(kept.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Runs one of our makefiles from the tree's top folder in the captured environment.
    pub(crate) fn descend(
        &self,
        environment: &BTreeMap<String, String>,
        makefile: Makefile,
        out: Option<&Path>,
        goals: &[String],
    ) -> Result<Output, SourceError> {
        let mut make = self.below(environment, &makefile.install(self.root)?);
        if let Some(out) = out {
            make.env("XK_OUT", out).arg(jobs());
        }
        make.args(goals);
        output(make)
    }

    /// Builds objects in the tree as the kernel's build would, without objtool.
    pub(crate) fn build(&self, environment: &BTreeMap<String, String>, goals: &[String]) -> Result<(), SourceError> {
        let mut make = self.below(environment, Path::new("scripts/Makefile.build"));
        make.arg("objtool=true").arg(jobs()).args(goals);
        run(make, &format!("make {}", goals.join(" "))).map(drop)
    }

    fn below(&self, environment: &BTreeMap<String, String>, makefile: &Path) -> Command {
        let mut make = self.tools.command("make", self.root);
        make.envs(environment).env("KBUILD_MODULES", "1").env("XK_MK", makefile);
        make.args(["-rR", "--no-print-directory", "-f"]).arg(makefile);
        make.args(["obj=.", "need-builtin=1", "need-modorder=1"]);
        make
    }
}

fn jobs() -> String {
    format!("-j{}", std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

fn output(mut command: Command) -> Result<Output, SourceError> {
    let program = PathBuf::from(command.get_program());
    command.output().map_err(SourceError::io("run", program))
}

fn run(command: Command, step: &str) -> Result<Output, SourceError> {
    let output = output(command)?;
    if output.status.success() {
        return Ok(output);
    }
    let tail = tail(&output);
    Err(SourceError::Make { step: step.to_owned(), tail })
}

/// The lines of a failed make that say why.
pub(crate) fn tail(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// Takes an exclusive lock that ends with the returned file; `waiting` is called if it is held.
pub(crate) fn lock(path: &Path, waiting: impl FnOnce()) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        waiting();
        flock(&file, FlockOperation::LockExclusive)?;
    }
    Ok(file)
}

/// Writes a file atomically.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
