//! Why places of the running kernel are not found, or cannot be probed.

use thiserror::Error as ThisError;
use xk_kernel::ImageError;

/// Why a place names no instruction that can be probed.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The kernel, or the file of a module, cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The addresses of the running kernel are not known.
    #[error(
        "/proc/kallsyms shows no addresses: run this as root; if root does not see them either, set \
         kernel.kptr_restrict to 1 (sysctl -w kernel.kptr_restrict=1)"
    )]
    Hidden,
    /// The list of symbols cannot be read.
    #[error("/proc/kallsyms: {0}; is /proc mounted?")]
    Symbols(std::io::Error),
    /// The types of the kernel cannot be read.
    #[error("the types of the kernel (BTF): {reason}")]
    Types {
        /// Why.
        reason: String,
    },
    /// There is no such field.
    #[error("{text} is not a field: {what}; write STRUCT.MEMBER, such as file.f_mode")]
    NoField {
        /// The text.
        text: String,
        /// What is missing.
        what: String,
    },
    /// There is no such function.
    #[error("{place}: {where_} has no function {function}{similar}")]
    NoFunction {
        /// The place.
        place: String,
        /// vmlinux, or a module.
        where_: String,
        /// The name.
        function: String,
        /// Names that are similar, as a sentence.
        similar: String,
    },
    /// Several functions have the name.
    #[error("{place}: {} functions have this name: name one by its address: {}", addresses.len(), addresses.join(", "))]
    Several {
        /// The place.
        place: String,
        /// Their addresses.
        addresses: Vec<String>,
    },
    /// The function is shorter.
    #[error("{place}: {function} has {length:#x} bytes{cold}")]
    Outside {
        /// The place.
        place: String,
        /// The function.
        function: String,
        /// Its length.
        length: u64,
        /// Another part of it, as a sentence.
        cold: String,
    },
    /// It is not the first byte of an instruction.
    #[error("{place} is in the middle of an instruction; instructions begin at {}", near.join(" and at "))]
    Middle {
        /// The place.
        place: String,
        /// The nearest instructions before and after it.
        near: Vec<String>,
    },
    /// The address is not in a function.
    #[error("{place}: no function of the kernel or of a loaded module is there")]
    NoCode {
        /// The place.
        place: String,
    },
    /// No function matches a pattern.
    #[error("{place}: no function of {where_} matches")]
    NoMatch {
        /// The place.
        place: String,
        /// vmlinux, or a module.
        where_: String,
    },
    /// The functions have no such instruction, or none that can be probed.
    #[error("{place}: {functions} matching function(s), and no instruction of this class that can be probed")]
    NoInstruction {
        /// The place.
        place: String,
        /// How many functions match.
        functions: usize,
    },
    /// The module is not loaded.
    #[error("{place}: module {module} is not loaded: run `modprobe {module}`")]
    NotLoaded {
        /// The place.
        place: String,
        /// The module.
        module: String,
    },
    /// The file of the module is not the one that was loaded.
    #[error("{place}: the file of module {module} was replaced after it had been loaded: load the module again")]
    Replaced {
        /// The place.
        place: String,
        /// The module.
        module: String,
    },
    /// The running kernel has the function elsewhere.
    #[error("{place}: the running kernel has {function} elsewhere: the code on disk is not the running code")]
    Elsewhere {
        /// The place.
        place: String,
        /// The function.
        function: String,
    },
    /// The code of a line was not looked for.
    #[error("{place}: the source of the kernel was not read")]
    NoSource {
        /// The place.
        place: String,
    },
    /// Neither a jump nor a kprobe can reach it.
    #[error("{place} cannot be probed: {reason}")]
    Unreachable {
        /// The place.
        place: String,
        /// Why.
        reason: String,
    },
}
