//! Bit-vector terms: what a register, a flag or memory holds as a function of
//! an unknown starting state and of V.
//!
//! Terms are hash-consed in a [`Terms`] arena, so equal terms have equal
//! [`TermId`]s and most proofs end before a solver is asked. Widths are 1 to
//! 128 bits; a truth value is a term of one bit. Memory is an array from
//! 64-bit addresses to bytes. The rewriting done here is deliberately small:
//! what it does not see, the solver does.

mod fold;
pub mod foreign;
mod memory;
mod op;

use std::collections::HashMap;

pub use fold::{fold, sign_extend};
pub use op::BinOp;

/// Index of a term in its arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TermId(u32);

/// Width in bits.
pub type Bits = u32;

/// What a term is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Node {
    /// An unknown bit-vector.
    Symbol(String),
    /// A known one.
    Const(u128),
    /// Two operands.
    Bin(BinOp, TermId, TermId),
    /// Bitwise complement.
    Not(TermId),
    /// Bits `lo .. lo + width`.
    Extract(u32, TermId),
    /// High part, low part.
    Concat(TermId, TermId),
    /// Zero extension.
    ZExt(TermId),
    /// Sign extension.
    SExt(TermId),
    /// Condition (one bit), then, else.
    Ite(TermId, TermId, TermId),
    /// Memory before the first instruction.
    Memory,
    /// Memory after a little-endian store: memory, address, value.
    Store(TermId, TermId, TermId),
    /// Little-endian load of the term's width: memory, address.
    Load(TermId, TermId),
    /// What an atomic access read or wrote: the same value, of which other
    /// processors may already have made another one. It can be had from a
    /// register that holds it, but neither be read nor be written again, and
    /// no proof takes it for what a plain access reads or writes.
    Atomic(TermId),
}

/// An arena of terms.
#[derive(Debug, Default)]
pub struct Terms {
    nodes: Vec<(Node, Bits)>,
    index: HashMap<(Node, Bits), TermId>,
    fresh: u32,
    frame: foreign::OwnFrame,
}

/// `2^bits - 1`.
#[must_use]
pub fn mask(bits: Bits) -> u128 {
    if bits >= 128 {
        u128::MAX
    } else {
        (1u128 << bits) - 1
    }
}

impl Terms {
    /// An empty arena.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What `t` is made of.
    #[must_use]
    pub fn node(&self, t: TermId) -> &Node {
        &self.nodes[t.0 as usize].0
    }

    /// Width of `t` in bits; 0 for memory.
    #[must_use]
    pub fn bits(&self, t: TermId) -> Bits {
        self.nodes[t.0 as usize].1
    }

    /// The value of `t` if it is known.
    #[must_use]
    pub fn as_const(&self, t: TermId) -> Option<u128> {
        match self.node(t) {
            Node::Const(value) => Some(*value),
            _ => None,
        }
    }

    fn intern(&mut self, node: Node, bits: Bits) -> TermId {
        let next = TermId(self.nodes.len() as u32);
        *self.index.entry((node.clone(), bits)).or_insert_with(|| {
            self.nodes.push((node, bits));
            next
        })
    }

    /// The unknown called `name`; the same name is the same unknown.
    pub fn symbol(&mut self, name: impl Into<String>, bits: Bits) -> TermId {
        self.intern(Node::Symbol(name.into()), bits)
    }

    /// The value of the constant, 64 bits wide.
    pub fn v(&mut self) -> TermId {
        self.symbol("V", 64)
    }

    /// An unknown that is equal to nothing else.
    pub fn fresh(&mut self, what: &str, bits: Bits) -> TermId {
        self.fresh += 1;
        let name = format!("{what}!{}", self.fresh);
        self.symbol(name, bits)
    }

    /// A known value, truncated to `bits`.
    pub fn constant(&mut self, value: u128, bits: Bits) -> TermId {
        self.intern(Node::Const(value & mask(bits)), bits)
    }

    /// The memory before the first instruction.
    pub fn memory(&mut self) -> TermId {
        self.intern(Node::Memory, 0)
    }

