//! How a command ends: exit codes, and failures with an exit code and a message.

use serde_json::{json, Value};
use xk_table::Refusal;

/// Exit codes other than 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Any other failure.
    Error = 1,
    /// The command line is invalid.
    Usage = 2,
    /// Not possible in a sound way, or not permitted.
    Refused = 3,
    /// The running kernel is not the analysed one, or the source is not that of the kernel.
    Drift = 4,
    /// Not possible on this machine.
    Unsupported = 5,
    /// Threads were inside safe spans until the timeout; the old values are in force.
    Blocked = 6,
    /// `xk apply --dry-run`: something would change.
    Changes = 7,
}

impl Exit {
    /// The word for it in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Exit::Error => "error",
            Exit::Usage => "usage",
            Exit::Refused => "refused",
            Exit::Drift => "drift",
            Exit::Unsupported => "unsupported",
            Exit::Blocked => "blocked",
            Exit::Changes => "changes",
        }
    }
}

/// Why a command failed: what happened, where, why, and what to do.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The message for people.
    pub message: String,
    /// The reason as data, if the analysis refused a constant.
    pub refusal: Option<Box<Refusal>>,
}

/// What every verb returns.
pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with a message.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), refusal: None }
    }

    /// [`Exit::Error`].
    pub fn error(message: impl Into<String>) -> Self {
        Self::new(Exit::Error, message)
    }

    /// [`Exit::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A failure that the output has shown already.
    pub fn told(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// Begins the message with `subject`, unless it does already.
    #[must_use]
    pub fn about(mut self, subject: &str) -> Self {
        if !self.message.starts_with(subject) {
            self.message = format!("{subject}: {}", self.message);
        }
        self
    }

    /// Appends to the message what to do, or what follows.
    #[must_use]
    pub fn then(mut self, advice: &str) -> Self {
        self.message = format!("{}{advice}", self.message);
        self
    }

    /// The object that `--json` prints in place of the output.
    pub fn json(&self) -> Value {
        let mut error = json!({ "code": self.exit.word(), "exit": self.exit as u8, "message": self.message });
        if let Some(refusal) = &self.refusal {
            error["refusal"] = serde_json::to_value(refusal).unwrap_or(Value::Null);
        }
        json!({ "schema": crate::output::SCHEMA, "error": error })
    }
}
