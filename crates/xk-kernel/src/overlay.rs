//! Compiling units with some files edited, without touching the tree.
//!
//! An overlay is a folder that looks like the tree: symbolic links, and real
//! folders only on the way to an edited file. The compiler runs inside it
//! with the kernel's own relative paths, so `__FILE__`, search order and
//! quoted includes are those of the deployed build.
//!
//! One thing can defeat the links: `dir/../file` through a linked `dir` leads
//! into the tree. So the compiler's list of files it read is checked after
//! each run; if an edited file was read from the tree, the folders on that
//! path are made real and the unit is compiled again.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use tempfile::TempDir;

use crate::command::{check_relative, CompileCommand, CompileError};
use crate::kbuild::PRIVATE_FOLDER;
use crate::tree::Tree;
use crate::units::normalise;

/// How often folders are made real for one run before it is given up. Each round needs a new kind
/// of detour through the tree; real units need none or one.
const MAX_ROUNDS: usize = 4;

/// A successful run of the compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Every file that was read, relative to the tree, sorted; the unit itself included.
    pub dependencies: Vec<String>,
    /// What the compiler wrote to standard error (warnings).
    pub messages: String,
}

/// The tree with some files edited. May be used by several threads at once.
#[derive(Debug)]
pub struct Overlay<'a> {
    tree: &'a Tree,
    edited: BTreeSet<String>,
    /// `None` without edits: then the tree itself serves.
    farm: Option<TempDir>,
    /// The farm's real folders. Held for reading while the compiler runs, for writing while a
    /// folder is made real.
    real: RwLock<BTreeSet<String>>,
}

impl Tree {
    /// The tree with new contents for some files (paths relative to the tree). Takes milliseconds.
    pub fn overlay<P: AsRef<str>, C: AsRef<[u8]>>(&self, edits: &[(P, C)]) -> Result<Overlay<'_>, CompileError> {
        for (path, _) in edits {
            check_relative(path.as_ref())?;
        }
        let edited = edits.iter().map(|(path, _)| path.as_ref().to_owned()).collect();
        let mut overlay = Overlay { tree: self, edited, farm: None, real: RwLock::default() };
        if edits.is_empty() {
            return Ok(overlay);
        }
        let folder = std::env::temp_dir();
        let farm = tempfile::Builder::new().prefix("xk-overlay-").tempdir_in(&folder);
        let farm = overlay.farm.insert(farm.map_err(CompileError::io("create a folder in", &folder))?);
        let farm = farm.path().to_owned();
        overlay.link_entries("")?;
        for (path, content) in edits {
            let path = path.as_ref();
            if let Some((folder, _)) = path.rsplit_once('/') {
                overlay.make_real(folder)?;
            }
            let target = farm.join(path);
            if target.symlink_metadata().is_ok() {
                fs::remove_file(&target).map_err(CompileError::io("replace", &target))?;
            }
            fs::write(&target, content.as_ref()).map_err(CompileError::io("write", &target))?;
        }
        Ok(overlay)
    }

    /// Compiles `text`, which [`Overlay::preprocess`] made of `unit`, as the kernel's build compiles the
    /// unit itself, into `output`. Returns the warnings. No file of the tree is read: there is nothing
    /// that an edit could have missed.
    pub fn compile_preprocessed(
        &self,
        text: &Path,
        unit: &str,
        output: &Path,
        extra: &[&str],
    ) -> Result<String, CompileError> {
        let command = self.compile_command(unit)?;
        let output = std::path::absolute(output).map_err(CompileError::io("use", output))?;
        let text = std::path::absolute(text).map_err(CompileError::io("use", text))?;
        compiler(self, self.root(), unit, &command, &command.preprocessed(&output, &text), extra)
    }
}

/// Runs the compiler of `command` with other arguments; returns what it says.
fn compiler(
    tree: &Tree,
    folder: &Path,
    unit: &str,
    command: &CompileCommand,
    arguments: &[String],
    extra: &[&str],
) -> Result<String, CompileError> {
    let compiler = command.argv.first().map_or(tree.compiler(), String::as_str);
    let mut process = tree.tools().command(compiler, folder);
    process.args(arguments).args(extra);
    let done = process.output().map_err(CompileError::io("run", compiler))?;
    let messages = String::from_utf8_lossy(&done.stderr).into_owned();
    if done.status.success() {
        Ok(messages)
    } else {
        Err(CompileError::Rejected { unit: unit.to_owned(), stderr: messages })
    }
}

