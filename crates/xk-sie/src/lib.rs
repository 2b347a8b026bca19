//! Scoped indirect execution: what the compiler made of a constant, where it
//! enters the machine state, and what must run there so that the state is the
//! one another value would have produced.
//!
//! The stages, one module each, in the order in which data flows:
//! [`object`] → [`diff`] → [`fit`] → [`span`] → [`generate`] → [`proof`].

/// Whether this build takes `and` for `or`, to see that execution finds what its proofs then accept. Tables of
/// such a build are wrong: whoever keeps or uses tables must refuse it.
pub const BROKEN_RULE: bool = cfg!(feature = "broken-rule");

pub mod analyse;
pub mod blocks;
mod candidates;
mod crowd;
pub mod data;
mod defined;
pub mod deployed;
pub mod diff;
pub mod equality;
mod evaluate;
pub mod fit;
pub mod flow;
pub mod generate;
pub mod identity;
mod in_place;
pub mod insn;
mod live;
pub mod notes;
pub mod object;
pub mod order;
mod ordering;
pub mod outcome;
pub mod pipeline;
pub mod plan;
pub mod probe;
pub mod product;
pub mod program;
pub mod proof;
pub mod prototypes;
pub mod registers;
pub mod reuse;
mod sample;
pub mod semantics;
pub mod simulation;
pub mod solver;
pub mod span;
pub mod state;
pub mod study;

pub mod term;
pub mod theorem;
mod twin;
mod variants;
pub mod verify;
pub mod words;
