//! Critical spans: where a constant enters the machine state, and where an
//! update can take its place.
//!
//! In: the deployed object, its flow, and the seeds (instructions with a fitted
//! constant). Out: for each group of seeds that form one expression a proved
//! [`CriticalSpan`]. Refused: a group for which no location has a proof.
//!
//! Both executions - with the deployed constants and with V unknown - run side
//! by side over one basic block. What differs between them is *dirty*. A span
//! ends before the first instruction that consumes something dirty and is not
//! itself a seed of the same expression; until then, any instruction can carry
//! the update. The span is extended backwards until the update can be computed
//! from what is still there.

use std::collections::{BTreeMap, BTreeSet};

use xk_lift::flow::{Flow, Live};
use xk_lift::insn::{Insn, Node};
use xk_lift::object::{Function, Object};
use xk_lift::semantics::{step, Substitution};
use xk_lift::state::State;
use xk_table::{AsmLine, CriticalSpan, Fit, Indirection, Place, Proof, Range, Refusal, When, MAX_IVS};

use crate::candidates::Candidate;
use crate::crowd::crowd;
use crate::diff::Field;
use crate::generate::{generate, Generated};
use crate::in_place::in_place;
use crate::order;
use crate::ordering::{memory_rules, Ordered, Update};
use crate::product;
use crate::program::{execute, iv_term, Link, Links};
use crate::proof::{obligation, ProofError, Solver};
use crate::twin::{consumed, Twin, MEMORY};

/// How far a span may reach back for its inputs, in instructions.
const MAX_EXTENSION: usize = 12;

/// The fitted constants of an object.
pub type Seeds = BTreeMap<(Node, Field), Fit>;

/// What span construction needs to know.
pub struct Context<'a> {
    /// The deployed build of the unit.
    pub object: &'a Object,
    /// Its blocks and liveness.
    pub flow: &'a Flow,
    /// The constants that depend on V.
    pub seeds: &'a Seeds,
    /// Path of the unit, for messages.
    pub source: &'a str,
    /// The value of the deployed kernel.
    pub default: i64,
    /// Values for which to prove.
    pub range: Range,
    /// Decides the obligations.
    pub solver: &'a Solver,
}

/// A group of seeds that form one expression, as indices into a block.
#[derive(Debug)]
pub(crate) struct Draft {
    pub first_seed: usize,
    /// No span may begin before this.
    pub settled: usize,
    /// The instruction that carries the update before this one.
    pub carrier: Option<usize>,
    /// Just behind the last seed.
    pub end: usize,
    /// The last instruction before which the update may still run.
    pub last: usize,
    /// Whether `last` exists: otherwise only "after the last seed" is left.
    pub before_possible: bool,
}