impl Overlay<'_> {
    /// The folder that the compiler runs in.
    pub fn root(&self) -> &Path {
        self.farm.as_ref().map_or(self.tree.root(), |farm| farm.path())
    }

    /// Compiles `unit` exactly as the kernel's build does, with `extra` arguments appended, into `output`.
    pub fn compile(&self, unit: &str, output: &Path, extra: &[&str]) -> Result<Compiled, CompileError> {
        self.run(unit, output, extra, true)
    }

    /// The preprocessed text of `unit`; `extra` may hold, for example, `-dD`.
    pub fn preprocess(&self, unit: &str, extra: &[&str]) -> Result<String, CompileError> {
        let folder = std::env::temp_dir();
        let output = tempfile::NamedTempFile::new_in(&folder).map_err(CompileError::io("create a file in", folder))?;
        let extra: Vec<&str> = ["-E"].iter().chain(extra).copied().collect();
        self.run(unit, output.path(), &extra, false)?;
        let bytes = fs::read(output.path()).map_err(CompileError::io("read", output.path()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Every file that compiling `unit` reads, relative to the tree, sorted. Faster than compiling.
    pub fn dependencies(&self, unit: &str) -> Result<Vec<String>, CompileError> {
        Ok(self.run(unit, Path::new("/dev/null"), &["-E", "-w"], false)?.dependencies)
    }

    fn run(&self, unit: &str, output: &Path, extra: &[&str], compile: bool) -> Result<Compiled, CompileError> {
        let output = std::path::absolute(output).map_err(CompileError::io("use", output))?;
        let command = self.tree.compile_command(unit)?;
        if self.farm.is_some() {
            // Includes relative to the unit's own folder are the usual way through "..".
            if let Some((folder, _)) = command.source.rsplit_once('/') {
                self.make_real(folder)?;
            }
        }
        let dependency_file = tempfile::Builder::new().prefix("xk-deps-").tempfile();
        let dependency_file =
            dependency_file.map_err(CompileError::io("create a file in", std::env::temp_dir()))?.into_temp_path();
        for _ in 0..MAX_ROUNDS {
            let arguments = command.arguments(&output, &dependency_file, compile);
            let (messages, read, detours) = {
                // The folders must not change between the run and the check of what it read.
                let _reading = self.real.read().unwrap_or_else(PoisonError::into_inner);
                let messages = compiler(self.tree, self.root(), unit, &command, &arguments, extra)?;
                let text = fs::read_to_string(&dependency_file).map_err(CompileError::io("read", &*dependency_file))?;
                let read = dependency_paths(&text);
                let detours: Vec<String> = read.iter().filter(|path| self.leads_into_tree(path)).cloned().collect();
                (messages, read, detours)
            };
            if detours.is_empty() {
                return Ok(Compiled { dependencies: self.relative(&read), messages });
            }
            for path in detours {
                if path.starts_with('/') {
                    return Err(CompileError::Bypassed { unit: unit.to_owned(), path: path.into() });
                }
                self.make_path_real(&path)?;
            }
        }
        Err(CompileError::Bypassed { unit: unit.to_owned(), path: PathBuf::from(unit) })
    }

    /// Whether a path that the compiler used leads to the unedited version of an edited file.
    fn leads_into_tree(&self, path: &str) -> bool {
        let Some(farm) = &self.farm else { return false };
        let name = path.rsplit('/').next().unwrap_or(path);
        if !self.edited.iter().any(|edited| edited.rsplit('/').next() == Some(name)) {
            return false;
        }
        let Ok(resolved) = fs::canonicalize(farm.path().join(path)) else { return false };
        resolved
            .strip_prefix(self.tree.root())
            .is_ok_and(|inner| self.edited.contains(inner.to_string_lossy().as_ref()))
    }

    /// Makes every folder that a path passes through real, including those that a `..` leaves again.
    fn make_path_real(&self, path: &str) -> Result<(), CompileError> {
        for (at, _) in path.match_indices('/') {
            let folder = normalise(&path[..at]);
            if !folder.is_empty() {
                self.make_real(&folder)?;
            }
        }
        Ok(())
    }

    /// Turns a linked folder, and those above it, into real folders of links.
    fn make_real(&self, folder: &str) -> Result<(), CompileError> {
        {
            let real = self.real.read().unwrap_or_else(PoisonError::into_inner);
            if real.contains(folder) {
                return Ok(());
            }
        }
        let mut real = self.real.write().unwrap_or_else(PoisonError::into_inner);
        let ends = folder.match_indices('/').map(|(at, _)| at).chain([folder.len()]);
        for prefix in ends.map(|end| &folder[..end]) {
            if real.contains(prefix) {
                continue;
            }
            // Everything above is real by now, so this path does not lead through a link.
            let path = self.root().join(prefix);
            if path.symlink_metadata().is_ok() {
                fs::remove_file(&path).map_err(CompileError::io("replace", &path))?;
            }
            fs::create_dir(&path).map_err(CompileError::io("create", &path))?;
            if self.tree.root().join(prefix).is_dir() {
                self.link_entries(prefix)?;
            }
            real.insert(prefix.to_owned());
        }
        Ok(())
    }

    /// Links every entry of a folder of the tree into the same folder of the farm.
    fn link_entries(&self, folder: &str) -> Result<(), CompileError> {
        let (source, target) = (self.tree.root().join(folder), self.root().join(folder));
        for entry in fs::read_dir(&source).map_err(CompileError::io("read", &source))? {
            let name = entry.map_err(CompileError::io("read", &source))?.file_name();
            if folder.is_empty() && name == PRIVATE_FOLDER {
                continue;
            }
            let link = target.join(&name);
            symlink(source.join(&name), &link).map_err(CompileError::io("create the link", &link))?;
        }
        Ok(())
    }

    /// The paths relative to the tree, sorted, without duplicates.
    fn relative(&self, read: &[String]) -> Vec<String> {
        let roots = [self.root(), self.tree.root()].map(|root| format!("{}/", root.display()));
        let inner = |path: &String| {
            let stripped = roots.iter().find_map(|root| path.strip_prefix(root.as_str()));
            match stripped {
                Some(inner) => normalise(inner),
                None if path.starts_with('/') => path.clone(),
                None => normalise(path),
            }
        };
        let sorted: BTreeSet<String> = read.iter().map(inner).collect();
        sorted.into_iter().collect()
    }
}

/// The prerequisites in a dependency file as gcc writes it.
fn dependency_paths(text: &str) -> Vec<String> {
    let rule = text.replace("\\\n", " ");
    let prerequisites = rule.lines().next().and_then(|line| line.split_once(": ")).map_or("", |(_, rest)| rest);
    // A space in a name is written "\ "; kernel sources have none, a temporary folder may.
    let protected = prerequisites.replace("\\ ", "\0");
    protected.split_whitespace().map(|path| path.replace('\0', " ").replace("$$", "$")).collect()
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
