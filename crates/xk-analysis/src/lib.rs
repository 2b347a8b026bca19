//! Scoped indirect execution: what the compiler made of a constant, where it
//! enters the machine state, and what must run there so that the state is the
//! one another value would have produced.
//!
//! The stages, one module each, in the order in which data flows:
//! [`object`](xk_lift::object) → [`diff`] → [`fit`] → [`span`] → [`generate`] → [`proof`].

pub mod analyse;
pub mod blocks;
mod candidates;
mod crowd;
pub mod data;
mod defined;
pub mod deployed;
pub mod diff;
pub mod equality;
pub mod extend;
pub mod fit;
pub mod generate;
pub mod identity;
mod in_place;
pub mod order;
mod ordering;
pub mod outcome;
pub mod pipeline;
pub mod plan;
pub mod product;
pub mod program;
pub mod proof;
pub mod registers;
pub mod reuse;
pub mod simulation;
pub mod span;
pub mod study;
pub mod theorem;
mod twin;
mod variants;
pub mod verify;
pub mod words;

// Builds whose compiler cannot know V name it so; the terms of relocations mean V by the same names.
const _: () =
    assert!(same(xk_const::SYMBOL, xk_lift::insn::OPAQUE) && same(xk_const::OBJECT, xk_lift::insn::OPAQUE_OBJECT));

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}
