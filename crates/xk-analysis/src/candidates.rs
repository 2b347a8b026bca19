//! Where in a basic block an update may run.
//!
//! In: a block, and the group of seeds whose update it is. Out: locations, the best first: those that kprobes turn
//! into a jump, before those that stay breakpoints. Refused: instructions that may not be probed, each with its reason.

use xk_lift::insn::Insn;
use xk_lift::object::Function;
use xk_lift::probe;
use xk_table::{ProbeKind, When};

use crate::span::{Context, Draft};

/// A location for the update.
#[derive(Clone)]
pub(crate) struct Candidate {
    /// Index of the instruction that carries the probe.
    pub insn: usize,
    pub when: When,
    pub probe: ProbeKind,
    pub reason: Option<String>,
}

impl Candidate {
    /// Where the update runs, as an index into the block.
    pub fn point(&self) -> usize {
        self.insn + usize::from(self.when != When::Before)
    }
}

impl Context<'_> {
    /// The locations in the order in which they are tried, and why others are none.
    pub(crate) fn candidates(
        &self,
        function: &Function,
        block: &[&Insn],
        draft: &Draft,
    ) -> (Vec<Candidate>, Vec<String>) {
        let mut candidates = Vec::new();
        let mut reasons = Vec::new();
        if draft.before_possible {
            for (index, insn) in block.iter().enumerate().take(draft.last + 1).skip(draft.end) {
                match probe::unprobeable(self.object, function, insn) {
                    Some(reason) => reasons.push(format!("{:#x}: {reason}", insn.node.offset - function.start.offset)),
                    None => {
                        let reason = probe::not_optimised(self.object, self.flow, function, insn);
                        let probe = if reason.is_none() { ProbeKind::Jump } else { ProbeKind::Int3 };
                        candidates.push(Candidate { insn: index, when: When::Before, probe, reason });
                    }
                }
            }
        }
        let last_seed = block[draft.end - 1];
        let at_seed = |when, reason: &str| Candidate {
            insn: draft.end - 1,
            when,
            probe: ProbeKind::Int3,
            reason: Some(reason.into()),
        };
        match probe::unprobeable(self.object, function, last_seed) {
            Some(reason) => reasons.push(format!("{:#x}: {reason}", last_seed.node.offset - function.start.offset)),
            None => {
                candidates.push(at_seed(When::Instead, "the update runs instead of the instruction"));
                candidates.push(at_seed(When::After, "the update runs behind the instruction"));
            }
        }
        let rank = |when| match when {
            When::Before => 0,
            When::Instead => 1,
            When::After => 2,
        };
        candidates.sort_by_key(|c| (c.probe != ProbeKind::Jump, rank(c.when), c.insn));
        (candidates, reasons)
    }
}
