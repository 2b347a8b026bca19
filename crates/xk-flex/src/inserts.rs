//! What is inserted into a function: looks and what surrounds leaving calls, with registers, slots of the frame, and
//! what is released.

use std::collections::BTreeMap;

use crate::elf::{Function, Object};
use crate::flow::Graph;
use crate::insn::{Insn, FRAME};
use crate::release::{releases, Argument, Release};
use crate::track::{Place, Track};
use crate::Error;

/// What the kernel allows for a frame, less what `may_goto` takes.
const FRAME_BYTES: i64 = 512 - 8;
/// `struct xk_flex_run` of `bpf/xk_flex.bpf.h`.
const RUN_BYTES: i64 = 40;
/// `struct xk_heap_run` of `bpf/xk_fault.bpf.h`, which begins with that.
const HEAP_RUN_BYTES: i64 = 48;
/// `struct xk_lock_run` of `bpf/xk_lock.bpf.h`, which begins with that.
const LOCK_RUN_BYTES: i64 = 136;
/// Registers that a look needs for a moment in a program; one more in a subprogram, which first loads the address of
/// the run.
const SCRATCH: usize = 1;
/// Instructions that the kernel makes of `may_goto`: load, compare, count, store.
const MAY_GOTO: usize = 4;
/// Hooks whose programs must return 1 (`check_return_code()` of the kernel), by the beginnings of their sections.
const ONLY_ONE: [&str; 3] = ["cgroup/recvmsg", "cgroup/getpeername", "cgroup/getsockname"];
/// Registers that a call overwrites.
const VOLATILE: std::ops::Range<u8> = 0..6;

/// A register that a look uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scratch {
    /// Nobody reads its value any more.
    Dead(u8),
    /// It is saved.
    Saved(u8),
}

impl Scratch {
    /// The register.
    #[must_use]
    pub fn register(self) -> u8 {
        let (Self::Dead(register) | Self::Saved(register)) = self;
        register
    }
}

/// The loops of which turns end at an instruction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ends {
    /// Registers that they write.
    pub written: u16,
    /// How often the body of the loop stands in the program.
    pub copies: usize,
}

/// A look, before an instruction.
#[derive(Debug, Default)]
pub struct Look {
    /// The instruction.
    pub at: usize,
    /// The loops that end here.
    pub ends: Ends,
    /// Its number in the object.
    pub site: usize,
    /// What counts the turns; in a subprogram, second, what holds the address of the run.
    pub scratch: Vec<Scratch>,
    /// Registers of which the verifier is to know nothing.
    pub widened: Vec<u8>,
    /// Registers whose values the call of `xk_flex_look()` would overwrite.
    pub spilled: Vec<u8>,
    /// What is released if the run ends here.
    pub releases: Vec<Release>,
}

impl Look {
    /// How many turns it counts.
    #[must_use]
    pub fn turns(&self) -> i32 {
        i32::try_from(self.ends.copies).unwrap_or(1).max(1)
    }

    /// Instructions that the kernel executes if it is not yet time to look.
    #[must_use]
    pub fn cost(&self) -> usize {
        // Load, count, store, compare; a subprogram first loads the address of the run, here and to widen.
        const COUNT: usize = 4;
        let address = self.scratch.len() - SCRATCH.min(self.scratch.len());
        let saved = self.scratch.iter().filter(|scratch| matches!(scratch, Scratch::Saved(_))).count();
        let widen = if self.widened.is_empty() { 0 } else { 1 + address + self.widened.len() };
        MAY_GOTO + COUNT + address + 2 * saved + widen
    }
}

/// A call of a function that is told the run.
#[derive(Debug)]
pub struct RunCall {
    /// The instruction.
    pub at: usize,
    /// The function may be left early.
    pub ends: bool,
    /// What is released if the run ended in it.
    pub releases: Vec<Release>,
}

/// Where a program returns that may hold locks, or may have accessed what is not there.
#[derive(Debug, Clone, Copy)]
pub struct Exit {
    /// The instruction.
    pub at: usize,
    /// Its number, after those of the looks.
    pub site: usize,
}

