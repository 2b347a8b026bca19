//! How a command ends: the exit codes, and the failure that carries one.

use serde_json::{json, Value};
use xk_const::{ResolveError, SpecError};
use xk_kernel::{IdError, SourceError, UnknownHz};
use xk_policy::variables::{HeaderError, SitesError};
use xk_policy::GroupError;
use xk_runtime::{Error as RuntimeError, RulesError, SignatureError, SymbolsError};
use xk_table::{ConversionError, Refusal, StoreError};

/// Exit codes other than 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It did not work.
    Error = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// It could be done, but not soundly.
    Refused = 3,
    /// The kernel that runs is not the one that was analysed, or not the one that the source is of.
    Drift = 4,
    /// This machine cannot do it.
    Unsupported = 5,
    /// Threads were in the way until the bound; the old values are in force.
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
    /// The code to end with.
    pub exit: Exit,
    /// For people.
    pub message: String,
    /// The reason as data, where there is a closed list of reasons.
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

    /// A failure that the answer itself has shown.
    pub fn told(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// Says first what it is about.
    #[must_use]
    pub fn about(mut self, subject: &str) -> Self {
        if !self.message.starts_with(subject) {
            self.message = format!("{subject}: {}", self.message);
        }
        self
    }

    /// Says at the end what to do, or what follows.
    #[must_use]
    pub fn then(mut self, advice: &str) -> Self {
        self.message = format!("{}{advice}", self.message);
        self
    }

    /// The object that `--json` prints in place of the answer.
    pub fn json(&self) -> Value {
        let mut error = json!({ "code": self.exit.word(), "exit": self.exit as u8, "message": self.message });
        if let Some(refusal) = &self.refusal {
            error["refusal"] = serde_json::to_value(refusal).unwrap_or(Value::Null);
        }
        json!({ "schema": crate::output::SCHEMA, "error": error })
    }
}

fn disk_full(error: &std::io::Error) -> &'static str {
    // tempfile wraps the error; its number is then in the text only.
    if error.raw_os_error() == Some(libc::ENOSPC) || error.to_string().contains("os error 28") {
        "; the disk is full: free some space or name another folder with XK_CACHE or XK_STORE"
    } else {
        ""
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let advice = match &error {
            StoreError::Io { source, .. } => disk_full(source),
            _ => "",
        };
        let exit = match &error {
            StoreError::OtherKernel { .. } => Exit::Drift,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string()).then(advice)
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        let exit = match &error {
            RuntimeError::NotLoaded | RuntimeError::Abi { .. } => Exit::Unsupported,
            RuntimeError::OutOfRange { .. } | RuntimeError::Forbidden(_) => Exit::Refused,
            RuntimeError::Drift(_) | RuntimeError::Address { .. } => Exit::Drift,
            // Lockdown forbids kprobes with EPERM.
            RuntimeError::Refused { errno, .. } if [libc::EPERM, libc::EOPNOTSUPP].contains(errno) => Exit::Unsupported,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<SignatureError> for Failure {
    fn from(error: SignatureError) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<SymbolsError> for Failure {
    fn from(error: SymbolsError) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<RulesError> for Failure {
    fn from(error: RulesError) -> Self {
        let exit = match &error {
            RulesError::Unreadable { .. } | RulesError::Syntax { .. } | RulesError::NoBackend { .. } => Exit::Error,
            RulesError::PatchRunsNoPolicy => Exit::Usage,
            _ => Exit::Refused,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<GroupError> for Failure {
    fn from(error: GroupError) -> Self {
        let exit = if matches!(error, GroupError::Name { .. }) { Exit::Usage } else { Exit::Error };
        Failure::new(exit, error.to_string())
    }
}

impl From<HeaderError> for Failure {
    fn from(error: HeaderError) -> Self {
        Failure::new(Exit::Refused, error.to_string())
    }
}

impl From<SitesError> for Failure {
    fn from(error: SitesError) -> Self {
        match error {
            SitesError::Spec(error) => error.into(),
            SitesError::Resolve(error) => error.into(),
            other => Failure::error(other.to_string()),
        }
    }
}

impl From<IdError> for Failure {
    fn from(error: IdError) -> Self {
        Failure::new(Exit::Unsupported, error.to_string())
    }
}

impl From<ConversionError<UnknownHz>> for Failure {
    fn from(error: ConversionError<UnknownHz>) -> Self {
        let exit = match &error {
            ConversionError::NoUnit { .. } | ConversionError::NotWhole { .. } => Exit::Usage,
            ConversionError::Hz(_) => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        let exit = match &error {
            SourceError::TarballVersion { .. }
            | SourceError::PackageVersion { .. }
            | SourceError::CompilerMismatch { .. }
            | SourceError::ConfigDrift { .. } => Exit::Drift,
            SourceError::ConfigArchitecture { .. } | SourceError::Release { .. } => Exit::Unsupported,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        Failure::usage(error.to_string())
    }
}

impl From<ResolveError> for Failure {
    fn from(error: ResolveError) -> Self {
        let exit = match &error {
            ResolveError::NotInteger { .. }
            | ResolveError::NotConstant { .. }
            | ResolveError::Layout { .. }
            | ResolveError::Conditional { .. }
            | ResolveError::Enumerator { .. }
            | ResolveError::TooWide(_)
            | ResolveError::NotDeployed { .. } => Exit::Refused,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let exit = match &refusal {
            Refusal::IdentityMismatch { .. } => Exit::Drift,
            _ => Exit::Refused,
        };
        Failure { exit, message: refusal.to_string(), refusal: Some(Box::new(refusal)) }
    }
}
