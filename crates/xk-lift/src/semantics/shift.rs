//! Shifts and rotations.

use iced_x86::Mnemonic;

use super::{Executor, Step};
use crate::state::{arithmetic, Flag};
use crate::term::{BinOp, Bits, TermId};

impl Executor<'_> {
    /// The count in `operand`, 8 bits, of which the processor uses five, and
    /// six with 64-bit operands.
    fn count(&mut self, operand: u32, bits: Bits) -> Step<TermId> {
        let count = self.read_as(operand, 8)?;
        let used = self.terms.constant(if bits == 64 { 63 } else { 31 }, 8);
        Ok(self.terms.bin(BinOp::And, count, used))
    }

    fn count_is(&mut self, count: TermId, value: u128) -> TermId {
        let value = self.terms.constant(value, 8);
        self.terms.bin(BinOp::Eq, count, value)
    }

    /// `overflow` after one step; unknown after more.
    fn overflow_by_one(&mut self, count: TermId, overflow: TermId) -> TermId {
        let by_one = self.count_is(count, 1);
        let unknown = self.terms.fresh("undefined", 1);
        self.terms.ite(by_one, overflow, unknown)
    }

    /// Sets these flags unless the count is 0.
    fn flags_unless_zero(&mut self, count: TermId, new: &[(Flag, TermId)]) {
        let unchanged = self.count_is(count, 0);
        for &(flag, value) in new {
            let old = self.state.flag(flag);
            let value = self.terms.ite(unchanged, old, value);
            self.state.set_flag(flag, value);
        }
        self.state.flags_origin = None;
    }

    /// The flags of a result that was shifted.
    fn shift_flags(&mut self, count: TermId, result: TermId, carry: TermId, overflow: TermId) {
        let [zero, sign, parity] = arithmetic::result_flags(self.terms, result);
        let overflow = self.overflow_by_one(count, overflow);
        let adjust = self.terms.fresh("undefined", 1);
        let new = [zero, sign, parity, (Flag::Cf, carry), (Flag::Of, overflow), (Flag::Af, adjust)];
        self.flags_unless_zero(count, &new);
    }

    fn top(&mut self, value: TermId) -> TermId {
        let top = self.terms.bits(value) - 1;
        arithmetic::bit(self.terms, value, top)
    }

    /// Whether the two highest bits differ.
    fn top_bits_differ(&mut self, value: TermId) -> TermId {
        let top = self.top(value);
        let next = self.terms.bits(value) - 2;
        let next = arithmetic::bit(self.terms, value, next);
        self.terms.bin(BinOp::Xor, top, next)
    }

    /// The last bit that `op` moves out of `value` in `n` steps, at least one.
    fn last_out(&mut self, op: BinOp, value: TermId, n: TermId) -> TermId {
        let one = self.terms.constant(1, self.terms.bits(n));
        let before_last = self.terms.bin(BinOp::Sub, n, one);
        let almost = self.terms.bin(op, value, before_last);
        match op {
            BinOp::Shl => self.top(almost),
            _ => arithmetic::bit(self.terms, almost, 0),
        }
    }

    /// `shl`, `shr` and `sar`.
    pub(super) fn shift(&mut self) -> Step {
        let bits = self.width(0)?;
        let value = self.read(0)?;
        let count = self.count(1, bits)?;
        let n = self.terms.zext(count, bits);
        let op = match self.raw.mnemonic() {
            Mnemonic::Shr => BinOp::Shr,
            Mnemonic::Sar => BinOp::Sar,
            _ => BinOp::Shl,
        };
        let result = self.terms.bin(op, value, n);
        let mut carry = self.last_out(op, value, n);
        let overflow = match op {
            BinOp::Shr => self.top(value),
            BinOp::Sar => self.terms.constant(0, 1),
            _ => {
                let top = self.top(result);
                self.terms.bin(BinOp::Xor, top, carry)
            }
        };
        if op != BinOp::Sar {
            // CF of shl and shr is undefined when the count reaches the width.
            let limit = self.terms.constant(u128::from(bits), 8);
            let within = self.terms.bin(BinOp::Ult, count, limit);
            let unknown = self.terms.fresh("undefined", 1);
            carry = self.terms.ite(within, carry, unknown);
        }
        self.shift_flags(count, result, carry, overflow);
        self.write(0, result)
    }

    /// `value` rotated left by a known number of bits.
    fn rotated(&mut self, value: TermId, by: Bits) -> TermId {
        let bits = self.terms.bits(value);
        match by % bits {
            0 => value,
            by => {
                let high = self.terms.extract(value, 0, bits - by);
                let low = self.terms.extract(value, bits - by, by);
                self.terms.concat(high, low)
            }
        }
    }

    /// `rol` and `ror`.
    pub(super) fn rotate(&mut self) -> Step {
        let bits = self.width(0)?;
        let value = self.read(0)?;
        let count = self.count(1, bits)?;
        let left = self.raw.mnemonic() == Mnemonic::Rol;
        let result = if let Some(known) = self.terms.as_const(count) {
            let by = known as Bits % bits;
            self.rotated(value, if left { by } else { bits - by })
        } else {
            let n = self.terms.zext(count, bits);
            let below = self.terms.constant(u128::from(bits) - 1, bits);
            let n = self.terms.bin(BinOp::And, n, below);
            let width = self.terms.constant(bits.into(), bits);
            let rest = self.terms.bin(BinOp::Sub, width, n);
            let (l, r) = if left { (n, rest) } else { (rest, n) };
            let high = self.terms.bin(BinOp::Shl, value, l);
            let low = self.terms.bin(BinOp::Shr, value, r);
            self.terms.bin(BinOp::Or, high, low)
        };
        let (carry, overflow) = if left {
            let (carry, top) = (arithmetic::bit(self.terms, result, 0), self.top(result));
            (carry, self.terms.bin(BinOp::Xor, top, carry))
        } else {
            (self.top(result), self.top_bits_differ(result))
        };
        let overflow = self.overflow_by_one(count, overflow);
        self.flags_unless_zero(count, &[(Flag::Cf, carry), (Flag::Of, overflow)]);
        self.write(0, result)
    }

    /// `rcl` and `rcr` by a known count: CF is one more bit on the left.
    pub(super) fn rotate_through_carry(&mut self) -> Step {
        let bits = self.width(0)?;
        let value = self.read(0)?;
        let count = self.count(1, bits)?;
        let Some(known) = self.terms.as_const(count) else { return self.unsupported() };
        let by = known as Bits % (bits + 1);
        let whole = self.terms.concat(self.state.flag(Flag::Cf), value);
        let left = self.raw.mnemonic() == Mnemonic::Rcl;
        let whole = self.rotated(whole, if left { by } else { bits + 1 - by });
        let (carry, result) = (self.top(whole), self.terms.extract(whole, 0, bits));
        let overflow = if left { self.top_bits_differ(whole) } else { self.top_bits_differ(result) };
        let overflow = self.overflow_by_one(count, overflow);
        self.flags_unless_zero(count, &[(Flag::Cf, carry), (Flag::Of, overflow)]);
        self.write(0, result)
    }

    /// `shld` and `shrd`. With 16-bit operands, counts beyond the width are
    /// undefined. With 32 bits, whether a count of 0 clears the upper half is
    /// not documented.
    pub(super) fn double_shift(&mut self) -> Step {
        let bits = self.width(0)?;
        let (value, filler) = (self.read(0)?, self.read(1)?);
        let count = self.count(2, bits)?;
        let clears = bits == 32 && self.terms.as_const(count).is_none_or(|count| count == 0);
        if bits == 16 || clears {
            return self.unsupported();
        }
        let n = self.terms.zext(count, bits);
        let width = self.terms.constant(bits.into(), bits);
        let rest = self.terms.bin(BinOp::Sub, width, n);
        let (op, back) = match self.raw.mnemonic() {
            Mnemonic::Shld => (BinOp::Shl, BinOp::Shr),
            _ => (BinOp::Shr, BinOp::Shl),
        };
        let (kept, filled) = (self.terms.bin(op, value, n), self.terms.bin(back, filler, rest));
        let result = self.terms.bin(BinOp::Or, kept, filled);
        let carry = self.last_out(op, value, n);
        let (old, new) = (self.top(value), self.top(result));
        let overflow = self.terms.bin(BinOp::Xor, old, new);
        self.shift_flags(count, result, carry, overflow);
        self.write(0, result)
    }
}
