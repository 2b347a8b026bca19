//! One translation unit of a table: its functions, its fits, its spans, its data.
//!
//! The unit's deployed build says which instructions there are and what is live; the
//! table says what is to be done. A span is proved by executing its instructions with
//! the table's fits in place of the constants, and the table's operations behind them.

use std::collections::{BTreeMap, BTreeSet};

use xk_lift::insn::{Insn, Node};
use xk_lift::object::Function;
use xk_lift::probe;
use xk_table::{CriticalSpan, DataSite, Fit, Function as TableFunction, InPlace, ProbeKind, ScopeTable, When};

use super::mismatch::NotRebuilt;
use super::unproved::{Difference, NoProbe, NoUpdate, NotHeld, OutOfOrder, Unobserved, Unproved};
use super::{At, Claim, Proved, Report};
use crate::analyse::Input;
use crate::constants::Field;
use crate::constants::Seeds;
use crate::context::Context;
use crate::data::{self, DataSeeds};
use crate::identity::{first_difference, locate, whole_unit};
use crate::in_place;
use crate::order;
use crate::ordering::{memory_rules, Update};
use crate::program::links;
use crate::program::{execute, iv_term};
use crate::proof::{obligation, Solver};
use crate::study::Study;
use crate::twin::Twin;
use crate::words::fit_words;

/// A module as tables and /proc/kallsyms spell it.
pub(super) fn spelled(module: Option<&str>) -> Option<String> {
    module.map(|name| name.replace('-', "_"))
}

/// A unit under verification.
pub(super) struct Check<'a> {
    pub input: &'a Input<'a>,
    pub solvers: &'a [Solver],
    pub table: &'a ScopeTable,
    pub values: &'a [i64],
    pub study: &'a Study,
}

/// A span of the table in the unit's deployed build.
struct Placed<'a> {
    index: usize,
    span: &'a CriticalSpan,
    function: &'a Function,
}

impl Placed<'_> {
    fn node(&self, offset: u32) -> Node {
        Node { section: self.function.start.section, offset: self.function.start.offset + u64::from(offset) }
    }

    fn at(&self) -> At {
        At::Span(self.index)
    }

    fn covers(&self, node: Node) -> bool {
        self.node(self.span.start) <= node && node < self.node(self.span.end)
    }
}

/// Where a span lies in its basic block, as indices.
#[derive(Debug, Clone, Copy)]
struct Extent {
    block: Node,
    start: usize,
    probed: usize,
    /// Where the update runs.
    point: usize,
    /// Whether the probed instruction is skipped.
    skips: bool,
}

