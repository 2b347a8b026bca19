//! Why a span of a table, or its update, does not hold.

use std::fmt;

use thiserror::Error;
use xk_table::{Fit, Order, Patch, Range};

use crate::in_place::NotInPlace;
use crate::ordering::BrokenRule;
use crate::proof::ProofError;
use crate::twin::NotExecuted;
use crate::words::fit_words;

/// A value for which the fit of the table is not what was compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// The fit of the table.
    pub ours: Fit,
    /// The one that was observed.
    pub observed: Fit,
    /// The value.
    pub value: i64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, observed, value } = self;
        write!(
            f,
            "{} predicts {:#x} ({} bytes) for {value}, compiled was {:#x} ({} bytes)",
            fit_words(ours),
            ours.apply(*value),
            ours.width,
            observed.apply(*value),
            observed.width,
        )
    }
}

/// Why a line of a span is not what was observed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Unobserved {
    /// The instruction holds other numbers.
    #[error("{0}")]
    Differs(Difference),
    /// The instruction holds the same number for every value.
    #[error("{} is claimed, and no value changes it", fit_words(.marked))]
    Unchanged {
        /// The fit of the table.
        marked: Fit,
    },
    /// There is no comparison to change.
    #[error("it is to test for {}, and holds no number that follows the constant", .order.words())]
    NothingToTest {
        /// The test.
        order: Order,
    },
}

impl From<Difference> for Unobserved {
    fn from(difference: Difference) -> Self {
        Self::Differs(difference)
    }
}

/// Why a span is not one with an update. Offsets are in the function, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum NoUpdate {
    /// No instruction of the block begins there.
    #[error("no instruction of the span's basic block is at +{offset:#x}")]
    NoInstruction {
        /// Where.
        offset: u32,
    },
    /// The probed instruction is another one.
    #[error("the instruction at +{offset:#x} has another length")]
    OtherLength {
        /// Where.
        offset: u32,
    },
    /// The span ends elsewhere.
    #[error("no instruction of the basic block ends at +{end:#x}")]
    NoEnd {
        /// The end that the table gives.
        end: u32,
    },
    /// The span holds no constant.
    #[error("nothing in it depends on the constant")]
    NoConstant,
    /// The update comes before a part of the span.
    #[error("the update at +{offset:#x} runs before the span ends")]
    Early {
        /// The probed instruction.
        offset: u32,
    },
    /// The kernel may leave the span before the update.
    #[error("`{instruction}` may fault before the update runs")]
    MayFault {
        /// The instruction, in words.
        instruction: String,
    },
}

/// Why two updates of one block do not go together. Spans are counted from 0, and printed from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum OutOfOrder {
    /// The span begins too early.
    #[error("it begins before the update of span {} runs", .other + 1)]
    Begins {
        /// The other span.
        other: usize,
    },
    /// The other update does not run.
    #[error("the update of span {} runs at an instruction that is skipped", .other + 1)]
    Skipped {
        /// The other span.
        other: usize,
    },
}

/// Why the probe of a table cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum NoProbe {
    /// Kprobes refuse the instruction.
    #[error("+{offset:#x}: {reason}")]
    Unprobeable {
        /// Its offset in the function.
        offset: u32,
        /// Why.
        reason: String,
    },
    /// Kprobes do not optimise the probe.
    #[error("a jump is expected at +{offset:#x}, and kprobes use a breakpoint")]
    Breakpoint {
        /// Offset of the instruction in the function.
        offset: u32,
    },
}

/// Why an update is not proved.
#[derive(Debug, Error)]
pub(super) enum Unproved {
    /// It is not known what an instruction does.
    #[error(transparent)]
    NotExecuted(#[from] NotExecuted),
    /// Other contexts may see what no code with V does.
    #[error(transparent)]
    Rule(#[from] BrokenRule),
    /// Other contexts may see something else than the table says.
    #[error("other contexts can see {0:?}, and the table says something else")]
    Visible(Vec<String>),
    /// There is a counterexample.
    #[error("the update at +{offset:#x} is wrong for some state and value ({solver})")]
    Wrong {
        /// The probed instruction.
        offset: u32,
        /// The solver that found it.
        solver: String,
    },
    /// The solver takes too long.
    #[error("not decided: no answer of {solver} within {seconds} s")]
    Timeout {
        /// The solver.
        solver: String,
        /// The time that it had.
        seconds: u64,
    },
    /// The solver fails.
    #[error("not decided: {0}")]
    Undecided(ProofError),
}

impl Unproved {
    /// What the answer of `solver` means for the update at `offset`.
    pub fn by(solver: &str, offset: u32, error: ProofError) -> Self {
        match error {
            ProofError::Refuted => Self::Wrong { offset, solver: solver.to_owned() },
            ProofError::Timeout(seconds) => Self::Timeout { solver: solver.to_owned(), seconds },
            error @ ProofError::Solver { .. } => Self::Undecided(error),
        }
    }
}

/// Why the instructions do not hold the values as the table says.
#[derive(Debug, Error)]
pub(super) enum NotHeld {
    /// The span is not in one block.
    #[error("the span is not part of one basic block")]
    NoBlock,
    /// The instructions cannot hold other values.
    #[error(transparent)]
    NotInPlace(#[from] NotInPlace),
    /// The values are in other places.
    #[error("the values are at {patches:?}")]
    Elsewhere {
        /// The places.
        patches: Vec<Patch>,
    },
    /// The table accepts values that have no room.
    #[error("{claimed} is claimed, and there is room for {room}")]
    NoRoom {
        /// The range of the table.
        claimed: Range,
        /// The range for which there is room.
        room: Range,
    },
    /// The obligation is not proved.
    #[error("{solver}: {error}")]
    NotProved {
        /// The solver.
        solver: String,
        /// What it says.
        error: ProofError,
    },
}
