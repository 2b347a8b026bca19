//! The machine as the checks see it: files and programs behind a small
//! interface, so that every check runs from fixtures.

use std::io;
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
