//! eBPF instructions as the rewriter sees them: what each reads, writes, and where it goes.

use crate::calls::HELPER;

/// The stack pointer.
pub const FRAME: u8 = 10;
/// Length of one instruction in bytes; `ld_imm64` takes two.
pub const SIZE: usize = 8;

/// One instruction as it is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Insn {
    /// Operation.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register, or a variant of the operation.
    pub src: u8,
    /// Offset.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

/// How control leaves an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// To the next one.
    Next,
    /// To the second half of itself, and on.
    Wide,
    /// Always to this distance after the next instruction.
    Goto(i64),
    /// There or to the next one.
    Branch(i64),
    /// Back to the caller.
    Exit,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    /// A helper by number.
    Helper(i32),
    /// A subprogram of the object.
    Subprogram,
    /// A function of the kernel by its BTF.
    Kfunc,
}

const ADD: u8 = 0x0;
const SUB: u8 = 0x1;
const NEG: u8 = 0x8;
const MOV: u8 = 0xb;
const END: u8 = 0xd;

impl Insn {
    /// `may_goto`
    pub const MAY_GOTO: u8 = 0xe5;
    /// `exit`
    pub const EXIT: u8 = 0x95;
    /// `call`
    pub const CALL: u8 = 0x85;
    /// First half of `ld_imm64`.
    pub const LD_IMM64: u8 = 0x18;
    /// `goto` with 16 bits.
    pub const GOTO: u8 = 0x05;
    /// `gotol`: `goto` with 32 bits.
    pub const GOTOL: u8 = 0x06;

    /// An instruction from its parts.
    #[must_use]
    pub const fn new(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Self {
        Self { code, dst, src, off, imm }
    }

    /// Decodes eight bytes.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let &[code, regs, o0, o1, i0, i1, i2, i3] = bytes else { return None };
        let (off, imm) = (i16::from_le_bytes([o0, o1]), i32::from_le_bytes([i0, i1, i2, i3]));
        Some(Self { code, dst: regs & 15, src: regs >> 4, off, imm })
    }

    /// Encodes it.
    #[must_use]
    pub fn bytes(self) -> [u8; SIZE] {
        let ([o0, o1], [i0, i1, i2, i3]) = (self.off.to_le_bytes(), self.imm.to_le_bytes());
        [self.code, self.dst | self.src << 4, o0, o1, i0, i1, i2, i3]
    }

    fn class(self) -> u8 {
        self.code & 7
    }

    /// Arithmetic on 64 bits, or on 32.
    #[must_use]
    pub fn is_alu(self) -> bool {
        matches!(self.class(), 4 | 7)
    }

    /// Of 64 bits.
    #[must_use]
    pub fn is_wide(self) -> bool {
        matches!(self.class(), 5 | 7)
    }

    /// Upper bits of the code: which arithmetic or comparison.
    #[must_use]
    pub fn operation(self) -> u8 {
        self.code >> 4
    }

    /// The second operand is a register.
    #[must_use]
    pub fn is_register(self) -> bool {
        self.code & 8 != 0
    }

    /// `dst = src` on 64 bits, without sign extension or change of the address space.
    #[must_use]
    pub fn is_copy(self) -> bool {
        self.code == 0xbf && self.off == 0
    }

    /// `dst = src`, whole or in part.
    #[must_use]
    pub fn is_move(self) -> bool {
        self.is_alu() && self.operation() == MOV && self.is_register()
    }

    /// The address of an arena from a number, or back.
    #[must_use]
    pub fn is_cast(self) -> bool {
        self.code == 0xbf && self.off == 1
    }

    /// `dst = imm`
    #[must_use]
    pub fn constant(self) -> Option<i64> {
        (self.is_alu() && self.operation() == MOV && !self.is_register()).then_some(i64::from(self.imm))
    }

    /// `dst += imm`, also written as a subtraction.
    #[must_use]
    pub fn step(self) -> Option<i64> {
        if !self.is_alu() || self.is_register() {
            return None;
        }
        match self.operation() {
            ADD => Some(self.imm.into()),
            SUB => Some(-i64::from(self.imm)),
            _ => None,
        }
    }

    /// A load from memory at a register.
    #[must_use]
    pub fn is_load(self) -> bool {
        self.class() == 1
    }

    /// A store of a register or an immediate, also atomic.
    #[must_use]
    pub fn is_store(self) -> bool {
        matches!(self.class(), 2 | 3)
    }

    /// A store of a register that is not atomic.
    #[must_use]
    pub fn stores_register(self) -> bool {
        self.class() == 3 && !self.is_atomic()
    }

