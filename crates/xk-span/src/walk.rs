//! From a critical span through callees, and out to callers, as far as its values go.
//!
//! In: a critical span with its sources. Out: the frames that its values reach, and escapes. A callee is analysed once
//! for each way in which tainted data are passed to it; its summary says what it returns and stores. The frames of
//! callers are safe spans. Where a value cannot be followed, there is an escape.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use xk_table::Escape;

use crate::callers::Callers;
use crate::calls::results;
use crate::error::Unfollowed;
use crate::frame::Frame;
use crate::location::{Pointer, RegisterSet, Where};
use crate::slice::{slice, Callees, EntryTaint, ExitTaint, Slice, Sources, Store, Use};
use crate::world::{Function, World};

/// The depth of calls that are followed.
const DEPTH: usize = 4;
/// The largest number of frames that one critical span may reach through its callers.
const FRAMES: usize = 256;
/// The largest number of callees that one critical span may reach.
const CALLEES: usize = 2000;
/// The largest number of instructions in the prepared frames that are kept.
const KEPT: usize = 400_000;

/// A frame in which values of a critical span are alive.
#[derive(Debug, Default, Clone)]
pub struct Found {
    /// Instructions at which a value is alive.
    pub alive: BTreeSet<u64>,
    /// Those that read one, and what for.
    pub uses: BTreeMap<u64, Use>,
    /// Why it could not be followed, if that is so.
    pub whole: Option<String>,
}

/// Everything about one critical span.
#[derive(Debug, Default, Clone)]
pub struct Reach {
    /// By the function that opens the frame.
    pub frames: BTreeMap<u64, Found>,
    /// Where values outlive their frames.
    pub escapes: BTreeSet<Escape>,
    /// Whether a value may be where other threads see it.
    pub memory: bool,
}

#[derive(Debug, Clone, Default)]
struct Summary {
    exit: ExitTaint,
    escapes: Lost,
    memory: bool,
}

/// Escapes by place, what it is, and why; of calls also what is passed.
type Lost = BTreeMap<(String, String, String), EntryTaint>;

/// The analysis of one kernel; what it learns serves every constant.
pub struct Walk<'w> {
    /// The code.
    pub world: &'w World,
    callers: &'w Callers,
    frames: HashMap<u64, Result<Rc<Frame>, Unfollowed>>,
    kept: usize,
    /// By callee and what is passed to it; `None` while the callee is looked at.
    summaries: HashMap<(u64, EntryTaint), Option<Summary>>,
    /// Of the span or callee that is looked at.
    escapes: Lost,
    memory: bool,
    /// Callees that may still be looked at.
    budget: usize,
    /// Calls that lead to the frame that is looked at.
    depth: usize,
}

impl<'w> Walk<'w> {
    /// For `world`.
    #[must_use]
    pub fn new(world: &'w World, callers: &'w Callers) -> Self {
        Self {
            world,
            callers,
            frames: HashMap::new(),
            kept: 0,
            summaries: HashMap::new(),
            escapes: Lost::new(),
            memory: false,
            budget: CALLEES,
            depth: 0,
        }
    }

    /// Forgets callees: what was found of one depends on how deep it was met, and the
    /// result for a constant must not depend on the constants before.
    pub fn forget(&mut self) {
        self.summaries.clear();
    }

    /// The function that opens the frame of the code at `address`.
    #[must_use]
    pub fn root(&self, address: u64) -> u64 {
        self.callers.root(self.world, address).map_or(address, |root| root.start)
    }

    /// The prepared frame of a function.
    ///
    /// # Errors
    /// Why it cannot be followed.
    pub fn frame(&mut self, entry: u64) -> Result<Rc<Frame>, Unfollowed> {
        if let Some(known) = self.frames.get(&entry) {
            return known.clone();
        }
        let frame = Frame::new(self.world, entry).map(Rc::new);
        let size = frame.as_ref().map_or(1, |frame| frame.graph.nodes.len());
        if self.kept + size > KEPT {
            self.frames.clear();
            self.kept = 0;
        }
        self.kept += size;
        self.frames.insert(entry, frame.clone());
        frame
    }

    /// Follows what `sources` taint in the frame of `entry`, until nothing is left.
    pub fn follow(&mut self, entry: u64, sources: Sources) -> Reach {
        self.escapes.clear();
        (self.memory, self.budget) = (false, CALLEES);
        let mut reach = Reach::default();
        let mut seen: BTreeSet<(u64, Sources)> = BTreeSet::new();
        let mut todo = vec![(entry, sources)];
        while let Some((entry, sources)) = todo.pop() {
            if !seen.insert((entry, sources.clone())) {
                continue;
            }
            if seen.len() > FRAMES {
                let place = self.world.place_name(entry);
                self.escape(place, "the value that it returns", &format!("more than {FRAMES} callers"));
                break;
            }
            let (exit, tail_calls) = self.top(entry, &sources, &mut reach);
            todo.extend(tail_calls.into_iter().map(|(to, entry)| (to, Sources { entry, ..Sources::default() })));
            todo.extend(self.out(entry, exit));
        }
        reach.escapes = std::mem::take(&mut self.escapes).into_iter().map(escape).collect();
        reach.memory = self.memory;
        reach
    }

