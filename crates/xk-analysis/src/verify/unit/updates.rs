//! Whether the updates of a table do what the instructions with V would have done.
//!
//! In: spans of a unit, and the unit's constants with the table's functions of V. Out: who proved each update, or the fault.
//! A span must lie in one basic block, and its update must run after all of its constants and before control can leave the
//! block. The update is proved by executing the span's instructions with the functions of V in place of the constants, and
//! the table's operations after the deployed instructions. Nothing of the table is generated again: what runs in the kernel
//! is what is proved.

use std::collections::BTreeMap;

use xk_lift::insn::{Insn, Node};
use xk_lift::probe;
use xk_table::{InPlace, ProbeKind, When};

use super::super::unproved::{NoProbe, NoUpdate, NotHeld, OutOfOrder, Unproved};
use super::super::{Claim, Proved, Report};
use super::{Check, Placed};
use crate::constants::Seeds;
use crate::context::Context;
use crate::in_place;
use crate::ordering::{memory_rules, Update};
use crate::program::{execute, iv_term, links};
use crate::proof::obligation;
use crate::twin::Twin;

/// Where a span lies in its basic block, as indices.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// The first instruction of the block.
    block: Node,
    start: usize,
    /// The instruction that carries the update.
    probed: usize,
    when: When,
}

impl Extent {
    /// Where the update runs.
    fn point(self) -> usize {
        self.probed + usize::from(self.when != When::Before)
    }

    /// The instruction that the update runs instead of.
    fn skipped(self) -> Option<usize> {
        (self.when == When::Instead).then_some(self.probed)
    }
}

impl Check<'_> {
    /// Checks the updates of spans without a fault so far.
    pub(super) fn check_updates(&self, spans: &[Placed<'_>], seeds: &Seeds, report: &mut Report) {
        let context = Context {
            object: &self.study.base,
            flow: self.study.flow(),
            seeds,
            source: &self.study.source,
            default: self.input.default,
            range: self.table.values.hull(),
            solver: self.input.solver,
        };
        let mut extents = BTreeMap::new();
        for placed in spans {
            if report.at(placed.at()).next().is_some() {
                continue;
            }
            match extent(&context, placed) {
                Ok(extent) => _ = extents.insert(placed.index, extent),
                Err(detail) => report.fault(placed.at(), Claim::Proof, detail.to_string()),
            }
        }
        for placed in spans {
            if let Some(&extent) = extents.get(&placed.index) {
                if let Err(detail) = in_order(placed.index, extent, &extents) {
                    report.fault(placed.at(), Claim::Proof, detail.to_string());
                }
                self.check_update(&context, placed, extent, report);
            }
        }
    }

    fn check_update(&self, context: &Context<'_>, placed: &Placed<'_>, extent: Extent, report: &mut Report) {
        if let Err(detail) = self.is_probeable(placed) {
            report.fault(placed.at(), Claim::Probe, detail.to_string());
        }
        match self.prove(context, placed, extent) {
            Ok(proofs) => report.proofs[placed.index] = proofs,
            Err(detail) => report.fault(placed.at(), Claim::Proof, detail.to_string()),
        }
        let held = placed.span.in_place.as_ref();
        if let Some(Err(detail)) = held.map(|held| self.is_in_place(context, placed, held)) {
            report.fault(placed.at(), Claim::Proof, format!("in place: {detail}"));
        }
    }

    /// Whether kprobes accept the probe, and make of it what the table expects.
    fn is_probeable(&self, placed: &Placed<'_>) -> Result<(), NoProbe> {
        let object = &self.study.base;
        let indirection = &placed.span.indirection;
        let insn = &object.insns[&placed.node(indirection.offset)];
        if let Some(reason) = probe::unprobeable(object, placed.function, insn) {
            return Err(NoProbe::Unprobeable { offset: indirection.offset, reason });
        }
        let reason = probe::not_optimised(object, self.study.flow(), placed.function, insn);
        let is_jump = indirection.when == When::Before && reason.is_none();
        match (is_jump, indirection.probe) {
            (false, ProbeKind::Jump) => Err(NoProbe::Breakpoint { offset: indirection.offset }),
            _ => Ok(()),
        }
    }

    /// Has each solver prove the update.
    fn prove(&self, context: &Context<'_>, placed: &Placed<'_>, extent: Extent) -> Result<Vec<Proved>, Unproved> {
        let block = context.flow.block(context.object, extent.block);
        let query = query(context, placed, extent, &block)?;
        let mut proofs = Vec::new();
        for solver in self.solvers {
            let offset = placed.span.indirection.offset;
            let millis = solver.refute(&query).map_err(|error| Unproved::by(&solver.name, offset, error))?;
            proofs.push(Proved { solver: solver.name.clone(), millis });
        }
        Ok(proofs)
    }

    /// Whether the instructions that the table names hold all of the span's values, and other values in their place do
    /// what the instructions with V would have done.
    fn is_in_place(&self, context: &Context<'_>, placed: &Placed<'_>, held: &InPlace) -> Result<(), NotHeld> {
        let span = placed.span;
        let block = context.flow.block(context.object, placed.node(span.start));
        let start = block.iter().position(|insn| insn.node == placed.node(span.start));
        let last = block.iter().position(|insn| insn.next() == placed.node(span.end));
        let (Some(start), Some(last)) = (start, last) else { return Err(NotHeld::NoBlock) };
        let (patches, range) = in_place::find(context, placed.function, &block[start..=last], &span.ivs)?;
        if patches != held.patches {
            return Err(NotHeld::Elsewhere { patches });
        }
        if held.range.min < range.min || range.max < held.range.max {
            return Err(NotHeld::NoRoom { claimed: held.range, room: range });
        }
        let query = in_place::query(context, &block, start..last + 1, &patches, held.range, &span.ivs)?;
        for solver in self.solvers {
            solver.refute(&query).map_err(|error| NotHeld::NotProved { solver: solver.name.clone(), error })?;
        }
        Ok(())
    }
}

