//! Which loops are instrumented, and what that takes.

use std::collections::{BTreeMap, BTreeSet};

use crate::elf::{Function, Object};
use crate::flow::{Graph, Loop};
use crate::inserts::{Inserts, Known};
use crate::insn::{Callee, Insn};
use crate::track::{track, Track};
use crate::{counted, Error};

/// Which loops are instrumented.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Also loops that are evidently counted.
    pub all: bool,
    /// Numbers that instrumented loops write become unknown to the verifier at the end of each turn, so that it does not
    /// follow each turn.
    pub widen: bool,
    /// Loops to leave alone, by the source line (`FILE.c:LINE`) of their first instruction.
    pub leave: Vec<String>,
    /// If given, only these: function, and the first instruction of the loop in its section.
    pub only: Option<BTreeSet<(String, usize)>>,
}

/// What happens to a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// Each of its back edges counts turns and looks whether the run is to end.
    Instrumented,
    /// It runs at most so often, and is left alone.
    Counted(i64),
    /// It is left alone as told.
    Left,
    /// It is left alone, because the verifier did not refuse it.
    NotNeeded,
}

/// A loop, and what happens to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopReport {
    /// Its function.
    pub function: String,
    /// Source line of its first instruction.
    pub place: String,
    /// Source lines of its back edges.
    pub back_edges: Vec<String>,
    /// What happens to it.
    pub done: Done,
    /// Its first instruction in the section.
    pub(crate) header: usize,
    /// Its instructions, from and to, in the section `code`.
    pub(crate) ranges: Vec<(usize, usize)>,
    pub(crate) code: usize,
}

/// A look, where a run may be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookReport {
    /// Its function.
    pub function: String,
    /// Source line of the end of the turn.
    pub place: String,
    /// What is released if a run ends here, in order.
    pub releases: Vec<String>,
}

/// What is inserted into an object.
#[derive(Debug)]
pub struct Plan {
    /// For each function.
    pub inserts: Vec<Inserts>,
    /// All loops.
    pub loops: Vec<LoopReport>,
    /// All looks, by their numbers.
    pub looks: Vec<LookReport>,
}

impl Plan {
    /// Plans for an object.
    ///
    /// # Errors
    /// What cannot be rewritten soundly.
    pub fn new(object: &Object, choice: &Choice) -> Result<Self, Error> {
        let mut graphs = Vec::new();
        for function in &object.functions {
            graphs.push(Graph::new(object, function)?);
        }
        let order = callees_first(object);
        let mut tracks: Vec<Option<Track>> = vec![None; graphs.len()];
        for &function in &order {
            tracks[function] = Some(track(object, function, &graphs[function], &tracks));
        }
        let mut plan = Self { inserts: Vec::new(), loops: Vec::new(), looks: Vec::new() };
        for (function, graph) in object.functions.iter().zip(&graphs) {
            let looks = plan.choose(object, function, graph, choice)?;
            plan.inserts.push(Inserts::with_looks(looks));
        }
        plan.refuse_unknown(choice)?;
        for number in order {
            let (function, Some(track)) = (&object.functions[number], &tracks[number]) else { continue };
            plan.insert(number, &Known { object, function, graph: &graphs[number], track }, choice.widen)?;
        }
        plan.refuse_callbacks(object)?;
        Ok(plan)
    }

    /// Plans a function. Those that it calls have been planned.
    fn insert(&mut self, number: usize, known: &Known<'_>, widen: bool) -> Result<(), Error> {
        let calls = self.leaving_calls(known.object, known.function);
        let mut inserts = std::mem::take(&mut self.inserts[number]);
        if inserts.leaves() || !calls.is_empty() {
            inserts.plan(known, calls, self.looks.len(), widen)?;
        }
        self.looks.extend(inserts.looks.iter().map(|look| LookReport {
            function: known.function.name.clone(),
            place: known.object.place(known.function.code, look.at),
            releases: look.releases.iter().map(|release| release.words.clone()).collect(),
        }));
        self.inserts[number] = inserts;
        Ok(())
    }

