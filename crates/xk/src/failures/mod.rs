//! The exit codes of the errors of other crates.

mod apply;
mod flex;
mod policy;
mod probe;
mod sched;
mod tables;

pub use tables::exit_of;

use xk_analysis::extend::ExtendError;
use xk_analysis::pipeline::BuildError;
use xk_const::{ResolveError, SpecError};
use xk_kernel::{BundleError, ChoiceError, IdError, ImageError, SourceError, UnknownHz};
use xk_policy::variables::{HeaderError, SitesError};
use xk_policy::GroupError;
use xk_runtime::{Error as RuntimeError, RulesError, SignatureError, SymbolsError};
use xk_store::{Ambiguous, KernelError, ListError, LookupError};
use xk_table::{ConversionError, NotAccepted, Refusal, StoreError};

use crate::exit::{Exit, Failure};
use crate::ways;

fn disk_full(error: &std::io::Error) -> &'static str {
    // tempfile wraps the error; only the text has its number then.
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
            RulesError::Config(_) | RulesError::NoBackend { .. } => Exit::Error,
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

impl From<Ambiguous> for Failure {
    fn from(error: Ambiguous) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<ListError> for Failure {
    fn from(error: ListError) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<LookupError> for Failure {
    fn from(error: LookupError) -> Self {
        let exit = match &error {
            LookupError::Spec(_) => Exit::Usage,
            LookupError::OtherBuild { .. } => Exit::Drift,
            LookupError::Unusable(table) if matches!(**table, StoreError::OtherKernel { .. }) => Exit::Drift,
            _ => Exit::Error,
        };
        let ways = match &error {
            LookupError::NoTable { text, similar, .. } if similar.is_empty() => ways::to_table(text),
            _ => String::new(),
        };
        Failure::new(exit, error.to_string()).then(&ways)
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Failure::new(image_exit(&error), error.to_string())
    }
}

fn image_exit(error: &ImageError) -> Exit {
    match error {
        ImageError::Id(_) => Exit::Unsupported,
        ImageError::Forbidden { lockdown, .. } if !lockdown.is_empty() => Exit::Unsupported,
        _ => Exit::Error,
    }
}

impl From<ChoiceError> for Failure {
    fn from(error: ChoiceError) -> Self {
        let exit = match &error {
            ChoiceError::Image(error) | ChoiceError::OtherBuild { error, .. } => image_exit(error),
            ChoiceError::Id(_) | ChoiceError::Old { .. } | ChoiceError::NoBtf { .. } => Exit::Unsupported,
            ChoiceError::Several { .. } => Exit::Usage,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<BundleError> for Failure {
    fn from(error: BundleError) -> Self {
        Failure::error(error.to_string())
    }
}

impl From<NotAccepted> for Failure {
    fn from(error: NotAccepted) -> Self {
        Failure::new(Exit::Refused, error.to_string())
    }
}

impl From<ExtendError> for Failure {
    fn from(error: ExtendError) -> Self {
        match error {
            ExtendError::Spec(error) => error.into(),
            ExtendError::Resolve(error) => error.into(),
            ExtendError::Build(BuildError::Refused(refusal)) => refusal.into(),
            ExtendError::Build(other) => Failure::error(other.to_string()),
            other => Failure::new(Exit::Refused, other.to_string()),
        }
    }
}

impl From<HeaderError> for Failure {
    fn from(error: HeaderError) -> Self {
        Failure::new(Exit::Refused, error.to_string())
    }
}

impl From<SitesError> for Failure {
    fn from(error: SitesError) -> Self {
        Failure::error(error.to_string())
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
