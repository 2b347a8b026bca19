//! For which values something may be proved at all.
//!
//! The opaque build does what the processor does, and so does the deployed code. A kernel compiled with V does
//! what C says, or anything where C says nothing: the processor shifts by 33 as by 1, the compiler may leave 0.
//! And a product with 0 is a constant to the compiler: code that asks (`__builtin_constant_p`, as
//! `msecs_to_jiffies()` does) then takes another way than the opaque build.

use iced_x86::Mnemonic;
use xk_const::CType;
use xk_lift::object::Object;
use xk_lift::semantics::gpr;
use xk_table::{Fit, Range};

use crate::constants::{Field, Seeds};

/// The values of a type that the address of a symbol can have: 32 bits, sign-extended.
pub(crate) fn symbolic(c_type: CType, default: i64) -> Option<Range> {
    let (min, max) = c_type.range();
    let (low, high) =
        (i128::from(i32::MIN), i128::from(if c_type.bits() > 32 { i64::from(i32::MAX) } else { i64::MAX }));
    let range = Range::of(min.max(low) as i64, max.min(high) as i64);
    range.contains(default).then_some(range)
}

/// The part of `range` in which no deployed instruction shifts by more bits than its operand has (C11, 6.5.7; the
/// compiler shifts an operand of C's type in a register of that width), and none multiplies by 0.
pub(crate) fn defined(object: &Object, seeds: &Seeds, range: Range, default: i64) -> Option<Range> {
    seeds.iter().try_fold(range, |range, (&(node, field), fit)| {
        let raw = object.insns.get(&node).map(|insn| insn.raw)?;
        // What is encoded in a byte follows something wider.
        let number = |value| Fit { width: 8, ..*fit }.apply(value);
        match (field, raw.mnemonic()) {
            (Field::Product, _) | (Field::Immediate, Mnemonic::Imul) => {
                let sign = (number(default) as i64).signum();
                // Beyond what the product can hold it is 0 again some time.
                let room = u32::from(fit.width) * 8;
                range.around(default, |value| {
                    let factor = number(value) as i64;
                    sign != 0 && factor.signum() == sign && u128::from(factor.unsigned_abs()) < 1 << room
                })
            }
            (Field::Immediate, Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Shr | Mnemonic::Sar) => {
                let register = gpr(raw.op0_register()).map(|(_, bits, _)| u64::from(bits));
                let bits = register.unwrap_or(raw.memory_size().size() as u64 * 8);
                range.around(default, |value| number(value) < bits)
            }
            _ => Some(range),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_has_32_bits() {
        let of = |c_type, default| symbolic(c_type, default).map(|range| (range.min, range.max));
        assert_eq!(of(CType::Int, 5), Some((i64::from(i32::MIN), i64::from(i32::MAX))));
        assert_eq!(of(CType::UnsignedInt, 5), Some((0, i64::from(u32::MAX))));
        assert_eq!(of(CType::UnsignedLong, 5), Some((0, i64::from(i32::MAX))));
        assert_eq!(of(CType::Long, 1 << 40), None);
    }
}
