//! Concrete evaluation of terms: the authority for tests against the
//! processor, and the filter that spares the solver hopeless questions.

use std::collections::HashMap;

use crate::term::{fold, mask, sign_extend, Node, TermId, Terms};

impl Terms {
    /// The value of `t` when each symbol has the value that `symbols` gives
    /// and each byte of the first memory the value that `memory` gives.
    /// The authority for tests against the processor.
    pub fn evaluate(&self, t: TermId, symbols: &dyn Fn(&str) -> u128, memory: &dyn Fn(u64) -> u8) -> u128 {
        let mut cache = HashMap::new();
        self.eval(t, symbols, memory, &mut cache)
    }

    /// As [`Terms::evaluate`], with what `cache` holds of the same symbols and memory taken from there, and
    /// with what is new put into it: a term has the same value whenever it is asked for.
    pub fn eval(
        &self,
        t: TermId,
        symbols: &dyn Fn(&str) -> u128,
        memory: &dyn Fn(u64) -> u8,
        cache: &mut HashMap<TermId, u128>,
    ) -> u128 {
        if let Some(&value) = cache.get(&t) {
            return value;
        }
        let bits = self.bits(t);
        let mut go = |x: TermId| self.eval(x, symbols, memory, cache);
        let value = match *self.node(t) {
            Node::Symbol(ref name) => symbols(name),
            Node::Const(value) => value,
            Node::Bin(op, a, b) => fold(op, go(a), go(b), self.bits(a)),
            Node::Not(a) => !go(a),
            Node::Extract(lo, a) => go(a) >> lo,
            Node::Concat(h, l) => go(h) << self.bits(l) | go(l),
            Node::ZExt(a) | Node::Atomic(a) => go(a),
            Node::SExt(a) => sign_extend(go(a), self.bits(a), bits),
            Node::Ite(c, a, b) => {
                if go(c) == 1 {
                    go(a)
                } else {
                    go(b)
                }
            }
            Node::Memory | Node::Store(..) => 0,
            Node::Load(m, address) => {
                let at = go(address) as u64;
                let mut value = 0u128;
                for i in 0..u64::from(bits / 8) {
                    let byte = self.byte(m, at.wrapping_add(i), symbols, memory, cache);
                    value |= u128::from(byte) << (8 * i);
                }
                value
            }
        } & mask(bits);
        cache.insert(t, value);
        value
    }

    fn byte(
        &self,
        memory: TermId,
        at: u64,
        symbols: &dyn Fn(&str) -> u128,
        first: &dyn Fn(u64) -> u8,
        cache: &mut HashMap<TermId, u128>,
    ) -> u8 {
        match *self.node(memory) {
            Node::Store(before, address, value) => {
                let address = self.eval(address, symbols, first, cache) as u64;
                let distance = at.wrapping_sub(address);
                if distance < u64::from(self.bits(value) / 8) {
                    (self.eval(value, symbols, first, cache) >> (8 * distance)) as u8
                } else {
                    self.byte(before, at, symbols, first, cache)
                }
            }
            Node::Ite(c, a, b) => {
                let taken = if self.eval(c, symbols, first, cache) == 1 { a } else { b };
                self.byte(taken, at, symbols, first, cache)
            }
            _ => first(at),
        }
    }

    /// Whether two memory terms hold the same at every place that either of them stores to. `cache` is as for
    /// [`Terms::eval`].
    pub fn same_memory(
        &self,
        a: TermId,
        b: TermId,
        symbols: &dyn Fn(&str) -> u128,
        first: &dyn Fn(u64) -> u8,
        cache: &mut HashMap<TermId, u128>,
    ) -> bool {
        let mut places = Vec::new();
        for mut at in [a, b] {
            while let Node::Store(before, address, value) = *self.node(at) {
                let address = self.eval(address, symbols, first, cache) as u64;
                places.extend((0..u64::from(self.bits(value) / 8)).map(|i| address.wrapping_add(i)));
                at = before;
            }
        }
        let mut byte = |memory, at| self.byte(memory, at, symbols, first, cache);
        places.into_iter().all(|at| byte(a, at) == byte(b, at))
    }

    /// The byte at `at` of the memory term `memory`, evaluated as in
    /// [`Terms::evaluate`].
    pub fn evaluate_byte(
        &self,
        memory: TermId,
        at: u64,
        symbols: &dyn Fn(&str) -> u128,
        first: &dyn Fn(u64) -> u8,
    ) -> u8 {
        self.byte(memory, at, symbols, first, &mut HashMap::new())
    }
}
