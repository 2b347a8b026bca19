//! What an x86-64 instruction does, as bit-vector terms at their real widths.
//!
//! In: a decoded instruction and a [`State`]. Out: the state after it. Flags
//! that the processor leaves undefined become unknowns that equal nothing, so
//! a proof can never depend on them. An instruction that is not covered is an
//! error, never a guess. Source of every rule: Intel SDM vol. 2, under the name
//! of the instruction.
//!
//! What is said holds where the instruction does not fault. Memory is
//! sequential; what a locked instruction and `xchg` read and write is marked
//! as [`crate::term::Node::Atomic`], because other processors act on it too.

mod arithmetic;
mod bits;
mod divide;
mod exchange;
mod flags;
mod shift;
mod stack;

use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

use crate::insn::{Insn, SymbolRef, OPAQUE_OBJECT};
use crate::state::{arithmetic as status, Flag, FlagsOrigin, State};
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

/// Where the memory operand of `insn` lies, with `displacement` in the place of its own.
///
/// # Errors
/// [`Unsupported`] when the address is not covered.
pub fn operand_address(terms: &mut Terms, state: &State, insn: &Insn, displacement: Option<TermId>) -> Step<TermId> {
    let substitution = Substitution { displacement, ..Substitution::default() };
    let state = &mut state.clone();
    Executor { terms, state, insn, raw: &insn.raw, substitution }.address()
}

/// What an operand of `insn` holds, with `immediate` in the place of its own.
///
/// # Errors
/// [`Unsupported`] when the operand is not covered.
pub fn operand_value(
    terms: &mut Terms,
    state: &mut State,
    insn: &Insn,
    operand: u32,
    immediate: Option<TermId>,
) -> Step<TermId> {
    let substitution = Substitution { immediate, ..Substitution::default() };
    Executor { terms, state, insn, raw: &insn.raw, substitution }.read(operand)
}

struct Executor<'a> {
    terms: &'a mut Terms,
    state: &'a mut State,
    insn: &'a Insn,
    raw: &'a Instruction,
    substitution: Substitution,
}

/// Numbers of the registers that instructions use implicitly.
const RAX: usize = 0;
const RDX: usize = 2;

