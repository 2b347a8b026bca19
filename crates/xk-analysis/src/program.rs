//! What the operations of an update do, as bit-vector terms: the other half of
//! the proof obligation. The definitions are those of `kernel/xk/uapi/xk.h`.

use std::collections::BTreeMap;

use xk_lift::insn::{Insn, SymbolRef};
use xk_lift::object::Function;
use xk_lift::state::{arithmetic, Flag, State};
use xk_lift::term::{mask, BinOp, Bits, TermId, Terms};
use xk_table::{Fit, Form, Op, OpCode, Program, Range};

/// The transformed value of `fit` for the unknown V, at its own width. Only the
/// linear form is spelled out; the others are unknowns between the values at the
/// ends of the range ([`iv_bounds`]), which is all that their proofs need.
pub fn iv_term(terms: &mut Terms, fit: &Fit) -> TermId {
    let value = match fit.form {
        Form::Linear => {
            let v = terms.symbol("V", 64);
            let a = terms.constant(fit.a as u64 as u128, 64);
            let b = terms.constant(fit.b as u64 as u128, 64);
            let scaled = terms.bin(BinOp::Mul, v, a);
            terms.bin(BinOp::Add, scaled, b)
        }
        _ => terms.symbol(unknown(fit), 64),
    };
    terms.extract(value, 0, u32::from(fit.width) * 8)
}

/// The transformed value of `fit` for V, 64 bits wide: [`Fit::apply`] as a term.
pub fn exact(terms: &mut Terms, fit: &Fit) -> TermId {
    let v = terms.v();
    let constant = |terms: &mut Terms, value: i64| terms.constant(value as u64 as u128, 64);
    let (a, b) = (constant(terms, fit.a), constant(terms, fit.b));
    match fit.form {
        Form::Linear => {
            let scaled = terms.bin(BinOp::Mul, v, a);
            terms.bin(BinOp::Add, scaled, b)
        }
        Form::Quotient(by) => {
            let scaled = terms.bin(BinOp::Mul, v, a);
            let sum = terms.bin(BinOp::Add, scaled, b);
            let (by, one, zero) = (constant(terms, by.max(1)), constant(terms, 1), constant(terms, 0));
            let (quotient, rest) = (terms.bin(BinOp::SDiv, sum, by), terms.bin(BinOp::SRem, sum, by));
            let (negative, less) = (terms.bin(BinOp::Slt, rest, zero), terms.bin(BinOp::Sub, quotient, one));
            terms.ite(negative, less, quotient)
        }
        Form::Power(bits) => {
            let (count, limit) = (constant(terms, bits.min(63).into()), constant(terms, 63));
            let shifted = terms.bin(BinOp::Shl, a, v);
            let shifted = terms.bin(BinOp::Sar, shifted, count);
            let value = terms.bin(BinOp::Add, shifted, b);
            let defined = terms.bin(BinOp::Ult, v, limit);
            terms.ite(defined, value, b)
        }
        Form::Log2 => {
            let mut log = constant(terms, 0);
            for position in 1..63 {
                let set = arithmetic::bit(terms, v, position);
                let here = constant(terms, position.into());
                log = terms.ite(set, here, log);
            }
            let scaled = terms.bin(BinOp::Mul, log, a);
            let value = terms.bin(BinOp::Add, scaled, b);
            let zero = constant(terms, 0);
            let positive = terms.bin(BinOp::Slt, zero, v);
            terms.ite(positive, value, b)
        }
        Form::Inverse => {
            let zero = constant(terms, 0);
            let quotient = terms.bin(BinOp::UDiv, a, v);
            let value = terms.bin(BinOp::Add, quotient, b);
            let positive = terms.bin(BinOp::Slt, zero, v);
            terms.ite(positive, value, b)
        }
    }
}

/// What the unknown is called that stands for a transformed value that is not linear.
pub(crate) fn unknown(fit: &Fit) -> String {
    format!("V {:?} {} {}", fit.form, fit.a, fit.b)
}

/// The unknowns that stand for the non-linear ones among `fits`, each with its
/// smallest and largest value over `range`; every form is monotonic in V.
pub fn iv_bounds(terms: &mut Terms, fits: &[Fit], range: Range) -> Vec<(TermId, i64, i64)> {
    let bounds = |fit: &Fit| {
        let whole = Fit { width: 8, ..*fit };
        let (x, y) = (whole.apply(range.min) as i64, whole.apply(range.max) as i64);
        let symbol = terms.symbol(unknown(fit), 64);
        // A quotient without a sign may be on both sides of 2^63.
        if fit.form == Form::Inverse && x.min(y) < 0 {
            return (symbol, i64::MIN, i64::MAX);
        }
        (symbol, x.min(y), x.max(y))
    };
    fits.iter().filter(|fit| fit.form != Form::Linear).map(bounds).collect()
}

