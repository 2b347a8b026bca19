//! Terms: building one never changes its value, and the solver is told what
//! the evaluation means.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use xk_analysis::proof::{different, Solver};
use xk_lift::term::{mask, BinOp, Node, TermId, Terms};
use xk_testing::Random;

const OPERATORS: [BinOp; 16] = [
    BinOp::Add,
    BinOp::Sub,
    BinOp::Mul,
    BinOp::And,
    BinOp::Or,
    BinOp::Xor,
    BinOp::Shl,
    BinOp::Shr,
    BinOp::Sar,
    BinOp::Eq,
    BinOp::Ult,
    BinOp::Slt,
    BinOp::UDiv,
    BinOp::URem,
    BinOp::SDiv,
    BinOp::SRem,
];

/// A term and its value, computed apart from the arena.
type Known = (TermId, u128);

/// Quotient and remainder by schoolbook division, which knows no special case:
/// a divisor of 0 is never too large.
fn divided(x: u128, y: u128, bits: u32) -> (u128, u128) {
    let (mut quotient, mut rest) = (0u128, 0u128);
    for position in (0..bits).rev() {
        let carry = rest >> 127;
        rest = rest << 1 | x >> position & 1;
        quotient <<= 1;
        if carry == 1 || rest >= y {
            rest = rest.wrapping_sub(y);
            quotient |= 1;
        }
    }
    (quotient, rest)
}

struct Maker {
    terms: Terms,
    random: Random,
    made: Vec<Known>,
    memory: Vec<(TermId, Vec<(u64, u8)>)>,
    values: Vec<(String, u32, u128)>,
}

fn byte(at: u64) -> u8 {
    Random(at).next_u64() as u8
}

fn signed(value: u128, bits: u32) -> i128 {
    let shift = 128 - bits;
    ((value << shift) as i128) >> shift
}

impl Maker {
    fn new(seed: u64) -> Self {
        let mut this = Self { terms: Terms::new(), random: Random(seed), made: vec![], memory: vec![], values: vec![] };
        for (index, bits) in [64, 64, 64, 32, 16, 8, 1].into_iter().enumerate() {
            let value = u128::from(this.random.value()) & mask(bits);
            let name = format!("x{index}");
            let term = this.terms.symbol(&name, bits);
            this.values.push((name, bits, value));
            this.made.push((term, value));
        }
        let memory = this.terms.memory();
        this.memory.push((memory, vec![]));
        this
    }

    fn constant(&mut self, bits: u32) -> Known {
        let value = match self.random.below(3) {
            0 => self.random.below(9) as u128,
            1 => u128::from(self.random.value()),
            _ => u128::from(self.random.value()) << 64 | u128::from(self.random.value()),
        };
        (self.terms.constant(value, bits), value & mask(bits))
    }

    fn any(&mut self) -> Known {
        // Young terms make deep ones.
        let from = if self.random.below(2) == 0 { self.made.len().saturating_sub(8) } else { 0 };
        let index = from + self.random.below(self.made.len() - from);
        self.made[index]
    }

    /// An operand of this width.
    fn of(&mut self, bits: u32) -> Known {
        if self.random.below(3) == 0 {
            return self.constant(bits);
        }
        let (term, value) = self.any();
        let have = self.terms.bits(term);
        if have == bits {
            (term, value)
        } else if have > bits {
            let lo = if self.random.below(2) == 0 { 0 } else { self.random.below((have - bits) as usize + 1) as u32 };
            (self.terms.extract(term, lo, bits), value >> lo & mask(bits))
        } else if self.random.below(2) == 0 {
            (self.terms.zext(term, bits), value)
        } else {
            (self.terms.sext(term, bits), signed(value, have) as u128 & mask(bits))
        }
    }

