//! How the stack frames of two builds are compared.
//!
//! A frame is a part of memory, since its address may get out. But the compiler keeps there
//! also what it ran out of registers for, and two builds do so differently. Which parts
//! nothing else can reach is known where no address gets out at all (whatever is assumed of
//! the frame then fails if one does), or from what the compiler says (`notes.rs`).
//!
//! Where a frame lies cannot be told by a program that does not depend on the addresses of
//! its variables. So the other build's stack pointer is taken to be such that the local
//! variables of both lie at the same addresses.

use std::collections::BTreeSet;

use xk_lift::notes::Layout;
use xk_lift::state::{Frame, Private, ALIGNED};
use xk_lift::term::{TermId, Terms};

use super::relation::{BASE, OTHER};

/// Bytes of a register that is pushed.
const PUSHED: i64 = 8;

/// What is assumed of the frames.
#[derive(Debug, Clone)]
pub(crate) enum Frames {
    /// Both are parts of memory, and have the same layout.
    Together,
    /// No address in them escapes.
    Apart,
    /// These layouts: local variables are parts of memory.
    Mixed([Layout; 2]),
}

impl Frames {
    /// The frames at the entry.
    pub fn empty(&self, terms: &mut Terms) -> Option<[Frame; 2]> {
        match self {
            Self::Together => None,
            Self::Apart => Some(["base", "other"].map(|side| {
                let tops = ["top of the", "aligned top of the"].map(|top| terms.symbol(format!("{top} {side}"), 64));
                Frame::new(tops, Private::All)
            })),
            Self::Mixed(layouts) => {
                let shift = |of: fn(&Layout) -> i64| PUSHED * (of(&layouts[OTHER]) - of(&layouts[BASE]));
                let shifts = [shift(|layout| layout.saved), shift(|layout| layout.saved_aligned.unwrap_or(0))];
                let both = ["top of both", "aligned top of both"].map(|top| terms.symbol(top, 64));
                let tops = |terms: &mut Terms, side: usize| {
                    [0, 1].map(|part| moved(terms, both[part], if side == OTHER { shifts[part] } else { 0 }))
                };
                let (ours, theirs) = (tops(terms, BASE), tops(terms, OTHER));
                let frame = |tops, layout| Frame::new(tops, Private::Bytes(private(layout)));
                Some([frame(ours, &layouts[BASE]), frame(theirs, &layouts[OTHER])])
            }
        }
    }
}

fn moved(terms: &mut Terms, top: TermId, by: i64) -> TermId {
    let by = terms.constant(by as u64 as u128, 64);
    terms.bin(xk_lift::term::BinOp::Add, top, by)
}

/// Saved registers and spill slots.
fn private(layout: &Layout) -> BTreeSet<i64> {
    let mut bytes: BTreeSet<i64> = (-PUSHED * layout.saved..0).collect();
    let mut locals = -PUSHED * layout.saved;
    if let Some(saved) = layout.saved_aligned {
        locals = ALIGNED - PUSHED * saved;
        bytes.extend(locals..ALIGNED);
    }
    bytes.extend(layout.spills.iter().map(|offset| locals + offset));
    bytes
}
