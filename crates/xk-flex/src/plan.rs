//! Which loops are instrumented, where, and with which registers and slots of the stack.

use std::collections::BTreeSet;

use crate::elf::{Function, Object};
use crate::flow::{Graph, Loop};
use crate::insn::{Callee, Insn};
use crate::track::{track, words, Track};
use crate::{counted, Error};

/// What the kernel allows for a frame, less what `may_goto` takes.
const FRAME_BYTES: i64 = 512 - 8;

/// Which loops are instrumented.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Also loops that are evidently counted.
    pub all: bool,
    /// Loops to leave alone, by the source line (`FILE.c:LINE`) of their first instruction.
    pub leave: Vec<String>,
    /// If given, only these: function, and the first instruction of the loop in its section.
    pub only: Option<BTreeSet<(String, usize)>>,
}

/// What happens to a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// Each of its back edges looks at the terminate word.
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

/// The register that holds the word for a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scratch {
    /// Nobody reads its value any more.
    Dead(u8),
    /// It is saved.
    Saved(u8),
}

/// What is inserted into a function.
#[derive(Debug, Default)]
pub struct Inserts {
    /// Looks, each before an instruction.
    pub looks: Vec<(usize, Scratch)>,
    /// Calls of functions that may be left early.
    pub calls: Vec<usize>,
    /// Offset in the frame of the flag that a callee sets.
    pub flag: i16,
    /// Offset of the address of the caller's flag.
    pub caller: i16,
    /// Offset of a saved register.
    pub saved: i16,
}

impl Inserts {
    /// Whether the function may be left early.
    #[must_use]
    pub fn leaves(&self) -> bool {
        !self.looks.is_empty() || !self.calls.is_empty()
    }
}

/// What is inserted into an object.
#[derive(Debug)]
pub struct Plan {
    /// For each function.
    pub inserts: Vec<Inserts>,
    /// All loops.
    pub loops: Vec<LoopReport>,
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
        let mut plan = Self { inserts: Vec::new(), loops: Vec::new() };
        for (function, graph) in object.functions.iter().zip(&graphs) {
            let looks = plan.choose(object, function, graph, choice)?;
            plan.inserts.push(Inserts { looks, ..Inserts::default() });
        }
        plan.refuse_unknown(choice)?;
        for &function in &order {
            plan.inserts[function].calls = plan.leaving_calls(object, &object.functions[function]);
            if plan.inserts[function].leaves() {
                let Some(track) = &tracks[function] else { continue };
                plan.inserts[function].check(object, &object.functions[function], &graphs[function], track)?;
                plan.inserts[function].place_slots(&object.functions[function], track)?;
            }
        }
        plan.refuse_callbacks(object)?;
        Ok(plan)
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
    ) -> Result<Vec<(usize, Scratch)>, Error> {
        let live = graph.live_before(object, function.code);
        let mut looks = BTreeSet::new();
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
                looks.extend(found.latches.iter().map(|latch| graph.blocks[*latch].last));
                if object.word().is_none() {
                    return Err(Error::NoWord { function: report.function, place: report.place });
                }
            }
            self.loops.push(report);
        }
        Ok(looks.into_iter().map(|at| (at, scratch(live.get(&at).copied().unwrap_or(u16::MAX)))).collect())
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

impl Inserts {
    fn check(&self, object: &Object, function: &Function, graph: &Graph, track: &Track) -> Result<(), Error> {
        let refuse = |place: usize, reason: &str| Error::Function {
            function: function.name.clone(),
            place: object.place(function.code, place),
            reason: reason.into(),
        };
        let points: Vec<usize> = self.looks.iter().map(|(at, _)| *at).chain(self.calls.iter().copied()).collect();
        let first = points.first().copied().unwrap_or(function.start);
        let section = &object.code[function.code].name;
        if function.is_program && section.trim_start_matches('?').starts_with("lsm") {
            return Err(refuse(first, "a run that is ended returns 0, which permits what an LSM program may forbid"));
        }
        if !function.is_program && !function.is_static {
            return Err(refuse(first, "the verifier does not follow calls of a global function: make it static"));
        }
        let takes_five = function.parameters.is_none_or(|count| count > 4).then_some(first);
        let fifth = takes_five.or_else(|| graph.reads_fifth_argument(object, function.code));
        if let Some(place) = fifth.filter(|_| !function.is_program) {
            return Err(refuse(
                place,
                "a function with a loop to instrument takes at most 4 arguments: the fifth register carries the address \
                 of the caller's flag. Pass several in a struct",
            ));
        }
        for at in points {
            let Some((&call, &kind)) = track.held.get(&at).and_then(|held| held.first_key_value()) else { continue };
            let (what, name) = words(object, function.code, call, kind);
            return Err(Error::Held {
                function: function.name.clone(),
                place: object.place(function.code, at),
                what,
                call: name,
                acquired: object.place(function.code, call),
            });
        }
        Ok(())
    }

    /// Slots are below what the function uses of its frame.
    fn place_slots(&mut self, function: &Function, track: &Track) -> Result<(), Error> {
        let saves = self.looks.iter().any(|(_, scratch)| matches!(scratch, Scratch::Saved(_)));
        let wanted = [!self.calls.is_empty(), !function.is_program, saves];
        let mut next = 0;
        let mut slots = [0_i16; 3];
        let failed = |reason: String| Error::Stack { function: function.name.clone(), reason };
        for (slot, _) in slots.iter_mut().zip(wanted).filter(|(_, wanted)| *wanted) {
            let depth =
                track.depth().ok_or_else(|| failed("which part of it the function uses is not evident".into()))?;
            next += 8;
            let bottom = (depth + 7) / 8 * 8 + next;
            if bottom > FRAME_BYTES {
                return Err(failed(format!("it would use {bottom} of {FRAME_BYTES}")));
            }
            *slot = i16::try_from(-bottom).map_err(|error| failed(error.to_string()))?;
        }
        [self.flag, self.caller, self.saved] = slots;
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

/// A dead register, if there is one. Else one that the function saves for itself, which it has certainly set.
fn scratch(live: u16) -> Scratch {
    match (0..10).find(|register| live >> register & 1 == 0) {
        Some(register) => Scratch::Dead(register),
        None => Scratch::Saved(6),
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