    fn address(&mut self) -> Known {
        // A few bases with small offsets, so that stores meet loads.
        let index = self.random.below(3);
        let (base, value) = self.made[index];
        let offset = self.random.below(24) as u128;
        let constant = self.terms.constant(offset, 64);
        (self.terms.bin(BinOp::Add, base, constant), (value + offset) & mask(64))
    }

    fn bin(&mut self) -> Known {
        let op = self.random.pick(&OPERATORS);
        let (a, x) = self.any();
        let bits = self.terms.bits(a);
        let ((a, x), (b, y)) = if self.random.below(6) == 0 { ((a, x), (a, x)) } else { ((a, x), self.of(bits)) };
        let ((a, x), (b, y)) = if self.random.below(2) == 0 { ((b, y), (a, x)) } else { ((a, x), (b, y)) };
        let whole = y >= u128::from(bits);
        let value = match op {
            BinOp::Add => x.wrapping_add(y),
            BinOp::Sub => x.wrapping_sub(y),
            BinOp::Mul => x.wrapping_mul(y),
            BinOp::And => x & y,
            BinOp::Or => x | y,
            BinOp::Xor => x ^ y,
            BinOp::Shl => {
                if whole {
                    0
                } else {
                    x << y
                }
            }
            BinOp::Shr => {
                if whole {
                    0
                } else {
                    x >> y
                }
            }
            BinOp::Sar => (signed(x, bits) >> y.min(u128::from(bits) - 1)) as u128,
            BinOp::Eq => u128::from(x == y),
            BinOp::Ult => u128::from(x < y),
            BinOp::Slt => u128::from(signed(x, bits) < signed(y, bits)),
            // SMT-LIB defines the signed operators by the unsigned ones.
            BinOp::UDiv => divided(x, y, bits).0,
            BinOp::URem => divided(x, y, bits).1,
            BinOp::SDiv | BinOp::SRem => {
                let negative = |value: u128| value >> (bits - 1) & 1 == 1;
                let negated = |value: u128| value.wrapping_neg() & mask(bits);
                let size = |value| if negative(value) { negated(value) } else { value };
                let (q, r) = divided(size(x), size(y), bits);
                match op {
                    BinOp::SDiv if negative(x) != negative(y) => negated(q),
                    BinOp::SDiv => q,
                    _ if negative(x) => negated(r),
                    _ => r,
                }
            }
        };
        (self.terms.bin(op, a, b), value & mask(if op.is_comparison() { 1 } else { bits }))
    }

    fn read(&self, writes: &[(u64, u8)], at: u64) -> u8 {
        writes.iter().rev().find(|(address, _)| *address == at).map_or_else(|| byte(at), |(_, value)| *value)
    }

    fn make(&mut self) {
        let made = match self.random.below(13) {
            0 => {
                let (a, x) = self.any();
                let bits = self.terms.bits(a);
                (self.terms.not(a), !x & mask(bits))
            }
            1 => {
                let (a, x) = self.any();
                let bits = self.terms.bits(a);
                (self.terms.neg(a), x.wrapping_neg() & mask(bits))
            }
            2 => {
                let (a, x) = self.any();
                let ((b, y), bits) = {
                    let k = self.any();
                    (k, self.terms.bits(a))
                };
                let low = self.terms.bits(b);
                if bits + low > 128 {
                    return;
                }
                (self.terms.concat(a, b), x << low | y)
            }
            3 => {
                let bits = self.random.pick(&[1, 8, 16, 32, 64, 65, 128]);
                self.of(bits)
            }
            4 => {
                let (c, z) = self.of(1);
                let (a, x) = self.any();
                let (b, y) = self.of(self.terms.bits(a));
                (self.terms.ite(c, a, b), if z == 1 { x } else { y })
            }
            5 => {
                let ((address, at), bits) = (self.address(), self.random.pick(&[8, 16, 32, 64]));
                let (value, x) = self.of(bits);
                let (memory, mut writes) = self.memory.last().cloned().unwrap();
                writes.extend((0..bits / 8).map(|i| ((at as u64).wrapping_add(i.into()), (x >> (8 * i)) as u8)));
                let memory = self.terms.store(memory, address, value);
                self.memory.push((memory, writes));
                return;
            }
            6 | 7 => {
                let ((address, at), bits) = (self.address(), self.random.pick(&[8, 16, 32, 64]));
                let index = self.random.below(self.memory.len());
                let (memory, writes) = self.memory[index].clone();
                let value = (0..bits / 8)
                    .map(|i| u128::from(self.read(&writes, (at as u64).wrapping_add(i.into()))) << (8 * i))
                    .sum();
                (self.terms.load(memory, address, bits), value)
            }
            8 => {
                let (a, x) = self.any();
                (self.terms.atomic(a), x)
            }
            _ => self.bin(),
        };
        self.made.push(made);
    }

