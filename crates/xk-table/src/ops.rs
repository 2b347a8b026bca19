//! The operations of an in-kernel update, as data.
//!
//! The meaning of each operation is defined once, in `kernel/xk/uapi/xk.h`;
//! the numbers here are the numbers there (a test compares them). `xk-analysis`
//! gives them bit-vector semantics for the proofs; `kernel/xk/ops/ops.c` executes
//! them.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Temporaries of a program.
pub const MAX_TEMPS: u8 = 32;
/// Operations of a program.
pub const MAX_OPS: usize = 48;
/// Transformed values of a program.
pub const MAX_IVS: usize = 8;
/// Instructions of a span that hold a value.
pub const MAX_PATCHES: usize = 4;
/// CF, PF, AF, ZF, SF, OF: the only flags that an update may write.
pub const STATUS_FLAGS: u64 = 0x8d5;

/// Operation codes of `enum xk_op_code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
#[allow(missing_docs)] // documented in uapi/xk.h, the one place that defines them
pub enum OpCode {
    Iv = 1,
    Imm,
    Reg,
    Flags,
    Load,
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Sar,
    Not,
    Neg,
    Sext,
    Eq,
    Ult,
    Slt,
    Select,
    FlagsAdd,
    FlagsSub,
    FlagsLogic,
    Cond,
    SetReg,
    SetFlags,
    Store,
    Text,
    PerCpu,
}

impl OpCode {
    /// Every operation, in the order of its number.
    pub const ALL: [Self; 30] = [
        Self::Iv,
        Self::Imm,
        Self::Reg,
        Self::Flags,
        Self::Load,
        Self::Add,
        Self::Sub,
        Self::Mul,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::Shl,
        Self::Shr,
        Self::Sar,
        Self::Not,
        Self::Neg,
        Self::Sext,
        Self::Eq,
        Self::Ult,
        Self::Slt,
        Self::Select,
        Self::FlagsAdd,
        Self::FlagsSub,
        Self::FlagsLogic,
        Self::Cond,
        Self::SetReg,
        Self::SetFlags,
        Self::Store,
        Self::Text,
        Self::PerCpu,
    ];

    /// The operation of this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|code| *code as u8 == number)
    }
}

/// One operation; field meanings as in `struct xk_op`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// What to do.
    pub code: OpCode,
    /// Width in bytes: 1, 2, 4, 8.
    pub width: u8,
    /// Destination temporary, or register for [`OpCode::SetReg`].
    #[serde(default)]
    pub dst: u8,
    /// First operand.
    #[serde(default)]
    pub a: u8,
    /// Second operand.
    #[serde(default)]
    pub b: u8,
    /// Third operand.
    #[serde(default)]
    pub c: u8,
    /// Immediate, displacement, slot, mask or condition.
    #[serde(default)]
    pub imm: i64,
}

/// The operations of one site.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Program {
    /// In order of execution.
    pub ops: Vec<Op>,
}

/// Why a program is not well-formed; the rules are those of `kernel/xk/ops/ops.c`.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum OpError {
    /// Too many operations, or none.
    #[error("a program has 1 to {MAX_OPS} operations, not {0}")]
    Length(usize),
    /// Width not 1, 2, 4 or 8.
    #[error("operation {0}: width {1} is not 1, 2, 4 or 8")]
    Width(usize, u8),
    /// Temporary out of range or read before it was written.
    #[error("operation {0}: temporary t{1} is out of range or not written yet")]
    Temp(usize, u8),
    /// Register number above 15, or the stack pointer as destination.
    #[error("operation {0}: register {1} cannot be used")]
    Register(usize, u8),
    /// Slot, mask, condition or operand outside its range.
    #[error("operation {0}: immediate {1} is out of range")]
    Immediate(usize, i64),
    /// It changes nothing.
    #[error("the program sets no register, flag or memory")]
    NoEffect,
}

impl Program {
    /// Whether it contains a store.
    #[must_use]
    pub fn stores(&self) -> bool {
        self.ops.iter().any(|op| op.code == OpCode::Store)
    }

    /// Checks what `xk.ko` checks at load, for `ivs` slots.
    ///
    /// # Errors
    /// The first rule that is violated, with the index of the operation.
    pub fn check(&self, ivs: usize) -> Result<(), OpError> {
        use OpCode as C;
        if self.ops.is_empty() || self.ops.len() > MAX_OPS {
            return Err(OpError::Length(self.ops.len()));
        }
        let mut written = 0u32;
        let mut effect = false;
        for (i, op) in self.ops.iter().enumerate() {
            if ![1, 2, 4, 8].contains(&op.width) {
                return Err(OpError::Width(i, op.width));
            }
            let read = |t: u8| {
                if t < MAX_TEMPS && written & (1 << t) != 0 {
                    Ok(())
                } else {
                    Err(OpError::Temp(i, t))
                }
            };
            let bad_imm = Err(OpError::Immediate(i, op.imm));
            let reads: &[u8] = match op.code {
                C::Iv | C::Imm | C::Reg | C::Flags | C::Text | C::PerCpu => &[],
                C::Load | C::Not | C::Neg | C::Sext | C::FlagsLogic | C::Cond => &[op.a],
                C::SetReg | C::SetFlags => &[op.a],
                C::Select => &[op.a, op.b, op.c],
                _ => &[op.a, op.b],
            };
            for &t in reads {
                read(t)?;
            }
            match op.code {
                C::Iv if op.imm < 0 || op.imm as usize >= ivs => return bad_imm,
                C::Reg if op.a > 15 || op.b > 1 || (op.b == 1 && (op.width != 1 || op.a > 3)) => {
                    return Err(OpError::Register(i, op.a));
                }
                C::Sext if ![1, 2, 4].contains(&op.b) || op.b >= op.width => {
                    return Err(OpError::Width(i, op.b));
                }
                C::Cond if !(0..16).contains(&op.imm) => return bad_imm,
                C::SetFlags if op.imm == 0 || op.imm & !(STATUS_FLAGS as i64) != 0 => return bad_imm,
                C::Text | C::PerCpu if op.width != 8 => return Err(OpError::Width(i, op.width)),
                C::Text if op.imm < 0 || op.b > 1 || op.c > 8 => return bad_imm,
                // regs->sp is not restored by an optimised probe.
                C::SetReg if op.dst > 15 || op.dst == 4 => return Err(OpError::Register(i, op.dst)),
                _ => {}
            }
            match op.code {
                C::SetReg | C::SetFlags | C::Store => effect = true,
                _ if op.dst >= MAX_TEMPS => return Err(OpError::Temp(i, op.dst)),
                _ => written |= 1 << op.dst,
            }
        }
        if effect {
            Ok(())
        } else {
            Err(OpError::NoEffect)
        }
    }
}
