//! Why code or a number cannot be followed, and why a table has no safe spans.

use iced_x86::Instruction;
use thiserror::Error;
use xk_kernel::ImageError;
use xk_table::{Incoherent, Refusal};

/// Why a function cannot be followed. A place is a function and an offset (`f+0x12`), with its module if it has one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unfollowed {
    /// The tables of the kernel's own patches are incomplete.
    #[error("the list of places that this kernel patches is incomplete")]
    Patches,
    /// The function is too large.
    #[error("more than {0} instructions")]
    TooLarge(usize),
    /// Control leaves the text.
    #[error("no code at {0}")]
    NoCode(String),
    /// These bytes are not an instruction.
    #[error("{0} is not an instruction")]
    NotInstruction(String),
    /// The instruction transfers control to an unknown place.
    #[error("{place}: the target of `{insn}` is unknown")]
    Nowhere {
        /// Where it is.
        place: String,
        /// The instruction.
        insn: Instruction,
    },
    /// An indirect jump inside the function.
    #[error("{0}: a jump through a table")]
    JumpTable(String),
    /// Control does not reach an address from which a value must be followed.
    #[error("control does not reach {0:#x} from the entry")]
    NotReached(u64),
    /// The value moves the stack pointer, so that slots of the frame cannot be told apart.
    #[error("{0}: the stack pointer depends on the value")]
    StackPointer(String),
}

/// A function of a table is not in the text that was read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{symbol} is not in the code that was read")]
pub struct NotRead {
    /// Name of the function.
    pub symbol: String,
}

/// Why the life of a number is not known. Places are as in [`Unfollowed`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnknownLife {
    /// A function that holds it cannot be followed.
    #[error(transparent)]
    Unfollowed(#[from] Unfollowed),
    /// Control does not reach the comparison.
    #[error("control does not reach {0}")]
    NotReached(String),
    /// The comparison reads memory outside of the frame.
    #[error("{0}: the number is in memory outside of the frame")]
    Memory(String),
    /// It is copied too often.
    #[error("{place}: the number is in more than {limit} places")]
    TooManyPlaces {
        /// The comparison.
        place: String,
        /// How many are followed.
        limit: usize,
    },
    /// It cannot be followed across an instruction.
    #[error("{place}: {why}")]
    Instruction {
        /// The instruction.
        place: String,
        /// Why not.
        why: UnknownSource,
    },
    /// It is on the stack when the function is called.
    #[error("{0}: the number is on the stack at the entry")]
    StackAtEntry(String),
    /// It is in a register that passes no argument when the function is called.
    #[error("{0}: the number is in a register that passes no argument at the entry")]
    RegisterAtEntry(String),
    /// It is an argument, and not every caller is known.
    #[error("{place}: the number is an argument, and {why}")]
    Argument {
        /// The function.
        place: String,
        /// Who else calls it.
        why: &'static str,
    },
}

/// Why the place of a number before an instruction is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnknownSource {
    /// It is the result of a call.
    #[error("a call returns the number")]
    Returned,
    /// It is in memory that a callee can reach.
    #[error("a function that is called may write the number")]
    Callee,
    /// An instruction computes it in a way that is not followed.
    #[error("`{0}` computes the number in a way that is not followed")]
    Computed(Instruction),
}

/// Why there are no safe spans.
#[derive(Debug, Error)]
pub enum ConfineError {
    /// The code cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The table is about other code.
    #[error("{0}: the table is for another kernel; run `xk build` again")]
    OtherCode(#[from] NotRead),
    /// A change could come too late for a thread.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The result is not coherent.
    #[error("safe spans: {0}")]
    Incoherent(#[from] Incoherent),
}