/// Processor number of a general register and whether it is `ah` … `bh`.
pub fn gpr(register: Register) -> Option<(usize, Bits, bool)> {
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
            OpKind::Memory if self.reads_opaque() => {
                let at = self.insn.displacement.as_ref().map_or(0, |symbol| symbol.offset);
                let v = self.terms.v();
                match u32::try_from(at * 8) {
                    Ok(from) if from + bits <= 64 => Ok(self.terms.extract(v, from, bits)),
                    _ => self.unsupported(),
                }
            }
            OpKind::Memory => {
                let address = self.address()?;
                let value = self.state.load(self.terms, address, bits);
                Ok(if self.is_atomic() { self.terms.atomic(value) } else { value })
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
                let value = if self.is_atomic() { self.terms.atomic(value) } else { value };
                self.state.store(self.terms, address, value);
                Ok(())
            }
            _ => self.unsupported(),
        }
    }

    /// Whether the memory operand is the object that stands for the constant.
    fn reads_opaque(&self) -> bool {
        let named = self.insn.displacement.as_ref().is_some_and(|symbol| symbol.name == OPAQUE_OBJECT);
        named && self.raw.is_ip_rel_memory_operand()
    }

    fn undefined(&mut self, flags: &[Flag]) {
        for &flag in flags {
            let unknown = self.terms.fresh("undefined", 1);
            self.state.set_flag(flag, unknown);
        }
    }

    fn set_result_flags(&mut self, result: TermId) {
        for (flag, value) in status::result_flags(self.terms, result) {
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

    /// Whether the access to memory is indivisible: with a lock prefix, and
    /// `xchg` always.
    fn is_atomic(&self) -> bool {
        self.raw.has_lock_prefix() || self.raw.mnemonic() == Mnemonic::Xchg
    }

    fn run(&mut self) -> Step {
        use Mnemonic as M;
        let raw = self.raw;
        if raw.has_rep_prefix() && raw.mnemonic() != M::Nop || raw.has_repne_prefix() {
            return self.unsupported();
        }
        match raw.mnemonic() {
            // `pause` and prefetching are hints. Fences are not: two states
            // could not tell whether there was one.
            M::Nop | M::Endbr64 | M::Pause => Ok(()),
            M::Prefetcht0 | M::Prefetcht1 | M::Prefetcht2 | M::Prefetchnta | M::Prefetch | M::Prefetchw => Ok(()),
            M::Mov | M::Movzx | M::Movsx | M::Movsxd => self.moves(),
            M::Lea => self.lea(),
            M::Add | M::Adc | M::Sub | M::Sbb | M::Cmp => self.add_sub(),
            M::Inc | M::Dec => self.inc_dec(),
            M::Neg => self.neg(),
            M::And | M::Or | M::Xor | M::Test => self.logic(),
            M::Not => self.complement(),
            M::Shl | M::Sal | M::Shr | M::Sar => self.shift(),
            M::Rol | M::Ror => self.rotate(),
            M::Rcl | M::Rcr => self.rotate_through_carry(),
            M::Shld | M::Shrd => self.double_shift(),
            M::Imul if raw.op_count() >= 2 => self.imul(),
            M::Mul | M::Imul => self.wide_multiply(),
            M::Div | M::Idiv => self.divide(),
            M::Bt | M::Bts | M::Btr | M::Btc => self.bit_test(),
            M::Bsf | M::Bsr => self.bit_scan(),
            M::Tzcnt => self.trailing_zeros(),
            M::Popcnt => self.population(),
            M::Bswap => self.byte_swap(),
            M::Push => self.push(),
            M::Pop => self.pop(),
            M::Leave => self.leave(),
            M::Cbw | M::Cwde | M::Cdqe => self.extend_accumulator(),
            M::Cwd | M::Cdq | M::Cqo => self.sign_to_data(),
            M::Xchg => self.exchange(),
            M::Xadd => self.exchange_add(),
            M::Cmpxchg => self.compare_exchange(),
            M::Clc | M::Stc | M::Cmc | M::Lahf | M::Sahf => self.flag_instruction(),
            _ if raw.condition_code() != ConditionCode::None => self.conditional(),
            _ => self.unsupported(),
        }
    }

    fn lea(&mut self) -> Step {
        if self.raw.segment_prefix() != Register::None {
            return self.unsupported();
        }
        let bits = self.width(0)?;
        let address = self.address()?;
        let value = self.terms.extract(address, 0, bits);
        self.write(0, value)
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

    /// The operand size of `cbw` and its relatives, which have no operands.
    fn implied_width(&self) -> Bits {
        match self.raw.mnemonic() {
            Mnemonic::Cbw | Mnemonic::Cwd => 16,
            Mnemonic::Cwde | Mnemonic::Cdq => 32,
            _ => 64,
        }
    }

    fn extend_accumulator(&mut self) -> Step {
        let bits = self.implied_width();
        let half = self.state.reg(self.terms, RAX, bits / 2);
        let value = self.terms.sext(half, bits);
        self.state.set_reg(self.terms, RAX, value);
        Ok(())
    }

    fn sign_to_data(&mut self) -> Step {
        let bits = self.implied_width();
        let value = self.state.reg(self.terms, RAX, bits);
        let sign = self.sign_of(value);
        self.state.set_reg(self.terms, RDX, sign);
        Ok(())
    }

    /// The sign of `value` in every bit.
    fn sign_of(&mut self, value: TermId) -> TermId {
        let bits = self.terms.bits(value);
        let count = self.terms.constant(u128::from(bits) - 1, bits);
        self.terms.bin(BinOp::Sar, value, count)
    }

    /// Writes `ax`, `dx:ax`, `edx:eax` or `rdx:rax` by halves.
    fn set_wide(&mut self, high: TermId, low: TermId) {
        self.state.set_reg(self.terms, RAX, low);
        if self.terms.bits(high) == 8 {
            self.state.set_high_byte(self.terms, RAX, high);
        } else {
            self.state.set_reg(self.terms, RDX, high);
        }
    }
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
