//! Addresses that cannot lie in the function's own stack frame.
//!
//! A value is *foreign* when it is computed only from what was there before an address in the
//! frame got out: arguments, other registers at the entry, addresses that the linker chose,
//! and what memory held while no such address was stored or passed on. A program that does
//! not depend on where its frames lie cannot compute an address in the frame from those.

use std::collections::HashMap;

use super::{Node, TermId, Terms};

/// Prefix of the names of unknowns that are foreign.
pub const FOREIGN: &str = "foreign ";

/// What is known of the function's own frame.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnFrame {
    /// Symbols that addresses in it are counted from, with the distance below which they are.
    tops: Vec<(TermId, i64)>,
    /// Whether memory, as it was first, may hold an address in it.
    escaped: bool,
    known: HashMap<TermId, bool>,
}

impl Terms {
    /// From here on, an address below `top` is one in the function's own frame. Above it are
    /// the return address and arguments, which the caller wrote.
    pub fn own_frame(&mut self, top: TermId) {
        let (Some(symbol), offset) = self.base_offset(top) else { return };
        let limit = offset as i64;
        match self.frame.tops.iter_mut().find(|(known, _)| *known == symbol) {
            // The other build's: what is below both.
            Some((_, known)) => *known = limit.min(*known),
            None => self.frame.tops.push((symbol, limit)),
        }
    }

    /// Says whether an address in the frame has got out before.
    pub fn set_escaped(&mut self, escaped: bool) {
        if self.frame.escaped != escaped {
            self.frame.known.clear();
        }
        self.frame.escaped = escaped;
    }

    /// Whether `address` lies in the function's own frame.
    #[must_use]
    pub fn is_own(&self, address: TermId) -> bool {
        let (Some(base), offset) = self.base_offset(address) else { return false };
        self.frame.tops.iter().any(|&(top, limit)| top == base && (offset as i64) < limit)
    }

    /// Whether two accesses cannot overlap, since one is in the own frame and one is not.
    pub(super) fn is_apart(&mut self, a: TermId, b: TermId) -> bool {
        !self.frame.tops.is_empty() && (self.is_own(a) && self.is_foreign(b) || self.is_own(b) && self.is_foreign(a))
    }

    /// Whether `term` is foreign, as is said above.
    pub fn is_foreign(&mut self, term: TermId) -> bool {
        if let Some(&known) = self.frame.known.get(&term) {
            return known;
        }
        let foreign = match *self.node(term) {
            Node::Symbol(ref name) => {
                name == "V"
                    || [FOREIGN, "entry ", "&", "hole ", "argument at "].iter().any(|kind| name.starts_with(kind))
            }
            Node::Load(memory, _) => !self.lets_out(memory),
            Node::Memory | Node::Store(..) => false,
            _ => self.children(term).into_iter().all(|child| self.is_foreign(child)),
        };
        self.frame.known.insert(term, foreign);
        foreign
    }

    /// Whether `memory` may hold an address in the frame.
    pub fn lets_out(&mut self, mut memory: TermId) -> bool {
        while let Node::Store(before, _, value) = *self.node(memory) {
            if !self.is_foreign(value) {
                return true;
            }
            memory = before;
        }
        self.frame.escaped || !matches!(self.node(memory), Node::Memory)
    }
}
