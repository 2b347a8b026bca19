//! What is inserted into the functions of an object.

use std::collections::BTreeMap;

use crate::choose::{Choice, Wanted};
use crate::elf::{Function, Object};
use crate::flow::Graph;
use crate::inserts::{Ends, Inserts, Known, Look};
use crate::insn::{Callee, Insn};
use crate::release::Release;
use crate::track::{track, Track};
use crate::Error;

/// A look, where a run may be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookReport {
    /// Its function.
    pub function: String,
    /// Source line of the end of the turn.
    pub place: String,
    /// What is released if a run ends here, in order. Locks of the heap are released before, and not among them.
    pub releases: Vec<String>,
    /// The program returns here. If it still holds locks of the heap, they are released.
    pub returns: bool,
}

/// What is inserted into an object.
#[derive(Debug)]
pub struct Plan {
    /// For each function.
    pub inserts: Vec<Inserts>,
    /// All looks, by their numbers.
    pub looks: Vec<LookReport>,
}

impl Plan {
    /// Plans for an object: these loops are instrumented. Of the choice, whether the verifier is to know nothing of numbers
    /// that they write, and other places to look.
    ///
    /// # Errors
    /// What cannot be rewritten soundly.
    pub fn new(object: &Object, graphs: &[Graph], wanted: &[Wanted], choice: &Choice) -> Result<Self, Error> {
        let order = object.callees_first();
        let mut tracks: Vec<Option<Track>> = vec![None; graphs.len()];
        for &function in &order {
            tracks[function] = Some(track(object, function, &graphs[function], &tracks));
        }
        let with_looks = |(number, graph)| Inserts::with_looks(Self::looks(object, number, graph, wanted, choice));
        let mut plan = Self { inserts: graphs.iter().enumerate().map(with_looks).collect(), looks: Vec::new() };
        for number in order {
            let (function, Some(track)) = (&object.functions[number], &tracks[number]) else { continue };
            plan.insert(number, &Known { object, function, graph: &graphs[number], track }, choice.widen)?;
        }
        plan.refuse_callbacks(object)?;
        refuse_lost_frames(object)?;
        Ok(plan)
    }

    /// Plans a function. Those that it calls have been planned.
    fn insert(&mut self, number: usize, known: &Known<'_>, widen: bool) -> Result<(), Error> {
        let calls = self.run_calls(known.object, known.function);
        let mut inserts = std::mem::take(&mut self.inserts[number]);
        inserts.runs = known.object.asks_for_run(known.function);
        inserts.notes_faults = known.object.notes_faults(known.function);
        if inserts.takes_run() || !calls.is_empty() {
            inserts.plan(known, calls, self.looks.len(), widen)?;
        }
        let report = |at: usize, releases: &[Release], returns: bool| LookReport {
            function: known.function.name.clone(),
            place: known.object.place(known.function.code, at),
            releases: releases.iter().map(|release| release.words.clone()).collect(),
            returns,
        };
        self.looks.extend(inserts.looks.iter().map(|look| report(look.at, &look.releases, false)));
        self.looks.extend(inserts.exits.iter().map(|exit| report(exit.at, &[], true)));
        self.inserts[number] = inserts;
        Ok(())
    }

    /// Nothing is inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inserts.iter().all(|inserts| !inserts.takes_run())
    }

    /// The looks of a function, not planned yet: at the ends of its loops.
    fn looks(
        object: &Object,
        number: usize,
        graph: &Graph,
        wanted: &[Wanted],
        choice: &Choice,
    ) -> BTreeMap<usize, Ends> {
        let function = &object.functions[number];
        let mut looks: BTreeMap<usize, Ends> = BTreeMap::new();
        for own in wanted.iter().filter(|own| own.function == number) {
            let Some(found) = graph.loop_at(own.header) else { continue };
            let written = graph.written(object, function.code, found);
            for latch in &found.latches {
                let ends = looks.entry(graph.blocks[*latch].last).or_default();
                ends.written |= written;
                ends.copies = ends.copies.max(own.copies);
            }
        }
        if choice.branches.contains(&function.name) {
            let insns = &object.code[function.code].insns;
            let branch = graph.blocks.iter().find(|block| insns[block.last].is_branch());
            branch.map(|block| looks.entry(block.last).or_default());
        }
        looks
    }

    /// What the looks of a loop cost, at most: instructions that the kernel executes.
    #[must_use]
    pub fn cost(&self, graph: &Graph, own: &Wanted) -> usize {
        let latches = graph.loop_at(own.header).map_or(&[][..], |found| &found.latches);
        let is_own = |look: &&Look| latches.iter().any(|latch| graph.blocks[*latch].last == look.at);
        self.inserts[own.function].looks.iter().filter(is_own).map(Look::cost).max().unwrap_or(0)
    }

    /// Calls of functions that are told the run; with each, whether the run may end in it.
    fn run_calls(&self, object: &Object, function: &Function) -> Vec<(usize, bool)> {
        let insns = &object.code[function.code].insns;
        let calls = (function.start..function.end).filter(|at| insns[*at].callee() == Some(Callee::Subprogram));
        let targets = calls.filter_map(|at| Some((at, &self.inserts[object.target(function.code, at)?])));
        targets.filter(|(_, target)| target.takes_run()).map(|(at, target)| (at, target.leaves())).collect()
    }

    /// A callback returns to the kernel, which does not look at a flag.
    fn refuse_callbacks(&self, object: &Object) -> Result<(), Error> {
        for (number, code) in object.code.iter().enumerate() {
            for (&at, _) in code.relocs.iter().filter(|(at, _)| code.insns[**at].code == Insn::LD_IMM64) {
                let Some(target) = object.target(number, at).filter(|target| self.inserts[*target].takes_run()) else {
                    continue;
                };
                return Err(Error::Function {
                    function: object.functions[target].name.clone(),
                    place: object.place(number, at),
                    reason:
                        "the kernel calls this callback, and it contains a loop to instrument, or uses locks of the \
                             heap: this is not supported yet. Bound the loop, or leave it alone (--leave)"
                            .into(),
                });
            }
        }
        Ok(())
    }
}

/// What a run with locks holds is in the frame of its program, and how often its CPU accessed what is not there. Who leaves
/// the frame by these ways would keep the locks, or let another run end.
fn refuse_lost_frames(object: &Object) -> Result<(), Error> {
    const TAIL_CALL: i32 = 12;
    if object.this_run().is_none() && object.begin().is_none() {
        return Ok(());
    }
    for Function { name, code, start, end, .. } in &object.functions {
        let leaves = |at: &usize| {
            object.code[*code].insns[*at].callee() == Some(Callee::Helper(TAIL_CALL))
                || object.external(*code, *at) == Some("bpf_throw")
        };
        if let Some(at) = (*start..*end).find(leaves) {
            return Err(Error::Function {
                function: name.clone(),
                place: object.place(*code, at),
                reason:
                    "a tail call or bpf_throw() leaves the frame in which locks of the run and accesses of the heap \
                         are noted, and they would be lost: an object with a heap has neither"
                        .into(),
            });
        }
    }
    Ok(())
}
