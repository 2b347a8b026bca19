//! Encoded values: the number that an instruction or an object holds, as a function of V.

use serde::{Deserialize, Serialize};

/// How a transformed value follows from V.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// `a·V + b`.
    #[default]
    Linear,
    /// `(a·V + b) / d`, rounded down; d > 0. What is left of a division that the
    /// compiler did.
    Quotient(i64),
    /// `((a << V) >> n) + b`; V from 0 to 62.
    Power(u8),
    /// `a·log2(V) + b`, for powers of two.
    Log2,
}

impl Form {
    fn is_linear(&self) -> bool {
        *self == Self::Linear
    }

    /// Whether it is a form that `xk.ko` computes, too.
    pub(crate) fn is_defined(self) -> bool {
        match self {
            Self::Linear | Self::Log2 => true,
            Self::Quotient(by) => by > 0,
            Self::Power(bits) => bits < 64,
        }
    }
}

/// A value as the compiler materialised it: a [`Form`] of V modulo 2^64, read at
/// `width` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fit {
    /// Factor.
    pub a: i64,
    /// Offset.
    pub b: i64,
    /// How they are combined with V.
    #[serde(default, skip_serializing_if = "Form::is_linear")]
    pub form: Form,
    /// Width in bytes at which the compiler encodes the value: 1, 2, 4 or 8.
    pub width: u8,
}

impl Fit {
    /// `a·V + b`.
    #[must_use]
    pub const fn linear(a: i64, b: i64, width: u8) -> Self {
        Self { a, b, form: Form::Linear, width }
    }

    /// The transformed value that the compiler would have produced for `v`.
    #[must_use]
    pub fn apply(&self, v: i64) -> u64 {
        let sum = || (self.a as u64).wrapping_mul(v as u64).wrapping_add(self.b as u64);
        let iv = match self.form {
            Form::Linear => sum(),
            Form::Quotient(by) => (sum() as i64).div_euclid(by.max(1)) as u64,
            Form::Log2 => {
                if v > 0 {
                    self.a.wrapping_mul(v.ilog2().into()).wrapping_add(self.b) as u64
                } else {
                    self.b as u64
                }
            }
            Form::Power(_) if !(0..63).contains(&v) => self.b as u64,
            Form::Power(bits) => ((self.a << v) >> bits.min(63)).wrapping_add(self.b) as u64,
        };
        match self.width {
            8 => iv,
            w => iv & ((1u64 << (u32::from(w) * 8)) - 1),
        }
    }
}
