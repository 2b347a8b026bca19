//! The places in an instruction where a constant may stand.

use xk_table::Order;

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
