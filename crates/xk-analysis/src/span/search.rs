//! The search for the update of one group of seeds.
//!
//! In: a group in its block. Out: a proved [`CriticalSpan`], and the location of its update. Refused: a group for which no
//! location and no span has a proof, with the reason at each location.
//!
//! For one location, the span is first as short as possible, and then begins earlier and earlier: the update may need a
//! value that the seeds destroy, and an earlier begin includes the instruction that computes it from something that is
//! still there. For each span an update is generated, and the solver decides ([`crate::proof`]). What is generated is a
//! guess; only the answer `unsat` makes it an update.
//!
//! Memory is shared: interrupts and other processors see each access. An update that is right by itself may show them
//! something that no code with V does ([`crate::ordering`]). If that is the only fault, the instructions may still be
//! able to hold the value themselves, because their accesses stay as they are. Then the span is proved as if no other
//! context accessed memory, and the table says that only a patch can change it (`only_in_place`).

use xk_lift::insn::{Insn, Node};
use xk_lift::object::Function;
use xk_lift::state::State;
use xk_table::{AsmLine, CriticalSpan, Fit, Indirection, Proof, Refusal, When, MAX_IVS};

use super::group::SeedGroup;
use super::location::{Location, Locations};
use crate::constants::Field;
use crate::context::Context;
use crate::generate::{generate, Generated};
use crate::in_place::in_place;
use crate::order;
use crate::ordering::{memory_rules, Ordered, Update};
use crate::program::{execute, iv_term, links};
use crate::proof::{obligation, ProofError};
use crate::twin::Twin;
use crate::words::describe;

/// How far a span may reach back for its inputs, in instructions.
const MAX_EXTENSION: usize = 12;

/// What the updates of earlier groups in the same block leave to this one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Earlier {
    /// From this instruction on, the state is the one with V. No span begins before it: it would be proved from a state
    /// that is not there.
    pub settled: usize,
    /// The instruction that carries the last update.
    pub carrier: Option<usize>,
}

/// A group of seeds in its block.
pub(super) struct Search<'a> {
    pub context: &'a Context<'a>,
    pub function: &'a Function,
    /// Index of the function in the table.
    pub function_index: usize,
    pub block: &'a [&'a Insn],
    pub group: SeedGroup,
    pub earlier: Earlier,
}

/// How an update is to see memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// As if no other context accessed it.
    Sequential,
    /// Other contexts read and write it at any time.
    Shared,
}

/// Why there is no update at a location.
enum Failure {
    /// Another location may do.
    NotHere(String),
    /// Another location may do; here other contexts would see accesses that no code with V does.
    Visible(String),
    /// No location will do.
    Refused(Box<Refusal>),
}

/// Why there is no update for a span that begins at some instruction.
enum BadStart {
    /// A span that begins earlier may do.
    NotHere(String),
    /// A span that begins earlier may do; here other contexts would see accesses that no code with V does.
    Visible(String),
    /// No begin will do.
    Final(Failure),
}

/// An update with its proof.
struct Proved {
    generated: Generated,
    ivs: Vec<Fit>,
    proof: Proof,
    /// What the span computes from V, a line for each register.
    expression: Vec<String>,
    /// Reads whose results are not used, which other contexts can see.
    visible: Vec<String>,
}

/// The instructions of a span, executed up to the update's point.
struct Executed {
    twin: Twin,
    /// The state that the update finds: without the instruction that it runs instead of.
    found: State,
}

