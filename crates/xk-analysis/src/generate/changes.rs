//! What two states differ in: the parts of registers, and the stores.

use xk_lift::term::{Bits, Node, TermId, Terms};

/// The part of a register that must be written so that `old` becomes `new`.
pub(super) fn changed_part(terms: &mut Terms, old: TermId, new: TermId) -> (Bits, TermId) {
    for bits in [8, 16] {
        let rest_old = terms.extract(old, bits, 64 - bits);
        let rest_new = terms.extract(new, bits, 64 - bits);
        if rest_old == rest_new {
            return (bits, terms.extract(new, 0, bits));
        }
    }
    let high = terms.extract(new, 32, 32);
    if terms.as_const(high) == Some(0) {
        return (32, terms.extract(new, 0, 32));
    }
    (64, new)
}

/// The stores whose values differ, given the same stores in the same order.
pub(super) fn changed_stores(terms: &Terms, mut actual: TermId, mut wanted: TermId) -> Option<Vec<(TermId, TermId)>> {
    let mut changed = Vec::new();
    // Stores of an instruction that was not executed.
    let depth = |mut memory| {
        let mut stores = 0;
        while let &Node::Store(before, ..) = terms.node(memory) {
            (memory, stores) = (before, stores + 1);
        }
        stores
    };
    for _ in depth(actual)..depth(wanted) {
        if let &Node::Store(before, address, value) = terms.node(wanted) {
            changed.push((address, value));
            wanted = before;
        }
    }
    while actual != wanted {
        match (terms.node(actual), terms.node(wanted)) {
            (&Node::Store(before_a, address_a, value_a), &Node::Store(before_w, address_w, value_w))
                if address_a == address_w && terms.bits(value_a) == terms.bits(value_w) =>
            {
                if value_a != value_w {
                    changed.push((address_w, value_w));
                }
                (actual, wanted) = (before_a, before_w);
            }
            _ => return None,
        }
    }
    changed.reverse();
    Some(changed)
}
