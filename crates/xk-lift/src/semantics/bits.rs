//! Single bits and their numbers: tests, scans, counts, and the order of bytes.

use iced_x86::{Mnemonic, OpKind};

use super::{gpr, Executor, Step};
use crate::state::{arithmetic, Flag};
use crate::term::{BinOp, Bits, TermId};

impl Executor<'_> {
    /// `bt`, `bts`, `btr` and `btc`. The bit offset in a register addresses
    /// memory far from the operand; that form is not covered.
    pub(super) fn bit_test(&mut self) -> Step {
        if self.raw.op_kind(0) == OpKind::Memory && self.raw.op_kind(1) == OpKind::Register {
            return self.unsupported();
        }
        let bits = self.width(0)?;
        let (value, index) = (self.read(0)?, self.read_as(1, bits)?);
        let used = self.terms.constant(u128::from(bits) - 1, bits);
        let index = self.terms.bin(BinOp::And, index, used);
        let carry = match self.terms.as_const(index) {
            Some(position) => arithmetic::bit(self.terms, value, position as u32),
            None => {
                let shifted = self.terms.bin(BinOp::Shr, value, index);
                arithmetic::bit(self.terms, shifted, 0)
            }
        };
        self.state.set_flag(Flag::Cf, carry);
        self.undefined(&[Flag::Of, Flag::Sf, Flag::Af, Flag::Pf]);
        self.state.flags_origin = None;
        let one = self.terms.constant(1, bits);
        let bit = self.terms.bin(BinOp::Shl, one, index);
        let result = match self.raw.mnemonic() {
            Mnemonic::Bts => self.terms.bin(BinOp::Or, value, bit),
            Mnemonic::Btc => self.terms.bin(BinOp::Xor, value, bit),
            Mnemonic::Btr => {
                let rest = self.terms.not(bit);
                self.terms.bin(BinOp::And, value, rest)
            }
            _ => return Ok(()),
        };
        self.write(0, result)
    }

    /// `bsf` and `bsr`.
    pub(super) fn bit_scan(&mut self) -> Step {
        let (source, number) = self.scanned()?;
        let none = self.is_zero(source);
        let found = self.first_one(source, self.raw.mnemonic() == Mnemonic::Bsr);
        let found = self.terms.zext(found, 64);
        let kept = self.kept_by_scan(number, self.terms.bits(source));
        self.state.regs[number] = self.terms.ite(none, kept, found);
        self.state.set_flag(Flag::Zf, none);
        self.undefined(&[Flag::Cf, Flag::Of, Flag::Sf, Flag::Af, Flag::Pf]);
        self.state.flags_origin = None;
        Ok(())
    }

    /// `tzcnt`, which older processors execute as `bsf`: the prefix means
    /// nothing to them, and the kernel relies on it (`__ffs`).
    pub(super) fn trailing_zeros(&mut self) -> Step {
        let (source, number) = self.scanned()?;
        let bits = self.terms.bits(source);
        let as_bsf = self.terms.symbol("undefined: tzcnt is bsf", 1);
        let none = self.is_zero(source);
        let found = self.first_one(source, false);
        let found = self.terms.zext(found, 64);
        let width = self.terms.constant(bits.into(), 64);
        let kept = self.kept_by_scan(number, bits);
        let of_zero = self.terms.ite(as_bsf, kept, width);
        self.state.regs[number] = self.terms.ite(none, of_zero, found);
        let lowest = arithmetic::bit(self.terms, source, 0);
        let zf = self.terms.ite(as_bsf, none, lowest);
        let unknown = self.terms.fresh("undefined", 1);
        let cf = self.terms.ite(as_bsf, unknown, none);
        self.state.set_flag(Flag::Zf, zf);
        self.state.set_flag(Flag::Cf, cf);
        self.undefined(&[Flag::Of, Flag::Sf, Flag::Af, Flag::Pf]);
        self.state.flags_origin = None;
        Ok(())
    }

    /// The source of a scan and the number of the destination.
    fn scanned(&mut self) -> Step<(TermId, usize)> {
        match gpr(self.raw.op0_register()) {
            Some((number, 32 | 64, _)) => Ok((self.read(1)?, number)),
            _ => self.unsupported(),
        }
    }

    /// Register `number` after a scan that found nothing: unmodified. AMD's
    /// manual (vol. 3) says so; editions of Intel's that call it undefined are
    /// overruled by what the kernel relies on (`ffs` and `fls` in
    /// arch/x86/include/asm/bitops.h). With 32-bit operands the same place
    /// knows processors that clear the upper half.
    fn kept_by_scan(&mut self, number: usize, bits: Bits) -> TermId {
        let old = self.state.regs[number];
        if bits == 64 {
            return old;
        }
        let clears = self.terms.symbol("undefined: scans of zero clear the upper half", 1);
        let low = self.terms.extract(old, 0, 32);
        let cleared = self.terms.zext(low, 64);
        self.terms.ite(clears, cleared, old)
    }

    fn is_zero(&mut self, value: TermId) -> TermId {
        let zero = self.terms.constant(0, self.terms.bits(value));
        self.terms.bin(BinOp::Eq, value, zero)
    }

    /// Number of the lowest or highest set bit of `value`, which is not 0.
    fn first_one(&mut self, value: TermId, highest: bool) -> TermId {
        let bits = self.terms.bits(value);
        // The weakest candidate first.
        let candidates: Vec<u32> = if highest { (0..bits).collect() } else { (0..bits).rev().collect() };
        let mut found = self.terms.constant(candidates[0].into(), bits);
        for &position in &candidates[1..] {
            let set = arithmetic::bit(self.terms, value, position);
            let here = self.terms.constant(position.into(), bits);
            found = self.terms.ite(set, here, found);
        }
        found
    }

    pub(super) fn population(&mut self) -> Step {
        let bits = self.width(0)?;
        let source = self.read(1)?;
        let mut count = self.terms.constant(0, bits);
        for position in 0..bits {
            let bit = arithmetic::bit(self.terms, source, position);
            let bit = self.terms.zext(bit, bits);
            count = self.terms.bin(BinOp::Add, count, bit);
        }
        let cleared = self.terms.constant(0, 1);
        self.state.flags = [cleared; 6];
        let none = self.is_zero(source);
        self.state.set_flag(Flag::Zf, none);
        self.state.flags_origin = None;
        self.write(0, count)
    }

    pub(super) fn byte_swap(&mut self) -> Step {
        let bits = self.width(0)?;
        if bits == 16 {
            return self.unsupported(); // undefined
        }
        let value = self.read(0)?;
        let mut swapped = self.terms.extract(value, 0, 8);
        for byte in 1..bits / 8 {
            let next = self.terms.extract(value, 8 * byte, 8);
            swapped = self.terms.concat(swapped, next);
        }
        self.write(0, swapped)
    }
}
