//! Why there is no window at an instruction.

use std::fmt;

/// The closed list of reasons.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No code is known at the address.
    NoCode,
    /// No instruction begins there.
    NoInstruction,
    /// The kernel has freed lists that the answer depends on.
    Unknown,
    /// It runs, or ran, only when the kernel or the module starts or ends.
    Boot,
    /// The section is closed.
    Section(String),
    /// The function is on the kernel's kprobe blacklist.
    Blacklisted,
    /// The function takes part in changing text.
    ChangesCode,
    /// The function is executed elsewhere, or while a CPU is not set up.
    RunsElsewhere,
    /// Assembly without a type: entries, labels, stubs.
    Assembly,
    /// Padding before a function, which the kernel uses.
    Room,
    /// A stub that the kernel writes: retpolines, return thunks, static calls.
    Thunk,
    /// The function's bytes are not all instructions.
    Undecodable,
    /// The function jumps to places that are computed.
    Computed,
    /// An indirect branch must find its `endbr64`.
    Landing,
    /// A tracing site.
    Tracing,
    /// A jump label.
    JumpLabel,
    /// A static call.
    StaticCall,
    /// An alternative.
    Alternative,
    /// The exception table has the instruction.
    Faults(String),
    /// A trap that is meant: BUG, WARN, `int3`.
    Trap(String),
    /// A call or jump through a register or through memory.
    Indirect(String),
    /// What the instruction does depends on where it is, in a way that cannot be kept.
    Position(String),
    /// Something jumps to this many bytes after the beginning, or holds the address.
    Entered(u64),
    /// The instructions are longer than one instruction can be.
    TooLong,
    /// The function ends, or another symbol begins, before five bytes are there.
    Ends,
    /// No window that is long enough for a second jump is near.
    NoRelay,
    /// Another update of the same constant lies in the window.
    Crowded,
}

impl Reason {
    /// One word for each, for counting.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::NoCode => "no_code",
            Self::NoInstruction => "no_instruction",
            Self::Unknown => "unknown",
            Self::Boot => "boot",
            Self::Section(_) => "section",
            Self::Blacklisted => "blacklisted",
            Self::ChangesCode => "changes_code",
            Self::RunsElsewhere => "runs_elsewhere",
            Self::Assembly => "assembly",
            Self::Room => "room",
            Self::Thunk => "thunk",
            Self::Undecodable => "undecodable",
            Self::Computed => "computed_jump",
            Self::Landing => "landing",
            Self::Tracing => "tracing",
            Self::JumpLabel => "jump_label",
            Self::StaticCall => "static_call",
            Self::Alternative => "alternative",
            Self::Faults(_) => "faults",
            Self::Trap(_) => "trap",
            Self::Indirect(_) => "indirect",
            Self::Position(_) => "position",
            Self::Entered(_) => "entered",
            Self::TooLong => "too_long",
            Self::Ends => "ends",
            Self::NoRelay => "no_relay",
            Self::Crowded => "crowded",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCode => f.write_str("the address is not in code"),
            Self::NoInstruction => f.write_str("no instruction begins there"),
            Self::Unknown => f.write_str(
                "the running kernel has freed the lists of code that it changes; build the table from the boot image \
                 (--vmlinuz), which contains them",
            ),
            Self::Boot => f.write_str("the code runs only when the kernel or the module starts or ends"),
            Self::Section(name) => write!(f, "section {name} must not be changed"),
            Self::Blacklisted => f.write_str("the function is on the kernel's kprobe blacklist"),
            Self::ChangesCode => f.write_str("the function takes part in changing text"),
            Self::RunsElsewhere => f.write_str("the function is copied, or a CPU executes it before it is set up"),
            Self::Assembly => f.write_str("the function is assembly without a type"),
            Self::Room => f.write_str("this is padding before a function, which the kernel uses"),
            Self::Thunk => f.write_str("the kernel writes this stub"),
            Self::Undecodable => f.write_str("not all bytes of the function decode to instructions"),
            Self::Computed => f.write_str("the function contains computed jumps"),
            Self::Landing => f.write_str("an indirect branch needs the endbr64 here"),
            Self::Tracing => f.write_str("the function tracer changes these bytes"),
            Self::JumpLabel => f.write_str("a jump label is switched in these bytes"),
            Self::StaticCall => f.write_str("a static call is switched in these bytes"),
            Self::Alternative => f.write_str("an alternative is chosen in these bytes"),
            Self::Faults(text) => write!(f, "`{text}` may fault, and the exception table contains its address"),
            Self::Trap(text) => write!(f, "`{text}` traps on purpose"),
            Self::Indirect(text) => write!(f, "the target of `{text}` is known only at run time"),
            Self::Position(text) => write!(f, "`{text}` depends on its address"),
            Self::Entered(at) => write!(f, "something jumps to {at} bytes after its beginning, or holds that address"),
            Self::TooLong => f.write_str("its instructions are longer than 15 bytes, the maximum of one instruction"),
            Self::Ends => f.write_str("there are fewer than five bytes to the end of the function"),
            Self::NoRelay => f.write_str("no instructions within 127 bytes have room for a second jump"),
            Self::Crowded => f.write_str("another update of the constant is in it"),
        }
    }
}
