//! Why a constant is not usable. A refusal is a result: it names the place and
//! carries the data that a person needs to agree with it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A place in the deployed machine code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Translation unit relative to the source tree.
    pub source: String,
    /// Function.
    pub function: String,
    /// Offset in it.
    pub offset: u32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}+{:#x}", self.source, self.function, self.offset)
    }
}

impl Refusal {
    /// The reason in a word, as JSON names it: `layout_change`.
    #[must_use]
    pub fn code(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.get("reason").and_then(|reason| reason.as_str()).unwrap_or("unknown").to_owned()
    }
}

/// The closed list of reasons.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Refusal {
    /// Another value changes the size of an array, structure or data section.
    #[error(
        "layout change: {what} in {unit} changes with the value; objects of the old layout exist in the running kernel"
    )]
    LayoutChange {
        /// Translation unit.
        unit: String,
        /// Section, symbol or structure and its sizes.
        what: String,
    },
    /// No translation unit changes when the value changes.
    #[error("dead code: rebuilding {units:?} with other values produces the same machine code")]
    DeadCode {
        /// Units that were rebuilt.
        units: Vec<String>,
    },
    /// Blocks, calls or branches differ between values.
    #[error("control-flow shape depends on the value at {place}: {detail}")]
    Shape {
        /// First difference in the deployed code.
        place: Place,
        /// What differs.
        detail: String,
    },
    /// Used only by code that is freed after boot.
    #[error("boot-only code: {function} in section {section} of {unit} is discarded after boot")]
    BootOnly {
        /// Translation unit.
        unit: String,
        /// Function.
        function: String,
        /// Section.
        section: String,
    },
    /// The value is an initialiser of data, not part of code.
    #[error("data: section {section} of {unit} holds the value at offset {offset:#x}; only writable data, and constant data of modules, are changed in place")]
    ReadOnlyData {
        /// Translation unit.
        unit: String,
        /// Section.
        section: String,
        /// First differing byte.
        offset: u64,
    },
    /// Used in an alternative or hand-written assembly.
    #[error("inline assembly or alternative at {place} uses the value")]
    InlineAssembly {
        /// Where.
        place: Place,
    },
    /// IV is not a·V + b.
    #[error("non-linear mapping at {place}: values {values:?} became {ivs:?}; tune the derived value instead")]
    NonLinear {
        /// Where.
        place: Place,
        /// V.
        values: Vec<i64>,
        /// IV.
        ivs: Vec<u64>,
    },
    /// The deployed kernel does not contain the code.
    #[error("not deployed: {detail}")]
    NotDeployed {
        /// Evidence.
        detail: String,
    },
    /// The rebuilt function is not the deployed one.
    #[error("identity mismatch at {place}: rebuilt {rebuilt}, deployed {deployed}; the source, configuration or compiler is not the one this kernel was built with")]
    IdentityMismatch {
        /// First differing instruction.
        place: Place,
        /// Its bytes in the rebuilt object.
        rebuilt: String,
        /// Its bytes in the deployed kernel.
        deployed: String,
    },
    /// The compiler may have let callers rely on registers that the calling convention gives to callees.
    #[error("register allocation across calls: {unit} is compiled without -pg, -fpatchable-function-entry and -fno-ipa-ra, so its functions may rely on registers that a function they call leaves alone; nothing is known of such code")]
    RegisterAllocation {
        /// Translation unit.
        unit: String,
    },
    /// The solver gave up.
    #[error("solver timeout after {seconds} s on the span at {place}")]
    SolverTimeout {
        /// Span.
        place: Place,
        /// Bound.
        seconds: u64,
    },
    /// The solver found a state in which the update is wrong.
    #[error("no correct update found for the span at {place}: {detail}")]
    NoIndirection {
        /// Span.
        place: Place,
        /// What was tried and why it failed.
        detail: String,
    },
    /// Kprobes cannot be placed where one is needed.
    #[error("unprobeable address {place}: {detail}")]
    Unprobeable {
        /// Where.
        place: Place,
        /// Rule.
        detail: String,
    },
    /// An instruction that the semantics do not cover takes part in a span.
    #[error("unsupported instruction at {place}: {instruction}")]
    UnsupportedInstruction {
        /// Where.
        place: Place,
        /// Disassembly.
        instruction: String,
    },
    /// The range of values in which everything holds is empty or a point.
    #[error("no usable range at {place}: {detail}")]
    EmptyRange {
        /// Where.
        place: Place,
        /// Why.
        detail: String,
    },
}