/// What the linker wrote into a function: for the offset of each relocated
/// 4-byte field the address that the instruction there uses, and how
/// [`OpCode::Text`] computes it.
pub type Links = BTreeMap<u32, Link>;

/// An address in an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The address.
    pub symbol: SymbolRef,
    /// For a field relative to rip: the bytes of the instruction after it.
    pub behind: Option<u8>,
}

/// The addresses that instructions of `function` use: an update can take them
/// from there.
pub fn links<'a>(function: &Function, insns: impl Iterator<Item = &'a Insn>) -> Links {
    let link = |insn: &Insn| {
        let symbol = insn.displacement.clone()?;
        let field = insn.displacement_at?;
        let behind = insn.raw.len() as u8 - field - 4;
        let relative = insn.raw.is_ip_rel_memory_operand();
        let offset = (insn.node.offset - function.start.offset) as u32 + u32::from(field);
        Some((offset, Link { symbol, behind: relative.then_some(behind) }))
    };
    insns.filter_map(link).collect()
}

/// The unknown that stands for the base of gs in the kernel: where this CPU's
/// per-CPU data are (`arch/x86/include/asm/percpu.h`).
pub const PER_CPU: &str = "GS_base";

/// Executes `program` on `state` with the transformed values `ivs`, each 64
/// bits wide.
///
/// `links` are the addresses that [`OpCode::Text`] reads, by offset in the
/// function. The program must be well-formed ([`Program::check`]); a temporary
/// that was not written, or a link that is not known, reads as an unknown.
pub fn execute(terms: &mut Terms, state: &mut State, program: &Program, ivs: &[TermId], links: &Links) {
    let unwritten = terms.fresh("unwritten", 64);
    let temps = [unwritten; xk_table::MAX_TEMPS as usize];
    let mut run = Run { terms, state, ivs, links, unwritten, temps };
    program.ops.iter().for_each(|op| run.step(op));
}

/// A program under execution. Loads and register reads see the state at the location; only the set operations change it,
/// in order.
struct Run<'a> {
    terms: &'a mut Terms,
    state: &'a mut State,
    ivs: &'a [TermId],
    links: &'a Links,
    /// What a temporary holds that was not written.
    unwritten: TermId,
    temps: [TermId; xk_table::MAX_TEMPS as usize],
}

/// What an operation reads.
#[derive(Clone, Copy)]
struct Operands {
    /// The width of the operation.
    bits: Bits,
    /// The first temporary, and its low bits at this width.
    whole_a: TermId,
    a: TermId,
    b: TermId,
    /// The bit 0.
    zero: TermId,
}