/// The indices of a span in its block, or what is impossible about it.
fn extent(context: &Context<'_>, placed: &Placed<'_>) -> Result<Extent, NoUpdate> {
    let Placed { span, .. } = placed;
    let indirection = &span.indirection;
    let block = context.flow.block(context.object, placed.node(span.start));
    let index = |offset: u32| {
        let found = block.iter().position(|insn| insn.node == placed.node(offset));
        found.ok_or(NoUpdate::NoInstruction { offset })
    };
    let start = index(span.start)?;
    let probed = index(indirection.offset)?;
    if block[probed].raw.len() != usize::from(indirection.insn_len) {
        return Err(NoUpdate::OtherLength { offset: indirection.offset });
    }
    let last = block.iter().position(|insn| insn.next() == placed.node(span.end));
    let last = last.ok_or(NoUpdate::NoEnd { end: span.end })?;
    let extent = Extent { block: block[0].node, start, probed, when: indirection.when };
    let Some(first) = (start..=last).find(|&i| context.is_seed(block[i])) else { return Err(NoUpdate::NoConstant) };
    if extent.point() <= last {
        return Err(NoUpdate::Early { offset: indirection.offset });
    }
    // A fault would leave the block with the constant's old effect.
    let faulting = block[first + 1..extent.point()].iter().find(|insn| context.object.fixups.contains_key(&insn.node));
    match faulting {
        Some(insn) => Err(NoUpdate::MayFault { instruction: insn.text() }),
        None => Ok(extent),
    }
}

/// The negated obligation of the table's update.
fn query(context: &Context<'_>, placed: &Placed<'_>, extent: Extent, block: &[&Insn]) -> Result<String, Unproved> {
    let (span, point) = (placed.span, extent.point());
    let program = &span.indirection.program;
    let mut twin = Twin::new();
    let mut before_skipped = None;
    for (insn, index) in block[extent.start..point].iter().zip(extent.start..) {
        if extent.skipped() == Some(index) {
            before_skipped = Some(twin.actual.clone());
        }
        twin.step(context, insn)?;
    }
    let mut updated = before_skipped.unwrap_or_else(|| twin.actual.clone());
    let mut ivs = Vec::new();
    for fit in &span.ivs {
        let iv = iv_term(&mut twin.terms, fit);
        ivs.push(twin.terms.zext(iv, 64));
    }
    let links = links(placed.function, block[extent.start..point].iter().copied());
    execute(&mut twin.terms, &mut updated, program, &ivs, &links);
    let live = context.live_before(block, point);
    if span.only_in_place.is_some() {
        return Ok(obligation(&mut twin.terms, &updated, &twin.wanted, live, context.range, &span.ivs));
    }
    let update = Update {
        function: placed.function,
        block,
        start: extent.start,
        point,
        skipped: extent.skipped(),
        program,
        ivs: &span.ivs,
        links: &links,
        live,
    };
    let ordered = memory_rules(context, update)?;
    if ordered.visible != span.visible {
        return Err(Unproved::Visible(ordered.visible));
    }
    Ok(ordered.query)
}

/// A span begins where the update of the one before it in the same block has run, and an instruction that is skipped
/// carries no other update.
fn in_order(index: usize, extent: Extent, all: &BTreeMap<usize, Extent>) -> Result<(), OutOfOrder> {
    let others = all.iter().filter(|(other, its)| **other != index && its.block == extent.block);
    for (&other, its) in others {
        let is_overlapped = its.point() <= extent.point() && extent.start < its.point();
        if is_overlapped {
            return Err(OutOfOrder::Begins { other });
        }
        if extent.skipped().is_some() && its.probed == extent.probed {
            return Err(OutOfOrder::Skipped { other });
        }
    }
    Ok(())
}
