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
    /// `a / V + b`, rounded down; V from 1, and `a` without a sign. What is left of a comparison such as
    /// `x > ULONG_MAX / V`.
    Inverse,
}

impl Form {
    fn is_linear(&self) -> bool {
        *self == Self::Linear
    }

    /// Whether it is a form that `xk.ko` computes, too.
    pub(crate) fn is_defined(self) -> bool {
        match self {
            Self::Linear | Self::Log2 | Self::Inverse => true,
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
            Form::Inverse if v < 1 => self.b as u64,
            Form::Inverse => (self.a as u64 / v as u64).wrapping_add(self.b as u64),
        };
        match self.width {
            8 => iv,
            w => iv & ((1u64 << (u32::from(w) * 8)) - 1),
        }
    }
}

/// The function of V as text: `2·V - 1`, `log2(V)`.
#[must_use]
pub fn fit_words(fit: &Fit) -> String {
    let scaled = match fit.a {
        a if matches!(fit.form, Form::Power(0)) => format!("{a}<<V"),
        a if matches!(fit.form, Form::Power(_)) => format!("({a}<<V)"),
        a if fit.form == Form::Inverse => format!("{}/V", a as u64),
        1 => "V".to_owned(),
        -1 => "-V".to_owned(),
        a if a > 4096 && a & (a - 1) == 0 => format!("V<<{}", a.trailing_zeros()),
        a => format!("{a}·V"),
    };
    let sum = match fit.b {
        0 => scaled,
        b if b < 0 => format!("{scaled} - {}", b.unsigned_abs()),
        b => format!("{scaled} + {b}"),
    };
    match fit.form {
        Form::Quotient(by) if !sum.contains(' ') => format!("{sum}/{by}"),
        Form::Quotient(by) => format!("({sum})/{by}"),
        Form::Log2 => sum.replacen('V', "log2(V)", 1),
        Form::Power(bits) if bits > 0 => sum.replacen("<<V)", &format!("<<V)/{}", 1u64 << bits.min(63)), 1),
        _ => sum,
    }
}

/// Whether the IV of every V between `min` and `max` fits `width` bytes without
/// wrapping around, in one reading (signed or unsigned). All forms are
/// monotonic, so the ends decide.
#[must_use]
pub fn fits_without_wrapping(fit: &Fit, min: i64, max: i64) -> bool {
    if matches!(fit.form, Form::Power(_)) && (min < 0 || max > 62) || fit.form == Form::Inverse && min < 1 {
        return false;
    }
    let at = |v: i64| match fit.form {
        Form::Linear => i128::from(fit.a) * i128::from(v) + i128::from(fit.b),
        Form::Quotient(d) => (i128::from(fit.a) * i128::from(v) + i128::from(fit.b)).div_euclid(d.into()),
        Form::Log2 => i128::from(fit.a) * i128::from(v.max(1).ilog2()) + i128::from(fit.b),
        Form::Power(n) => ((i128::from(fit.a) << v) >> n) + i128::from(fit.b),
        Form::Inverse => i128::from(fit.a as u64) / i128::from(v) + i128::from(fit.b),
    };
    // The shift itself happens in 64 bits.
    if matches!(fit.form, Form::Power(_)) && i64::try_from(i128::from(fit.a) << max).is_err() {
        return false;
    }
    let (low, high) = (at(min).min(at(max)), at(min).max(at(max)));
    let bits = u32::from(fit.width) * 8;
    let half = 1i128 << (bits - 1);
    (-half <= low && high < half) || (0 <= low && high < 2 * half)
}
