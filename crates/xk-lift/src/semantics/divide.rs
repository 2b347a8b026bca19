//! Division.

use iced_x86::Mnemonic;

use super::{Executor, Step, RAX, RDX};
use crate::state::Flag;
use crate::term::{BinOp, TermId};

impl Executor<'_> {
    /// `div` and `idiv`. A divisor of 0 and a quotient that does not fit fault.
    pub(super) fn divide(&mut self) -> Step {
        let bits = self.width(0)?;
        let divisor = self.read(0)?;
        let signed = self.raw.mnemonic() == Mnemonic::Idiv;
        let low = self.state.reg(self.terms, RAX, bits);
        let high =
            if bits == 8 { self.state.high_byte(self.terms, RAX) } else { self.state.reg(self.terms, RDX, bits) };
        let (quotient, remainder) = if signed { (BinOp::SDiv, BinOp::SRem) } else { (BinOp::UDiv, BinOp::URem) };
        let (quotient, remainder) = if self.extends(high, low, signed) {
            // The same numbers at half the width.
            (self.terms.bin(quotient, low, divisor), self.terms.bin(remainder, low, divisor))
        } else {
            let dividend = self.terms.concat(high, low);
            let divisor = if signed { self.terms.sext(divisor, 2 * bits) } else { self.terms.zext(divisor, 2 * bits) };
            let (q, r) = (self.terms.bin(quotient, dividend, divisor), self.terms.bin(remainder, dividend, divisor));
            (self.terms.extract(q, 0, bits), self.terms.extract(r, 0, bits))
        };
        self.undefined(&Flag::ALL);
        self.state.flags_origin = None;
        self.set_wide(remainder, quotient);
        Ok(())
    }

    /// Whether `high` is what extending `low` puts there.
    fn extends(&mut self, high: TermId, low: TermId, signed: bool) -> bool {
        if signed {
            high == self.sign_of(low)
        } else {
            self.terms.as_const(high) == Some(0)
        }
    }
}
