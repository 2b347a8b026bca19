//! Generating the operations that turn the state which the deployed code left
//! into the state which another value would have left.
//!
//! In: the actual state at a location (terms over the state before the span),
//! the wanted state (the same with V unknown), and what is still live. Out: a
//! [`Program`], or what could not be obtained. The generator may be as simple
//! as it likes: what it produces is proved afterwards.

mod changes;

use std::collections::HashMap;

use xk_lift::flow::Live;
use xk_lift::insn::SymbolRef;
use xk_lift::state::{Flag, FlagsOrigin, State, REGISTERS};
use xk_lift::term::{BinOp, Bits, Node, TermId, Terms};
use xk_table::{Fit, Form, Kind, Op, OpCode, Program, MAX_TEMPS};

use changes::{changed_part, changed_stores};

use crate::program::{iv_term, Links, PER_CPU};

/// What the generator could not express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAvailable(pub String);

/// How a term can be had from the actual state.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// A register, its low bits.
    Register(usize),
    /// Bits 8 to 15 of a register.
    HighByte(usize),
    /// Undo an operation on another available term.
    Undo(Undo, TermId, TermId),
    /// Memory at an address.
    Memory(TermId),
    /// What the linker wrote at an offset of the function, plus a constant.
    Link { offset: u32, behind: Option<u8>, plus: i64 },
}

#[derive(Debug, Clone, Copy)]
enum Undo {
    /// x = available - constant.
    Add,
    /// x = available ^ constant.
    Xor,
    /// x = constant - available.
    SubFrom,
    /// x = ~available.
    Not,
    /// x = available · (1 / constant); an odd constant has an inverse modulo 2^n.
    Mul,
}

/// The operations and how they obtain their inputs.
#[derive(Debug, Clone)]
pub struct Generated {
    /// The operations.
    pub program: Program,
    /// (a), (b) or (c) of the design.
    pub kind: Kind,
}

/// Generates the update from `actual` to `wanted` for what is in `live`
/// (memory always is).
///
/// # Errors
/// [`NotAvailable`] names the first thing that cannot be had at this location.
pub fn generate(
    terms: &mut Terms,
    actual: &State,
    wanted: &State,
    live: Live,
    fits: &[Fit],
    links: &Links,
) -> Result<Generated, NotAvailable> {
    let mut generator = Generator {
        actual,
        sources: HashMap::new(),
        ivs: HashMap::new(),
        bits_of_v: HashMap::new(),
        program: Program::default(),
        cache: HashMap::new(),
        next: 0,
        reads: false,
        inverts: false,
        depth: 0,
    };
    generator.collect_sources(terms);
    generator.collect_links(terms, links);
    for (slot, fit) in fits.iter().enumerate() {
        let term = iv_term(terms, fit);
        generator.ivs.entry(term).or_insert((slot, fit.width));
        if fit.form == Form::Linear && is_odd(u128::from(fit.a as u64)) {
            let v = terms.v();
            let low = terms.extract(v, 0, u32::from(fit.width) * 8);
            generator.bits_of_v.entry(low).or_insert((slot, *fit));
        }
    }
    generator.outputs(terms, actual, wanted, live)
}

struct Generator<'a> {
    actual: &'a State,
    sources: HashMap<TermId, Source>,
    ivs: HashMap<TermId, (usize, u8)>,
    /// Low bits of V, and a transformed value from which they follow: sums of terms are written in another way.
    bits_of_v: HashMap<TermId, (usize, Fit)>,
    program: Program,
    cache: HashMap<TermId, u8>,
    next: u8,
    reads: bool,
    inverts: bool,
    depth: u32,
}

/// Smallest operation width in bytes that holds `bits`.
fn width_of(bits: Bits) -> u8 {
    match bits {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        _ => 8,
    }
}

