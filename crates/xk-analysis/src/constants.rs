//! Constants in instructions: which number of an instruction is meant, what a variant has in its place, and the function
//! of V that predicts it.

use std::collections::BTreeMap;

use xk_lift::insn::Node;
use xk_table::{Fit, Order};

/// Which constant of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// The immediate operand.
    Immediate,
    /// The displacement of the memory operand.
    Displacement,
    /// The factor of a multiplication by a constant that ends here, however it
    /// is written ([`crate::product`]).
    Product,
    /// What is read from a pool of constants.
    Pool,
    /// The immediate operand of a comparison whose zero flag tests for order instead ([`crate::order`]).
    Order(Order),
}

impl Field {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Immediate,
        Self::Displacement,
        Self::Product,
        Self::Pool,
        Self::Order(Order::AtLeast),
        Self::Order(Order::AtMost),
        Self::Order(Order::AboveOrEqual),
        Self::Order(Order::BelowOrEqual),
    ];
}

/// A constant as it stands in the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariantConstant {
    /// Its value.
    pub value: u64,
    /// How many low bits of it are determined: a variant may compute in a narrower register than the deployed code.
    pub bits: u32,
}

/// The constants of the deployed code that are others in a variant.
pub type Differences = BTreeMap<(Node, Field), VariantConstant>;

/// The constants of the deployed code that follow V, with their functions of V.
pub type Seeds = BTreeMap<(Node, Field), Fit>;