impl Run<'_> {
    fn step(&mut self, op: &Op) {
        let bits: Bits = u32::from(op.width) * 8;
        let (whole_a, whole_b) = (self.temp(op.a), self.temp(op.b));
        let a = self.terms.extract(whole_a, 0, bits);
        let b = self.terms.extract(whole_b, 0, bits);
        let zero = self.terms.constant(0, 1);
        let operands = Operands { bits, whole_a, a, b, zero };
        match self.value(op, operands) {
            Some(value) => self.temps[usize::from(op.dst) % self.temps.len()] = self.terms.zext(value, 64),
            None => self.change(op, operands),
        }
    }

    fn temp(&self, number: u8) -> TermId {
        self.temps[usize::from(number) % self.temps.len()]
    }

    /// The result of an operation, unless it changes the state.
    fn value(&mut self, op: &Op, operands: Operands) -> Option<TermId> {
        let Operands { bits, whole_a, a, b, zero } = operands;
        let terms = &mut *self.terms;
        Some(match op.code {
            OpCode::Iv => {
                let iv = self.ivs.get(op.imm as usize).copied().unwrap_or(self.unwritten);
                terms.extract(iv, 0, bits)
            }
            OpCode::Imm => terms.constant(op.imm as u64 as u128 & mask(bits), bits),
            OpCode::Reg if op.b == 1 => self.state.high_byte(terms, usize::from(op.a)),
            OpCode::Reg => self.state.reg(terms, usize::from(op.a), bits),
            OpCode::Flags => flags_word(terms, &self.state.flags),
            OpCode::Load => {
                let address = address(terms, whole_a, op.imm);
                self.state.load(terms, address, bits)
            }
            OpCode::Add => terms.bin(BinOp::Add, a, b),
            OpCode::Sub => terms.bin(BinOp::Sub, a, b),
            OpCode::Mul => terms.bin(BinOp::Mul, a, b),
            OpCode::And => terms.bin(BinOp::And, a, b),
            OpCode::Or => terms.bin(BinOp::Or, a, b),
            OpCode::Xor => terms.bin(BinOp::Xor, a, b),
            OpCode::Shl | OpCode::Shr | OpCode::Sar => shift(terms, op.code, a, b),
            OpCode::Not => terms.not(a),
            OpCode::Neg => terms.neg(a),
            OpCode::Sext => {
                let narrow = terms.extract(whole_a, 0, u32::from(op.b) * 8);
                terms.sext(narrow, bits)
            }
            OpCode::Eq => terms.bin(BinOp::Eq, a, b),
            OpCode::Ult => terms.bin(BinOp::Ult, a, b),
            OpCode::Slt => terms.bin(BinOp::Slt, a, b),
            OpCode::Select => self.select(op, operands),
            OpCode::FlagsAdd => {
                let (_, flags) = arithmetic::add(terms, a, b, zero);
                flags_word(terms, &flags)
            }
            OpCode::FlagsSub => {
                let (_, flags) = arithmetic::sub(terms, a, b, zero);
                flags_word(terms, &flags)
            }
            OpCode::FlagsLogic => flags_of_logic(terms, a, zero),
            OpCode::Cond => {
                let flags = Flag::ALL.map(|flag| terms.extract(whole_a, flag.bit(), 1));
                arithmetic::condition(terms, &flags, op.imm as u8 & 15)
            }
            OpCode::Text => self.link(op),
            OpCode::PerCpu => terms.symbol(PER_CPU, 64),
            OpCode::SetReg | OpCode::SetFlags | OpCode::Store => return None,
        })
    }

    /// The condition is the whole temporary, whatever the width.
    fn select(&mut self, op: &Op, Operands { bits, whole_a, b, .. }: Operands) -> TermId {
        let nothing = self.terms.constant(0, 64);
        let is_zero = self.terms.bin(BinOp::Eq, whole_a, nothing);
        let whole_c = self.temp(op.c);
        let c = self.terms.extract(whole_c, 0, bits);
        self.terms.ite(is_zero, c, b)
    }

    /// An address from an instruction.
    fn link(&mut self, op: &Op) -> TermId {
        let relative = (op.b == 1).then_some(op.c);
        match self.links.get(&(op.imm as u32)).filter(|link| link.behind == relative) {
            Some(link) => link.symbol.term(self.terms),
            None => self.terms.fresh("unlinked", 64),
        }
    }

    /// Executes an operation that changes the state.
    fn change(&mut self, op: &Op, Operands { whole_a, a, b, .. }: Operands) {
        match op.code {
            OpCode::SetReg => self.state.set_reg(self.terms, usize::from(op.dst), a),
            OpCode::SetFlags => {
                for flag in Flag::ALL {
                    if op.imm as u64 & flag.mask() != 0 {
                        let value = self.terms.extract(whole_a, flag.bit(), 1);
                        self.state.set_flag(flag, value);
                    }
                }
            }
            OpCode::Store => {
                let address = address(self.terms, whole_a, op.imm);
                self.state.store(self.terms, address, b);
            }
            _ => {}
        }
    }
}

/// The flags that a logical operation with this result leaves.
fn flags_of_logic(terms: &mut Terms, result: TermId, zero: TermId) -> TermId {
    let mut flags = [zero; 6];
    for (flag, value) in arithmetic::result_flags(terms, result) {
        flags[flag as usize] = value;
    }
    flags_word(terms, &flags)
}

fn address(terms: &mut Terms, base: TermId, offset: i64) -> TermId {
    let offset = terms.constant(offset as u64 as u128, 64);
    terms.bin(BinOp::Add, base, offset)
}

/// Count and value have the width of the operation; at or beyond it everything
/// is out.
fn shift(terms: &mut Terms, code: OpCode, value: TermId, count: TermId) -> TermId {
    let op = match code {
        OpCode::Shl => BinOp::Shl,
        OpCode::Shr => BinOp::Shr,
        _ => BinOp::Sar,
    };
    terms.bin(op, value, count)
}

/// The six flags at their places in rflags, everything else 0, 64 bits.
fn flags_word(terms: &mut Terms, flags: &[TermId; 6]) -> TermId {
    let mut word = terms.constant(0, 0);
    let mut at = 0;
    for flag in Flag::ALL {
        let gap = flag.bit() - at;
        if gap > 0 {
            let zeros = terms.constant(0, gap);
            word = join(terms, zeros, word);
        }
        word = join(terms, flags[flag as usize], word);
        at = flag.bit() + 1;
    }
    terms.zext(word, 64)
}

fn join(terms: &mut Terms, high: TermId, low: TermId) -> TermId {
    if terms.bits(low) == 0 {
        high
    } else {
        terms.concat(high, low)
    }
}
