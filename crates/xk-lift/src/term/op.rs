//! Operators of terms.

/// Operators on bit-vectors; all but the comparisons keep the width. Their
/// meaning is that of SMT-LIB (theory `FixedSizeBitVectors`, logic `QF_BV`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinOp {
    /// Addition modulo 2^n.
    Add,
    /// Subtraction modulo 2^n.
    Sub,
    /// Low half of the product.
    Mul,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Left shift; 0 when the count is at least the width.
    Shl,
    /// Logical right shift; 0 when the count is at least the width.
    Shr,
    /// Arithmetic right shift; the sign when the count is at least the width.
    Sar,
    /// Equality, one bit.
    Eq,
    /// Unsigned less-than, one bit.
    Ult,
    /// Signed less-than, one bit.
    Slt,
    /// Unsigned quotient; all ones when the divisor is 0.
    UDiv,
    /// Unsigned remainder; the dividend when the divisor is 0.
    URem,
    /// Signed quotient towards 0; 1 or -1 against the dividend's sign when the
    /// divisor is 0.
    SDiv,
    /// Signed remainder with the sign of the dividend; the dividend when the
    /// divisor is 0.
    SRem,
}

impl BinOp {
    /// Whether the result is a single bit.
    #[must_use]
    pub fn is_comparison(self) -> bool {
        matches!(self, Self::Eq | Self::Ult | Self::Slt)
    }

    pub(super) fn commutes(self) -> bool {
        matches!(self, Self::Add | Self::Mul | Self::And | Self::Or | Self::Xor | Self::Eq)
    }

    /// Its name in SMT-LIB.
    #[must_use]
    pub fn smt(self) -> &'static str {
        match self {
            Self::Add => "bvadd",
            Self::Sub => "bvsub",
            Self::Mul => "bvmul",
            Self::And => "bvand",
            Self::Or => "bvor",
            Self::Xor => "bvxor",
            Self::Shl => "bvshl",
            Self::Shr => "bvlshr",
            Self::Sar => "bvashr",
            Self::Eq => "=",
            Self::Ult => "bvult",
            Self::Slt => "bvslt",
            Self::UDiv => "bvudiv",
            Self::URem => "bvurem",
            Self::SDiv => "bvsdiv",
            Self::SRem => "bvsrem",
        }
    }
}