    /// `a op b`.
    pub fn bin(&mut self, op: BinOp, a: TermId, b: TermId) -> TermId {
        let bits = self.bits(a);
        debug_assert_eq!(bits, self.bits(b), "operands of {op:?} differ in width");
        let out = if op.is_comparison() { 1 } else { bits };
        if let (Some(x), Some(y)) = (self.as_const(a), self.as_const(b)) {
            return self.constant(fold(op, x, y, bits), out);
        }
        if let Some(term) = self.collect(op, a, b, bits) {
            return term;
        }
        let (a, b) = if op.commutes() && (self.as_const(a).is_some() || (self.as_const(b).is_none() && b < a)) {
            (b, a)
        } else {
            (a, b)
        };
        if a == b {
            if let Some(term) = self.of_equals(op, a, bits) {
                return term;
            }
        }
        if let Some(value) = self.as_const(b) {
            if let Some(term) = self.with_constant(op, a, b, value, bits) {
                return term;
            }
        }
        self.intern(Node::Bin(op, a, b), out)
    }

    /// `a op a`, if it is simpler.
    fn of_equals(&mut self, op: BinOp, a: TermId, bits: Bits) -> Option<TermId> {
        match op {
            BinOp::Sub | BinOp::Xor => Some(self.constant(0, bits)),
            BinOp::And | BinOp::Or => Some(a),
            BinOp::Eq => Some(self.constant(1, 1)),
            BinOp::Ult | BinOp::Slt => Some(self.constant(0, 1)),
            _ => None,
        }
    }

    /// `a op b`, where `b` is the constant `value`, if it is simpler.
    fn with_constant(&mut self, op: BinOp, a: TermId, b: TermId, value: u128, bits: Bits) -> Option<TermId> {
        match op {
            BinOp::Add | BinOp::Sub | BinOp::Or | BinOp::Xor | BinOp::Shl | BinOp::Shr | BinOp::Sar if value == 0 => {
                Some(a)
            }
            BinOp::And | BinOp::Mul if value == 0 => Some(b),
            BinOp::And if value == mask(bits) => Some(a),
            BinOp::Mul | BinOp::UDiv | BinOp::SDiv if value == 1 => Some(a),
            // Compilers shift and mask where the divisor is a power of two.
            BinOp::UDiv if value.is_power_of_two() => {
                let count = self.constant(value.trailing_zeros().into(), bits);
                Some(self.bin(BinOp::Shr, a, count))
            }
            BinOp::URem if value.is_power_of_two() => {
                let low = self.constant(value - 1, bits);
                Some(self.bin(BinOp::And, a, low))
            }
            BinOp::Ult if value == 0 => Some(self.constant(0, 1)),
            BinOp::Eq if bits == 1 => Some(if value == 1 { a } else { self.not(a) }),
            BinOp::Add => self.plus(a, value, bits),
            BinOp::Sub => {
                let negated = value.wrapping_neg() & mask(bits);
                self.plus(a, negated, bits).or_else(|| {
                    let negated = self.constant(negated, bits);
                    Some(self.intern(Node::Bin(BinOp::Add, a, negated), bits))
                })
            }
            _ => None,
        }
    }

    /// `(x + c) + value` as `x + e`, if `a` is such a sum: stack slots meet.
    fn plus(&mut self, a: TermId, value: u128, bits: Bits) -> Option<TermId> {
        let Node::Bin(BinOp::Add, x, c) = *self.node(a) else { return None };
        let c = self.as_const(c)?;
        let sum = self.constant(c.wrapping_add(value), bits);
        Some(self.bin(BinOp::Add, x, sum))
    }

    /// Multiples of one value become one product, whatever they were made of:
    /// `x + 4x`, `(5x) - x` and `(5x)·2` are `5x`, `4x` and `10x`.
    fn collect(&mut self, op: BinOp, a: TermId, b: TermId, bits: Bits) -> Option<TermId> {
        let (leaf, factor) = match op {
            BinOp::Mul => {
                let (x, c) = if self.as_const(a).is_some() { (b, a) } else { (a, b) };
                let (leaf, factor) = self.multiple(x);
                if leaf == x {
                    return None;
                }
                (leaf, factor.wrapping_mul(self.as_const(c)?))
            }
            BinOp::Add | BinOp::Sub => {
                let ((x, m), (y, n)) = (self.multiple(a), self.multiple(b));
                if x != y || self.as_const(x).is_some() {
                    return None;
                }
                (x, if op == BinOp::Add { m.wrapping_add(n) } else { m.wrapping_sub(n) })
            }
            _ => return None,
        };
        let factor = self.constant(factor, bits);
        match self.as_const(factor) {
            Some(0) => Some(factor),
            Some(1) => Some(leaf),
            _ => Some(self.intern(Node::Bin(BinOp::Mul, leaf, factor), bits)),
        }
    }

