//! A pair of shell commands: for what has no file, such as the qdisc of a device.

use std::process::{Command, Output, Stdio};

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

/// What a shell made of it, or why it failed.
fn run(script: &str, value: Option<&Value>) -> Result<String, String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script]).stdin(Stdio::null());
    if let Some(value) = value {
        // Not pasted into the text: a value is data, whatever it holds.
        shell.env("VALUE", value.to_string());
    }
    let Output { status, stdout, stderr } = shell.output().map_err(|error| error.to_string())?;
    if status.success() {
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    } else {
        Err(format!("{status}: {}", String::from_utf8_lossy(&stderr).trim()))
    }
}

impl Knob for Pair {
    fn read(&mut self) -> Result<Value, KnobError> {
        let unreadable = |reason| KnobError::Unreadable { place: format!("`{}`", self.get), reason };
        let text = run(&self.get, None).map_err(unreadable)?;
        match text.trim().is_empty() {
            true => Err(unreadable("it printed nothing".into())),
            false => Ok(Value::read(&text)),
        }
    }

    fn write(&mut self, value: &Value) -> Result<(), KnobError> {
        run(&self.set, Some(value)).map(drop).map_err(|reason| KnobError::Refused {
            place: format!("`{}`", self.set),
            value: value.clone(),
            reason,
        })
    }
}
