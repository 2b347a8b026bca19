//! From a critical span through callees, and out to callers, as far as its values go.
//!
//! Callees are looked at once for each way in which something is passed to them, and
//! give back what they return and store. Frames on the way out are safe spans. Where a
//! value cannot be followed there is an escape, never silence.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use xk_table::Escape;

use crate::callers::Callers;
use crate::calls::{is_c, results};
use crate::frame::Frame;
use crate::slice::{Entry, Given, Slice, Slicer, Start, Store, Use};
use crate::unfollowed::Unfollowed;
use crate::value::{Pointer, Where};
use crate::world::{Function, World};

/// Calls that are followed, one in the other.
const DEPTH: usize = 4;
/// Frames that one critical span may reach on the way out.
const FRAMES: usize = 256;
/// Callees that one critical span may reach.
const CALLEES: usize = 2000;
/// Instructions for which effects of prepared frames are kept.
const KEPT: usize = 400_000;

/// What was found in a frame that values of a critical span live in.
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
    given: Given,
    escapes: Lost,
    memory: bool,
}

/// Escapes by place, what it is, and why; of calls also what is passed.
type Lost = BTreeMap<(String, String, String), Entry>;

/// The analysis of one kernel; what it learns serves every constant.
pub struct Walk<'w> {
    /// The code.
    pub world: &'w World,
    callers: &'w Callers,
    frames: HashMap<u64, Result<Rc<Frame>, Unfollowed>>,
    kept: usize,
    summaries: HashMap<(u64, Entry), Option<Summary>>,
    /// Of the span or callee that is looked at.
    escapes: Lost,
    memory: bool,
    budget: usize,
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

    /// Follows what `start` puts into the frame of `entry`, until nothing is left.
    pub fn follow(&mut self, entry: u64, start: Start) -> Reach {
        self.escapes.clear();
        (self.memory, self.budget) = (false, CALLEES);
        let mut reach = Reach::default();
        let mut seen: BTreeSet<(u64, Start)> = BTreeSet::new();
        let mut todo = vec![(entry, start)];
        while let Some((entry, start)) = todo.pop() {
            if !seen.insert((entry, start.clone())) {
                continue;
            }
            if seen.len() > FRAMES {
                let place = self.world.place_name(entry);
                self.escape(place, "the value that it returns", &format!("more than {FRAMES} callers"));
                break;
            }
            let (given, tails) = self.top(entry, &start, &mut reach);
            todo.extend(tails.into_iter().map(|(to, entry)| (to, Start { entry, ..Start::default() })));
            todo.extend(self.out(entry, given));
        }
        reach.escapes = std::mem::take(&mut self.escapes).into_iter().map(escape).collect();
        reach.memory = self.memory;
        reach
    }

    /// Looks at one frame whose function is on the stack.
    fn top(&mut self, entry: u64, start: &Start, reach: &mut Reach) -> (Given, BTreeMap<u64, Entry>) {
        let sliced = self.frame(entry).and_then(|frame| Ok((self.sliced(&frame, start, 0)?, frame)));
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
                (slice.given, slice.tails)
            }
            Err(why) => {
                let why = why.to_string();
                found.whole = Some(why.clone());
                let place = self.world.place_name(entry);
                self.escape(place, "everything that it stores, returns and passes on", &why);
                self.memory = true;
                let regs = self.world.function_at(entry).map_or(0b101, |f| results(self.world, f).regs & 0b101);
                (Given { regs, ..Given::default() }, BTreeMap::new())
            }
        }
    }

    fn sliced(&mut self, frame: &Frame, start: &Start, depth: usize) -> Result<Slice, Unfollowed> {
        Slicer::run(frame, start, self, depth)
    }

    /// What a frame gives back goes to its callers: the slices to be made there.
    fn out(&mut self, entry: u64, mut given: Given) -> Vec<(u64, Start)> {
        let (passed, lost): (BTreeSet<Store>, BTreeSet<Store>) =
            given.stores.into_iter().partition(|store| store.parameter().is_some());
        lost.iter().for_each(|store| self.lost(store));
        given.stores = passed;
        let Some(function) = self.world.function_at(entry).filter(|_| !given.is_empty()) else { return Vec::new() };
        let mut starts: BTreeMap<u64, Start> = BTreeMap::new();
        let sites: Vec<u64> = self.callers.of(function).collect();
        for site in sites {
            let Some(root) = self.callers.root(self.world, site).cloned() else { continue };
            if self.world.is_over(root.start) {
                self.initialisation(&root, entry, &given);
                continue;
            }
            let root = root.start;
            starts.entry(root).or_default().calls.insert(site, given.clone());
        }
        let known: Vec<(u64, Start)> =
            starts.into_iter().filter_map(|(root, start)| self.reached(root, start)).collect();
        if let Some(reason) = self.called_by_others(function) {
            let place = self.world.place_name(entry);
            if given.regs != 0 {
                self.escape(place, "the value that it returns", reason);
            }
            given.stores.iter().for_each(|store| self.lost(store));
        }
        known
    }

    /// Why somebody may call a function besides those that are known to.
    #[must_use]
    pub fn called_by_others(&self, function: &Function) -> Option<&'static str> {
        let entry = function.start;
        Some(match (self.world.exported.contains(&entry), self.callers.is_taken(entry)) {
            (true, false) => "modules that were not looked at may call it",
            (_, true) => "it is called through a pointer, too",
            _ if self.callers.of(function).next().is_none() => "nothing that was looked at calls it",
            _ if !is_c(self.world, function) => "it is no C function",
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
    fn initialisation(&mut self, caller: &Function, entry: u64, given: &Given) {
        if caller.owner != 0 && given.regs != 0 {
            let place = self.world.place_name(entry);
            self.escape(place, "the value that it returns", "code that initialises a module calls it");
        }
        given.stores.iter().for_each(|store| self.lost(store));
    }

    /// The sites of `start` that control reaches from the entry; jumps within what only
    /// looks like another function are none.
    fn reached(&mut self, root: u64, mut start: Start) -> Option<(u64, Start)> {
        if let Ok(frame) = self.frame(root) {
            let leaves = |site: &u64| {
                frame.graph.at(*site).is_some_and(|at| {
                    let node = &frame.graph.nodes[at];
                    node.call.is_some() || node.tail.is_some()
                })
            };
            start.calls.retain(|site, _| leaves(site));
        }
        (!start.calls.is_empty()).then_some((root, start))
    }

    /// What `callee` makes of what is passed to it.
    pub fn summary(&mut self, callee: u64, entry: &Entry, depth: usize, at: u64) -> Given {
        let anything = Given { regs: entry.regs | 0b101, flags: entry.flags, ..Given::default() };
        let key = (callee, entry.clone());
        match self.summaries.get(&key) {
            Some(Some(known)) => {
                let known = known.clone();
                self.take(known.escapes);
                self.memory |= known.memory;
                return known.given;
            }
            Some(None) => {
                self.leak(at, entry, self.world.place_name(callee), "a recursion, which is not followed");
                return anything;
            }
            None => {}
        }
        if depth > DEPTH || self.budget == 0 {
            let why = match depth > DEPTH {
                true => format!("{DEPTH} calls were followed"),
                false => format!("{CALLEES} callees were looked at"),
            };
            self.leak(at, entry, self.world.place_name(callee), &why);
            return anything;
        }
        self.budget -= 1;
        self.summaries.insert(key.clone(), None);
        let outer = (std::mem::take(&mut self.escapes), std::mem::take(&mut self.memory));
        let start = Start { entry: entry.clone(), ..Start::default() };
        let sliced = self.frame(callee).and_then(|frame| self.sliced(&frame, &start, depth));
        let given = match sliced {
            Ok(slice) => slice.given,
            Err(why) => {
                self.leak(at, entry, self.world.place_name(callee), &why.to_string());
                anything
            }
        };
        let summary = Summary { given: given.clone(), escapes: self.escapes.clone(), memory: self.memory };
        self.take(outer.0);
        self.memory |= outer.1;
        self.summaries.insert(key, Some(summary));
        given
    }

    fn escape(&mut self, place: String, field: &str, reason: &str) {
        self.escapes.entry((place, field.to_owned(), reason.to_owned())).or_default();
    }

    /// What the call at `at` passes is lost.
    fn leak(&mut self, at: u64, entry: &Entry, to: String, reason: &str) {
        self.memory = true;
        let place = self.world.place_name(at);
        self.escapes.entry((place, to, reason.to_owned())).or_default().join(entry);
    }

    fn take(&mut self, escapes: Lost) {
        for (key, entry) in escapes {
            self.escapes.entry(key).or_default().join(&entry);
        }
    }

    /// A tainted argument of a call whose callee is not known.
    pub fn unknown_callee(&mut self, at: u64, what: &str, entry: &Entry) {
        self.leak(at, entry, what.to_owned(), "what it does with it is not known");
    }

    /// An object of the frame with a value in it that others may reach.
    pub fn stack_object(&mut self, at: u64) {
        self.memory = true;
        let reason = "its address is in memory, where a callee or another thread may find it";
        self.escape(self.world.place_name(at), "an object on the stack", reason);
    }

    /// A value that stays in memory.
    fn lost(&mut self, store: &Store) {
        self.memory = true;
        let field = self.name(store);
        let reason = "what reads it later is not followed";
        self.escape(self.world.place_name(store.at), &field, reason);
    }

    fn name(&self, store: &Store) -> String {
        let typed = store.named.filter(|pointer| pointer.ty != 0);
        match (store.access.place, typed) {
            (_, Some(Pointer { ty, offset, .. })) => self.world.types.field(ty, offset),
            (Where::Static(address, per_cpu), _) => {
                let name = self.world.object(address);
                let name = name.map_or_else(
                    || format!("{address:#x}"),
                    |(name, offset)| match offset {
                        0 => name.to_owned(),
                        offset => format!("{name}{offset:+#x}"),
                    },
                );
                if per_cpu {
                    format!("per-CPU {name}")
                } else {
                    name
                }
            }
            (Where::Based(Some(register), at), _) => {
                format!("memory at {at:#x}(%{})", xk_lift::state::REGISTERS[usize::from(register & 15)])
            }
            _ => "memory at an address that is computed".to_owned(),
        }
    }
}

fn escape(((place, field, reason), entry): ((String, String, String), Entry)) -> Escape {
    let field = if entry == Entry::default() { field } else { format!("{} of {field}", passed(&entry)) };
    Escape { place, field, reason }
}

/// `argument 2`, for people.
fn passed(entry: &Entry) -> String {
    let numbers = crate::value::ARGUMENTS.iter().enumerate();
    let of = |mask: u32| -> Vec<String> {
        let set = numbers.clone().filter(|(_, register)| mask >> **register & 1 == 1);
        set.map(|(n, _)| (n + 1).to_string()).collect()
    };
    let (values, objects) = (of(entry.regs), of(entry.pointees));
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
