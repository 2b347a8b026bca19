//! Why an object is not rewritten.

use std::path::PathBuf;

use thiserror::Error as ThisError;

/// Why an object is not rewritten or loaded.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// It is not what clang writes for eBPF.
    #[error("not an eBPF object that can be rewritten: {0}")]
    Object(String),
    /// An instruction that the rewriter does not know.
    #[error("{function}, {place}: unknown instruction (code {code:#04x}): its flow cannot be followed")]
    Unknown {
        /// The function.
        function: String,
        /// Source line, or number of the instruction.
        place: String,
        /// The operation.
        code: u8,
    },
    /// A jump leaves its function.
    #[error("{function}, {place}: control leaves the function in another way than by a call or exit")]
    Leaves {
        /// The function.
        function: String,
        /// Source line, or number of the instruction.
        place: String,
    },
    /// A loop with several entries.
    #[error(
        "{function}, {place}: irreducible flow: the loop is entered in several places, so that it has no head. \
         Write it without a goto into the loop"
    )]
    Irreducible {
        /// The function.
        function: String,
        /// Source line.
        place: String,
    },
    /// Something may be held where the loop would be left.
    #[error(
        "{function}, {place}: {what} may be held here, acquired by {acquired}: a run that is ended here could \
         not release it: {reason}. Release it before, or leave the loop as it is (--leave)"
    )]
    Held {
        /// The function.
        function: String,
        /// Source line of the end of the loop, or of the call.
        place: String,
        /// A reference, a lock, a region.
        what: String,
        /// The call, and its source line.
        acquired: String,
        /// Why it cannot be released.
        reason: String,
    },
    /// A heap.
    #[error("the heap: {0}")]
    Heap(String),
    /// Something else is where a heap must be.
    #[error(
        "the heap: {map}: something is mapped at its address {address:#x} in this process, maybe another object's heap: \
         define another XK_HEAP_ADDRESS before you include xk_heap.bpf.h"
    )]
    Taken {
        /// The map of the heap.
        map: String,
        /// Its address.
        address: u64,
    },
    /// The object does not include the header.
    #[error("{function}, {place}: the loop needs the code that ends a run, and the object has none: add #include \"xk_flex.bpf.h\"")]
    NoHeader {
        /// The function.
        function: String,
        /// Source line.
        place: String,
    },
    /// A loop that is to be left alone does not exist.
    #[error("no loop begins at {place}: {known}")]
    NoLoop {
        /// Source line as it was given.
        place: String,
        /// Where loops begin.
        known: String,
    },
    /// A loop in a function from which the rewriter cannot leave.
    #[error("{function}, {place}: {reason}")]
    Function {
        /// The function.
        function: String,
        /// Source line.
        place: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The stack has no room, or its use is not known.
    #[error("{function}: it needs more of the stack: {reason}")]
    Stack {
        /// The function.
        function: String,
        /// Why there are none.
        reason: String,
    },
    /// A jump does not reach its target any longer.
    #[error("{function}, {place}: the target of a jump is more than 32767 instructions away after rewriting: split the function")]
    TooFar {
        /// The function.
        function: String,
        /// Source line.
        place: String,
    },
    /// The kernel refuses the object, and no loop is left to instrument.
    #[error(transparent)]
    Load(#[from] xk_policy::Error),
    /// A program cannot be attached.
    #[error("{program} is not attached: {reason}")]
    Attach {
        /// Its name and section.
        program: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A map of the object cannot be read or written.
    #[error("the maps that control the runs of the object: {0}")]
    Control(String),
    /// What keeps an extension loaded.
    #[error("{}: {reason}", path.display())]
    Kept {
        /// The extension, or a file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}
