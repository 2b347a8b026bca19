//! Instructions about flags: conditions, and the flags themselves.

use iced_x86::{ConditionCode, Mnemonic};

use super::{Executor, Step, RAX};
use crate::state::{arithmetic, Flag};
use crate::term::TermId;

impl Executor<'_> {
    fn condition(&mut self, code: ConditionCode) -> TermId {
        // iced numbers the condition codes o..g as 1..16 in the order of the encoding.
        arithmetic::condition(self.terms, &self.state.flags, code as u8 - 1)
    }

    /// `setcc` and `cmovcc`.
    pub(super) fn conditional(&mut self) -> Step {
        let raw = self.raw;
        let holds = self.condition(raw.condition_code());
        if is_setcc(raw.mnemonic()) {
            let value = self.terms.zext(holds, 8);
            return self.write(0, value);
        }
        if is_cmovcc(raw.mnemonic()) {
            // A 32-bit cmov clears the upper half even when it does not move.
            let (old, new) = (self.read(0)?, self.read(1)?);
            let value = self.terms.ite(holds, new, old);
            return self.write(0, value);
        }
        self.unsupported()
    }

    /// `clc`, `stc`, `cmc`, `lahf` and `sahf`.
    pub(super) fn flag_instruction(&mut self) -> Step {
        let carry = self.state.flag(Flag::Cf);
        match self.raw.mnemonic() {
            Mnemonic::Lahf => {
                self.load_flags();
                return Ok(());
            }
            Mnemonic::Sahf => {
                let byte = self.state.high_byte(self.terms, RAX);
                for flag in Flag::ALL.into_iter().filter(|flag| flag.bit() < 8) {
                    let value = self.terms.extract(byte, flag.bit(), 1);
                    self.state.set_flag(flag, value);
                }
            }
            mnemonic => {
                let value = match mnemonic {
                    Mnemonic::Cmc => self.terms.not(carry),
                    _ => self.terms.constant(u128::from(mnemonic == Mnemonic::Stc), 1),
                };
                self.state.set_flag(Flag::Cf, value);
            }
        }
        self.state.flags_origin = None;
        Ok(())
    }

    /// `ah` as SF:ZF:0:AF:0:PF:1:CF.
    fn load_flags(&mut self) {
        let mut byte = self.state.flag(Flag::Sf);
        for position in (0..7).rev() {
            let bit = match Flag::ALL.into_iter().find(|flag| flag.bit() == position) {
                Some(flag) => self.state.flag(flag),
                None => self.terms.constant(u128::from(position == 1), 1),
            };
            byte = self.terms.concat(byte, bit);
        }
        self.state.set_high_byte(self.terms, RAX, byte);
    }
}

fn is_setcc(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Seto
            | M::Setno
            | M::Setb
            | M::Setae
            | M::Sete
            | M::Setne
            | M::Setbe
            | M::Seta
            | M::Sets
            | M::Setns
            | M::Setp
            | M::Setnp
            | M::Setl
            | M::Setge
            | M::Setle
            | M::Setg
    )
}

fn is_cmovcc(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Cmovo
            | M::Cmovno
            | M::Cmovb
            | M::Cmovae
            | M::Cmove
            | M::Cmovne
            | M::Cmovbe
            | M::Cmova
            | M::Cmovs
            | M::Cmovns
            | M::Cmovp
            | M::Cmovnp
            | M::Cmovl
            | M::Cmovge
            | M::Cmovle
            | M::Cmovg
    )
}