    /// Looks at one frame whose function is on the stack.
    fn top(&mut self, entry: u64, sources: &Sources, reach: &mut Reach) -> (ExitTaint, BTreeMap<u64, EntryTaint>) {
        let sliced = self.frame(entry).and_then(|frame| Ok((slice(&frame, sources, self)?, frame)));
        let found = reach.frames.entry(entry).or_default();
        match sliced {
            Ok((slice, frame)) => {
                let address = |at: &usize| frame.graph.nodes[*at].insn.ip();
                found.alive.extend(slice.alive.iter().map(address));
                // Not the call from which a value comes: until it returns, the callee is inside.
                for (at, how) in &slice.uses {
                    let known = found.uses.entry(address(at)).or_insert(*how);
                    *known = (*known).max(*how);
                }
                (slice.exit, slice.tail_calls)
            }
            Err(why) => {
                let why = why.to_string();
                found.whole = Some(why.clone());
                let place = self.world.place_name(entry);
                self.escape(place, "everything that it stores, returns and passes on", &why);
                self.memory = true;
                let returned = self.world.function_at(entry).map(|function| results(self.world, function).registers);
                let registers = returned.unwrap_or(RegisterSet::ALL) & RegisterSet::RESULTS;
                (ExitTaint { registers, ..ExitTaint::default() }, BTreeMap::new())
            }
        }
    }

    /// What a frame leaves goes to its callers: the slices to be made there.
    fn out(&mut self, entry: u64, mut exit: ExitTaint) -> Vec<(u64, Sources)> {
        let (passed, lost): (BTreeSet<Store>, BTreeSet<Store>) =
            exit.stores.into_iter().partition(|store| store.parameter().is_some());
        lost.iter().for_each(|store| self.lost(store));
        exit.stores = passed;
        let Some(function) = self.world.function_at(entry).filter(|_| !exit.is_empty()) else { return Vec::new() };
        let mut starts: BTreeMap<u64, Sources> = BTreeMap::new();
        let sites: Vec<u64> = self.callers.of(function).collect();
        for site in sites {
            let Some(root) = self.callers.root(self.world, site).cloned() else { continue };
            if self.world.is_over(root.start) {
                self.initialisation(&root, entry, &exit);
                continue;
            }
            let root = root.start;
            starts.entry(root).or_default().calls.insert(site, exit.clone());
        }
        let known: Vec<(u64, Sources)> =
            starts.into_iter().filter_map(|(root, sources)| self.reached(root, sources)).collect();
        if let Some(reason) = self.called_by_others(function) {
            let place = self.world.place_name(entry);
            if !exit.registers.is_empty() {
                self.escape(place, "the value that it returns", reason);
            }
            exit.stores.iter().for_each(|store| self.lost(store));
        }
        known
    }

    /// Why a function may have callers that are not known.
    #[must_use]
    pub fn called_by_others(&self, function: &Function) -> Option<&'static str> {
        let entry = function.start;
        Some(match (self.world.exported.contains(&entry), self.callers.is_taken(entry)) {
            (true, false) => "modules that are not analysed may call it",
            (_, true) => "it is also called through a pointer",
            _ if self.callers.of(function).next().is_none() => "no analysed code calls it",
            _ if !self.world.is_c(function) => "it is not a C function",
            _ => return None,
        })
    }

    /// The instructions that call a function, jump to it or jump into it, each with the function that opens its frame.
    #[must_use]
    pub fn call_sites(&self, function: &Function) -> Vec<(&'w Function, u64)> {
        let root = |site: u64| Some((self.callers.root(self.world, site)?, site));
        self.callers.of(function).filter_map(root).collect()
    }

    /// Code that initialises the kernel has run; a module's may be running.
    fn initialisation(&mut self, caller: &Function, entry: u64, exit: &ExitTaint) {
        if caller.owner != 0 && !exit.registers.is_empty() {
            let place = self.world.place_name(entry);
            self.escape(place, "the value that it returns", "code that initialises a module calls it");
        }
        exit.stores.iter().for_each(|store| self.lost(store));
    }

    /// The sites of `sources` that control reaches from the entry; jumps within what only
    /// looks like another function are none.
    fn reached(&mut self, root: u64, mut sources: Sources) -> Option<(u64, Sources)> {
        if let Ok(frame) = self.frame(root) {
            let leaves = |site: &u64| {
                frame.graph.at(*site).is_some_and(|at| {
                    let node = &frame.graph.nodes[at];
                    node.call.is_some() || node.tail.is_some()
                })
            };
            sources.calls.retain(|site, _| leaves(site));
        }
        (!sources.calls.is_empty()).then_some((root, sources))
    }

    /// Looks at a callee for the first time with this entry.
    fn summarise(&mut self, callee: u64, entry: &EntryTaint, site: u64) -> Summary {
        let outer = (std::mem::take(&mut self.escapes), std::mem::take(&mut self.memory));
        let sources = Sources { entry: entry.clone(), ..Sources::default() };
        self.depth += 1;
        let sliced = self.frame(callee).and_then(|frame| slice(&frame, &sources, self));
        self.depth -= 1;
        let exit = match sliced {
            Ok(Slice { exit, .. }) => exit,
            Err(why) => {
                self.leak(site, entry, self.world.place_name(callee), &why.to_string());
                anything(entry)
            }
        };
        let summary = Summary { exit, escapes: self.escapes.clone(), memory: self.memory };
        self.take(outer.0);
        self.memory |= outer.1;
        summary
    }

    fn escape(&mut self, place: String, field: &str, reason: &str) {
        self.escapes.entry((place, field.to_owned(), reason.to_owned())).or_default();
    }

    /// What the call at `at` passes is lost.
    fn leak(&mut self, at: u64, entry: &EntryTaint, to: String, reason: &str) {
        self.memory = true;
        let place = self.world.place_name(at);
        self.escapes.entry((place, to, reason.to_owned())).or_default().join(entry);
    }

    fn take(&mut self, escapes: Lost) {
        for (key, entry) in escapes {
            self.escapes.entry(key).or_default().join(&entry);
        }
    }

    /// A value that stays in memory.
    fn lost(&mut self, store: &Store) {
        self.memory = true;
        let field = self.name(store);
        let reason = "later reads are not followed";
        self.escape(self.world.place_name(store.at), &field, reason);
    }

    fn name(&self, store: &Store) -> String {
        let typed = store.named.filter(|pointer| pointer.ty != 0);
        match (store.access.place, typed) {
            (_, Some(Pointer { ty, offset, .. })) => self.world.types.field(ty, offset),
            (Where::Static(address), _) => self.object_name(address),
            (Where::PerCpu(address), _) => format!("per-CPU {}", self.object_name(address)),
            (Where::Based(Some(register), at), _) => {
                format!("memory at {at:#x}(%{})", xk_lift::state::REGISTERS[usize::from(register & 15)])
            }
            _ => "memory at an address that is computed".to_owned(),
        }
    }

    fn object_name(&self, address: u64) -> String {
        match self.world.object(address) {
            None => format!("{address:#x}"),
            Some((name, 0)) => name.to_owned(),
            Some((name, offset)) => format!("{name}{offset:+#x}"),
        }
    }
}

