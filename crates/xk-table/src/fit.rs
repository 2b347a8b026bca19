//! The function of V that an instruction holds: as text, and whether its values fit the instruction.

use crate::types::{Fit, Form};

/// The function of V as text: `2·V - 1`, `log2(V)`.
#[must_use]
pub fn fit_words(fit: &Fit) -> String {
    let scaled = match fit.a {
        a if matches!(fit.form, Form::Power(0)) => format!("{a}<<V"),
        a if matches!(fit.form, Form::Power(_)) => format!("({a}<<V)"),
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
    if matches!(fit.form, Form::Power(_)) && (min < 0 || max > 62) {
        return false;
    }
    let at = |v: i64| match fit.form {
        Form::Linear => i128::from(fit.a) * i128::from(v) + i128::from(fit.b),
        Form::Quotient(d) => (i128::from(fit.a) * i128::from(v) + i128::from(fit.b)).div_euclid(d.into()),
        Form::Log2 => i128::from(fit.a) * i128::from(v.max(1).ilog2()) + i128::from(fit.b),
        Form::Power(n) => ((i128::from(fit.a) << v) >> n) + i128::from(fit.b),
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
