//! Comparing what two builds stored, without asking for arrays: the compiler may merge
//! adjacent stores in one build and not in the other.
//!
//! Stores at known distances from one address form a group, in which the last one counts
//! byte by byte. Groups keep their order, since two addresses may be the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use xk_lift::insn::Node;
use xk_lift::term::{BinOp, Node as Term, TermId, Terms};

use super::claims::Effort;
use super::relation::{BASE, OTHER};
use super::walk::{Pair, Step, Walk, SHOWN};

/// Stores at known distances from one address.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The address that all have in common; `None` where they are numbers.
    pub base: Option<TermId>,
    /// By distance: the value that was stored there, and which of its bytes is there.
    bytes: BTreeMap<i64, (TermId, u32)>,
}

/// The stores that made `memory`, oldest first, and the memory before them.
pub(crate) fn groups(terms: &Terms, mut memory: TermId) -> (Vec<Group>, TermId) {
    let mut stores = Vec::new();
    while let &Term::Store(before, at, value) = terms.node(memory) {
        stores.push((at, value));
        memory = before;
    }
    let mut groups: Vec<Group> = Vec::new();
    for (at, value) in stores.into_iter().rev() {
        let (base, offset) = split(terms, at);
        if groups.last().is_none_or(|group| group.base != base) {
            groups.push(Group { base, bytes: BTreeMap::new() });
        }
        let Some(group) = groups.last_mut() else { continue };
        for byte in 0..terms.bits(value) / 8 {
            group.bytes.insert(offset.wrapping_add(byte.into()), (value, byte));
        }
    }
    (groups, memory)
}

/// An address as another one and a distance from it.
fn split(terms: &Terms, address: TermId) -> (Option<TermId>, i64) {
    match *terms.node(address) {
        Term::Const(value) => (None, value as u64 as i64),
        Term::Bin(BinOp::Add, base, offset) => match terms.as_const(offset) {
            Some(value) => (Some(base), value as u64 as i64),
            None => (Some(address), 0),
        },
        _ => (Some(address), 0),
    }
}

impl Group {
    /// What both hold, in the largest pieces that neither build divides; `None` if they hold
    /// different bytes.
    pub fn pieces(&self, terms: &mut Terms, other: &Self) -> Option<Vec<(TermId, TermId)>> {
        if !self.bytes.keys().eq(other.bytes.keys()) {
            return None;
        }
        let starts = |group: &Self| -> BTreeSet<i64> {
            let begins = |(&at, &(value, byte)): (&i64, &(TermId, u32))| {
                let before = group.bytes.get(&at.wrapping_sub(1)).copied();
                let goes_on = byte > 0 && before == Some((value, byte - 1));
                (!goes_on).then_some(at)
            };
            group.bytes.iter().filter_map(begins).collect()
        };
        let starts: Vec<i64> = starts(self).union(&starts(other)).copied().collect();
        let mut pieces = Vec::new();
        for (index, &from) in starts.iter().enumerate() {
            let to = starts.get(index + 1).copied().unwrap_or(i64::MAX);
            let length = self.bytes.range(from..to).zip(from..).take_while(|((&at, _), next)| at == *next).count();
            let mut cut = |group: &Self| {
                let (value, byte) = group.bytes[&from];
                terms.extract(value, byte * 8, length as u32 * 8)
            };
            pieces.push((cut(self), cut(other)));
        }
        Some(pieces)
    }
}

impl<'a> Walk<'a> {
    /// Both memories are the same; from here on they have one name.
    pub fn same_memory(&mut self, pair: &mut Pair, node: Node) -> Step {
        self.unify(pair);
        let (ours, theirs) = (pair.states[BASE].memory, pair.states[OTHER].memory);
        if ours == theirs {
            return Ok(());
        }
        let difference = self.different_stores(pair, ours, theirs)?;
        if let Some(difference) = difference {
            if !self.claims.equal(&mut self.terms, &mut pair.facts, ours, theirs, Effort::Needed) {
                return self.mismatch(node, format!("memory may differ: {difference}"));
            }
        }
        pair.states[OTHER].memory = ours;
        Ok(())
    }

    /// If both builds stored the same bytes and merely write them as other terms, the other build has them as the deployed
    /// one from here on, also in what it has read of that memory. Otherwise nothing changes.
    pub fn unify(&mut self, pair: &mut Pair) {
        let (ours, theirs) = (pair.states[BASE].memory, pair.states[OTHER].memory);
        let ((all, before), (others, other_before)) = (groups(&self.terms, ours), groups(&self.terms, theirs));
        if ours == theirs || before != other_before || all.len() != others.len() {
            return;
        }
        let mut same = HashMap::new();
        for (group, other) in all.iter().zip(&others) {
            let Some(pieces) = group.pieces(&mut self.terms, other).filter(|_| group.base == other.base) else {
                return;
            };
            for (x, y) in pieces.into_iter().filter(|(x, y)| x != y) {
                if !self.claims.equal(&mut self.terms, &mut pair.facts, x, y, Effort::Welcome) {
                    return;
                }
                if self.terms.as_const(y).is_none() {
                    same.insert(y, x);
                }
            }
        }
        let state = &mut pair.states[OTHER];
        for value in state.regs.iter_mut().chain(&mut state.flags) {
            *value = self.terms.substitute(*value, &same);
        }
        state.memory = ours;
    }

    /// The first difference between what was stored; `None` if there is none. Older stores
    /// come first: what they wrote is read by what follows.
    fn different_stores(&mut self, pair: &mut Pair, ours: TermId, theirs: TermId) -> Step<Option<String>> {
        let ((ours, before), (theirs, other_before)) = (groups(&self.terms, ours), groups(&self.terms, theirs));
        if before != other_before {
            return Ok(Some("memory before them".into()));
        }
        for (group, other) in ours.iter().zip(&theirs) {
            let same_base = match (group.base, other.base) {
                (None, None) => true,
                (Some(x), Some(y)) => self.must_equal(pair, x, y)?,
                _ => false,
            };
            let show =
                |walk: &Self, base: Option<TermId>| base.map_or("a number".into(), |base| walk.terms.show(base, SHOWN));
            let Some(pieces) = group.pieces(&mut self.terms, other).filter(|_| same_base) else {
                let (x, y) = (show(self, group.base), show(self, other.base));
                return Ok(Some(format!("stores to {x} against stores to {y}")));
            };
            for (x, y) in pieces {
                if !self.must_equal(pair, x, y)? {
                    let (x, y, at) = (self.terms.show(x, SHOWN), self.terms.show(y, SHOWN), show(self, group.base));
                    return Ok(Some(format!("{x} against {y}, stored to {at}")));
                }
            }
        }
        let counts = (ours.len(), theirs.len());
        Ok((counts.0 != counts.1).then(|| format!("{} groups of stores against {}", counts.0, counts.1)))
    }
}