impl Context<'_> {
    fn place(&self, function: &Function, node: Node) -> Place {
        Place {
            source: self.source.into(),
            function: function.name.clone(),
            offset: (node.offset - function.start.offset) as u32,
        }
    }

    pub(crate) fn is_seed(&self, insn: &Insn) -> bool {
        Field::ALL.iter().any(|&f| self.seeds.contains_key(&(insn.node, f)))
    }

    /// The live state before instruction `index` of `block`.
    pub(crate) fn live_before(&self, block: &[&Insn], index: usize) -> Live {
        match block.get(index) {
            Some(insn) => self.flow.live_in(insn.node),
            // Behind the block: what its last instruction falls into.
            None => block.last().map_or(Live::ALL, |last| self.flow.live_in(last.next())),
        }
    }

    /// All critical spans of the object; `function` indices are those of
    /// `functions`.
    ///
    /// # Errors
    /// The refusal of the first group of seeds without a proof.
    pub fn spans(&self, functions: &[String]) -> Result<Vec<CriticalSpan>, Refusal> {
        let mut spans = Vec::new();
        let mut done: BTreeSet<Node> = BTreeSet::new();
        for &(node, _) in self.seeds.keys() {
            if done.contains(&node) {
                continue;
            }
            let Some(function) = self.object.function_at(node) else { continue };
            let index = functions.iter().position(|f| *f == function.name).unwrap_or_default();
            let block = self.flow.block(self.object, node);
            // From here on the state is the wanted one: earlier spans have
            // been updated, and no later one may be computed as if they had not.
            let (mut settled, mut carrier) = (0, None);
            for draft in self.drafts(function, &block)? {
                let (span, at) = self.prove(function, index, &block, &Draft { settled, carrier, ..draft })?;
                spans.push(span);
                (settled, carrier) = (at.point(), Some(at.insn));
            }
            done.extend(block.iter().map(|insn| insn.node));
        }
        crowd(&mut spans);
        Ok(spans)
    }

    /// Whether the span's instructions can hold the value themselves.
    fn look_in_place(&self, function: &Function, block: &[&Insn], span: &mut CriticalSpan) {
        let offset = |node: Node| (node.offset - function.start.offset) as u32;
        let start = block.iter().position(|insn| offset(insn.node) == span.start);
        let last = block.iter().position(|insn| offset(insn.next()) == span.end);
        let (Some(start), Some(last)) = (start, last) else { return };
        match in_place(self, function, block, start..last + 1, &span.ivs) {
            Ok(found) => span.in_place = Some(found),
            Err(reason) => span.in_place_reason = Some(reason.to_string()),
        }
    }

    /// Groups the seeds of a block into expressions.
    fn drafts(&self, function: &Function, block: &[&Insn]) -> Result<Vec<Draft>, Refusal> {
        let mut drafts = Vec::new();
        let mut at = 0;
        while let Some(first) = (at..block.len()).find(|&i| self.is_seed(block[i])) {
            let draft = self.draft(function, block, first)?;
            at = draft.end;
            drafts.push(draft);
        }
        Ok(drafts)
    }

    fn draft(&self, function: &Function, block: &[&Insn], first: usize) -> Result<Draft, Refusal> {
        let unsupported = |insn: &Insn| Refusal::UnsupportedInstruction {
            place: self.place(function, insn.node),
            instruction: insn.text(),
        };
        let mut twin = Twin::new();
        // A multiplication is a seed at its last instruction; it begins earlier.
        let is_product = self.seeds.contains_key(&(block[first].node, Field::Product));
        let begin = if is_product { product::chain(block, first).map_or(first, |(start, ..)| start) } else { first };
        for insn in &block[begin..=first] {
            twin.step(self, insn).map_err(|_| unsupported(insn))?;
        }
        let mut draft =
            Draft { first_seed: first, settled: 0, carrier: None, end: first + 1, last: first, before_possible: false };
        let mut index = first + 1;
        while index < block.len() {
            let insn = block[index];
            let before = twin.dirty(self.live_before(block, index));
            draft.last = index;
            draft.before_possible = true;
            // A fault leaves the block with the state before the update.
            if insn.ends_block() || self.object.fixups.contains_key(&insn.node) {
                break;
            }
            // Whoever sees a later store may rely on an earlier one (a flag, an
            // unlock): what is wrong in memory must be mended first.
            if before.contains(&MEMORY) && insn.writes_memory() {
                break;
            }
            let seed = self.is_seed(insn);
            // Without V in its own constant: what does it take from before?
            let mut probe = Twin { terms: std::mem::take(&mut twin.terms), ..twin.clone_states() };
            let plain = step(&mut probe.terms, &mut probe.actual, insn, Substitution::default())
                .and_then(|()| step(&mut probe.terms, &mut probe.wanted, insn, Substitution::default()));
            let consumes = plain.is_err() || consumed(&twin, &probe, &before);
            twin.terms = probe.terms;
            if seed && consumes {
                // Part of the same expression.
                twin.step(self, insn).map_err(|_| unsupported(insn))?;
                draft.end = index + 1;
                draft.before_possible = false;
            } else if consumes || seed {
                // Consumed by an ordinary instruction, or an independent use.
                break;
            } else if twin.step(self, insn).is_err() {
                break;
            }
            index += 1;
        }
        Ok(draft)
    }

    fn prove(
        &self,
        function: &Function,
        function_index: usize,
        block: &[&Insn],
        draft: &Draft,
    ) -> Result<(CriticalSpan, Candidate), Refusal> {
        let place = self.place(function, block[draft.first_seed].node);
        let (candidates, mut reasons) = self.candidates(function, block, draft);
        if candidates.is_empty() {
            return Err(Refusal::Unprobeable { place, detail: reasons.join("; ") });
        }
        let mut visible = None;
        for candidate in &candidates {
            let at = block[candidate.insn].node.offset - function.start.offset;
            match self.try_candidate(function, function_index, block, draft, candidate, Memory::Shared) {
                Ok(mut span) => {
                    self.look_in_place(function, block, &mut span);
                    return Ok((span, candidate.clone()));
                }
                Err(Attempt::Refused(refusal)) => return Err(*refusal),
                Err(Attempt::Next(reason)) => reasons.push(format!("{at:#x}: {reason}")),
                Err(Attempt::Visible(reason)) => {
                    let reason = format!("{at:#x}: {reason}");
                    visible.get_or_insert(reason.clone());
                    reasons.push(reason);
                }
            }
        }
        reasons.dedup();
        // Instructions that hold the value themselves access memory as they always did.
        if let Some(visible) = visible {
            for candidate in &candidates {
                let tried = self.try_candidate(function, function_index, block, draft, candidate, Memory::Sequential);
                let Ok(mut span) = tried else { continue };
                self.look_in_place(function, block, &mut span);
                match &span.in_place_reason {
                    Some(reason) => reasons.push(format!("in place: {reason}")),
                    None => {
                        span.only_in_place = Some(visible);
                        return Ok((span, candidate.clone()));
                    }
                }
                break;
            }
        }
        Err(Refusal::NoIndirection { place, detail: reasons.join("; ") })
    }

    fn try_candidate(
        &self,
        function: &Function,
        function_index: usize,
        block: &[&Insn],
        draft: &Draft,
        candidate: &Candidate,
        memory: Memory,
    ) -> Result<CriticalSpan, Attempt> {
        let point = candidate.point();
        // An instruction that is skipped cannot carry another update.
        if candidate.when == When::Instead && draft.carrier == Some(candidate.insn) {
            return Err(Attempt::Next("another update runs before this instruction".into()));
        }
        let live = self.live_before(block, point);
        let (mut reason, mut unordered) = (String::new(), None);
        let lowest = draft.first_seed.saturating_sub(MAX_EXTENSION).max(draft.settled);
        for start in (lowest..=draft.first_seed).rev() {
            let mut twin = Twin::new();
            let mut available = None;
            let executed = block[start..point].iter().zip(start..).find_map(|(insn, index)| {
                if candidate.when == When::Instead && index == candidate.insn {
                    available = Some(twin.actual.clone());
                }
                twin.step(self, insn).err()
            });
            if let Some(refused) = executed {
                reason = format!("{refused}, or a multiplication begins before it");
                continue;
            }
            let fits = self.fits(&block[start..draft.end]);
            if fits.len() > MAX_IVS {
                return Err(Attempt::Next(format!("{} transformed values, at most {MAX_IVS}", fits.len())));
            }
            // What would have been done instead is not there to be read.
            let actual = available.unwrap_or_else(|| twin.actual.clone());
            let links = links(function, block[start..point].iter().copied());
            match generate(&mut twin.terms, &actual, &twin.wanted, live, &fits, &links) {
                Err(not_available) => reason = not_available.0,
                Ok(generated) => {
                    let update = Update {
                        function,
                        block,
                        start,
                        point,
                        skipped: (candidate.when == When::Instead).then_some(candidate.insn),
                        program: &generated.program,
                        ivs: &fits,
                        links: &links,
                        live,
                    };
                    let Ordered { query, visible, shared } = match memory {
                        Memory::Sequential => {
                            let query = self.sequential(&mut twin, &actual, update);
                            Ordered { query, visible: Vec::new(), shared: false }
                        }
                        Memory::Shared => match memory_rules(self, update) {
                            Ok(ordered) => ordered,
                            Err(broken) => {
                                unordered.get_or_insert_with(|| broken.to_string());
                                continue;
                            }
                        },
                    };
                    match self.decide(&generated, &fits, &query) {
                        Ok(proof) => {
                            let span = Assembled { function, function_index, block, start, draft, candidate };
                            let assembled = self.assemble(&span, generated, fits, proof, &twin, live);
                            return Ok(CriticalSpan { visible, ..assembled });
                        }
                        Err(ProofError::Refuted) => {
                            reason = "the generated update is not equivalent".into();
                            if shared {
                                unordered.get_or_insert("it would take one reading of memory for another".into());
                            }
                        }
                        Err(ProofError::Timeout(seconds)) => {
                            let place = self.place(function, block[draft.first_seed].node);
                            return Err(Attempt::Refused(Box::new(Refusal::SolverTimeout { place, seconds })));
                        }
                        Err(error) => return Err(Attempt::Next(error.to_string())),
                    }
                }
            }
        }
        Err(unordered.map_or(Attempt::Next(reason), Attempt::Visible))
    }

    fn fits(&self, insns: &[&Insn]) -> Vec<Fit> {
        let mut fits: Vec<Fit> = Vec::new();
        for insn in insns {
            for field in Field::ALL {
                if let Some(fit) = self.seeds.get(&(insn.node, field)) {
                    if !fits.contains(fit) {
                        fits.push(*fit);
                    }
                }
            }
        }
        fits
    }

    fn decide(&self, generated: &Generated, fits: &[Fit], query: &str) -> Result<Proof, ProofError> {
        if generated.program.check(fits.len()).is_err() {
            return Err(ProofError::Refuted);
        }
        let millis = self.solver.refute(query)?;
        Ok(Proof::Proved { solver: self.solver.name.clone(), millis })
    }

    /// The obligation of an update where nobody else accesses memory.
    fn sequential(&self, twin: &mut Twin, actual: &State, update: Update<'_>) -> String {
        let Update { program, ivs: fits, links, live, .. } = update;
        let mut updated = actual.clone();
        let ivs: Vec<_> = fits
            .iter()
            .map(|fit| {
                let iv = iv_term(&mut twin.terms, fit);
                twin.terms.zext(iv, 64)
            })
            .collect();
        execute(&mut twin.terms, &mut updated, program, &ivs, links);
        obligation(&mut twin.terms, &updated, &twin.wanted, live, self.range, fits)
    }

    fn assemble(
        &self,
        span: &Assembled<'_>,
        generated: Generated,
        ivs: Vec<Fit>,
        proof: Proof,
        twin: &Twin,
        live: Live,
    ) -> CriticalSpan {
        let Assembled { function, function_index, block, start, draft, candidate } = *span;
        let offset = |node: Node| (node.offset - function.start.offset) as u32;
        let lines = block[start..draft.end].iter().map(|insn| {
            let iv = Field::ALL
                .iter()
                .find_map(|&f| self.seeds.get(&(insn.node, f)))
                .and_then(|fit| ivs.iter().position(|x| x == fit));
            let order = order::at(self.seeds, insn.node).map(|(order, _)| order);
            AsmLine { offset: offset(insn.node), text: insn.text(), iv, order }
        });
        let probed = block[candidate.insn];
        CriticalSpan {
            function: function_index,
            start: offset(block[start].node),
            end: offset(block[draft.end - 1].next()),
            assembly: lines.collect(),
            expression: crate::words::describe(&twin.terms, &twin.actual, &twin.wanted, live, &ivs),
            indirection: Indirection {
                offset: offset(probed.node),
                insn_len: probed.raw.len() as u8,
                when: candidate.when,
                kind: generated.kind,
                probe: candidate.probe,
                probe_reason: candidate.reason.clone(),
                window: 0,
                window_lead: 0,
                window_reason: None,
                program: generated.program,
            },
            ivs,
            proof,
            in_place: None,
            in_place_reason: None,
            only_in_place: None,
            visible: Vec::new(),
        }
    }
}

struct Assembled<'a> {
    function: &'a Function,
    function_index: usize,
    block: &'a [&'a Insn],
    start: usize,
    draft: &'a Draft,
    candidate: &'a Candidate,
}

/// How an update is to see memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// As if nobody else did anything meanwhile.
    Sequential,
    /// Others read and write it at any time.
    Shared,
}

enum Attempt {
    /// Another location may do.
    Next(String),
    /// Another location may do; here others would see the update at work.
    Visible(String),
    /// Nothing will.
    Refused(Box<Refusal>),
}

/// The addresses that instructions of `function` use: an update can take them
/// from there.
pub fn links<'a>(function: &Function, insns: impl Iterator<Item = &'a Insn>) -> Links {
    let link = |insn: &Insn| {
        let symbol = insn.displacement.clone()?;
        let field = insn.displacement_at?;
        let behind = insn.raw.len() as u8 - field - 4;
        let relative = insn.raw.is_ip_rel_memory_operand();
        let offset = (insn.node.offset - function.start.offset) as u32 + u32::from(field);
        Some((offset, Link { symbol, behind: relative.then_some(behind) }))
    };
    insns.filter_map(link).collect()
}