impl Generator<'_> {
    fn collect_sources(&mut self, terms: &mut Terms) {
        for number in 0..16 {
            let whole = self.actual.regs[number];
            for bits in [64, 32, 16, 8] {
                let part = terms.extract(whole, 0, bits);
                self.add_source(terms, part, Source::Register(number));
            }
            if number < 4 {
                let part = terms.extract(whole, 8, 8);
                self.add_source(terms, part, Source::HighByte(number));
            }
        }
        if let Node::Store(_, address, value) = *terms.node(self.actual.memory) {
            // What was written atomically may be another value by now.
            if !matches!(terms.node(value), Node::Atomic(_)) {
                self.add_source(terms, value, Source::Memory(address));
            }
        }
    }

    /// Addresses are not in registers, but in the instructions that use them.
    fn collect_links(&mut self, terms: &mut Terms, links: &Links) {
        for (&offset, link) in links {
            let (address, base) = (link.symbol.term(terms), SymbolRef { offset: 0, ..link.symbol.clone() }.term(terms));
            for (term, plus) in [(address, 0), (base, link.symbol.offset.wrapping_neg())] {
                self.sources.entry(term).or_insert(Source::Link { offset, behind: link.behind, plus });
            }
        }
    }

    /// Notes that `term` is available, and what follows by undoing it.
    fn add_source(&mut self, terms: &mut Terms, term: TermId, source: Source) {
        if terms.as_const(term).is_some() || self.sources.contains_key(&term) {
            return;
        }
        self.sources.insert(term, source);
        let undone = match *terms.node(term) {
            Node::Bin(BinOp::Add, x, c) if terms.as_const(c).is_some() => Some((x, Undo::Add, c)),
            Node::Bin(BinOp::Xor, x, c) if terms.as_const(c).is_some() => Some((x, Undo::Xor, c)),
            Node::Bin(BinOp::Sub, c, x) if terms.as_const(c).is_some() => Some((x, Undo::SubFrom, c)),
            Node::Bin(BinOp::Mul, x, c) if is_whole(terms.bits(term)) && terms.as_const(c).is_some_and(is_odd) => {
                Some((x, Undo::Mul, c))
            }
            Node::Not(x) => Some((x, Undo::Not, x)),
            _ => None,
        };
        if let Some((x, undo, operand)) = undone {
            self.add_source(terms, x, Source::Undo(undo, term, operand));
        }
    }

    fn emit(&mut self, code: OpCode, width: u8, a: u8, b: u8, c: u8, imm: i64) -> Result<u8, NotAvailable> {
        if self.next >= MAX_TEMPS {
            return Err(NotAvailable("the update needs too many temporaries".into()));
        }
        let dst = self.next;
        self.next += 1;
        self.program.ops.push(Op { code, width, dst, a, b, c, imm });
        Ok(dst)
    }

    fn effect(&mut self, code: OpCode, width: u8, dst: u8, a: u8, b: u8, imm: i64) {
        self.program.ops.push(Op { code, width, dst, a, b, c: 0, imm });
    }

    /// A temporary that holds `term`, zero-extended.
    fn value(&mut self, terms: &mut Terms, term: TermId) -> Result<u8, NotAvailable> {
        if let Some(&temp) = self.cache.get(&term) {
            return Ok(temp);
        }
        self.depth += 1;
        if self.depth > 200 {
            return Err(NotAvailable("the expression is too deep".into()));
        }
        let temp = self.compute(terms, term)?;
        self.depth -= 1;
        self.cache.insert(term, temp);
        Ok(temp)
    }

    fn compute(&mut self, terms: &mut Terms, term: TermId) -> Result<u8, NotAvailable> {
        let bits = terms.bits(term);
        let width = width_of(bits);
        if let Some(value) = terms.as_const(term) {
            return self.emit(OpCode::Imm, width, 0, 0, 0, value as u64 as i64);
        }
        if let Some(&(slot, width)) = self.ivs.get(&term) {
            return self.emit(OpCode::Iv, width, 0, 0, 0, slot as i64);
        }
        if let Some(source) = self.sources.get(&term).copied() {
            return self.fetch(terms, source, width);
        }
        if let Some(&(slot, fit)) = self.bits_of_v.get(&term) {
            return self.v_from(slot, &fit);
        }
        if bits > 64 {
            return Err(NotAvailable(format!("a value of {bits} bits")));
        }
        match terms.node(term).clone() {
            Node::Symbol(name) => self.symbol(terms, &name),
            Node::Bin(op, x, y) => self.binary(terms, op, x, y, bits),
            Node::Not(x) => {
                let x = self.value(terms, x)?;
                let all = self.emit(OpCode::Imm, width, 0, 0, 0, xk_lift::term::mask(bits) as u64 as i64)?;
                self.emit(OpCode::Xor, width, x, all, 0, 0)
            }
            Node::Extract(lo, x) if terms.bits(x) <= 64 => {
                let wide = width_of(terms.bits(x));
                let mut temp = self.value(terms, x)?;
                if lo > 0 {
                    let count = self.emit(OpCode::Imm, wide, 0, 0, 0, i64::from(lo))?;
                    temp = self.emit(OpCode::Shr, wide, temp, count, 0, 0)?;
                }
                let kept = self.emit(OpCode::Imm, wide, 0, 0, 0, xk_lift::term::mask(bits) as u64 as i64)?;
                self.emit(OpCode::And, wide, temp, kept, 0, 0)
            }
            Node::Concat(high, low) => {
                let shift = i64::from(terms.bits(low));
                let (high, low) = (self.value(terms, high)?, self.value(terms, low)?);
                let count = self.emit(OpCode::Imm, width, 0, 0, 0, shift)?;
                let high = self.emit(OpCode::Shl, width, high, count, 0, 0)?;
                self.emit(OpCode::Or, width, high, low, 0, 0)
            }
            Node::ZExt(x) => self.value(terms, x),
            Node::SExt(x) if matches!(terms.bits(x), 8 | 16 | 32) && bits == u32::from(width) * 8 => {
                let from = width_of(terms.bits(x));
                let x = self.value(terms, x)?;
                self.emit(OpCode::Sext, width, x, from, 0, 0)
            }
            Node::Ite(c, x, y) => {
                let (c, x, y) = (self.value(terms, c)?, self.value(terms, x)?, self.value(terms, y)?);
                self.emit(OpCode::Select, width, c, x, y, 0)
            }
            Node::Load(_, address) if bits == u32::from(width) * 8 => self.load(terms, address, width),
            Node::Atomic(_) => Err(NotAvailable("what was accessed atomically may have changed since".into())),
            other => Err(NotAvailable(format!("{other:?}"))),
        }
    }

    /// The low bits of V, from a·V + b with an odd a.
    fn v_from(&mut self, slot: usize, fit: &Fit) -> Result<u8, NotAvailable> {
        let mut temp = self.emit(OpCode::Iv, fit.width, 0, 0, 0, slot as i64)?;
        for (code, operand, neutral) in [(OpCode::Sub, fit.b, 0), (OpCode::Mul, inverse(fit.a as u64) as i64, 1)] {
            if operand != neutral {
                let operand = self.emit(OpCode::Imm, fit.width, 0, 0, 0, operand)?;
                temp = self.emit(code, fit.width, temp, operand, 0, 0)?;
            }
        }
        Ok(temp)
    }

    fn fetch(&mut self, terms: &mut Terms, source: Source, width: u8) -> Result<u8, NotAvailable> {
        self.reads = true;
        match source {
            Source::Register(number) => self.emit(OpCode::Reg, width, number as u8, 0, 0, 0),
            Source::HighByte(number) => self.emit(OpCode::Reg, 1, number as u8, 1, 0, 0),
            Source::Memory(address) => self.load(terms, address, width),
            Source::Link { offset, behind, plus } => {
                let (relative, behind) = (u8::from(behind.is_some()), behind.unwrap_or(0));
                let address = self.emit(OpCode::Text, 8, 0, relative, behind, offset.into())?;
                if plus == 0 {
                    return Ok(address);
                }
                let plus = self.emit(OpCode::Imm, 8, 0, 0, 0, plus)?;
                self.emit(OpCode::Add, 8, address, plus, 0, 0)
            }
            Source::Undo(undo, available, operand) => {
                self.inverts = true;
                let x = self.value(terms, available)?;
                if let Undo::Not = undo {
                    return self.emit(OpCode::Not, width, x, 0, 0, 0);
                }
                if let (Undo::Mul, Some(factor)) = (undo, terms.as_const(operand)) {
                    let inverse = self.emit(OpCode::Imm, width, 0, 0, 0, inverse(factor as u64) as i64)?;
                    return self.emit(OpCode::Mul, width, x, inverse, 0, 0);
                }
                let c = self.value(terms, operand)?;
                match undo {
                    Undo::Add => self.emit(OpCode::Sub, width, x, c, 0, 0),
                    Undo::Xor => self.emit(OpCode::Xor, width, x, c, 0, 0),
                    _ => self.emit(OpCode::Sub, width, c, x, 0, 0),
                }
            }
        }
    }

    fn symbol(&mut self, terms: &Terms, name: &str) -> Result<u8, NotAvailable> {
        if name == PER_CPU {
            return self.emit(OpCode::PerCpu, 8, 0, 0, 0, 0);
        }
        let Some(flag) = Flag::ALL.into_iter().find(|flag| format!("{flag:?}") == name) else {
            return Err(NotAvailable(match REGISTERS.iter().find(|r| **r == name) {
                Some(register) => format!("{register} was overwritten"),
                None => format!("{name} is not known at run time"),
            }));
        };
        if !matches!(terms.node(self.actual.flag(flag)), Node::Symbol(now) if now == name) {
            return Err(NotAvailable(format!("{flag:?} was overwritten")));
        }
        self.reads = true;
        let word = self.emit(OpCode::Flags, 8, 0, 0, 0, 0)?;
        let count = self.emit(OpCode::Imm, 8, 0, 0, 0, i64::from(flag.bit()))?;
        let shifted = self.emit(OpCode::Shr, 8, word, count, 0, 0)?;
        let one = self.emit(OpCode::Imm, 8, 0, 0, 0, 1)?;
        self.emit(OpCode::And, 8, shifted, one, 0, 0)
    }

    fn binary(&mut self, terms: &mut Terms, op: BinOp, x: TermId, y: TermId, bits: Bits) -> Result<u8, NotAvailable> {
        let operand_bits = terms.bits(x);
        let width = width_of(operand_bits);
        let whole = operand_bits == u32::from(width) * 8;
        let (tx, ty) = (self.value(terms, x)?, self.value(terms, y)?);
        let code = match op {
            BinOp::Add => OpCode::Add,
            BinOp::Sub => OpCode::Sub,
            BinOp::Mul => OpCode::Mul,
            BinOp::And => OpCode::And,
            BinOp::Or => OpCode::Or,
            BinOp::Xor => OpCode::Xor,
            BinOp::Shl => OpCode::Shl,
            BinOp::Shr => OpCode::Shr,
            BinOp::Sar => OpCode::Sar,
            BinOp::Eq => OpCode::Eq,
            BinOp::Ult => OpCode::Ult,
            BinOp::Slt => OpCode::Slt,
            BinOp::UDiv | BinOp::URem | BinOp::SDiv | BinOp::SRem => {
                return Err(NotAvailable(format!("{op:?} is no operation of an update")));
            }
        };
        let exact = whole || matches!(op, BinOp::And | BinOp::Or | BinOp::Xor | BinOp::Eq | BinOp::Ult | BinOp::Shr);
        if exact {
            return self.emit(code, width, tx, ty, 0, 0);
        }
        if matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Shl) {
            // Odd widths (a carry) need the surplus cut off.
            let temp = self.emit(code, width, tx, ty, 0, 0)?;
            let kept = self.emit(OpCode::Imm, width, 0, 0, 0, xk_lift::term::mask(bits) as u64 as i64)?;
            return self.emit(OpCode::And, width, temp, kept, 0, 0);
        }
        Err(NotAvailable(format!("{op:?} on {operand_bits} bits")))
    }

    fn load(&mut self, terms: &mut Terms, address: TermId, width: u8) -> Result<u8, NotAvailable> {
        self.reads = true;
        let (base, offset) = self.address(terms, address)?;
        self.emit(OpCode::Load, width, base, 0, 0, offset)
    }

    fn address(&mut self, terms: &mut Terms, address: TermId) -> Result<(u8, i64), NotAvailable> {
        if let Node::Bin(BinOp::Add, base, offset) = *terms.node(address) {
            if let (Some(offset), false) = (terms.as_const(offset), self.sources.contains_key(&address)) {
                return Ok((self.value(terms, base)?, offset as u64 as i64));
            }
        }
        Ok((self.value(terms, address)?, 0))
    }

    fn outputs(
        mut self,
        terms: &mut Terms,
        actual: &State,
        wanted: &State,
        live: Live,
    ) -> Result<Generated, NotAvailable> {
        // First every value, then every effect: an effect must not destroy
        // what a later value reads.
        let mut effects: Vec<(OpCode, u8, u8, u8, u8, i64)> = Vec::new();
        let stores = changed_stores(terms, actual.memory, wanted.memory)
            .ok_or_else(|| NotAvailable("another number of stores".into()))?;
        for (address, value) in stores {
            let (base, offset) = self.address(terms, address)?;
            let width = width_of(terms.bits(value));
            let value = self.value(terms, value)?;
            effects.push((OpCode::Store, width, 0, base, value, offset));
        }
        for number in 0..16 {
            let (old, new) = (actual.regs[number], wanted.regs[number]);
            if old == new || !live.register(number) {
                continue;
            }
            let (bits, term) = changed_part(terms, old, new);
            let value = self.value(terms, term)?;
            effects.push((OpCode::SetReg, width_of(bits), number as u8, value, 0, 0));
        }
        let changed: Vec<Flag> =
            Flag::ALL.into_iter().filter(|&f| live.flag(f) && actual.flag(f) != wanted.flag(f)).collect();
        if !changed.is_empty() {
            let mask: u64 = changed.iter().map(|f| f.mask()).sum();
            let word = self.flags_word(terms, wanted, &changed)?;
            effects.push((OpCode::SetFlags, 8, 0, word, 0, mask as i64));
        }
        for (code, width, dst, a, b, imm) in effects {
            self.effect(code, width, dst, a, b, imm);
        }
        let kind = match (self.inverts, self.reads) {
            (true, _) => Kind::Invert,
            (false, true) => Kind::Rematerialise,
            _ => Kind::Value,
        };
        Ok(Generated { program: self.program, kind })
    }

    fn flags_word(&mut self, terms: &mut Terms, wanted: &State, changed: &[Flag]) -> Result<u8, NotAvailable> {
        match wanted.flags_origin {
            Some(FlagsOrigin::Sub(a, b)) => {
                let width = width_of(terms.bits(a));
                let (a, b) = (self.value(terms, a)?, self.value(terms, b)?);
                self.emit(OpCode::FlagsSub, width, a, b, 0, 0)
            }
            Some(FlagsOrigin::Add(a, b)) => {
                let width = width_of(terms.bits(a));
                let (a, b) = (self.value(terms, a)?, self.value(terms, b)?);
                self.emit(OpCode::FlagsAdd, width, a, b, 0, 0)
            }
            Some(FlagsOrigin::Logic(result)) => {
                let width = width_of(terms.bits(result));
                let result = self.value(terms, result)?;
                self.emit(OpCode::FlagsLogic, width, result, 0, 0, 0)
            }
            None => {
                let mut word = self.emit(OpCode::Imm, 8, 0, 0, 0, 0)?;
                for &flag in changed {
                    let value = self.value(terms, wanted.flag(flag))?;
                    let count = self.emit(OpCode::Imm, 8, 0, 0, 0, i64::from(flag.bit()))?;
                    let placed = self.emit(OpCode::Shl, 8, value, count, 0, 0)?;
                    word = self.emit(OpCode::Or, 8, word, placed, 0, 0)?;
                }
                Ok(word)
            }
        }
    }
}

fn is_whole(bits: Bits) -> bool {
    bits == u32::from(width_of(bits)) * 8
}

fn is_odd(value: u128) -> bool {
    value & 1 == 1
}

/// The inverse of an odd number modulo 2^64: each round doubles the bits that are right.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |guess, _| guess.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(guess))))
}
