//! The windows of the updates of a scope table.

use std::ops::Range;

use xk_table::{Indirection, ScopeTable, When};

use super::{Reason, Window, Windows, JUMP};
use crate::error::NotRead;
use crate::text::address;
use crate::world::World;

/// An update, and the windows that it may have.
struct WindowChoice {
    function: usize,
    offset: u32,
    insn_len: u8,
    when: When,
    candidates: Vec<Window>,
    chosen: Option<usize>,
    reason: Reason,
}

/// Gives every critical span of `table` the window around its site, or the reason why
/// there is none.
///
/// # Errors
/// A function of the table that is not in `world`.
pub fn fill(world: &World, windows: Windows<'_>, table: &mut ScopeTable) -> Result<(), NotRead> {
    let starts: Vec<u64> = table.functions.iter().map(|f| address(world, f)).collect::<Result<_, _>>()?;
    let mut choices = Vec::new();
    for span in &table.spans {
        let Indirection { offset, insn_len, when, .. } = span.indirection;
        let at = starts.get(span.function).map(|start| start + u64::from(offset));
        let candidates = at.map_or_else(Vec::new, |at| windows.all(at));
        // What does nothing by itself is not what an update is about.
        let reason = at.and_then(|at| windows.at(at).err()).unwrap_or(Reason::Landing);
        let chosen = (!candidates.is_empty()).then_some(0);
        choices.push(WindowChoice { function: span.function, offset, insn_len, when, candidates, chosen, reason });
    }
    separate(&mut choices);
    for (span, choice) in table.spans.iter_mut().zip(choices) {
        let to = &mut span.indirection;
        match choice.window() {
            Some(window) => {
                (to.window, to.window_lead, to.window_reason) = (window.len, window.lead.unsigned_abs(), None)
            }
            None => (to.window, to.window_lead, to.window_reason) = (0, 0, Some(choice.reason.to_string())),
        }
    }
    Ok(())
}

impl WindowChoice {
    fn window(&self) -> Option<Window> {
        self.candidates.get(self.chosen?).copied()
    }

    /// The bytes that it needs with this choice; without any those that an optimised kprobe
    /// covers.
    fn covers(&self, chosen: Option<usize>) -> Range<u32> {
        match chosen.and_then(|chosen| self.candidates.get(chosen)) {
            Some(window) => {
                let start = self.offset.saturating_sub(u32::from(window.lead.unsigned_abs()));
                start..start + u32::from(window.len)
            }
            None => self.offset..self.offset + u32::from(self.insn_len).max(JUMP as u32),
        }
    }

    /// Whether they cannot both have what they would then need. Two updates of one place
    /// share its window.
    fn meets(&self, own: Option<usize>, other: &Self, others: Option<usize>) -> bool {
        let same = (self.offset, self.when) == (other.offset, other.when);
        let (own, others) = (self.covers(own), other.covers(others));
        self.function == other.function && !same && own.start < others.end && others.start < own.end
    }
}

/// Chooses windows that do not meet. Updates that cannot be separated have none: bytes
/// belong to one, whatever backend the other one has.
fn separate(updates: &mut [WindowChoice]) {
    for i in 0..updates.len() {
        for j in 0..i {
            if updates[i].chosen.is_some() && updates[i].meets(updates[i].chosen, &updates[j], updates[j].chosen) {
                let as_they_are = (updates[i].chosen, updates[j].chosen);
                let (own, other) = apart(updates, i, j).unwrap_or(as_they_are);
                (updates[i].chosen, updates[j].chosen) = (own, other);
                for k in [i, j] {
                    if updates[k].chosen.is_none() && !updates[k].candidates.is_empty() {
                        updates[k].reason = Reason::Crowded;
                    }
                }
            }
        }
    }
    let crowded: Vec<usize> = (0..updates.len())
        .filter(|&i| updates[i].chosen.is_some())
        .filter(|&i| {
            (0..updates.len()).any(|j| i != j && updates[i].meets(updates[i].chosen, &updates[j], updates[j].chosen))
        })
        .collect();
    for i in crowded {
        (updates[i].chosen, updates[i].reason) = (None, Reason::Crowded);
    }
}

/// Choices for two updates that meet neither each other nor the rest as it is now; if need
/// be, one of them has none.
fn apart(updates: &[WindowChoice], i: usize, j: usize) -> Option<(Option<usize>, Option<usize>)> {
    let free = |at: usize, chosen: Option<usize>| {
        let rest = updates.iter().enumerate().filter(|(k, _)| *k != i && *k != j);
        !rest.into_iter().any(|(_, other)| updates[at].meets(chosen, other, other.chosen))
    };
    let choices = |update: &WindowChoice| (0..update.candidates.len()).map(Some).chain([None]).collect::<Vec<_>>();
    let (one, other) = (&updates[i], &updates[j]);
    let (ones, others) = (choices(one), choices(other));
    let pairs = ones.iter().flat_map(|a| others.iter().map(move |b| (*a, *b)));
    let possible = pairs.filter(|&(a, b)| !one.meets(a, other, b) && free(i, a) && free(j, b));
    // Both before one, the nearest before the others.
    possible
        .filter(|(a, b)| a.is_some() || b.is_some())
        .min_by_key(|(a, b)| (a.is_none() || b.is_none(), a.unwrap_or(0) + b.unwrap_or(0)))
}
