//! The operators on known values.

use super::{mask, BinOp, Bits};

/// `value` of `from` bits, sign-extended to `to`.
pub fn sign_extend(value: u128, from: Bits, to: Bits) -> u128 {
    if value >> (from - 1) & 1 == 1 {
        (value | !mask(from)) & mask(to)
    } else {
        value
    }
}

/// `a op b` at `bits` bits, with the meaning that SMT-LIB gives to the operator.
pub fn fold(op: BinOp, a: u128, b: u128, bits: Bits) -> u128 {
    let shift = |f: fn(u128, u32) -> u128| if b >= u128::from(bits) { 0 } else { f(a, b as u32) };
    let signed = |x: u128| sign_extend(x, bits, 128) as i128;
    let value = match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::Mul => a.wrapping_mul(b),
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl => shift(|a, b| a << b),
        BinOp::Shr => shift(|a, b| a >> b),
        BinOp::Sar => {
            let count = b.min(u128::from(bits) - 1) as u32;
            (signed(a) >> count) as u128
        }
        BinOp::Eq => u128::from(a == b),
        BinOp::Ult => u128::from(a < b),
        BinOp::Slt => u128::from(signed(a) < signed(b)),
        BinOp::UDiv => a.checked_div(b).unwrap_or(u128::MAX),
        BinOp::URem => a.checked_rem(b).unwrap_or(a),
        BinOp::SDiv if b == 0 => (if signed(a) < 0 { 1i128 } else { -1 }) as u128,
        BinOp::SDiv => signed(a).wrapping_div(signed(b)) as u128,
        BinOp::SRem if b == 0 => a,
        BinOp::SRem => signed(a).wrapping_rem(signed(b)) as u128,
    };
    value & mask(if op.is_comparison() { 1 } else { bits })
}
