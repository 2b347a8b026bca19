//! Addition, subtraction, logic and multiplication.

use iced_x86::Mnemonic;

use super::{Executor, Step};
use crate::state::{arithmetic, Flag, FlagsOrigin};
use crate::term::{BinOp, TermId, Terms};

impl Executor<'_> {
    pub(super) fn add_sub(&mut self) -> Step {
        let bits = self.width(0)?;
        let (a, b) = (self.read(0)?, self.read_as(1, bits)?);
        let zero = self.terms.constant(0, 1);
        let mnemonic = self.raw.mnemonic();
        let carry = if matches!(mnemonic, Mnemonic::Adc | Mnemonic::Sbb) { self.state.flag(Flag::Cf) } else { zero };
        let adds = matches!(mnemonic, Mnemonic::Add | Mnemonic::Adc);
        let (result, flags) =
            if adds { arithmetic::add(self.terms, a, b, carry) } else { arithmetic::sub(self.terms, a, b, carry) };
        self.state.flags = flags;
        self.state.flags_origin = match mnemonic {
            Mnemonic::Add => Some(FlagsOrigin::Add(a, b)),
            Mnemonic::Sub | Mnemonic::Cmp => Some(FlagsOrigin::Sub(a, b)),
            _ => None,
        };
        if mnemonic == Mnemonic::Cmp {
            return Ok(());
        }
        self.write(0, result)
    }

    pub(super) fn inc_dec(&mut self) -> Step {
        let bits = self.width(0)?;
        let a = self.read(0)?;
        let (one, zero) = (self.terms.constant(1, bits), self.terms.constant(0, 1));
        let carry = self.state.flag(Flag::Cf);
        let (result, mut flags) = if self.raw.mnemonic() == Mnemonic::Inc {
            arithmetic::add(self.terms, a, one, zero)
        } else {
            arithmetic::sub(self.terms, a, one, zero)
        };
        flags[Flag::Cf as usize] = carry;
        self.state.flags = flags;
        self.state.flags_origin = None;
        self.write(0, result)
    }

    pub(super) fn neg(&mut self) -> Step {
        let bits = self.width(0)?;
        let a = self.read(0)?;
        let (zero, none) = (self.terms.constant(0, bits), self.terms.constant(0, 1));
        let (result, flags) = arithmetic::sub(self.terms, zero, a, none);
        self.state.flags = flags;
        self.state.flags_origin = Some(FlagsOrigin::Sub(zero, a));
        self.write(0, result)
    }

    pub(super) fn logic(&mut self) -> Step {
        let bits = self.width(0)?;
        let (a, b) = (self.read(0)?, self.read_as(1, bits)?);
        let op = match self.raw.mnemonic() {
            Mnemonic::Or => BinOp::Or,
            Mnemonic::Xor => BinOp::Xor,
            Mnemonic::And if crate::BROKEN_RULE => BinOp::Or,
            _ => BinOp::And,
        };
        let result = self.terms.bin(op, a, b);
        self.logic_flags(result);
        if self.raw.mnemonic() == Mnemonic::Test {
            return Ok(());
        }
        self.write(0, result)
    }

    pub(super) fn complement(&mut self) -> Step {
        let value = self.read(0)?;
        let value = self.terms.not(value);
        self.write(0, value)
    }

    /// `imul` with two and three operands.
    pub(super) fn imul(&mut self) -> Step {
        let bits = self.width(0)?;
        let three = self.raw.op_count() == 3;
        let (a, b) = if three {
            (self.read_as(1, bits)?, self.read_as(2, bits)?)
        } else {
            (self.read(0)?, self.read_as(1, bits)?)
        };
        let (wa, wb) = (self.terms.sext(a, 2 * bits), self.terms.sext(b, 2 * bits));
        let product = self.terms.bin(BinOp::Mul, wa, wb);
        let result = self.terms.bin(BinOp::Mul, a, b);
        let whole = self.terms.sext(result, 2 * bits);
        self.multiply_flags(product, whole);
        self.write(0, result)
    }

    /// CF and OF: the product is not its extended low half; the rest is undefined.
    fn multiply_flags(&mut self, product: TermId, whole: TermId) {
        let fits = self.terms.bin(BinOp::Eq, product, whole);
        let overflow = self.terms.not(fits);
        self.state.set_flag(Flag::Cf, overflow);
        self.state.set_flag(Flag::Of, overflow);
        self.undefined(&[Flag::Pf, Flag::Af, Flag::Zf, Flag::Sf]);
        self.state.flags_origin = None;
    }

    /// `mul` and `imul` with one operand.
    pub(super) fn wide_multiply(&mut self) -> Step {
        let bits = self.width(0)?;
        let a = self.state.reg(self.terms, 0, bits);
        let b = self.read(0)?;
        let signed = self.raw.mnemonic() == Mnemonic::Imul;
        let widen = |terms: &mut Terms, x| if signed { terms.sext(x, 2 * bits) } else { terms.zext(x, 2 * bits) };
        let (wa, wb) = (widen(self.terms, a), widen(self.terms, b));
        let product = self.terms.bin(BinOp::Mul, wa, wb);
        let (low, high) = (self.terms.extract(product, 0, bits), self.terms.extract(product, bits, bits));
        let whole = widen(self.terms, low);
        self.multiply_flags(product, whole);
        self.set_wide(high, low);
        Ok(())
    }
}
