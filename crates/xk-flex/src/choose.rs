//! Which loops are instrumented, and how often their bodies are to stand in the program.

use std::collections::BTreeSet;
use std::fmt;

use crate::elf::{Function, Object};
use crate::flow::{Graph, Loop};
use crate::insn::Callee;
use crate::{counted, Error};

/// Instructions that a loop has at most with all copies of its body. With more, a look is cheap beside the body, and the
/// verifier follows each copy.
const MOST_INSNS: usize = 256;
/// How often the body of a loop that calls a function stands in the program at most. The call takes many times as long as
/// a look, and the verifier follows the function in each copy.
const WITH_CALLS: usize = 8;
/// Ways through all copies together. In a loop that is not finished, the verifier compares everything that is set, also
/// what nobody reads any more: where two ways meet again, it often follows both.
const MOST_WAYS: usize = 64;

/// Which loops are instrumented.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Also loops that are evidently counted.
    pub all: bool,
    /// Numbers that instrumented loops write become unknown to the verifier at the end of each turn, so that it does not
    /// follow each turn. If the loop is unrolled, that is the end of its last copy.
    pub widen: bool,
    /// Loops to leave alone, by the source line (`FILE.c:LINE`) of their first instruction.
    pub leave: Vec<String>,
    /// If given, only these: function, and the first instruction of the loop in its section.
    pub only: Option<BTreeSet<(String, usize)>>,
    /// How often the body of a short loop stands in the program, so that one turn of so many looks. 1: as in the source.
    pub unroll: usize,
    /// Functions that look at their first branch, too, be there a loop or not. This tries the rewriter on programs that
    /// have no loop.
    pub branches: BTreeSet<String>,
}

impl Default for Choice {
    fn default() -> Self {
        let (leave, branches) = (Vec::new(), BTreeSet::new());
        Self { all: false, widen: false, leave, only: None, unroll: Self::UNROLL, branches }
    }
}

impl Choice {
    /// How often short loops are unrolled, if nothing else is said.
    pub const UNROLL: usize = 8;
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
    /// It is left alone, because it is part of what ends a run.
    Ends,
}

/// Why the body of an instrumented loop stands in the program only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rolled {
    /// Nothing else was asked for.
    Told,
    /// It contains another loop.
    Inner,
    /// A turn of a loop around it ends in the same place.
    End,
    /// It calls this function, in which loops are instrumented.
    Calls(String),
    /// It waits for a lock of the heap.
    Waits,
    /// Its body has so many instructions.
    Long(usize),
    /// There are so many ways through its body.
    Ways(usize),
    /// The object with copies could not be written.
    Failed(String),
}

impl fmt::Display for Rolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told => f.write_str("nothing else was asked for"),
            Self::Inner => f.write_str("it contains another loop"),
            Self::End => f.write_str("a turn of a loop around it ends in the same place"),
            Self::Calls(function) => write!(f, "it calls {function}, which contains an instrumented loop"),
            Self::Waits => f.write_str("it waits for a lock of the heap"),
            Self::Long(insns) => {
                write!(f, "its body has {insns} instructions, and all copies may have {MOST_INSNS} together")
            }
            Self::Ways(ways) => {
                write!(f, "there are {ways} ways through its body, and through all copies may be {MOST_WAYS}")
            }
            Self::Failed(error) => write!(f, "with copies of loops: {error}"),
        }
    }
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
    /// How often its body stands in the program.
    pub copies: usize,
    /// If it is instrumented and stands there once: why.
    pub rolled: Option<Rolled>,
    /// If it is instrumented: instructions that the kernel executes in addition, once in as many turns as it has copies.
    pub cost: usize,
    /// Its function by number, and its first instruction in the section.
    pub(crate) number: usize,
    pub(crate) header: usize,
}

/// A loop to instrument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Its function.
    pub function: usize,
    /// Its first instruction in the section.
    pub header: usize,
    /// How often its body stands in the program, or is to.
    pub copies: usize,
}

impl LoopReport {
    /// If it is instrumented.
    #[must_use]
    pub fn wanted(&self) -> Option<Wanted> {
        let wanted = Wanted { function: self.number, header: self.header, copies: self.copies };
        (self.done == Done::Instrumented).then_some(wanted)
    }

    /// Its body stands in the program once.
    pub fn roll(&mut self, why: &Rolled) {
        if self.copies > 1 {
            (self.copies, self.rolled) = (1, Some(why.clone()));
        }
    }
}

/// All loops of an object, by function and place.
///
/// # Errors
/// A loop that is to be left alone does not exist; a loop is to be instrumented, and the object has no header.
pub fn choose(object: &Object, graphs: &[Graph], choice: &Choice) -> Result<Vec<LoopReport>, Error> {
    let (mut loops, called_to_end) = (Vec::new(), called_to_end(object));
    for (number, (function, graph)) in object.functions.iter().zip(graphs).enumerate() {
        for found in &graph.loops {
            let done = match called_to_end.contains(&number) {
                true => Done::Ends,
                false => decide(object, function, graph, found, choice),
            };
            let report = report(object, number, graph, found, done);
            if report.done == Done::Instrumented && !object.has_header() {
                return Err(Error::NoHeader { function: report.function, place: report.place });
            }
            loops.push(report);
        }
    }
    refuse_unknown(&loops, choice)?;
    let ends = ending(object, &loops);
    for report in loops.iter_mut().filter(|report| report.done == Done::Instrumented) {
        let graph = &graphs[report.number];
        let Some(found) = graph.loop_at(report.header) else { continue };
        match copies(object, &object.functions[report.number], graph, found, choice.unroll, &ends) {
            Ok(copies) => report.copies = copies,
            Err(why) => report.rolled = Some(why),
        }
    }
    Ok(loops)
}