    /// `term` as a value and the known factor that multiplies it.
    #[must_use]
    pub fn multiple(&self, term: TermId) -> (TermId, u128) {
        match *self.node(term) {
            Node::Bin(BinOp::Mul, x, c) => self.as_const(c).map_or((term, 1), |c| (x, c)),
            Node::Bin(BinOp::Shl, x, c) => match self.as_const(c) {
                Some(c) if c < u128::from(self.bits(term)) => {
                    let (leaf, factor) = self.multiple(x);
                    (leaf, factor << c & mask(self.bits(term)))
                }
                _ => (term, 1),
            },
            _ => (term, 1),
        }
    }

    /// Bitwise complement.
    pub fn not(&mut self, a: TermId) -> TermId {
        let bits = self.bits(a);
        match *self.node(a) {
            Node::Const(value) => self.constant(!value, bits),
            Node::Not(inner) => inner,
            _ => self.intern(Node::Not(a), bits),
        }
    }

    /// Two's complement negation.
    pub fn neg(&mut self, a: TermId) -> TermId {
        let zero = self.constant(0, self.bits(a));
        self.bin(BinOp::Sub, zero, a)
    }

    /// Bits `lo .. lo + bits` of `a`.
    pub fn extract(&mut self, a: TermId, lo: u32, bits: Bits) -> TermId {
        let from = self.bits(a);
        debug_assert!(lo + bits <= from, "extract {lo}+{bits} of {from} bits");
        if lo == 0 && bits == from {
            return a;
        }
        match *self.node(a) {
            Node::Const(value) => self.constant(value >> lo, bits),
            Node::Extract(inner_lo, inner) => self.extract(inner, lo + inner_lo, bits),
            Node::Concat(high, low) => {
                let split = self.bits(low);
                if lo + bits <= split {
                    self.extract(low, lo, bits)
                } else if lo >= split {
                    self.extract(high, lo - split, bits)
                } else {
                    self.intern(Node::Extract(lo, a), bits)
                }
            }
            Node::ZExt(inner) => {
                let width = self.bits(inner);
                if lo + bits <= width {
                    self.extract(inner, lo, bits)
                } else if lo >= width {
                    self.constant(0, bits)
                } else if lo == 0 {
                    self.zext(inner, bits)
                } else {
                    self.intern(Node::Extract(lo, a), bits)
                }
            }
            Node::SExt(inner) if lo + bits <= self.bits(inner) => self.extract(inner, lo, bits),
            // Low bits of a sum depend on low bits alone.
            Node::Bin(op @ (BinOp::Add | BinOp::Sub | BinOp::Mul), x, y) if lo == 0 => {
                let (x, y) = (self.extract(x, 0, bits), self.extract(y, 0, bits));
                self.bin(op, x, y)
            }
            Node::Bin(op @ (BinOp::And | BinOp::Or | BinOp::Xor), x, y) => {
                let (x, y) = (self.extract(x, lo, bits), self.extract(y, lo, bits));
                self.bin(op, x, y)
            }
            _ => self.intern(Node::Extract(lo, a), bits),
        }
    }

    /// `high` above `low`.
    pub fn concat(&mut self, high: TermId, low: TermId) -> TermId {
        let (h, l) = (self.bits(high), self.bits(low));
        if let (Some(x), Some(y)) = (self.as_const(high), self.as_const(low)) {
            return self.constant(x << l | y, h + l);
        }
        if self.as_const(high) == Some(0) {
            return self.zext(low, h + l);
        }
        if let (&Node::Extract(a, x), &Node::Extract(b, y)) = (self.node(high), self.node(low)) {
            if x == y && a == b + l {
                return self.extract(x, b, h + l);
            }
        }
        self.intern(Node::Concat(high, low), h + l)
    }

    /// Zero extension to `bits`.
    pub fn zext(&mut self, a: TermId, bits: Bits) -> TermId {
        let from = self.bits(a);
        match *self.node(a) {
            _ if from == bits => a,
            Node::Const(value) => self.constant(value, bits),
            Node::ZExt(inner) => self.zext(inner, bits),
            _ => self.intern(Node::ZExt(a), bits),
        }
    }