    /// Nothing is inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inserts.iter().all(|inserts| !inserts.leaves())
    }

    fn choose(
        &mut self,
        object: &Object,
        function: &Function,
        graph: &Graph,
        choice: &Choice,
    ) -> Result<BTreeMap<usize, u16>, Error> {
        let mut looks = BTreeMap::new();
        for found in &graph.loops {
            let done = decide(object, function, graph, found, choice);
            let place = |block: usize| object.place(function.code, graph.blocks[block].last);
            let header = graph.blocks[found.header].start;
            let report = LoopReport {
                function: function.name.clone(),
                place: object.place(function.code, header),
                back_edges: found.latches.iter().map(|latch| place(*latch)).collect(),
                done,
                header,
                ranges: found.body.iter().map(|block| (graph.blocks[*block].start, graph.blocks[*block].end)).collect(),
                code: function.code,
            };
            if done == Done::Instrumented {
                let written = graph.written(object, function.code, found);
                for latch in &found.latches {
                    *looks.entry(graph.blocks[*latch].last).or_default() |= written;
                }
                if !object.has_header() {
                    return Err(Error::NoHeader { function: report.function, place: report.place });
                }
            }
            self.loops.push(report);
        }
        Ok(looks)
    }

    fn leaving_calls(&self, object: &Object, function: &Function) -> Vec<usize> {
        let insns = &object.code[function.code].insns;
        let is_leaving = |at: &usize| {
            insns[*at].callee() == Some(Callee::Subprogram)
                && object.target(function.code, *at).is_some_and(|target| self.inserts[target].leaves())
        };
        (function.start..function.end).filter(is_leaving).collect()
    }

    /// A loop that is not there must not be left alone in silence.
    fn refuse_unknown(&self, choice: &Choice) -> Result<(), Error> {
        let is_known = |place: &String| self.loops.iter().any(|found| found.place == *place);
        let Some(place) = choice.leave.iter().find(|place| !is_known(place)) else { return Ok(()) };
        let places: Vec<&str> = self.loops.iter().map(|found| found.place.as_str()).collect();
        let known =
            if places.is_empty() { "there is no loop".into() } else { format!("loops begin at {}", places.join(", ")) };
        Err(Error::NoLoop { place: place.clone(), known })
    }

    /// A callback returns to the kernel, which does not look at a flag.
    fn refuse_callbacks(&self, object: &Object) -> Result<(), Error> {
        for (number, code) in object.code.iter().enumerate() {
            for (&at, _) in code.relocs.iter().filter(|(at, _)| code.insns[**at].code == Insn::LD_IMM64) {
                let Some(target) = object.target(number, at).filter(|target| self.inserts[*target].leaves()) else {
                    continue;
                };
                return Err(Error::Function {
                    function: object.functions[target].name.clone(),
                    place: object.place(number, at),
                    reason: "the kernel calls this callback, and it contains a loop to instrument: this is not supported yet. \
                             Bound the loop, or leave it alone (--leave)"
                        .into(),
                });
            }
        }
        Ok(())
    }
}

fn decide(object: &Object, function: &Function, graph: &Graph, found: &Loop, choice: &Choice) -> Done {
    let header = graph.blocks[found.header].start;
    if choice.leave.contains(&object.place(function.code, header)) {
        return Done::Left;
    }
    if let Some(only) = &choice.only {
        let wanted = only.contains(&(function.name.clone(), header));
        return if wanted { Done::Instrumented } else { Done::NotNeeded };
    }
    match counted::bound(object, function, graph, found) {
        Some(turns) if !choice.all => Done::Counted(turns),
        _ => Done::Instrumented,
    }
}

/// Functions, each after those that it calls.
fn callees_first(object: &Object) -> Vec<usize> {
    let mut order = Vec::new();
    let mut seen = vec![false; object.functions.len()];
    let mut stack: Vec<(usize, bool)> = (0..object.functions.len()).rev().map(|function| (function, false)).collect();
    while let Some((number, is_done)) = stack.pop() {
        if is_done {
            order.push(number);
        } else if !std::mem::replace(&mut seen[number], true) {
            let function = &object.functions[number];
            stack.push((number, true));
            let calls = (function.start..function.end).filter_map(|at| object.target(function.code, at));
            stack.extend(calls.map(|callee| (callee, false)));
        }
    }
    order
}