    /// A store of the constant 0.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.class() == 2 && self.imm == 0
    }

    fn is_atomic(self) -> bool {
        self.class() == 3 && self.code >> 5 == 6
    }

    /// A load or store of eight bytes.
    #[must_use]
    pub fn is_double(self) -> bool {
        self.code & 0x18 == 0x18
    }

    /// Whether it compares and branches.
    #[must_use]
    pub fn is_branch(self) -> bool {
        matches!(self.class(), 5 | 6) && !matches!(self.operation(), 0 | 8 | 9)
    }

    /// What it calls.
    #[must_use]
    pub fn callee(self) -> Option<Callee> {
        match (self.code, self.src) {
            (Self::CALL, 0) => Some(Callee::Helper(self.imm)),
            (Self::CALL, 1) => Some(Callee::Subprogram),
            (Self::CALL, 2) => Some(Callee::Kfunc),
            _ => None,
        }
    }

    /// Where it goes; nothing for an instruction that this rewriter does not know.
    #[must_use]
    pub fn flow(self) -> Option<Flow> {
        match self.class() {
            _ if self.code == Self::LD_IMM64 => Some(Flow::Wide),
            0 => matches!(self.code >> 5, 1 | 2).then_some(Flow::Next),
            1 | 2 | 4 | 7 => Some(Flow::Next),
            3 => (!self.is_atomic() || self.atomic_is_known()).then_some(Flow::Next),
            _ => match self.code {
                Self::GOTO => Some(Flow::Goto(self.off.into())),
                Self::GOTOL => Some(Flow::Goto(self.imm.into())),
                Self::CALL => self.callee().map(|_| Flow::Next),
                Self::EXIT => Some(Flow::Exit),
                Self::MAY_GOTO => Some(Flow::Branch(self.off.into())),
                code => (self.is_branch() && code >> 4 <= 0xd).then_some(Flow::Branch(self.off.into())),
            },
        }
    }

    fn atomic_is_known(self) -> bool {
        matches!(self.imm, 0x00 | 0x01 | 0x40 | 0x41 | 0x50 | 0x51 | 0xa0 | 0xa1 | 0xe1 | 0xf1)
    }

    /// Registers that it reads, one bit each. A call is assumed to read all five arguments.
    #[must_use]
    pub fn reads(self) -> u16 {
        let (dst, src) = (1 << self.dst, 1 << self.src);
        let operand = if self.is_register() { src } else { 0 };
        match self.class() {
            4 | 7 => match self.operation() {
                MOV => operand,
                NEG | END => dst,
                _ => dst | operand,
            },
            0 if self.code != Self::LD_IMM64 => 1 << 6 | if self.code >> 5 == 2 { src } else { 0 },
            1 => src,
            2 => dst,
            3 => dst | src | u16::from(self.is_atomic() && self.imm == 0xf1),
            5 | 6 => match self.code {
                Self::CALL => 0b11_1110,
                Self::EXIT => 1,
                Self::GOTO | Self::GOTOL | Self::MAY_GOTO => 0,
                _ => dst | operand,
            },
            _ => 0,
        }
    }

    /// Registers that it writes, one bit each.
    #[must_use]
    pub fn writes(self) -> u16 {
        match self.class() {
            0 if self.code != Self::LD_IMM64 => HELPER,
            0 | 1 | 4 | 7 => 1 << self.dst,
            3 if self.is_atomic() && self.imm == 0xf1 => 1,
            3 if self.is_atomic() && self.imm & 1 != 0 => 1 << self.src,
            5 if self.code == Self::CALL => HELPER,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn instructions_are_encoded_as_they_were_decoded() {
        for bytes in [[0x79, 0xa1, 0xf8, 0xff, 0, 0, 0, 0], [0x55, 0x03, 0xfe, 0xff, 7, 0, 0, 0x80]] {
            assert_eq!(Insn::read(&bytes).unwrap().bytes(), bytes);
        }
        let load = Insn::read(&[0x79, 0xa1, 0xf8, 0xff, 0, 0, 0, 0]).unwrap();
        assert_eq!((load.dst, load.src, load.off, load.reads(), load.writes()), (1, 10, -8, 1 << 10, 1 << 1));
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        for insn in [Insn::new(0x8d, 0, 3, 0, 0), Insn::new(0xdb, 1, 2, 0, 0x100), Insn::new(0x85, 0, 7, 0, 0)] {
            assert_eq!(insn.flow(), None, "{insn:?}");
        }
        assert_eq!(Insn::new(0xe5, 0, 0, 3, 0).flow(), Some(Flow::Branch(3)));
        assert_eq!(Insn::new(0x06, 0, 0, 0, -70000).flow(), Some(Flow::Goto(-70000)));
    }
}
