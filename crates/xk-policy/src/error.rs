//! What can be wrong with a policy.

use std::path::PathBuf;

use thiserror::Error as ThisError;

/// Why a policy could not be loaded.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// There is no compiler.
    #[error(
        "there is no clang to compile eBPF with: run `apt-get install clang-19`, or compile on another machine and \
         load the object"
    )]
    NoCompiler,
    /// It does not compile.
    #[error("{} does not compile:\n{}", path.display(), text.trim_end())]
    Compile {
        /// The source.
        path: PathBuf,
        /// What the compiler printed.
        text: String,
    },
    /// The kernel's types cannot be read.
    #[error("the types of the kernel ({}) cannot be read: {reason}", path.display())]
    Types {
        /// Where they are.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It is not an object with policies.
    #[error("{0}")]
    Object(String),
    /// The kernel has no functions for policies.
    #[error(
        "xk.ko offers no functions to policies: it is not loaded, or was built without the kernel's BTF \
         (install `dwarves` and the kernel's headers, and build it again with scripts/build-module)"
    )]
    NoFunctions,
    /// The verifier of the kernel refused a program.
    #[error("{program}: the kernel's verifier refuses it{}: {reason}\n{log}", place.as_deref().map(|p| format!(" at {p}")).unwrap_or_default())]
    Verifier {
        /// The program.
        program: String,
        /// File and line, if the log names one.
        place: Option<String>,
        /// The last sentence of the log.
        reason: String,
        /// The part of the log that matters.
        log: String,
    },
    /// This process lacks the capability, or the kernel is locked down.
    #[error(
        "{what}: the kernel forbids it, because this process has no CAP_SYS_ADMIN or the kernel is locked down: {reason}"
    )]
    Forbidden {
        /// What was being done.
        what: String,
        /// The message of libbpf.
        reason: String,
    },
    /// libbpf or the kernel refused for another reason.
    #[error("{what}: {reason}")]
    Load {
        /// What was being done.
        what: String,
        /// The message of libbpf.
        reason: String,
    },
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