/// The functions by which a run ends: what a look calls, and what those call that take and give back locks. Their loops
/// are bounded by themselves.
fn called_to_end(object: &Object) -> BTreeSet<usize> {
    let asks: Vec<bool> = object.functions.iter().map(|function| !object.asks_for_run(function).is_empty()).collect();
    let mut found = BTreeSet::new();
    let asking = (0..asks.len()).filter(|number| asks[*number]);
    let mut work: Vec<usize> = object.ending().chain(asking).collect();
    while let Some(number) = work.pop() {
        if found.insert(number) {
            let Function { code, start, end, .. } = object.functions[number];
            work.extend((start..end).filter_map(|at| object.target(code, at)).filter(|callee| !asks[*callee]));
        }
    }
    found.retain(|number| !asks[*number]);
    found
}

fn report(object: &Object, number: usize, graph: &Graph, found: &Loop, done: Done) -> LoopReport {
    let function = &object.functions[number];
    let place = |block: usize| object.place(function.code, graph.blocks[block].last);
    let header = graph.blocks[found.header].start;
    LoopReport {
        function: function.name.clone(),
        place: object.place(function.code, header),
        back_edges: found.latches.iter().map(|latch| place(*latch)).collect(),
        done,
        copies: 1,
        rolled: None,
        cost: 0,
        number,
        header,
    }
}

fn decide(object: &Object, function: &Function, graph: &Graph, found: &Loop, choice: &Choice) -> Done {
    let header = graph.blocks[found.header].start;
    if choice.leave.contains(&object.place(function.code, header)) {
        return Done::Left;
    }
    // A run that waits for a lock must end.
    if !object.asks_for_run(function).is_empty() {
        return Done::Instrumented;
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

/// A loop that is not there must not be left alone in silence.
fn refuse_unknown(loops: &[LoopReport], choice: &Choice) -> Result<(), Error> {
    let is_known = |place: &String| loops.iter().any(|found| found.place == *place);
    let Some(place) = choice.leave.iter().find(|place| !is_known(place)) else { return Ok(()) };
    let places: Vec<&str> = loops.iter().map(|found| found.place.as_str()).collect();
    let known =
        if places.is_empty() { "there is no loop".into() } else { format!("loops begin at {}", places.join(", ")) };
    Err(Error::NoLoop { place: place.clone(), known })
}

/// Whether a run may be ended in a function, or in one that it calls.
fn ending(object: &Object, loops: &[LoopReport]) -> Vec<bool> {
    let mut ends = vec![false; object.functions.len()];
    loops.iter().filter_map(LoopReport::wanted).for_each(|wanted| ends[wanted.function] = true);
    for number in object.callees_first() {
        let Function { code, start, end, .. } = object.functions[number];
        let calls = (start..end).filter(|at| object.code[code].insns[*at].callee() == Some(Callee::Subprogram));
        ends[number] |= calls.filter_map(|at| object.target(code, at)).any(|callee| ends[callee]);
    }
    ends
}

/// How often the body of a loop is to stand in the program. `ends`: in which functions a run may be ended.
fn copies(
    object: &Object,
    function: &Function,
    graph: &Graph,
    found: &Loop,
    wanted: usize,
    ends: &[bool],
) -> Result<usize, Rolled> {
    if wanted < 2 {
        return Err(Rolled::Told);
    }
    if !object.asks_for_run(function).is_empty() {
        return Err(Rolled::Waits);
    }
    let others = || graph.loops.iter().filter(|other| *other != found);
    if others().any(|other| other.body.is_subset(&found.body)) {
        return Err(Rolled::Inner);
    }
    if others().any(|other| other.latches.iter().any(|latch| found.body.contains(latch))) {
        return Err(Rolled::End);
    }
    let insns = found.body.iter().flat_map(|block| graph.blocks[*block].start..graph.blocks[*block].end);
    let callee = |at: usize| object.code[function.code].insns[at].callee();
    let mut subprograms = insns.clone().filter(|at| callee(*at) == Some(Callee::Subprogram));
    if let Some(called) = subprograms.find_map(|at| object.target(function.code, at).filter(|called| ends[*called])) {
        return Err(Rolled::Calls(object.functions[called].name.clone()));
    }
    let most = if insns.clone().any(|at| callee(at).is_some()) { wanted.min(WITH_CALLS) } else { wanted };
    let length = insns.count();
    let copies = most.min(MOST_INSNS / length.max(1));
    if copies < 2 {
        return Err(Rolled::Long(length));
    }
    let ways = graph.ways(found);
    let fits = |copies: &usize| ways.saturating_pow(u32::try_from(*copies).unwrap_or(u32::MAX)) <= MOST_WAYS;
    (2..=copies).rev().find(fits).ok_or(Rolled::Ways(ways))
}
