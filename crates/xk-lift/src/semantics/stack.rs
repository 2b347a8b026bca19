//! The stack.

use iced_x86::{Code, OpKind};

use super::{Executor, Step};
use crate::state::{RBP, RSP};
use crate::term::{BinOp, TermId};

impl Executor<'_> {
    pub(super) fn push(&mut self) -> Step {
        // Two bytes with an operand-size prefix.
        if self.raw.stack_pointer_increment() != -8 {
            return self.unsupported();
        }
        let value = self.read_as(0, 64)?;
        let eight = self.terms.constant(8, 64);
        let sp = self.terms.bin(BinOp::Sub, self.state.regs[RSP], eight);
        self.state.regs[RSP] = sp;
        self.state.push(self.terms, sp, value);
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Step {
        if self.raw.op_kind(0) != OpKind::Register || self.width(0)? != 64 {
            return self.unsupported();
        }
        let value = self.take();
        self.write(0, value)
    }

    pub(super) fn leave(&mut self) -> Step {
        if self.raw.code() != Code::Leaveq {
            return self.unsupported();
        }
        self.state.regs[RSP] = self.state.regs[RBP];
        self.state.regs[RBP] = self.take();
        Ok(())
    }

    /// What is on top of the stack, which it leaves.
    fn take(&mut self) -> TermId {
        let sp = self.state.regs[RSP];
        let eight = self.terms.constant(8, 64);
        self.state.regs[RSP] = self.terms.bin(BinOp::Add, sp, eight);
        self.state.pop(self.terms, sp)
    }
}
