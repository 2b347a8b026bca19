//! The structural comparison of two builds of one translation unit.
//!
//! In: the deployed build and a variant. Out: the constants in which they differ ([`Differences`]), and nothing else: the
//! comparison shows that the variant is the deployed build with those constants replaced. Blocks may be laid out in
//! another order, registers may be renamed, encodings may change length. Refused: everything else, naming the first pair
//! of instructions that does not match ([`Mismatch`]).
//!
//! The argument is a bisimulation. A [`Pairing`](pairing::Pairing) says which register of the variant holds the value of
//! which register of the deployed build at a pair of instructions; memory is equal. The walk (`walk.rs`) starts at every
//! function with equal registers. At each pair it requires that the two instructions do the same (`forms.rs`) with
//! operands that are equal (`operands.rs`), pairs what they write, and continues with their successors (`successors.rs`;
//! calls and returns in `calls.rs`). Where paths meet, what holds is what holds on all of them. The walk ends when no
//! pairing gets weaker any more.
//!
//! Instructions that do not match one by one may still do the same together. Then the two blocks are executed
//! symbolically and a solver compares the results (`whole_blocks.rs`). Functions that are equal byte for byte need no
//! walk (`same.rs`).
//!
//! Which instructions are paired follows from the walk alone. Where a choice was wrong, the operands do not match, and
//! the variant is refused. A variant that was matched is the deployed code with constants replaced, so a wrong choice
//! cannot make a wrong tune.

mod calls;
pub(crate) mod forms;
mod operands;
mod pairing;
pub(crate) mod same;
mod successors;
mod walk;
mod whole_blocks;

use std::collections::HashSet;

use xk_lift::flow::Flow;
use xk_lift::insn::Node;
use xk_lift::object::{Function, Object};
use xk_lift::prototypes::Prototypes;

use crate::constants::Differences;
use crate::proof::Solver;

/// Where and why two builds do not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Place in the deployed build.
    pub base: Node,
    /// What differs.
    pub detail: String,
}

/// What a comparison may use besides the two builds.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Functions that do not return.
    pub noreturns: &'a HashSet<String>,
    /// How many registers a call passes.
    pub prototypes: &'a Prototypes,
    /// Decides whether blocks that do not match by instructions do the same; without it they do not match.
    pub solver: Option<&'a Solver>,
    /// The constants that the deployed code should have for this value, if a fit is known.
    pub expected: &'a Differences,
    /// Blocks and liveness of the deployed build, if the caller has them.
    pub flow: Option<&'a Flow>,
}

/// Compares `variant` with `base`, instruction by instruction. `noreturns` are functions that do not return
/// (`tools/objtool/noreturns.h` and what the unit defines).
///
/// # Errors
/// [`Mismatch`] when the variant is not the deployed code with constants replaced.
pub fn compare(base: &Object, variant: &Object, noreturns: &HashSet<String>) -> Result<Differences, Mismatch> {
    let (prototypes, expected) = (Prototypes::default(), Differences::new());
    let rules = Rules { noreturns, prototypes: &prototypes, solver: None, expected: &expected, flow: None };
    compare_with(base, variant, &rules)
}

/// Compares `variant` with `base`; blocks that do not match by instructions are compared as a whole ([`crate::blocks`]).
///
/// # Errors
/// [`Mismatch`] when the variant is not the deployed code with constants replaced.
pub fn compare_with(base: &Object, variant: &Object, rules: &Rules<'_>) -> Result<Differences, Mismatch> {
    walk::Walk::new(base, variant, *rules).run()
}

/// A part of a function that the compiler moved away, entered by jumps only.
pub(crate) fn is_part(function: &Function) -> bool {
    function.name.contains(".cold")
}
