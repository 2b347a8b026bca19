//! The analysis of one constant: what the compiler made of it, where it enters the machine state, and which update there
//! produces the state that another value would have produced.
//!
//! In: the deployed kernel, and builds of every unit that can see the constant. Out: a scope table with functions of V,
//! accepted values, critical spans and updates, each with its proof. Refused: a constant for which one of these is
//! missing, with the reason and the place.
//!
//! [`pipeline`] calls the stages in this order: [`study`] compares builds ([`diff`], [`data`]) and guesses functions of V
//! ([`fit`]); [`theorem`] proves them ([`simulation`]); [`identity`] locates the units in the deployed kernel; [`span`]
//! finds spans and updates ([`generate`]) and proves them ([`proof`]). [`verify`] repeats all of it for an existing table.

pub mod analyse;
pub mod blocks;
mod build_error;
pub mod constants;
pub mod context;
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
