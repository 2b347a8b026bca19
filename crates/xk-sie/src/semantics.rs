//! What an x86-64 instruction does, as bit-vector terms at their real widths.
//!
//! In: a decoded instruction and a [`State`]. Out: the state after it. Flags
//! that the processor leaves undefined become unknowns that equal nothing, so
//! a proof can never depend on them. An instruction that is not covered is an
//! error, never a guess. Source of every rule: Intel SDM vol. 2.

use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

use crate::insn::{Insn, SymbolRef};
use crate::state::{arithmetic, Flag, FlagsOrigin, State, RSP};
use crate::term::{BinOp, Bits, TermId, Terms};

/// The instruction (in words) that the semantics do not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported(pub String);

type Step<T = ()> = Result<T, Unsupported>;

/// Constants of an instruction that stand for a function of V.
#[derive(Debug, Clone, Copy, Default)]
pub struct Substitution {
    /// Instead of the immediate, at the width of the operation (truncated or
    /// already 64 bits wide).
    pub immediate: Option<TermId>,
    /// Instead of the displacement, 64 bits.
    pub displacement: Option<TermId>,
    /// Instead of what is read from a pool of constants, at its width.
    pub pool: Option<TermId>,
}

/// Executes `insn` on `state`.
///
/// # Errors
/// [`Unsupported`] when the instruction, its prefixes or an operand are not covered.
pub fn step(terms: &mut Terms, state: &mut State, insn: &Insn, substitution: Substitution) -> Step {
    Executor { terms, state, insn, raw: &insn.raw, substitution }.run()
}

struct Executor<'a> {
    terms: &'a mut Terms,
    state: &'a mut State,
    insn: &'a Insn,
    raw: &'a Instruction,
    substitution: Substitution,
}

/// Processor number of a general register and whether it is `ah` … `bh`.
pub(crate) fn gpr(register: Register) -> Option<(usize, Bits, bool)> {
    if !register.is_gpr() {
        return None;
    }
    let high = matches!(register, Register::AH | Register::CH | Register::DH | Register::BH);
    Some((register.full_register().number(), register.size() as Bits * 8, high))
}