    /// Sign extension to `bits`.
    pub fn sext(&mut self, a: TermId, bits: Bits) -> TermId {
        let from = self.bits(a);
        match *self.node(a) {
            _ if from == bits => a,
            Node::Const(value) => self.constant(sign_extend(value, from, bits), bits),
            Node::SExt(inner) => self.sext(inner, bits),
            Node::ZExt(inner) => self.zext(inner, bits),
            _ => self.intern(Node::SExt(a), bits),
        }
    }

    /// `condition ? then : other`.
    pub fn ite(&mut self, condition: TermId, then: TermId, other: TermId) -> TermId {
        match self.as_const(condition) {
            Some(1) => return then,
            Some(_) => return other,
            None if then == other => return then,
            None => {}
        }
        if self.bits(then) == 1 && self.as_const(then) == Some(1) && self.as_const(other) == Some(0) {
            return condition;
        }
        self.intern(Node::Ite(condition, then, other), self.bits(then))
    }

    /// `term` with every occurrence of a key of `map` replaced by its value.
    pub fn substitute(&mut self, term: TermId, map: &HashMap<TermId, TermId>) -> TermId {
        self.rebuild(term, map, &mut HashMap::new())
    }

    fn rebuild(&mut self, t: TermId, map: &HashMap<TermId, TermId>, done: &mut HashMap<TermId, TermId>) -> TermId {
        if let Some(&known) = map.get(&t).or_else(|| done.get(&t)) {
            return known;
        }
        let bits = self.bits(t);
        let new: Vec<TermId> = self.children(t).into_iter().map(|child| self.rebuild(child, map, done)).collect();
        let result = match *self.node(t) {
            Node::Symbol(_) | Node::Const(_) | Node::Memory => t,
            Node::Bin(op, ..) => self.bin(op, new[0], new[1]),
            Node::Not(_) => self.not(new[0]),
            Node::Extract(lo, _) => self.extract(new[0], lo, bits),
            Node::Concat(..) => self.concat(new[0], new[1]),
            Node::ZExt(_) => self.zext(new[0], bits),
            Node::SExt(_) => self.sext(new[0], bits),
            Node::Atomic(_) => self.atomic(new[0]),
            Node::Ite(..) => self.ite(new[0], new[1], new[2]),
            Node::Store(..) => self.store(new[0], new[1], new[2]),
            Node::Load(..) => self.load(new[0], new[1], bits),
        };
        done.insert(t, result);
        result
    }

    /// The terms that `t` is directly made of.
    #[must_use]
    pub fn children(&self, t: TermId) -> Vec<TermId> {
        match *self.node(t) {
            Node::Symbol(_) | Node::Const(_) | Node::Memory => vec![],
            Node::Bin(_, a, b) | Node::Concat(a, b) | Node::Load(a, b) => vec![a, b],
            Node::Not(a) | Node::Extract(_, a) | Node::ZExt(a) | Node::SExt(a) | Node::Atomic(a) => vec![a],
            Node::Ite(a, b, c) | Node::Store(a, b, c) => vec![a, b, c],
        }
    }

    /// A term in words, for messages: what lies deeper than `depth` is left out.
    pub fn show(&self, t: TermId, depth: u32) -> String {
        let Some(depth) = depth.checked_sub(1) else { return "…".into() };
        let show = |t: &TermId| self.show(*t, depth);
        match self.node(t) {
            Node::Symbol(name) => name.clone(),
            Node::Const(value) => format!("{value:#x}"),
            Node::Bin(op, a, b) => format!("({} {} {})", op.smt(), show(a), show(b)),
            Node::Not(a) => format!("~{}", show(a)),
            Node::Extract(low, a) => format!("{}[{}:{low}]", show(a), low + self.bits(t) - 1),
            Node::Concat(a, b) => format!("{}:{}", show(a), show(b)),
            Node::ZExt(a) => format!("u{}({})", self.bits(t), show(a)),
            Node::SExt(a) => format!("s{}({})", self.bits(t), show(a)),
            Node::Ite(condition, a, b) => format!("({} ? {} : {})", show(condition), show(a), show(b)),
            Node::Memory => "memory".into(),
            Node::Store(memory, a, value) => format!("{}[{} := {}]", show(memory), show(a), show(value)),
            Node::Load(memory, a) => format!("{}[{}]", show(memory), show(a)),
            Node::Atomic(a) => format!("atomic({})", show(a)),
        }
    }
}
