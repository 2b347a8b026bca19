//! A pair of shell commands, for knobs without a file, such as the qdisc of a device.

use std::io;
use std::process::{Command, ExitStatus, Output, Stdio};

use super::{Knob, KnobError};
use crate::Value;

/// The commands.
#[derive(Debug)]
pub struct Pair {
    get: String,
    set: String,
}

impl Pair {
    pub fn new(get: &str, set: &str) -> Self {
        Self { get: get.into(), set: set.into() }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The shell did not start.
    #[error("/bin/sh: {0}")]
    Shell(#[from] io::Error),
    /// The command failed.
    #[error("{status}: {stderr}")]
    Failed {
        /// Its exit status.
        status: ExitStatus,
        /// Its standard error.
        stderr: String,
    },
    /// The command that should print the value printed nothing.
    #[error("it printed nothing")]
    Silent,
}

/// Runs a command in a shell, and returns its output.
fn run(script: &str, value: Option<&Value>) -> Result<String, CommandError> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script]).stdin(Stdio::null());
    if let Some(value) = value {
        // Not pasted into the text: a value is data, whatever it contains.
        shell.env("VALUE", value.to_string());
    }
    let Output { status, stdout, stderr } = shell.output()?;
    if status.success() {
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    } else {
        Err(CommandError::Failed { status, stderr: String::from_utf8_lossy(&stderr).trim().to_owned() })
    }
}

impl Knob for Pair {
    fn read(&mut self) -> Result<Value, KnobError> {
        let unreadable = |error: CommandError| KnobError::unreadable(format!("`{}`", self.get), error);
        let text = run(&self.get, None).map_err(unreadable)?;
        match text.trim().is_empty() {
            true => Err(unreadable(CommandError::Silent)),
            false => Ok(Value::read(&text)),
        }
    }

    fn write(&mut self, value: &Value) -> Result<(), KnobError> {
        let done = run(&self.set, Some(value)).map(drop);
        done.map_err(|error| KnobError::refused(format!("`{}`", self.set), value, error))
    }
}