/// What is inserted into a function.
#[derive(Debug, Default)]
pub struct Inserts {
    /// In the order of the instructions.
    pub looks: Vec<Look>,
    /// In the order of the instructions.
    pub calls: Vec<RunCall>,
    /// Calls that become the address of the run.
    pub runs: Vec<usize>,
    /// In the order of the instructions.
    pub exits: Vec<Exit>,
    /// A program that notes how often its CPU accessed what is not there, and compares it where it returns.
    pub notes_faults: bool,
    /// Offset in the frame of the run; in a subprogram, of its address.
    pub run: i16,
    /// Offsets of saved scratch registers.
    pub saved: [i16; 2],
    /// Offsets of spilled registers.
    pub spills: [i16; 6],
}

/// A function, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// Its object.
    pub object: &'a Object,
    /// The function.
    pub function: &'a Function,
    /// Its flow.
    pub graph: &'a Graph,
    /// What is held in it, and how it uses its frame.
    pub track: &'a Track,
}

impl Inserts {
    /// Looks before these instructions, not planned yet.
    #[must_use]
    pub fn with_looks(looks: BTreeMap<usize, Ends>) -> Self {
        let looks = looks.into_iter().map(|(at, ends)| Look { at, ends, ..Look::default() }).collect();
        Self { looks, ..Self::default() }
    }

    /// Whether the function may be left early.
    #[must_use]
    pub fn leaves(&self) -> bool {
        !self.looks.is_empty() || self.notes_faults || self.calls.iter().any(|call| call.ends)
    }

    /// Whether the function knows the run.
    #[must_use]
    pub fn takes_run(&self) -> bool {
        !self.looks.is_empty() || self.notes_faults || !self.calls.is_empty() || !self.runs.is_empty()
    }

    /// Plans looks, and what surrounds these calls, which are told the run; with each, whether the run may end in it.
    /// `sites` is the number of the first look. `widen`: the verifier is to know nothing of numbers that loops write.
    ///
    /// # Errors
    /// What cannot be left soundly.
    pub fn plan(
        &mut self,
        known: &Known<'_>,
        calls: Vec<(usize, bool)>,
        sites: usize,
        widen: bool,
    ) -> Result<(), Error> {
        self.check(known, calls.first().map(|(at, _)| *at).or(self.runs.first().copied()))?;
        let live = known.graph.live_before(known.object, known.function.code);
        let set = known.graph.set_before(known.object, known.function.code, arguments(known.function));
        let release = |at: usize, after_call| {
            let held = known.track.held.get(&at).map_or(&[][..], Vec::as_slice);
            releases(known.object, known.function, at, held, after_call)
        };
        for (number, look) in self.looks.iter_mut().enumerate() {
            look.site = sites + number;
            look.releases = release(look.at, false)?;
            let wanted = look.releases.iter().fold(0, |wanted, release| wanted | register(release));
            let live = live.get(&look.at).copied().unwrap_or(u16::MAX) | wanted;
            look.scratch = scratch(live, SCRATCH + usize::from(!known.function.is_program));
            let is_saved = |register: &u8| look.scratch.contains(&Scratch::Saved(*register));
            let numbers = known.track.numbers.get(&look.at).copied().unwrap_or(0) & live & look.ends.written;
            let numbers = if widen { numbers } else { 0 };
            look.widened = (0..FRAME).filter(|at| numbers >> at & 1 == 1 && !is_saved(at)).collect();
            // A call counts as a reader of all arguments, also of those that nothing has set.
            let set = set.get(&look.at).copied().unwrap_or(0);
            look.spilled = VOLATILE.filter(|register| (live & set) >> register & 1 == 1).collect();
        }
        for (at, ends) in calls {
            let releases = if ends { release(at, true)? } else { Vec::new() };
            self.calls.push(RunCall { at, ends, releases });
        }
        if (known.object.this_run().is_some() || self.notes_faults) && known.function.is_program {
            let insns = &known.object.code[known.function.code].insns;
            let exits = (known.function.start..known.function.end).filter(|at| insns[*at].code == Insn::EXIT);
            let first = sites + self.looks.len();
            self.exits = exits.enumerate().map(|(number, at)| Exit { at, site: first + number }).collect();
        }
        self.place_slots(known)
    }

