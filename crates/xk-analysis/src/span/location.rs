//! Where in a basic block an update may run.
//!
//! In: a block, and the group of seeds whose update it is. Out: locations, the best first: those that kprobes turn
//! into a jump, before those that stay breakpoints. Refused: instructions that may not be probed, each with its reason.
//!
//! The order is a preference, because jumps are cheaper. It relies on nothing: any location whose update is proved is
//! right.

use xk_lift::insn::Insn;
use xk_lift::object::Function;
use xk_lift::probe;
use xk_table::{ProbeKind, When};

use super::group::SeedGroup;
use crate::context::Context;

/// A location for the update.
#[derive(Clone)]
pub(super) struct Location {
    /// Index of the instruction that carries the probe.
    pub insn: usize,
    pub when: When,
    pub probe: ProbeKind,
    /// Why the probe stays a breakpoint.
    pub probe_reason: Option<String>,
}

impl Location {
    /// Where the update runs, as an index into the block.
    pub fn point(&self) -> usize {
        self.insn + usize::from(self.when != When::Before)
    }
}

/// The locations of a group.
pub(super) struct Locations {
    /// In the order in which they are tried.
    pub usable: Vec<Location>,
    /// Why other instructions are none.
    pub refused: Vec<String>,
}

impl Context<'_> {
    /// The locations for the update of `group`: before an instruction that follows the last seed, or at the last seed.
    pub(super) fn locations(&self, function: &Function, block: &[&Insn], group: &SeedGroup) -> Locations {
        let mut found = Locations { usable: Vec::new(), refused: Vec::new() };
        for index in group.last_before.into_iter().flat_map(|last| group.end..=last) {
            self.add_before(function, block, index, &mut found);
        }
        self.add_at_last_seed(function, block, group.end - 1, &mut found);
        let rank = |when| match when {
            When::Before => 0,
            When::Instead => 1,
            When::After => 2,
        };
        found.usable.sort_by_key(|location| (location.probe != ProbeKind::Jump, rank(location.when), location.insn));
        found
    }

    fn add_before(&self, function: &Function, block: &[&Insn], index: usize, found: &mut Locations) {
        let insn = block[index];
        if let Some(reason) = probe::unprobeable(self.object, function, insn) {
            return found.refused.push(unprobeable(function, insn, &reason));
        }
        let probe_reason = probe::not_optimised(self.object, self.flow, function, insn);
        let probe = if probe_reason.is_none() { ProbeKind::Jump } else { ProbeKind::Int3 };
        found.usable.push(Location { insn: index, when: When::Before, probe, probe_reason });
    }

    /// Instead of the last seed, or after it. Kprobes execute the instruction at a breakpoint only.
    fn add_at_last_seed(&self, function: &Function, block: &[&Insn], seed: usize, found: &mut Locations) {
        if let Some(reason) = probe::unprobeable(self.object, function, block[seed]) {
            return found.refused.push(unprobeable(function, block[seed], &reason));
        }
        let at_seed = |when, reason: &str| Location {
            insn: seed,
            when,
            probe: ProbeKind::Int3,
            probe_reason: Some(reason.into()),
        };
        found.usable.push(at_seed(When::Instead, "the update runs instead of the instruction"));
        found.usable.push(at_seed(When::After, "the update runs after the instruction"));
    }
}

fn unprobeable(function: &Function, insn: &Insn, reason: &str) -> String {
    format!("{:#x}: {reason}", insn.node.offset - function.start.offset)
}