impl Executor<'_> {
    fn unsupported<T>(&self) -> Step<T> {
        Err(Unsupported(self.insn.text()))
    }

    fn width(&self, operand: u32) -> Step<Bits> {
        match self.raw.op_kind(operand) {
            OpKind::Register => match gpr(self.raw.op_register(operand)) {
                Some((_, bits, _)) => Ok(bits),
                None => self.unsupported(),
            },
            OpKind::Memory => Ok(self.raw.memory_size().size() as Bits * 8),
            _ => self.width(0),
        }
    }

    fn address(&mut self) -> Step<TermId> {
        let raw = self.raw;
        let mut address = match (self.substitution.displacement, &self.insn.displacement) {
            // A symbol stays: what varies is the offset from it.
            (Some(displacement), Some(symbol)) => {
                let base = SymbolRef { name: symbol.name.clone(), offset: 0 }.term(self.terms);
                self.terms.bin(BinOp::Add, base, displacement)
            }
            (None, Some(symbol)) => symbol.term(self.terms),
            (_, None) if raw.is_ip_rel_memory_operand() => return self.unsupported(),
            (Some(displacement), None) => displacement,
            (None, None) => self.terms.constant(u128::from(raw.memory_displacement64()), 64),
        };
        match raw.memory_base() {
            Register::None | Register::RIP => {}
            base => match gpr(base) {
                Some((number, 64, _)) => {
                    address = self.terms.bin(BinOp::Add, self.state.regs[number], address);
                }
                _ => return self.unsupported(),
            },
        }
        if raw.memory_index() != Register::None {
            let Some((number, 64, _)) = gpr(raw.memory_index()) else { return self.unsupported() };
            let scale = self.terms.constant(u128::from(raw.memory_index_scale()), 64);
            let scaled = self.terms.bin(BinOp::Mul, self.state.regs[number], scale);
            address = self.terms.bin(BinOp::Add, address, scaled);
        }
        match raw.segment_prefix() {
            Register::GS | Register::FS => {
                let base = self.terms.symbol(format!("{:?}_base", raw.segment_prefix()), 64);
                address = self.terms.bin(BinOp::Add, address, base);
            }
            _ => {}
        }
        Ok(address)
    }

    fn immediate(&mut self, bits: Bits) -> TermId {
        if let Some(value) = self.substitution.immediate {
            return if self.terms.bits(value) >= bits {
                self.terms.extract(value, 0, bits)
            } else {
                self.terms.zext(value, bits)
            };
        }
        if let Some(symbol) = &self.insn.immediate {
            let value = symbol.term(self.terms);
            return self.terms.extract(value, 0, bits);
        }
        let index = (0..self.raw.op_count()).find(|&i| is_immediate(self.raw.op_kind(i))).unwrap_or(0);
        self.terms.constant(u128::from(self.raw.immediate(index)), bits)
    }

    fn read_as(&mut self, operand: u32, bits: Bits) -> Step<TermId> {
        match self.raw.op_kind(operand) {
            OpKind::Register => {
                let Some((number, width, high)) = gpr(self.raw.op_register(operand)) else {
                    return self.unsupported();
                };
                Ok(if high {
                    self.state.high_byte(self.terms, number)
                } else {
                    self.state.reg(self.terms, number, width)
                })
            }
            OpKind::Memory if self.substitution.pool.is_some() || self.insn.pool.is_some() => {
                let content = self.terms.constant(self.insn.pool.unwrap_or(0).into(), 64);
                let content = self.substitution.pool.unwrap_or(content);
                Ok(self.terms.extract(content, 0, bits))
            }
            OpKind::Memory => {
                let address = self.address()?;
                Ok(self.terms.load(self.state.memory, address, bits))
            }
            kind if is_immediate(kind) => Ok(self.immediate(bits)),
            _ => self.unsupported(),
        }
    }

    fn read(&mut self, operand: u32) -> Step<TermId> {
        let bits = self.width(operand)?;
        self.read_as(operand, bits)
    }

    fn write(&mut self, operand: u32, value: TermId) -> Step {
        match self.raw.op_kind(operand) {
            OpKind::Register => {
                let Some((number, _, high)) = gpr(self.raw.op_register(operand)) else {
                    return self.unsupported();
                };
                if high {
                    self.state.set_high_byte(self.terms, number, value);
                } else {
                    self.state.set_reg(self.terms, number, value);
                }
                Ok(())
            }
            OpKind::Memory => {
                let address = self.address()?;
                self.state.memory = self.terms.store(self.state.memory, address, value);
                Ok(())
            }
            _ => self.unsupported(),
        }
    }

    fn undefined(&mut self, flags: &[Flag]) {
        for &flag in flags {
            let unknown = self.terms.fresh("undefined", 1);
            self.state.set_flag(flag, unknown);
        }
    }

    fn set_result_flags(&mut self, result: TermId) {
        for (flag, value) in arithmetic::result_flags(self.terms, result) {
            self.state.set_flag(flag, value);
        }
    }

    fn logic_flags(&mut self, result: TermId) {
        let zero = self.terms.constant(0, 1);
        self.set_result_flags(result);
        self.state.set_flag(Flag::Cf, zero);
        self.state.set_flag(Flag::Of, zero);
        self.undefined(&[Flag::Af]);
        self.state.flags_origin = Some(FlagsOrigin::Logic(result));
    }

    fn condition(&mut self, code: ConditionCode) -> TermId {
        // iced numbers the condition codes o..g as 1..16 in the order of the encoding.
        arithmetic::condition(self.terms, &self.state.flags, code as u8 - 1)
    }

    fn run(&mut self) -> Step {
        let raw = self.raw;
        if raw.has_lock_prefix() || raw.has_rep_prefix() && raw.mnemonic() != Mnemonic::Nop || raw.has_repne_prefix() {
            return self.unsupported();
        }
        match raw.mnemonic() {
            Mnemonic::Nop | Mnemonic::Endbr64 => Ok(()),
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => self.moves(),
            Mnemonic::Lea => {
                if raw.segment_prefix() != Register::None {
                    return self.unsupported();
                }
                let bits = self.width(0)?;
                let address = self.address()?;
                let value = self.terms.extract(address, 0, bits);
                self.write(0, value)
            }
            Mnemonic::Add | Mnemonic::Adc | Mnemonic::Sub | Mnemonic::Sbb | Mnemonic::Cmp => self.add_sub(),
            Mnemonic::Inc | Mnemonic::Dec => self.inc_dec(),
            Mnemonic::Neg => self.neg(),
            Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test => self.logic(),
            Mnemonic::Not => {
                let value = self.read(0)?;
                let value = self.terms.not(value);
                self.write(0, value)
            }
            Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Shr | Mnemonic::Sar => self.shift(),
            Mnemonic::Imul if raw.op_count() >= 2 => self.imul(),
            Mnemonic::Mul | Mnemonic::Imul => self.wide_multiply(),
            Mnemonic::Bt => self.bit_test(),
            Mnemonic::Push => self.push(),
            Mnemonic::Pop => self.pop(),
            Mnemonic::Cwde | Mnemonic::Cdqe => {
                let bits = if raw.mnemonic() == Mnemonic::Cwde { 32 } else { 64 };
                let half = self.state.reg(self.terms, 0, bits / 2);
                let value = self.terms.sext(half, bits);
                self.state.set_reg(self.terms, 0, value);
                Ok(())
            }
            Mnemonic::Cdq | Mnemonic::Cqo => {
                let bits = if raw.mnemonic() == Mnemonic::Cdq { 32 } else { 64 };
                let value = self.state.reg(self.terms, 0, bits);
                let count = self.terms.constant(u128::from(bits) - 1, bits);
                let sign = self.terms.bin(BinOp::Sar, value, count);
                self.state.set_reg(self.terms, 2, sign);
                Ok(())
            }
            Mnemonic::Xchg if (0..2).all(|i| raw.op_kind(i) == OpKind::Register) => {
                let (a, b) = (self.read(0)?, self.read(1)?);
                self.write(0, b)?;
                self.write(1, a)
            }
            _ if raw.condition_code() != ConditionCode::None => self.conditional(),
            _ => self.unsupported(),
        }
    }

    fn moves(&mut self) -> Step {
        let bits = self.width(0)?;
        let from = self.width(1)?;
        let value = self.read_as(1, from)?;
        let value = match self.raw.mnemonic() {
            Mnemonic::Movzx => self.terms.zext(value, bits),
            Mnemonic::Movsx | Mnemonic::Movsxd => self.terms.sext(value, bits),
            _ => value,
        };
        self.write(0, value)
    }

    fn add_sub(&mut self) -> Step {
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

    fn inc_dec(&mut self) -> Step {
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

    fn neg(&mut self) -> Step {
        let bits = self.width(0)?;
        let a = self.read(0)?;
        let (zero, none) = (self.terms.constant(0, bits), self.terms.constant(0, 1));
        let (result, flags) = arithmetic::sub(self.terms, zero, a, none);
        self.state.flags = flags;
        self.state.flags_origin = Some(FlagsOrigin::Sub(zero, a));
        self.write(0, result)
    }

    fn logic(&mut self) -> Step {
        let bits = self.width(0)?;
        let (a, b) = (self.read(0)?, self.read_as(1, bits)?);
        let op = match self.raw.mnemonic() {
            Mnemonic::Or => BinOp::Or,
            Mnemonic::Xor => BinOp::Xor,
            _ => BinOp::And,
        };
        let result = self.terms.bin(op, a, b);
        self.logic_flags(result);
        if self.raw.mnemonic() == Mnemonic::Test {
            return Ok(());
        }
        self.write(0, result)
    }

    fn shift(&mut self) -> Step {
        let bits = self.width(0)?;
        let value = self.read(0)?;
        let count = self.read_as(1, 8)?;
        // The processor uses five bits of the count, six for 64-bit operands.
        let used = self.terms.constant(if bits == 64 { 63 } else { 31 }, 8);
        let count = self.terms.bin(BinOp::And, count, used);
        // Wide enough for the value and for every count, so that counts beyond
        // the width of 8- and 16-bit operands behave as on the processor.
        let wide = bits.max(8);
        let n = self.terms.zext(count, wide);
        let op = match self.raw.mnemonic() {
            Mnemonic::Shr => BinOp::Shr,
            Mnemonic::Sar => BinOp::Sar,
            _ => BinOp::Shl,
        };
        let result = self.terms.bin(op, value, n);
        let zero8 = self.terms.constant(0, 8);
        let unchanged = self.terms.bin(BinOp::Eq, count, zero8);
        // The last bit shifted out.
        let one = self.terms.constant(1, wide);
        let before_last = self.terms.bin(BinOp::Sub, n, one);
        let almost = self.terms.bin(op, value, before_last);
        let carry = match op {
            BinOp::Shl => arithmetic::bit(self.terms, almost, bits - 1),
            _ => arithmetic::bit(self.terms, almost, 0),
        };
        let one8 = self.terms.constant(1, 8);
        let by_one = self.terms.bin(BinOp::Eq, count, one8);
        let top = arithmetic::bit(self.terms, value, bits - 1);
        let overflow_by_one = match op {
            BinOp::Shr => top,
            BinOp::Sar => self.terms.constant(0, 1),
            _ => {
                let new_top = arithmetic::bit(self.terms, result, bits - 1);
                self.terms.bin(BinOp::Xor, new_top, carry)
            }
        };
        let unknown = self.terms.fresh("undefined", 1);
        let overflow = self.terms.ite(by_one, overflow_by_one, unknown);
        // CF of shl and shr is undefined when the count reaches the width.
        let limit = self.terms.constant(u128::from(bits), 8);
        let within = self.terms.bin(BinOp::Ult, count, limit);
        let unknown = self.terms.fresh("undefined", 1);
        let carry = if op == BinOp::Sar { carry } else { self.terms.ite(within, carry, unknown) };
        let mut new = self.state.flags;
        for (flag, value) in arithmetic::result_flags(self.terms, result) {
            new[flag as usize] = value;
        }
        new[Flag::Cf as usize] = carry;
        new[Flag::Of as usize] = overflow;
        new[Flag::Af as usize] = self.terms.fresh("undefined", 1);
        for flag in Flag::ALL {
            let old = self.state.flag(flag);
            let value = self.terms.ite(unchanged, old, new[flag as usize]);
            self.state.set_flag(flag, value);
        }
        self.state.flags_origin = None;
        self.write(0, result)
    }

    fn imul(&mut self) -> Step {
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
        self.multiply_flags(product, result);
        self.write(0, result)
    }

    /// CF and OF: the product does not fit `low`, signed; the rest is undefined.
    fn multiply_flags(&mut self, product: TermId, low: TermId) {
        let whole = self.terms.sext(low, self.terms.bits(product));
        let fits = self.terms.bin(BinOp::Eq, product, whole);
        let overflow = self.terms.not(fits);
        self.state.set_flag(Flag::Cf, overflow);
        self.state.set_flag(Flag::Of, overflow);
        self.undefined(&[Flag::Pf, Flag::Af, Flag::Zf, Flag::Sf]);
        self.state.flags_origin = None;
    }

    fn wide_multiply(&mut self) -> Step {
        let bits = self.width(0)?;
        if bits < 32 {
            return self.unsupported();
        }
        let a = self.state.reg(self.terms, 0, bits);
        let b = self.read(0)?;
        let signed = self.raw.mnemonic() == Mnemonic::Imul;
        let widen = |terms: &mut Terms, x| if signed { terms.sext(x, 2 * bits) } else { terms.zext(x, 2 * bits) };
        let (wa, wb) = (widen(self.terms, a), widen(self.terms, b));
        let product = self.terms.bin(BinOp::Mul, wa, wb);
        let (low, high) = (self.terms.extract(product, 0, bits), self.terms.extract(product, bits, bits));
        if signed {
            self.multiply_flags(product, low);
        } else {
            self.multiply_flags(product, low);
            let zero = self.terms.constant(0, bits);
            let fits = self.terms.bin(BinOp::Eq, high, zero);
            let overflow = self.terms.not(fits);
            self.state.set_flag(Flag::Cf, overflow);
            self.state.set_flag(Flag::Of, overflow);
        }
        self.state.set_reg(self.terms, 0, low);
        self.state.set_reg(self.terms, 2, high);
        Ok(())
    }

    fn bit_test(&mut self) -> Step {
        if self.raw.op_kind(0) != OpKind::Register {
            return self.unsupported();
        }
        let bits = self.width(0)?;
        let (value, index) = (self.read(0)?, self.read_as(1, bits)?);
        let used = self.terms.constant(u128::from(bits) - 1, bits);
        let index = self.terms.bin(BinOp::And, index, used);
        let shifted = self.terms.bin(BinOp::Shr, value, index);
        let carry = arithmetic::bit(self.terms, shifted, 0);
        self.state.set_flag(Flag::Cf, carry);
        self.undefined(&[Flag::Of, Flag::Sf, Flag::Af, Flag::Pf]);
        self.state.flags_origin = None;
        Ok(())
    }

    fn push(&mut self) -> Step {
        // Two bytes with an operand-size prefix.
        if self.raw.stack_pointer_increment() != -8 {
            return self.unsupported();
        }
        let value = self.read_as(0, 64)?;
        let eight = self.terms.constant(8, 64);
        let sp = self.terms.bin(BinOp::Sub, self.state.regs[RSP], eight);
        self.state.regs[RSP] = sp;
        self.state.memory = self.terms.store(self.state.memory, sp, value);
        Ok(())
    }

    fn pop(&mut self) -> Step {
        if self.raw.op_kind(0) != OpKind::Register || self.width(0)? != 64 {
            return self.unsupported();
        }
        let sp = self.state.regs[RSP];
        let value = self.terms.load(self.state.memory, sp, 64);
        let eight = self.terms.constant(8, 64);
        self.state.regs[RSP] = self.terms.bin(BinOp::Add, sp, eight);
        self.write(0, value)
    }

    fn conditional(&mut self) -> Step {
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

/// Whether an operand is an immediate.
#[must_use]
pub fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate8_2nd
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
}
