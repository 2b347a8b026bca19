//! Structures of `bpf/flex` in a process (`structures_user.c`), which executes operations and answers.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::model::{Asked, Model, OPERATIONS};
use super::walk::{Walk, POINTERS};

/// Operations as the process reads them.
pub fn words(asked: &[Asked]) -> Vec<u8> {
    asked.iter().flat_map(Asked::words).flat_map(u64::to_ne_bytes).collect()
}

/// Whether each succeeded, and its answer.
pub fn answers(bytes: &[u8]) -> Vec<(bool, u64)> {
    bytes.chunks_exact(16).map(|pair| (word(&pair[..8]) != 0, word(&pair[8..]))).collect()
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// A process that waits for operations.
pub struct Process {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    memory: File,
    /// Where its `struct xk_structures` is.
    structures: u64,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Process {
    /// Starts the program.
    pub fn start(program: &Path) -> Result<Self, String> {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(text)?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or("the process has no pipes")?;
        let memory = File::open(format!("/proc/{}/mem", child.id())).map_err(text)?;
        let mut process = Self { child, input, output, memory, structures: 0 };
        let asked = Asked { operation: OPERATIONS.len(), key: 0, value: 0 };
        process.structures = process.ask(&[asked])?[0].1;
        Ok(process)
    }

    /// Has it execute some hundred operations.
    pub fn ask(&mut self, asked: &[Asked]) -> Result<Vec<(bool, u64)>, String> {
        self.input.write_all(&words(asked)).map_err(text)?;
        let mut bytes = vec![0; 16 * asked.len()];
        self.output.read_exact(&mut bytes).map_err(|error| format!("the process ended: {error}"))?;
        Ok(answers(&bytes))
    }

    /// Whether its structures are those of the model.
    pub fn check(&self, model: &Model) -> Result<(), String> {
        // What cannot be read is 0.
        let at = |address: u64| {
            let mut bytes = [0; 8];
            self.memory.read_exact_at(&mut bytes, address).map_or(0, |()| word(&bytes))
        };
        let pointers: [u64; POINTERS] = std::array::from_fn(|index| at(self.structures + 8 * index as u64));
        Walk { word: &at }.check(&pointers, model).map(drop)
    }

    /// Waits for its end, after its last operation.
    pub fn end(mut self) -> Result<(), String> {
        drop(self.input);
        let status = self.child.wait().map_err(text)?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the process: {status}"))
        }
    }
}