impl Callees for Walk<'_> {
    fn exit_taint(&mut self, callee: u64, entry: &EntryTaint, site: u64) -> ExitTaint {
        let key = (callee, entry.clone());
        match self.summaries.get(&key) {
            Some(Some(known)) => {
                let known = known.clone();
                self.take(known.escapes);
                self.memory |= known.memory;
                return known.exit;
            }
            Some(None) => {
                self.leak(site, entry, self.world.place_name(callee), "recursion is not followed");
                return anything(entry);
            }
            None => {}
        }
        if self.depth == DEPTH || self.budget == 0 {
            let why = match self.depth == DEPTH {
                true => format!("calls are followed {DEPTH} levels deep"),
                false => format!("only {CALLEES} callees are analysed"),
            };
            self.leak(site, entry, self.world.place_name(callee), &why);
            return anything(entry);
        }
        self.budget -= 1;
        self.summaries.insert(key.clone(), None);
        let summary = self.summarise(callee, entry, site);
        let exit = summary.exit.clone();
        self.summaries.insert(key, Some(summary));
        exit
    }

    fn passed_to_unknown(&mut self, site: u64, what: &str, entry: &EntryTaint) {
        self.leak(site, entry, what.to_owned(), "the code that is called is not known");
    }

    fn exposed(&mut self, site: u64) {
        self.memory = true;
        let reason = "its address is in memory, so a callee or another thread may access it";
        self.escape(self.world.place_name(site), "an object on the stack", reason);
    }

    fn place_name(&self, address: u64) -> String {
        self.world.place_name(address)
    }
}

/// What a callee that is not followed may leave: its results, and whatever was in the registers and flags.
fn anything(entry: &EntryTaint) -> ExitTaint {
    ExitTaint { registers: entry.registers | RegisterSet::RESULTS, flags: entry.flags, ..ExitTaint::default() }
}

fn escape(((place, field, reason), entry): ((String, String, String), EntryTaint)) -> Escape {
    let field = if entry.is_empty() { field } else { format!("{} of {field}", passed(&entry)) };
    Escape { place, field, reason }
}

/// `argument 2`, for people.
fn passed(entry: &EntryTaint) -> String {
    let numbers = crate::value::ARGUMENTS.iter().zip(1..);
    let of = |registers: RegisterSet| -> Vec<String> {
        let set = numbers.clone().filter(|(register, _)| registers.contains(**register));
        set.map(|(_, number): (_, usize)| number.to_string()).collect()
    };
    let (values, objects) = (of(entry.registers), of(entry.pointees));
    let mut words = Vec::new();
    if !values.is_empty() {
        words.push(format!("argument {}", values.join(", ")));
    }
    if !objects.is_empty() {
        words.push(format!("what argument {} points to", objects.join(", ")));
    }
    if entry.stack > 0 {
        words.push("an argument on the stack".to_owned());
    }
    if words.is_empty() {
        words.push("a register".to_owned());
    }
    words.join(" and ")
}