impl Check<'_> {
    /// Adds what does not hold to `report`; returns the table's functions of V.
    pub fn run(&self, report: &mut Report) -> (Seeds, DataSeeds) {
        let functions = self.functions(report);
        self.whole(report);
        let spans: Vec<Placed<'_>> = self
            .table
            .spans
            .iter()
            .enumerate()
            .filter_map(|(index, span)| {
                let function = functions.get(&span.function)?;
                Some(Placed { index, span, function })
            })
            .collect();
        let seeds = self.seeds(&spans, report);
        self.complete(&spans, &seeds, report);
        self.data(report);
        let context = Context {
            object: &self.study.base,
            flow: self.study.flow(),
            seeds: &seeds,
            source: &self.study.source,
            default: self.input.default,
            range: self.table.values.hull(),
            solver: self.input.solver,
        };
        let mut extents = BTreeMap::new();
        for placed in &spans {
            // With other constants than the code has, a proof shows nothing.
            if report.at(placed.at()).next().is_some() {
                continue;
            }
            match self.extent(&context, placed) {
                Ok(extent) => _ = extents.insert(placed.index, extent),
                Err(detail) => report.fault(placed.at(), Claim::Proof, detail.to_string()),
            }
        }
        for placed in &spans {
            let Some(extent) = extents.get(&placed.index) else { continue };
            if let Err(detail) = in_order(placed.index, *extent, &extents) {
                report.fault(placed.at(), Claim::Proof, detail.to_string());
            }
            if let Err(detail) = self.probe(placed) {
                report.fault(placed.at(), Claim::Probe, detail.to_string());
            }
            match self.prove(&context, placed, *extent) {
                Ok(proofs) => report.proofs[placed.index] = proofs,
                Err(detail) => report.fault(placed.at(), Claim::Proof, detail.to_string()),
            }
            if let Some(Err(detail)) = placed.span.in_place.as_ref().map(|held| self.in_place(&context, placed, held)) {
                report.fault(placed.at(), Claim::Proof, format!("in place: {detail}"));
            }
        }
        let data = self.data_seeds();
        (seeds, data)
    }

    /// The table's functions of V in data, by section and offset in the deployed build.
    fn data_seeds(&self) -> DataSeeds {
        let (study, module) = (self.study, spelled(self.study.module.as_deref()));
        let ours = self.table.data.iter().filter(|data| data.source == study.source && data.module == module);
        let place = |data: &DataSite| {
            let symbol = study.base.data_symbols.get(&data.symbol)?;
            Some(((symbol.section.clone(), symbol.offset + u64::from(data.offset)), data.fit))
        };
        ours.filter_map(place).collect()
    }

    fn is_of_this_unit(&self, function: &TableFunction) -> bool {
        function.source == self.study.source && function.module == spelled(self.study.module.as_deref())
    }

    /// The table's functions of this unit in its deployed build, by index; each must
    /// be where the rebuilt one is found, with the same bytes and mask.
    fn functions(&self, report: &mut Report) -> BTreeMap<usize, &Function> {
        let object = &self.study.base;
        let mut functions = BTreeMap::new();
        for (index, ours) in self.table.functions.iter().enumerate().filter(|(_, f)| self.is_of_this_unit(f)) {
            let at = At::Function(index);
            let Some(function) = object.functions.values().find(|f| f.name == ours.symbol) else {
                report.fault(at, Claim::Completeness, format!("{} has no function {}", ours.source, ours.symbol));
                continue;
            };
            functions.insert(index, function);
            // One difference is enough.
            let known = report.at(at).next().is_some();
            if let (Err(difference), false) = (self.identical(ours, function), known) {
                report.fault(at, Claim::Identity, difference.to_string());
            }
        }
        functions
    }

    /// The functions that the table does not name must be the deployed ones, too.
    fn whole(&self, report: &mut Report) {
        let module = self.study.module.as_deref();
        let found = whole_unit(&self.study.base, &self.study.source, module, self.input.deployed);
        if let (Err(refusal), true) = (found, report.faults.iter().all(|fault| fault.claim != Claim::Identity)) {
            report.fault(At::Table, Claim::Identity, refusal.to_string());
        }
    }

    fn identical(&self, ours: &TableFunction, function: &Function) -> Result<(), NotRebuilt> {
        let module = self.study.module.as_deref();
        let found = locate(&self.study.base, function, &self.study.source, module, self.input.deployed)?;
        if (found.text_offset, &found.section) != (ours.text_offset, &ours.section) {
            return Err(NotRebuilt::Elsewhere {
                symbol: ours.symbol.clone(),
                section: found.section,
                offset: found.text_offset,
                table_section: ours.section.clone(),
                table_offset: ours.text_offset,
            });
        }
        let (text, mask, needed) = (ours.text()?, ours.text_mask()?, found.text_mask()?);
        // A table that compares more than is needed is only stricter.
        if let Some(at) = (0..needed.len()).find(|&i| mask.get(i).is_none_or(|byte| needed[i] & !byte != 0)) {
            return Err(NotRebuilt::NotCompared { symbol: ours.symbol.clone(), at });
        }
        match first_difference(&text, &mask, &found.text()?) {
            None => Ok(()),
            Some(at) => Err(NotRebuilt::Byte { symbol: ours.symbol.clone(), at }),
        }
    }

    /// The constants of the unit with the table's fits. What a line of a span marks
    /// must be what was observed there; what was observed need not be marked twice.
    fn seeds(&self, spans: &[Placed<'_>], report: &mut Report) -> Seeds {
        let mut seeds = Seeds::new();
        for placed in spans {
            for line in &placed.span.assembly {
                let node = placed.node(line.offset);
                let Some(insn) = self.study.base.insns.get(&node).filter(|insn| insn.text() == line.text) else {
                    let detail = format!("+{:#x} is not `{}`", line.offset, line.text);
                    report.fault(placed.at(), Claim::Identity, detail);
                    continue;
                };
                let marked = line.iv.and_then(|slot| placed.span.ivs.get(slot));
                let found = match marked {
                    Some(fit) => self.constants(placed.span, insn, fit),
                    None => Ok(Seeds::new()),
                };
                let found = found.and_then(|found| match line.order {
                    Some(order) => order::with(&found, insn.node, order).ok_or(Unobserved::NothingToTest { order }),
                    None => Ok(found),
                });
                match found {
                    Ok(found) => seeds.extend(found),
                    Err(detail) => {
                        report.fault(placed.at(), Claim::Validation, format!("+{:#x}: {detail}", line.offset));
                    }
                }
            }
        }
        seeds
    }

    /// The constants of one instruction, with the table's fits for them.
    fn constants(&self, span: &CriticalSpan, insn: &Insn, marked: &Fit) -> Result<Seeds, Unobserved> {
        let observed = self.study.seeds().into_iter().flatten().filter(|((node, _), _)| *node == insn.node);
        let mut found = Seeds::new();
        let mut last = None;
        for (key, fit) in observed {
            let same = [marked].into_iter().chain(&span.ivs).find(|ours| self.differ(ours, fit).is_none());
            let Some(ours) = same else { return Err(self.difference(marked, fit).into()) };
            found.insert(*key, *ours);
            last = Some(fit);
        }
        match last {
            // What is marked is another constant of the span.
            Some(fit) if !found.values().any(|ours| ours == marked) => Err(self.difference(marked, fit).into()),
            Some(_) => Ok(found),
            // Another value of the same constant, beyond the range, may have shown it.
            None => self.unobserved(insn, marked),
        }
    }

    /// A constant that no value of the table changes: right, if the fit says so.
    fn unobserved(&self, insn: &Insn, marked: &Fit) -> Result<Seeds, Unobserved> {
        let now = marked.apply(self.input.default);
        let constant = self.values.iter().all(|&value| marked.apply(value) == now);
        let holds = |field: &Field| {
            let bits = u32::from(marked.width) * 8;
            self.study.deployed_constant((insn.node, *field)) & (u64::MAX >> (64 - bits)) == now
        };
        match Field::ALL.into_iter().find(holds) {
            Some(field) if constant => Ok(Seeds::from([((insn.node, field), *marked)])),
            _ => Err(Unobserved::Unchanged { marked: *marked }),
        }
    }

    /// The first value for which two fits do not say the same.
    fn differ(&self, ours: &Fit, observed: &Fit) -> Option<i64> {
        let default = [self.input.default];
        let mut values = self.values.iter().chain(&default).copied();
        if ours.width != observed.width {
            return values.next();
        }
        values.find(|&value| ours.apply(value) != observed.apply(value))
    }

    fn difference(&self, ours: &Fit, observed: &Fit) -> Difference {
        let value = self.differ(ours, observed).unwrap_or(self.input.default);
        Difference { ours: *ours, observed: *observed, value }
    }

    /// Whether every constant that was observed belongs to exactly one span.
    fn complete(&self, spans: &[Placed<'_>], seeds: &Seeds, report: &mut Report) {
        let mut told = BTreeSet::new();
        for (key, fit) in self.study.seeds().into_iter().flatten() {
            let place = self.study.place(key.0);
            let covering: Vec<&Placed<'_>> = spans.iter().filter(|placed| placed.covers(key.0)).collect();
            match covering[..] {
                [placed] => {
                    let marked = placed.span.assembly.iter().any(|l| placed.node(l.offset) == key.0 && l.iv.is_some());
                    if !marked && !seeds.contains_key(key) && told.insert(key.0) {
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

    fn data(&self, report: &mut Report) {
        let (study, module) = (self.study, self.study.module.as_deref());
        let ours = |data: &DataSite| data.source == study.source && data.module == spelled(module);
        let found = match data::sites(&study.base, study.data(), &study.source, module, self.input.deployed) {
            Ok(found) => found,
            Err(refusal) => return report.fault(At::Table, Claim::Identity, refusal.to_string()),
        };
        let place =
            |data: &DataSite| (data.symbol.clone(), data.section.clone(), data.section_offset, data.offset, data.width);
        for (index, site) in self.table.data.iter().enumerate().filter(|(_, data)| ours(data)) {
            match found.iter().find(|data| place(data) == place(site)) {
                None => report.fault(At::Data(index), Claim::Validation, "no value changes the data there"),
                Some(data) if self.differ(&site.fit, &data.fit).is_some() => {
                    report.fault(At::Data(index), Claim::Validation, self.difference(&site.fit, &data.fit).to_string());
                }
                Some(_) => {}
            }
        }
        for data in &found {
            if !self.table.data.iter().any(|site| ours(site) && place(site) == place(data)) {
                let detail = format!("{}+{:#x} follows the constant, and is no data site", data.symbol, data.offset);
                report.fault(At::Table, Claim::Completeness, detail);
            }
        }
    }

    /// The indices of a span in its block, or what is impossible about it.
    fn extent(&self, context: &Context<'_>, placed: &Placed<'_>) -> Result<Extent, NoUpdate> {
        let Placed { span, .. } = placed;
        let indirection = &span.indirection;
        let block = context.flow.block(context.object, placed.node(span.start));
        let index = |offset: u32| block.iter().position(|insn| insn.node == placed.node(offset));
        let nothing = |offset: u32| NoUpdate::NoInstruction { offset };
        let start = index(span.start).ok_or_else(|| nothing(span.start))?;
        let probed = index(indirection.offset).ok_or_else(|| nothing(indirection.offset))?;
        if block[probed].raw.len() != usize::from(indirection.insn_len) {
            return Err(NoUpdate::OtherLength { offset: indirection.offset });
        }
        let last = block.iter().position(|insn| insn.next() == placed.node(span.end));
        let last = last.ok_or(NoUpdate::NoEnd { end: span.end })?;
        let point = probed + usize::from(indirection.when != When::Before);
        let seeds: Vec<usize> = (start..=last).filter(|&i| context.is_seed(block[i])).collect();
        let Some(&first) = seeds.first() else { return Err(NoUpdate::NoConstant) };
        if point <= last {
            return Err(NoUpdate::Early { offset: indirection.offset });
        }
        // A fault would leave the block with the constant's old effect.
        let faults = block[first + 1..point].iter().find(|insn| context.object.fixups.contains_key(&insn.node));
        match faults {
            Some(insn) => Err(NoUpdate::MayFault { instruction: insn.text() }),
            None => {
                let skips = indirection.when == When::Instead;
                Ok(Extent { block: block[0].node, start, probed, point, skips })
            }
        }
    }

    /// Whether kprobes accept the probe, and make of it what the table expects.
    fn probe(&self, placed: &Placed<'_>) -> Result<(), NoProbe> {
        let object = &self.study.base;
        let indirection = &placed.span.indirection;
        let insn = &object.insns[&placed.node(indirection.offset)];
        if let Some(reason) = probe::unprobeable(object, placed.function, insn) {
            return Err(NoProbe::Unprobeable { offset: indirection.offset, reason });
        }
        let reason = probe::not_optimised(object, self.study.flow(), placed.function, insn);
        let jump = indirection.when == When::Before && reason.is_none();
        match (jump, indirection.probe) {
            (false, ProbeKind::Jump) => Err(NoProbe::Breakpoint { offset: indirection.offset }),
            _ => Ok(()),
        }
    }

    fn prove(&self, context: &Context<'_>, placed: &Placed<'_>, extent: Extent) -> Result<Vec<Proved>, Unproved> {
        let span = placed.span;
        let block = context.flow.block(context.object, extent.block);
        let mut twin = Twin::new();
        let mut before = None;
        for (insn, index) in block[extent.start..extent.point].iter().zip(extent.start..) {
            if span.indirection.when == When::Instead && index == extent.probed {
                before = Some(twin.actual.clone());
            }
            twin.step(context, insn)?;
        }
        let mut updated = before.unwrap_or_else(|| twin.actual.clone());
        let mut ivs = Vec::new();
        for fit in &span.ivs {
            let iv = iv_term(&mut twin.terms, fit);
            ivs.push(twin.terms.zext(iv, 64));
        }
        let links = links(placed.function, block[extent.start..extent.point].iter().copied());
        execute(&mut twin.terms, &mut updated, &span.indirection.program, &ivs, &links);
        let live = context.live_before(&block, extent.point);
        let query = match &span.only_in_place {
            Some(_) => obligation(&mut twin.terms, &updated, &twin.wanted, live, context.range, &span.ivs),
            None => {
                let update = Update {
                    function: placed.function,
                    block: &block,
                    start: extent.start,
                    point: extent.point,
                    skipped: extent.skips.then_some(extent.probed),
                    program: &span.indirection.program,
                    ivs: &span.ivs,
                    links: &links,
                    live,
                };
                let ordered = memory_rules(context, update)?;
                if ordered.visible != span.visible {
                    return Err(Unproved::Visible(ordered.visible));
                }
                ordered.query
            }
        };
        let mut proofs = Vec::new();
        for solver in self.solvers {
            let offset = span.indirection.offset;
            let millis = solver.refute(&query).map_err(|error| Unproved::by(&solver.name, offset, error))?;
            proofs.push(Proved { solver: solver.name.clone(), millis });
        }
        Ok(proofs)
    }
}

impl Check<'_> {
    /// Whether the instructions that the table names hold the span's values, all of them,
    /// and others in their place do what those would have done.
    fn in_place(&self, context: &Context<'_>, placed: &Placed<'_>, held: &InPlace) -> Result<(), NotHeld> {
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

/// A span begins where the update of the one before it in the same block has run, and
/// an instruction that is skipped carries no other update.
fn in_order(index: usize, extent: Extent, all: &BTreeMap<usize, Extent>) -> Result<(), OutOfOrder> {
    let others = all.iter().filter(|(other, its)| **other != index && its.block == extent.block);
    for (other, its) in others {
        let overlap = its.point <= extent.point && extent.start < its.point;
        if overlap {
            return Err(OutOfOrder::Begins { other: *other });
        }
        if extent.skips && its.probed == extent.probed {
            return Err(OutOfOrder::Skipped { other: *other });
        }
    }
    Ok(())
}
