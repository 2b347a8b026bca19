//! The machine as the checks see it: files and programs behind a small
//! interface, so that every check runs from fixtures.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::Command;

/// What a program did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOutput {
    /// The exit code was 0.
    pub success: bool,
    /// Standard output, undecodable bytes replaced.
    pub stdout: String,
    /// Standard error, undecodable bytes replaced.
    pub stderr: String,
}

/// Files and programs of a machine.
pub trait Env {
    /// Reads a whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Reads the beginning of a file, at most `limit` bytes; some files are endless.
    fn head(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;
    /// Whether a file or folder exists.
    fn exists(&self, path: &Path) -> bool;
    /// Runs a program to its end. `Err` when it cannot be started.
    fn run(&self, program: &str, args: &[&str]) -> io::Result<RunOutput>;

    /// Reads a whole file as text, without surrounding white space; `None` when it cannot be read.
    fn text(&self, path: &str) -> Option<String> {
        let bytes = self.read(Path::new(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }
}

/// The machine that this process runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostEnv;

impl Env for HostEnv {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn head(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let mut start = Vec::new();
        File::open(path)?.take(limit as u64).read_to_end(&mut start)?;
        Ok(start)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn run(&self, program: &str, args: &[&str]) -> io::Result<RunOutput> {
        let output = Command::new(program).args(args).env("LC_ALL", "C").output()?;
        Ok(RunOutput {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// A machine made of a few files and programs, for tests.
#[cfg(test)]
#[derive(Debug, Default, Clone)]
pub(crate) struct FixtureEnv {
    /// Path and content.
    pub(crate) files: std::collections::HashMap<std::path::PathBuf, Vec<u8>>,
    /// Program, or program and arguments, and what it prints.
    pub(crate) programs: std::collections::HashMap<String, String>,
}

#[cfg(test)]
impl FixtureEnv {
    pub(crate) fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), content.into());
    }

    pub(crate) fn program(&mut self, command: &str, prints: &str) {
        self.programs.insert(command.to_owned(), prints.to_owned());
    }
}

#[cfg(test)]
impl Env for FixtureEnv {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn head(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let mut content = self.read(path)?;
        content.truncate(limit);
        Ok(content)
    }

    fn exists(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    fn run(&self, program: &str, args: &[&str]) -> io::Result<RunOutput> {
        let whole = std::iter::once(program).chain(args.iter().copied()).collect::<Vec<_>>().join(" ");
        let prints = self.programs.get(&whole).or_else(|| self.programs.get(program));
        let stdout = prints.cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(RunOutput { success: true, stdout, stderr: String::new() })
    }
}
