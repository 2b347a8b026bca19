//! The tools that build a kernel: of this machine, or in a root file system of another release.
//!
//! In: a root file system, or nothing. Out: commands that run with these tools. Everything that compiles goes
//! through [`Toolchain::command`]. Refuses a folder that cannot stand in for `/usr`.
//!
//! A command of another root sees that root's `/usr` and `/etc`, mounted in a mount namespace of its own; all other
//! paths are those of this machine. So sources, outputs and temporary files have one name in both. Without root,
//! the namespace belongs to a user namespace, and the command creates files as the user who runs it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

use crate::env::{Env, RunOutput};

/// The part of the user's environment that programs need to run at all.
pub(crate) const PASSED_ON: [&str; 4] = ["PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH"];
/// Enters another root. `/usr` comes last, because it holds `mount`. The user's `PATH` and libraries say nothing
/// about the programs of that root.
const ENTER: &str = r#"PATH=/usr/sbin:/usr/bin:/sbin:/bin; export PATH; unset LD_LIBRARY_PATH
mount --no-mtab --rbind "$1/etc" /etc && mount --no-mtab --rbind "$1/usr" /usr && shift && exec "$@""#;
/// Folders that are not those of this machine while a command of another root runs.
const REPLACED: [&str; 2] = ["/usr", "/etc"];
/// Links into `/usr`. Where one is a folder, replacing `/usr` would not replace what is in it.
const MERGED: [&str; 3] = ["bin", "lib", "lib64"];

/// Why a root file system cannot be used.
#[derive(Debug, Error)]
#[allow(missing_docs)] // the message of each variant documents its fields
pub enum ToolchainError {
    #[error("{} is no root file system with tools, {} is missing; {}", root.display(), missing.display(), how_to_make("RELEASE", "gcc-NN"))]
    NoRoot { root: PathBuf, missing: PathBuf },
    #[error("the name of {} is not UTF-8; choose another folder", path.display())]
    NotText { path: PathBuf },
    #[error("{} is a folder and not a link into /usr; the tools of another root need a merged /usr (package usrmerge)", path.display())]
    NotMerged { path: PathBuf },
    #[error("{} is not visible to the tools in {}, which replace {}; choose another folder (XK_CACHE, TMPDIR)", path.display(), root.display(), REPLACED.join(" and "))]
    Hidden { path: PathBuf, root: PathBuf },
    #[error("cannot find {}: {error}", path.display())]
    Path { path: PathBuf, error: io::Error },
}

/// The command that makes a root with the tools that a kernel's build needs.
pub(crate) fn how_to_make(release: &str, compiler: &str) -> String {
    format!("make a root with it for --toolchain (mmdebstrap --variant=apt --include={compiler},{TOOLS} {release} DIR)")
}

/// What a kernel's build needs besides the compiler, as packages of Debian 13.
const TOOLS: &str = "bc,bindgen,bison,flex,libelf-dev,libssl-dev,make,openssl,pahole,perl,python3,rust-src,rustc";

/// Tools that build kernels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toolchain {
    /// The root file system; `None`: this machine's own.
    root: Option<String>,
}

impl Toolchain {
    /// The tools of this machine.
    pub fn host() -> Self {
        Self::default()
    }

    /// The tools in a root file system.
    ///
    /// # Errors
    /// It is none, or this machine cannot use it.
    pub fn in_root(root: &Path) -> Result<Self, ToolchainError> {
        let root = root.canonicalize().map_err(|error| ToolchainError::Path { path: root.to_owned(), error })?;
        for needed in ["usr/bin/env", "etc"] {
            let missing = root.join(needed);
            if !missing.exists() {
                return Err(ToolchainError::NoRoot { root, missing });
            }
        }
        for top in [Path::new("/"), &root] {
            let folder = MERGED.iter().map(|name| top.join(name)).find(|path| path.is_dir() && !path.is_symlink());
            if let Some(path) = folder {
                return Err(ToolchainError::NotMerged { path });
            }
        }
        match root.to_str() {
            Some(name) => Ok(Self { root: Some(name.to_owned()) }),
            None => Err(ToolchainError::NotText { path: root }),
        }
    }

    /// The root file system; `None` for this machine's own.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref().map(Path::new)
    }

    /// `program` and its `arguments`, as words that this machine executes.
    pub(crate) fn line<'a>(&'a self, program: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
        let Some(root) = self.root.as_deref() else {
            return [&[program], arguments].concat();
        };
        let mut words = vec!["unshare", "--mount", "--propagation", "private"];
        if !rustix::process::geteuid().is_root() {
            words.push("--map-root-user");
        }
        words.extend(["sh", "-c", ENTER, "xk", root, program]);
        [words.as_slice(), arguments].concat()
    }

    /// A program that sees nothing of the user's environment but what it needs to run.
    pub(crate) fn command(&self, program: &str, folder: &Path) -> Command {
        let line = self.line(program, &[]);
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).env_clear().current_dir(folder).env("LC_ALL", "C");
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }

    /// Runs a program to its end, on `env`.
    pub(crate) fn run(&self, env: &dyn Env, program: &str, arguments: &[&str]) -> io::Result<RunOutput> {
        let line = self.line(program, arguments);
        env.run(line[0], &line[1..])
    }

    /// A file of these tools, for example a header.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        match &self.root {
            Some(root) => Path::new(root).join(path.trim_start_matches('/')),
            None => PathBuf::from(path),
        }
    }

    /// Checks that the tools see `path`.
    pub(crate) fn check_visible(&self, path: &Path) -> Result<(), ToolchainError> {
        let Some(root) = self.root() else { return Ok(()) };
        let hidden = |path: &Path| REPLACED.iter().any(|top| path.starts_with(top));
        let path = std::path::absolute(path).map_err(|error| ToolchainError::Path { path: path.to_owned(), error })?;
        // The folder itself may not exist yet.
        let real = path.ancestors().find_map(|path| path.canonicalize().ok()).unwrap_or_else(|| path.clone());
        if hidden(&path) || hidden(&real) {
            return Err(ToolchainError::Hidden { path, root: root.to_owned() });
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "toolchain_tests.rs"]
mod tests;
