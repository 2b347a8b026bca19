//! Machine code as bit-vector terms. Knows nothing about constants, tables or a running kernel.
//!
//! The modules, in the order in which they build on each other:
//!
//! - [`term`]: bit-vector terms; [`evaluate`], [`sample`]: their values in concrete states; [`solver`]: the process
//!   that decides whether a query about them can be satisfied
//! - [`state`]: registers, flags and memory; [`insn`]: a decoded instruction; [`semantics`]: what it does to a state
//! - [`object`]: an object file, its functions, relocations and self-patched sites; [`prototypes`]: arguments of
//!   functions, from BTF; [`notes`]: what the compiler says of its own code
//! - [`flow`], [`live`]: successors, and which registers and flags are live; [`probe`]: what kprobes make of a probe

/// Whether this build treats `and` as `or`, to show that execution finds what its proofs then accept. Tables of such a
/// build are wrong: code that keeps or uses tables must refuse it.
pub const BROKEN_RULE: bool = cfg!(feature = "broken-rule");

pub mod evaluate;
pub mod flow;
pub mod insn;
pub mod live;
pub mod notes;
pub mod object;
pub mod probe;
pub mod prototypes;
pub mod sample;
pub mod semantics;
pub mod solver;
pub mod state;
pub mod term;