    fn check(&self, known: &Known<'_>, call: Option<usize>) -> Result<(), Error> {
        let Known { object, function, graph, .. } = *known;
        let refuse = |place: usize, reason: &str| Error::Function {
            function: function.name.clone(),
            place: object.place(function.code, place),
            reason: reason.into(),
        };
        let first = self.looks.first().map(|look| look.at).or(call).unwrap_or(function.start);
        let hook = object.code[function.code].name.trim_start_matches('?');
        if function.is_program && hook.starts_with("lsm") {
            return Err(refuse(first, "a run that is ended returns 0, which permits what an LSM program may forbid"));
        }
        if function.is_program && ONLY_ONE.iter().any(|name| hook.starts_with(name)) {
            return Err(refuse(
                first,
                "a run that is ended returns 0, and the kernel permits nothing but 1 on this hook",
            ));
        }
        if !function.is_program && !function.is_static {
            return Err(refuse(first, "the verifier does not follow calls of a global function: make it static"));
        }
        let takes_five = function.parameters.is_none_or(|count| count > 4).then_some(first);
        let fifth = takes_five.or_else(|| graph.reads_fifth_argument(object, function.code));
        match fifth.filter(|_| !function.is_program) {
            None => Ok(()),
            Some(place) => Err(refuse(
                place,
                "a function with a loop to instrument takes at most 4 arguments: the fifth register carries the address \
                 of the run. Pass several in a struct",
            )),
        }
    }

    /// Slots are below what the function uses of its frame.
    fn place_slots(&mut self, known: &Known<'_>) -> Result<(), Error> {
        let failed = |reason: String| Error::Stack { function: known.function.name.clone(), reason };
        let depth = known.track.depth();
        let depth = depth.ok_or_else(|| failed("which part of it the function uses is not evident".into()))?;
        let mut bottom = (depth + 7) / 8 * 8;
        let mut take = |bytes: i64| {
            bottom += bytes;
            if bottom > FRAME_BYTES {
                return Err(failed(format!("it would use {bottom} of {FRAME_BYTES} bytes")));
            }
            i16::try_from(-bottom).map_err(|error| failed(error.to_string()))
        };
        self.run = take(match known.object.this_run() {
            _ if !known.function.is_program => 8,
            Some(_) => LOCK_RUN_BYTES,
            None if self.notes_faults => HEAP_RUN_BYTES,
            None => RUN_BYTES,
        })?;
        for (number, slot) in self.saved.iter_mut().enumerate() {
            let is_saved = |look: &Look| matches!(look.scratch.get(number), Some(Scratch::Saved(_)));
            if self.looks.iter().any(is_saved) {
                *slot = take(8)?;
            }
        }
        for register in VOLATILE {
            if self.looks.iter().any(|look| look.spilled.contains(&register)) {
                self.spills[usize::from(register)] = take(8)?;
            }
        }
        Ok(())
    }
}

/// The registers of the arguments. One that the verifier knows and the type does not name is not kept over a look;
/// if the function reads it afterwards, the verifier refuses the object that is written.
fn arguments(function: &Function) -> u16 {
    let count = if function.is_program { 1 } else { function.parameters.unwrap_or(5) };
    (1..=count.min(5)).fold(0, |set, register| set | 1 << register)
}

/// The register that a release reads, as one bit.
fn register(release: &Release) -> u16 {
    match release.argument {
        Argument::Reference(Place::Register(register)) => 1 << register,
        _ => 0,
    }
}

/// Dead registers, as far as there are any. Else some that the function saves for itself: they are live, and so it has
/// certainly set them.
fn scratch(live: u16, count: usize) -> Vec<Scratch> {
    let dead = (0..FRAME).filter(|register| live >> register & 1 == 0).map(Scratch::Dead);
    let saved = (6..FRAME).filter(|register| live >> register & 1 == 1).map(Scratch::Saved);
    dead.chain(saved).take(count).collect()
}