    fn value_of(&self, name: &str) -> u128 {
        self.values.iter().find(|(n, ..)| n == name).map(|(_, _, value)| *value).unwrap()
    }
}

#[test]
fn building_a_term_keeps_its_value() {
    for seed in 0..400 {
        let mut maker = Maker::new(seed);
        for _ in 0..60 {
            maker.make();
            let &(term, value) = maker.made.last().unwrap();
            let found = maker.terms.evaluate(term, &|name| maker.value_of(name), &byte);
            assert_eq!(found, value, "seed {seed}: {:?} of {} bits", maker.terms.node(term), maker.terms.bits(term));
        }
        let (memory, writes) = maker.memory.last().unwrap();
        for (at, _) in writes {
            let found = maker.terms.evaluate_byte(*memory, *at, &|name| maker.value_of(name), &byte);
            assert_eq!(found, maker.read(writes, *at), "seed {seed}");
        }
    }
}

/// For the state in which it was evaluated, the solver finds the same value.
#[test]
fn the_solver_means_what_the_evaluation_does() {
    let solver = Solver::z3(20).expect("z3 is needed: apt-get install z3");
    for seed in 1000..1012 {
        let mut maker = Maker::new(seed);
        (0..60).for_each(|_| maker.make());
        let here = maker.values.clone().into_iter().fold(None, |here: Option<TermId>, (name, bits, value)| {
            let symbol = maker.terms.symbol(name, bits);
            let constant = maker.terms.constant(value, bits);
            let equal = maker.terms.bin(BinOp::Eq, symbol, constant);
            Some(here.map_or(equal, |h| maker.terms.bin(BinOp::And, h, equal)))
        });
        // Loads from the first memory are left out: the solver has no bytes for it.
        // So are atomic accesses: the solver must not know what they give.
        let unknown = |terms: &Terms, t: TermId| {
            let mut work = vec![t];
            let mut seen = std::collections::HashSet::new();
            while let Some(t) = work.pop() {
                if matches!(terms.node(t), Node::Memory | Node::Atomic(_)) {
                    return true;
                }
                work.extend(terms.children(t).into_iter().filter(|c| seen.insert(*c)));
            }
            false
        };
        let known: Vec<Known> = maker.made.iter().filter(|(t, _)| !unknown(&maker.terms, *t)).copied().collect();
        let pairs = |maker: &mut Maker, wrong: u128| -> Vec<(TermId, TermId)> {
            known
                .iter()
                .filter_map(|&(term, value)| {
                    let bits = maker.terms.bits(term);
                    let constant = maker.terms.constant(value ^ wrong, bits);
                    let guarded = maker.terms.ite(here.unwrap(), term, constant);
                    (guarded != constant).then_some((guarded, constant))
                })
                .collect()
        };
        let right = pairs(&mut maker, 0);
        assert!(!right.is_empty(), "seed {seed}");
        solver.refute(&different(&maker.terms, &right)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let wrong = pairs(&mut maker, 1);
        assert!(solver.refute(&different(&maker.terms, &wrong[..1])).is_err(), "seed {seed}");
    }
}