impl Search<'_> {
    /// Searches all locations.
    pub fn run(&self) -> Result<(CriticalSpan, Location), Refusal> {
        let place = self.context.place(self.function, self.block[self.group.first].node);
        let Locations { usable, refused: mut reasons } = self.context.locations(self.function, self.block, &self.group);
        if usable.is_empty() {
            return Err(Refusal::Unprobeable { place, detail: reasons.join("; ") });
        }
        let mut visible = None;
        for location in &usable {
            let at = self.offset(self.block[location.insn].node);
            match self.at_location(location, Memory::Shared) {
                Ok(mut span) => {
                    self.look_in_place(&mut span);
                    return Ok((span, location.clone()));
                }
                Err(Failure::Refused(refusal)) => return Err(*refusal),
                Err(Failure::NotHere(reason)) => reasons.push(format!("{at:#x}: {reason}")),
                Err(Failure::Visible(reason)) => {
                    let reason = format!("{at:#x}: {reason}");
                    visible.get_or_insert(reason.clone());
                    reasons.push(reason);
                }
            }
        }
        reasons.dedup();
        match visible.and_then(|visible| self.only_in_place(&usable, visible, &mut reasons)) {
            Some(found) => Ok(found),
            None => Err(Refusal::NoIndirection { place, detail: reasons.join("; ") }),
        }
    }

    /// A span that only a patch can change, because other contexts would see an update (`visible` says what).
    fn only_in_place(
        &self,
        locations: &[Location],
        visible: String,
        reasons: &mut Vec<String>,
    ) -> Option<(CriticalSpan, Location)> {
        let proved =
            |location: &Location| Some((self.at_location(location, Memory::Sequential).ok()?, location.clone()));
        let (mut span, location) = locations.iter().find_map(proved)?;
        self.look_in_place(&mut span);
        if let Some(reason) = &span.in_place_reason {
            reasons.push(format!("in place: {reason}"));
            return None;
        }
        span.only_in_place = Some(visible);
        Some((span, location))
    }

    /// Whether the span's instructions can hold the value themselves.
    fn look_in_place(&self, span: &mut CriticalSpan) {
        let start = self.block.iter().position(|insn| self.offset(insn.node) == span.start);
        let last = self.block.iter().position(|insn| self.offset(insn.next()) == span.end);
        let (Some(start), Some(last)) = (start, last) else { return };
        match in_place(self.context, self.function, self.block, start..last + 1, &span.ivs) {
            Ok(found) => span.in_place = Some(found),
            Err(reason) => span.in_place_reason = Some(reason.to_string()),
        }
    }

    /// Tries spans that end at one location, the shortest first.
    fn at_location(&self, location: &Location, memory: Memory) -> Result<CriticalSpan, Failure> {
        // An instruction that is skipped cannot carry another update.
        if location.when == When::Instead && self.earlier.carrier == Some(location.insn) {
            return Err(Failure::NotHere("another update runs before this instruction".into()));
        }
        let (mut last_reason, mut visible) = (String::new(), None);
        let earliest = self.group.first.saturating_sub(MAX_EXTENSION).max(self.earlier.settled);
        for start in (earliest..=self.group.first).rev() {
            match self.with_start(start, location, memory) {
                Ok(span) => return Ok(span),
                Err(BadStart::NotHere(reason)) => last_reason = reason,
                Err(BadStart::Visible(reason)) => _ = visible.get_or_insert(reason),
                Err(BadStart::Final(failure)) => return Err(failure),
            }
        }
        Err(visible.map_or(Failure::NotHere(last_reason), Failure::Visible))
    }

    /// Generates and proves the update of the span that begins at `start`.
    fn with_start(&self, start: usize, location: &Location, memory: Memory) -> Result<CriticalSpan, BadStart> {
        let Executed { mut twin, found } = self.execute(start, location).map_err(BadStart::NotHere)?;
        let fits = self.fits(start);
        if fits.len() > MAX_IVS {
            let reason = format!("{} transformed values, at most {MAX_IVS}", fits.len());
            return Err(BadStart::Final(Failure::NotHere(reason)));
        }
        let point = location.point();
        let live = self.context.live_before(self.block, point);
        let links = links(self.function, self.block[start..point].iter().copied());
        let generated = generate(&mut twin.terms, &found, &twin.wanted, live, &fits, &links)
            .map_err(|not_available| BadStart::NotHere(not_available.0))?;
        let update = Update {
            function: self.function,
            block: self.block,
            start,
            point,
            skipped: (location.when == When::Instead).then_some(location.insn),
            program: &generated.program,
            ivs: &fits,
            links: &links,
            live,
        };
        let Ordered { query, visible, shared } = match memory {
            Memory::Sequential => {
                let query = self.sequential(&mut twin, &found, update);
                Ordered { query, visible: Vec::new(), shared: false }
            }
            Memory::Shared => {
                memory_rules(self.context, update).map_err(|broken| BadStart::Visible(broken.to_string()))?
            }
        };
        let proof = self.decide(&generated, &fits, &query).map_err(|error| self.unproved(error, shared))?;
        let expression = describe(&twin.terms, &twin.actual, &twin.wanted, live, &fits);
        Ok(self.assemble(start, location, Proved { generated, ivs: fits, proof, expression, visible }))
    }

    /// Executes the instructions from `start` to the update's point, with and without V.
    fn execute(&self, start: usize, location: &Location) -> Result<Executed, String> {
        let mut twin = Twin::new();
        let mut before_skipped = None;
        for (insn, index) in self.block[start..location.point()].iter().zip(start..) {
            if location.when == When::Instead && index == location.insn {
                before_skipped = Some(twin.actual.clone());
            }
            twin.step(self.context, insn)
                .map_err(|refused| format!("{refused}, or a multiplication begins before it"))?;
        }
        let found = before_skipped.unwrap_or_else(|| twin.actual.clone());
        Ok(Executed { twin, found })
    }

    /// The functions of V in the span that begins at `start`, each once.
    fn fits(&self, start: usize) -> Vec<Fit> {
        let mut fits: Vec<Fit> = Vec::new();
        for insn in &self.block[start..self.group.end] {
            for field in Field::ALL {
                if let Some(fit) = self.context.seeds.get(&(insn.node, field)) {
                    if !fits.contains(fit) {
                        fits.push(*fit);
                    }
                }
            }
        }
        fits
    }

    /// The obligation of an update where no other context accesses memory.
    fn sequential(&self, twin: &mut Twin, found: &State, update: Update<'_>) -> String {
        let Update { program, ivs: fits, links, live, .. } = update;
        let mut updated = found.clone();
        let ivs: Vec<_> = fits
            .iter()
            .map(|fit| {
                let iv = iv_term(&mut twin.terms, fit);
                twin.terms.zext(iv, 64)
            })
            .collect();
        execute(&mut twin.terms, &mut updated, program, &ivs, links);
        obligation(&mut twin.terms, &updated, &twin.wanted, live, self.context.range, fits)
    }

    fn decide(&self, generated: &Generated, fits: &[Fit], query: &str) -> Result<Proof, ProofError> {
        if generated.program.check(fits.len()).is_err() {
            return Err(ProofError::Refuted);
        }
        let millis = self.context.solver.refute(query)?;
        Ok(Proof::Proved { solver: self.context.solver.name.clone(), millis })
    }

    /// What a missing proof means for the search. `shared`: others can see an access of the span or the update.
    fn unproved(&self, error: ProofError, shared: bool) -> BadStart {
        match error {
            ProofError::Refuted if shared => BadStart::Visible("it would confuse two reads of memory".into()),
            ProofError::Refuted => BadStart::NotHere("the generated update is not equivalent".into()),
            ProofError::Timeout(seconds) => {
                let place = self.context.place(self.function, self.block[self.group.first].node);
                BadStart::Final(Failure::Refused(Box::new(Refusal::SolverTimeout { place, seconds })))
            }
            error @ ProofError::Solver { .. } => BadStart::Final(Failure::NotHere(error.to_string())),
        }
    }

    fn offset(&self, node: Node) -> u32 {
        (node.offset - self.function.start.offset) as u32
    }

    /// The span as the table describes it.
    fn assemble(&self, start: usize, location: &Location, proved: Proved) -> CriticalSpan {
        let Proved { generated, ivs, proof, expression, visible } = proved;
        let seeds = self.context.seeds;
        let assembly = self.block[start..self.group.end].iter().map(|insn| {
            let iv = Field::ALL
                .iter()
                .find_map(|&field| seeds.get(&(insn.node, field)))
                .and_then(|fit| ivs.iter().position(|other| other == fit));
            let order = order::at(seeds, insn.node).map(|(order, _)| order);
            AsmLine { offset: self.offset(insn.node), text: insn.text(), iv, order }
        });
        let probed = self.block[location.insn];
        CriticalSpan {
            function: self.function_index,
            start: self.offset(self.block[start].node),
            end: self.offset(self.block[self.group.end - 1].next()),
            assembly: assembly.collect(),
            indirection: Indirection {
                offset: self.offset(probed.node),
                insn_len: probed.raw.len() as u8,
                when: location.when,
                kind: generated.kind,
                probe: location.probe,
                probe_reason: location.probe_reason.clone(),
                window: 0,
                window_lead: 0,
                window_reason: None,
                program: generated.program,
            },
            ivs,
            expression,
            proof,
            in_place: None,
            in_place_reason: None,
            only_in_place: None,
            visible,
        }
    }
}
