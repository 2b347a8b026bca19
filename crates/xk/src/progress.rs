//! Progress of a long analysis, on standard error.

use std::io::IsTerminal;

/// One line that changes on a terminal; separate lines elsewhere.
pub struct Progress {
    name: String,
    terminal: bool,
}

impl Progress {
    /// The progress of `name`.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), terminal: std::io::stderr().is_terminal() }
    }

    /// Shows a step.
    pub fn say(&self, line: &str) {
        if self.terminal {
            eprint!("\r\x1b[K{}: {line} …", self.name);
        } else {
            eprintln!("{}: {line}", self.name);
        }
    }

    /// Removes the line from the terminal.
    pub fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
