//! Exchanges between a register and an operand, indivisible where memory is
//! concerned and a lock prefix says so.

use iced_x86::OpKind;

use super::{Executor, Step, RAX};
use crate::state::{arithmetic, FlagsOrigin};
use crate::term::BinOp;

impl Executor<'_> {
    pub(super) fn exchange(&mut self) -> Step {
        let (a, b) = (self.read(0)?, self.read(1)?);
        // Memory first: the register may be part of its address.
        self.write(0, b)?;
        self.write(1, a)
    }

    pub(super) fn exchange_add(&mut self) -> Step {
        let (old, addend) = (self.read(0)?, self.read(1)?);
        let zero = self.terms.constant(0, 1);
        let (sum, flags) = arithmetic::add(self.terms, old, addend, zero);
        self.state.flags = flags;
        self.state.flags_origin = Some(FlagsOrigin::Add(old, addend));
        if self.raw.op_kind(0) == OpKind::Memory {
            self.write(0, sum)?;
            return self.write(1, old);
        }
        // If both are one register, it holds the sum.
        self.write(1, old)?;
        self.write(0, sum)
    }

    /// `cmpxchg` with memory: the old value is written back where it differs
    /// from the accumulator, and only then the accumulator is written.
    pub(super) fn compare_exchange(&mut self) -> Step {
        if self.raw.op_kind(0) != OpKind::Memory {
            return self.unsupported();
        }
        let bits = self.width(0)?;
        let (old, new) = (self.read(0)?, self.read(1)?);
        let expected = self.state.reg(self.terms, RAX, bits);
        let zero = self.terms.constant(0, 1);
        let (_, flags) = arithmetic::sub(self.terms, expected, old, zero);
        let equal = self.terms.bin(BinOp::Eq, expected, old);
        let stored = self.terms.ite(equal, new, old);
        self.write(0, stored)?;
        self.state.flags = flags;
        self.state.flags_origin = Some(FlagsOrigin::Sub(expected, old));
        let before = self.state.regs[RAX];
        self.state.set_reg(self.terms, RAX, old);
        self.state.regs[RAX] = self.terms.ite(equal, before, self.state.regs[RAX]);
        Ok(())
    }
}
