//! Loads from and stores to memory terms, simplified where the distance of
//! two addresses is known, and where one lies in the own frame and one cannot.

use std::collections::BTreeSet;

use super::{BinOp, Bits, Node, TermId, Terms};

impl Terms {
    /// Memory after storing `value` (a multiple of 8 bits) at `address`.
    pub fn store(&mut self, memory: TermId, address: TermId, value: TermId) -> TermId {
        // Stores a known distance apart commute: the lower address goes first.
        if let Node::Store(before, at, other) = *self.node(memory) {
            let ((base, offset), (other_base, other_offset)) = (self.base_offset(address), self.base_offset(at));
            let distance = other_offset.wrapping_sub(offset) as i64;
            if base == other_base && distance >= i64::from(self.bits(value) / 8) {
                let first = self.store(before, address, value);
                return self.intern(Node::Store(first, at, other), 0);
            }
            // So do one to the own frame and one elsewhere: that to the frame goes first.
            if self.is_own(address) && self.is_apart(address, at) {
                let first = self.store(before, address, value);
                return self.intern(Node::Store(first, at, other), 0);
            }
        }
        self.intern(Node::Store(memory, address, value), 0)
    }

    /// `bits` bits of memory at `address`. Looks through stores to the same
    /// address, and past stores that are a known distance away.
    pub fn load(&mut self, memory: TermId, address: TermId, bits: Bits) -> TermId {
        if let Node::Store(before, at, value) = *self.node(memory) {
            let width = self.bits(value);
            if at == address && width == bits {
                return value;
            }
            let (base, offset) = self.base_offset(address);
            let (other, other_offset) = self.base_offset(at);
            if base == other {
                let distance = offset.wrapping_sub(other_offset) as i64;
                let before_store = distance.saturating_add(i64::from(bits / 8)) <= 0;
                let after_store = distance >= i64::from(width / 8);
                if before_store || after_store {
                    return self.load(before, address, bits);
                }
                if distance >= 0 && distance * 8 + i64::from(bits) <= i64::from(width) {
                    return self.extract(value, distance as u32 * 8, bits);
                }
            } else if self.is_apart(address, at) {
                return self.load(before, address, bits);
            }
        }
        self.intern(Node::Load(memory, address), bits)
    }

    pub(super) fn base_offset(&self, address: TermId) -> (Option<TermId>, u64) {
        match *self.node(address) {
            Node::Const(value) => (None, value as u64),
            Node::Bin(BinOp::Add, base, offset) => match self.as_const(offset) {
                Some(value) => (Some(base), value as u64),
                None => (Some(address), 0),
            },
            _ => (Some(address), 0),
        }
    }

    /// Whether `part` occurs in `term`.
    #[must_use]
    pub fn mentions(&self, term: TermId, part: TermId) -> bool {
        let (mut seen, mut waiting) = (BTreeSet::new(), vec![term]);
        while let Some(next) = waiting.pop() {
            if next == part {
                return true;
            }
            if seen.insert(next) {
                waiting.extend(self.children(next));
            }
        }
        false
    }

    /// Everything that `term` reads from memory.
    #[must_use]
    pub fn loads(&self, term: TermId) -> BTreeSet<TermId> {
        let (mut loads, mut seen, mut waiting) = (BTreeSet::new(), BTreeSet::new(), vec![term]);
        while let Some(next) = waiting.pop() {
            if !seen.insert(next) {
                continue;
            }
            if matches!(self.node(next), Node::Load(..)) {
                loads.insert(next);
            } else {
                waiting.extend(self.children(next));
            }
        }
        loads
    }

    /// How far `address` lies from `base`, if that is known.
    #[must_use]
    pub fn distance(&self, address: TermId, base: TermId) -> Option<i64> {
        let ((from, offset), (to, other)) = (self.base_offset(address), self.base_offset(base));
        (from == to && from.is_some()).then(|| offset.wrapping_sub(other) as i64)
    }

    /// `value` as an atomic access reads or writes it (see [`Node::Atomic`]).
    pub fn atomic(&mut self, value: TermId) -> TermId {
        match self.node(value) {
            Node::Atomic(_) => value,
            _ => self.intern(Node::Atomic(value), self.bits(value)),
        }
    }
}
