//! Safe spans in a scope table: where a thread is still under the influence of a
//! value, and what a transition can promise about it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The weakest transition that keeps the promise, from weak to strong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Every consumer lies within its critical span: one store flips the value.
    Now,
    /// Every consumer is on the stack of the thread that read the constant.
    Task,
    /// A value passes through memory that other threads may read.
    #[default]
    Global,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now => "now",
            Self::Task => "task",
            Self::Global => "global",
        })
    }
}

/// A safe span: the part of a function in which a value that depends on the
/// constant is alive.
///
/// A thread is inside if, in a frame of its stack, the instruction at which it was
/// interrupted, or the call that has not returned, lies in one of the ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Scope {
    /// Index into [`crate::ScopeTable::functions`].
    pub function: usize,
    /// Offsets in the function, the start included and the end not: sorted, none
    /// empty, none touching another.
    pub ranges: Vec<[u32; 2]>,
    /// The critical spans whose values are alive here, as indices into
    /// [`crate::ScopeTable::spans`], sorted.
    pub spans: Vec<usize>,
    /// Instructions in the ranges; 0 if they were not counted.
    pub instructions: u32,
    /// How control leaves the ranges.
    pub exits: Vec<Exit>,
    /// Why the whole function stands in for the ranges, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
}

impl Scope {
    /// Whether the instruction at `offset` lies in it.
    #[must_use]
    pub fn contains(&self, offset: u32) -> bool {
        self.ranges.iter().any(|&[start, end]| (start..end).contains(&offset))
    }
}

/// How control leaves a safe span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitKind {
    /// It goes on to the next instruction, and every value is dead there.
    Dead,
    /// A branch leads to where every value is dead.
    Branch,
    /// The function returns.
    Return,
    /// Another function takes over the frame.
    Tail,
    /// A call that does not come back.
    Noreturn,
}

/// One exit of a safe span.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Exit {
    /// The last instruction inside.
    pub offset: u32,
    /// How it leaves.
    pub kind: ExitKind,
    /// Where it goes: an offset in the function (`+0x40`), or a function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Where a value outlives its frame: the promise of a transition does not cover it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Escape {
    /// The instruction or the object: `bictcp_acked+0x12 (net/ipv4/tcp_cubic.c)`.
    pub place: String,
    /// Where the value is from then on: `struct bictcp.delay_min`, `argument 2 of an
    /// indirect call`.
    pub field: String,
    /// Why it cannot be followed.
    pub reason: String,
}
