//! Whether the numbers that a table marks in instructions are those that follow V.
//!
//! In: the spans of a unit, and the functions of V that were observed in its builds. Out: the constants of the unit with
//! the *table's* functions of V, which the proofs use. A number that a span marks must have been observed with a function
//! of V that agrees for all compiled values. Every number that was observed must lie in exactly one span.
//!
//! Observation is limited to the compiled values. This is enough here: that the functions hold for the other values that
//! the table accepts is checked by the theorem, with the same functions.

use std::collections::BTreeSet;

use xk_lift::insn::Insn;
use xk_table::{AsmLine, CriticalSpan, Fit};

use super::super::unproved::Unobserved;
use super::super::{At, Claim, Report};
use super::{Check, Placed};
use crate::constants::{Field, Seeds};
use crate::order;
use crate::words::fit_words;

impl Check<'_> {
    /// Checks each line of each span; returns the constants of the unit with the table's functions of V.
    pub(super) fn check_constants(&self, spans: &[Placed<'_>], report: &mut Report) -> Seeds {
        let mut seeds = Seeds::new();
        for placed in spans {
            for line in &placed.span.assembly {
                let node = placed.node(line.offset);
                let Some(insn) = self.study.base.insns.get(&node).filter(|insn| insn.text() == line.text) else {
                    let detail = format!("+{:#x} is not `{}`", line.offset, line.text);
                    report.fault(placed.at(), Claim::Identity, detail);
                    continue;
                };
                match self.of_line(placed.span, line, insn) {
                    Ok(found) => seeds.extend(found),
                    Err(detail) => {
                        report.fault(placed.at(), Claim::Validation, format!("+{:#x}: {detail}", line.offset));
                    }
                }
            }
        }
        seeds
    }

    /// The constants of one line, with the table's functions of V for them.
    fn of_line(&self, span: &CriticalSpan, line: &AsmLine, insn: &Insn) -> Result<Seeds, Unobserved> {
        let found = match line.iv.and_then(|slot| span.ivs.get(slot)) {
            Some(marked) => self.of_instruction(span, insn, marked)?,
            None => Seeds::new(),
        };
        match line.order {
            Some(order) => order::with(&found, insn.node, order).ok_or(Unobserved::NothingToTest { order }),
            None => Ok(found),
        }
    }

    /// The constants of an instruction whose line marks `marked`. A line marks one; the others must be in the span, too.
    fn of_instruction(&self, span: &CriticalSpan, insn: &Insn, marked: &Fit) -> Result<Seeds, Unobserved> {
        let observed = self.study.seeds().into_iter().flatten().filter(|((node, _), _)| *node == insn.node);
        let mut found = Seeds::new();
        let mut last = None;
        for (key, fit) in observed {
            let same = [marked].into_iter().chain(&span.ivs).find(|ours| self.agree(ours, fit));
            let Some(ours) = same else { return Err(self.difference(marked, fit).into()) };
            found.insert(*key, *ours);
            last = Some(fit);
        }
        match last {
            // What is marked is another constant of the span.
            Some(fit) if !found.values().any(|ours| ours == marked) => Err(self.difference(marked, fit).into()),
            Some(_) => Ok(found),
            None => self.unobserved(insn, marked),
        }
    }

    /// A constant that none of the compiled values changes. It may follow V all the same: another value, which the table
    /// does not accept, may have shown it. So the marked function must give what the instruction holds, for all of them.
    fn unobserved(&self, insn: &Insn, marked: &Fit) -> Result<Seeds, Unobserved> {
        let now = marked.apply(self.input.default);
        let is_constant = self.values.iter().all(|&value| marked.apply(value) == now);
        let holds_it = |field: &Field| {
            let bits = u32::from(marked.width) * 8;
            self.study.deployed_constant((insn.node, *field)) & (u64::MAX >> (64 - bits)) == now
        };
        match Field::ALL.into_iter().find(holds_it) {
            Some(field) if is_constant => Ok(Seeds::from([((insn.node, field), *marked)])),
            _ => Err(Unobserved::Unchanged { marked: *marked }),
        }
    }

    /// Checks that every constant that was observed belongs to exactly one span. `seeds` are those of the table.
    pub(super) fn check_completeness(&self, spans: &[Placed<'_>], seeds: &Seeds, report: &mut Report) {
        let mut reported = BTreeSet::new();
        for (key, fit) in self.study.seeds().into_iter().flatten() {
            let place = self.study.place(key.0);
            let covering: Vec<&Placed<'_>> = spans.iter().filter(|placed| placed.covers(key.0)).collect();
            match covering[..] {
                [placed] => {
                    let marks = |line: &AsmLine| placed.node(line.offset) == key.0 && line.iv.is_some();
                    let is_marked = placed.span.assembly.iter().any(marks);
                    // If a line marks the instruction, that line was checked already.
                    if !is_marked && !seeds.contains_key(key) && reported.insert(key.0) {
                        let detail = format!("{place} holds {}, and no line says so", fit_words(fit));
                        report.fault(placed.at(), Claim::Completeness, detail);
                    }
                }
                [] => {
                    let detail = format!("{place} holds {}, and no span covers it", fit_words(fit));
                    report.fault(At::Table, Claim::Completeness, detail);
                }
                [_, second, ..] => {
                    report.fault(second.at(), Claim::Completeness, format!("{place} belongs to another span, too"));
                }
            }
        }
    }
}
