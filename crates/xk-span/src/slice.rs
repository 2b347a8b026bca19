//! The forward slice of one frame: what depends on the values that are put in, to which
//! instruction they are alive, and how they leave the frame.
//!
//! Thin: control dependence is not followed. Otherwise every instruction that reads a
//! tainted place taints everything that it writes; only a sure overwrite cleans.

use std::collections::{BTreeMap, BTreeSet};

use crate::calls::{Call, Kind};
use crate::effect::{Access, Effect, Locs};
use crate::frame::{Act, Frame};
use crate::unfollowed::Unfollowed;
use crate::value::{Pointer, Value, Values, Where};
use crate::walk::Walk;

/// What a caller puts into a function.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// Tainted registers and flags.
    pub regs: u32,
    /// Flags.
    pub flags: u32,
    /// Registers that point to tainted bytes of the caller's frame.
    pub pointees: u32,
    /// Bytes of tainted arguments on the stack.
    pub stack: i32,
}

/// A store of a tainted value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Store {
    /// The instruction.
    pub at: u64,
    /// Where it goes, as the frame that is looked at sees it.
    pub access: Access,
    /// The object and the offset as the function that stores sees them: their names.
    pub named: Option<Pointer>,
}

impl Store {
    /// The register that passed the object's address, if that is how it is known.
    #[must_use]
    pub fn parameter(&self) -> Option<u8> {
        match self.access.place {
            Where::Object(pointer) => pointer.parameter,
            _ => None,
        }
    }
}

/// What a function gives back of what was put in.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Given {
    /// Tainted registers and flags at a return.
    pub regs: u32,
    /// Flags.
    pub flags: u32,
    /// Stores of tainted values.
    pub stores: BTreeSet<Store>,
}

impl Given {
    /// Whether nothing comes back.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regs == 0 && self.flags == 0 && self.stores.is_empty()
    }

    /// Takes over what another way out gives.
    pub fn add(&mut self, other: &Self) {
        self.regs |= other.regs;
        self.flags |= other.flags;
        self.stores.extend(&other.stores);
    }
}

/// What is tainted at the beginning of a slice.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start {
    /// At the entry.
    pub entry: Entry,
    /// Before the instruction at an address.
    pub before: BTreeMap<u64, Locs>,
    /// Behind it.
    pub behind: BTreeMap<u64, Locs>,
    /// Stores that the instruction at an address does.
    pub stores: BTreeSet<u64>,
    /// What the function that is called at an address gives back.
    pub calls: BTreeMap<u64, Given>,
}

/// Which instructions consume values, from weak to strong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// A conditional branch.
    Branch,
    /// Something that hands the value on within the thread.
    Thread,
    /// A store that other threads may see.
    Memory,
}

/// A finished slice.
#[derive(Debug, Clone, Default)]
pub struct Slice {
    /// Nodes at which a tainted value is alive.
    pub alive: BTreeSet<usize>,
    /// Nodes that read one, and what for.
    pub uses: BTreeMap<usize, Use>,
    /// What the frame gives back.
    pub given: Given,
    /// Functions that take over the frame with tainted arguments.
    pub tails: BTreeMap<u64, Entry>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Taint {
    locs: Locs,
    cells: BTreeSet<Access>,
    /// A tainted value was stored outside of the frame.
    stored: bool,
}

impl Taint {
    fn merge(&mut self, other: &Self) -> bool {
        let (cells, stored) = (self.cells.len(), self.stored);
        self.cells.extend(&other.cells);
        self.stored |= other.stored;
        self.locs.add(&other.locs) || cells != self.cells.len() || stored != self.stored
    }
}

/// Whether two operands may be the same place, as far as their names say.
fn same(a: Access, b: Access) -> bool {
    let overlap = |x: i64, y: i64| {
        let bytes = |access: Access| if access.bytes == 0 { i64::from(u16::MAX) } else { i64::from(access.bytes) };
        x < y + bytes(b) && y < x + bytes(a)
    };
    match (a.place, b.place) {
        (Where::Static(x, gx), Where::Static(y, gy)) => gx == gy && overlap(x as i64, y as i64),
        (Where::Object(x), Where::Object(y)) => {
            let object = if x.ty == 0 { x.parameter.is_some() && x.parameter == y.parameter } else { x.ty == y.ty };
            let offsets = x.offset.zip(y.offset);
            object && offsets.is_none_or(|(x, y)| overlap(x.into(), y.into()))
        }
        (Where::Based(x, i), Where::Based(y, j)) => x == y && overlap(i.into(), j.into()),
        _ => false,
    }
}

/// One slice being made.
pub struct Slicer<'a, 'w> {
    frame: &'a Frame,
    start: &'a Start,
    walk: &'a mut Walk<'w>,
    depth: usize,
    slice: Slice,
}

impl<'a, 'w> Slicer<'a, 'w> {
    /// Slices `frame` from `start`; calls are followed through `walk`.
    ///
    /// # Errors
    /// Why it cannot be followed.
    pub fn run(frame: &'a Frame, start: &'a Start, walk: &'a mut Walk<'w>, depth: usize) -> Result<Slice, Unfollowed> {
        let mut this = Self { frame, start, walk, depth, slice: Slice::default() };
        let mut states: Vec<Taint> = vec![Taint::default(); frame.graph.nodes.len()];
        let mut todo = BTreeSet::new();
        let entry = this.entry();
        states[frame.graph.first()].merge(&entry);
        todo.insert(frame.graph.first());
        for &at in start.before.keys().chain(start.behind.keys()).chain(&start.stores).chain(start.calls.keys()) {
            let node = frame.graph.at(at).ok_or(Unfollowed::NotReached(at))?;
            if let Some(locs) = start.before.get(&at) {
                states[node].locs.add(locs);
            }
            todo.insert(node);
        }
        while let Some(at) = todo.pop_first() {
            let state = this.step(at, &states[at].clone())?;
            for &next in &frame.graph.nodes[at].next {
                if states[next].merge(&state) {
                    todo.insert(next);
                }
            }
        }
        for (at, state) in states.iter().enumerate() {
            if state.stored || state.locs.meets(&frame.live[at]) {
                this.slice.alive.insert(at);
            }
        }
        Ok(this.slice)
    }

    fn entry(&self) -> Taint {
        let mut taint = Taint::default();
        (taint.locs.regs, taint.locs.flags) = (self.start.entry.regs, self.start.entry.flags);
        taint.locs.add_slots(8, self.start.entry.stack);
        taint
    }

    fn used(&mut self, at: usize, how: Use) {
        let known = self.slice.uses.entry(at).or_insert(how);
        *known = (*known).max(how);
    }

    /// The state behind node `at`.
    fn step(&mut self, at: usize, before: &Taint) -> Result<Taint, Unfollowed> {
        let node = &self.frame.graph.nodes[at];
        let address = node.insn.ip();
        let Some(values) = &self.frame.values[at] else { return Ok(Taint::default()) };
        let mut after = before.clone();
        match &self.frame.acts[at] {
            Act::Plain(effect) => self.plain(at, effect, before, &mut after)?,
            Act::Call(call) => {
                if let Some(given) = self.start.calls.get(&address) {
                    after.locs.remove(&call.kills);
                    self.handed_out(at, given, values, &mut after);
                } else {
                    self.call(at, call, values, before, &mut after);
                }
            }
        }
        if node.returns {
            self.slice.given.regs |= after.locs.regs & self.frame.results.regs;
            self.slice.given.flags |= after.locs.flags & self.frame.results.flags;
        }
        if let Some(locs) = self.start.behind.get(&address) {
            after.locs.add(locs);
        }
        Ok(after)
    }

    fn plain(&mut self, at: usize, effect: &Effect, before: &Taint, after: &mut Taint) -> Result<(), Unfollowed> {
        let node = &self.frame.graph.nodes[at];
        let pointee = |access: &Access| match access.place {
            Where::Object(Pointer { parameter: Some(register), .. }) => self.start.entry.pointees >> register & 1 == 1,
            _ => false,
        };
        let from_memory = |access: &Access| pointee(access) || before.cells.iter().any(|cell| same(*cell, *access));
        let meets = match before.locs.frame {
            Some(_) if effect.pops => effect.reads.meets(&Locs { frame: None, ..before.locs.clone() }),
            _ => effect.reads.meets(&before.locs),
        };
        let hit = meets || effect.loads.iter().any(from_memory);
        self.published(at);
        let stores = self.start.stores.contains(&node.insn.ip());
        after.locs.remove(&effect.kills);
        if !hit && !stores {
            return Ok(());
        }
        if effect.stack_pointer && hit {
            return Err(Unfollowed::StackPointer(self.walk.world.place_name(node.insn.ip())));
        }
        let branch = node.insn.flow_control() == iced_x86::FlowControl::ConditionalBranch;
        self.used(at, if branch { Use::Branch } else { Use::Thread });
        if hit {
            after.locs.add(&effect.writes);
        } else {
            after.locs.slots.extend(&effect.writes.slots);
            after.locs.frame = after.locs.frame.into_iter().chain(effect.writes.frame).min();
        }
        for &access in &effect.stores {
            let named = match access.place {
                Where::Object(pointer) => Some(pointer),
                _ => None,
            };
            self.store(at, Store { at: node.site, access, named }, after);
        }
        Ok(())
    }

    /// A pointer to a tainted object of a caller's frame that goes to memory.
    fn published(&mut self, at: usize) {
        let node = &self.frame.graph.nodes[at];
        let Some(Value::Pointer(Pointer { parameter: Some(register), .. })) = self.frame.published[at] else { return };
        if self.start.entry.pointees >> register & 1 == 1 {
            self.walk.stack_object(node.site);
        }
    }

    fn store(&mut self, at: usize, store: Store, after: &mut Taint) {
        self.used(at, Use::Memory);
        after.stored = true;
        after.cells.insert(store.access);
        self.slice.given.stores.insert(store);
    }

    /// What a call does that came back with `given`.
    fn come_back(&mut self, at: usize, given: &Given, values: &Values, after: &mut Taint) {
        after.locs.regs |= given.regs;
        after.locs.flags |= given.flags;
        for store in &given.stores {
            match rebased(*store, values) {
                Rebased::Frame(place, bytes) => match place {
                    Some(offset) if bytes > 0 => after.locs.add_slots(offset, bytes),
                    other => {
                        let from = other.unwrap_or(i32::MIN);
                        after.locs.frame = Some(after.locs.frame.map_or(from, |known| known.min(from)));
                    }
                },
                Rebased::Outside(store) => self.store(at, store, after),
            }
        }
        if self.frame.graph.nodes[at].tail.is_some() {
            self.slice.given.regs |= given.regs & self.frame.results.regs;
            self.slice.given.flags |= given.flags & self.frame.results.flags;
        }
    }

    /// What a safe span further down gives back. Its stores to memory were looked at in
    /// its own frame; what is new here is that an object may be in this one.
    fn handed_out(&mut self, at: usize, given: &Given, values: &Values, after: &mut Taint) {
        let inside = |store: &&Store| matches!(rebased(**store, values), Rebased::Frame(..));
        let (inside, outside): (BTreeSet<&Store>, BTreeSet<&Store>) = given.stores.iter().partition(inside);
        let here = Given { stores: inside.into_iter().copied().collect(), ..given.clone() };
        self.come_back(at, &here, values, after);
        for store in outside {
            if let Rebased::Outside(store) = rebased(*store, values) {
                self.slice.given.stores.insert(store);
            }
        }
    }

    fn call(&mut self, at: usize, call: &Call, values: &Values, before: &Taint, after: &mut Taint) {
        let node = &self.frame.graph.nodes[at];
        let tail = node.tail.is_some();
        if !tail {
            after.locs.remove(&call.kills);
        }
        let mut entry = self.passed(at, call, values, before);
        self.stack_object(at, before);
        if node.insn.rflags_read() & before.locs.flags != 0 {
            self.used(at, Use::Branch);
        }
        if call.kind == Kind::C(self.frame.graph.entry) && tail && entry == self.start.entry {
            // A loop that the compiler made of a recursion.
            return;
        }
        if entry == Entry::default() {
            return;
        }
        self.used(at, Use::Thread);
        let given = match &call.kind {
            Kind::Unknown(what) => {
                self.walk.unknown_callee(node.site, what, &entry);
                Given { regs: call.results, ..Given::default() }
            }
            Kind::C(address) | Kind::Assembly(address) => {
                if matches!(call.kind, Kind::C(_)) {
                    entry.flags = 0;
                }
                if tail {
                    self.slice.tails.entry(*address).or_default().join(&entry);
                }
                let mut given = self.walk.summary(*address, &entry, self.depth + 1, node.site);
                if matches!(call.kind, Kind::C(_)) {
                    (given.regs, given.flags) = (given.regs & call.results, 0);
                } else if !tail {
                    // What it leaves is what its code leaves, also of what it was not to touch.
                    (after.locs.regs, after.locs.flags) = (0, 0);
                }
                given
            }
        };
        self.come_back(at, &given, values, after);
    }

    /// What a call passes.
    fn passed(&self, at: usize, call: &Call, values: &Values, before: &Taint) -> Entry {
        let regs = call.reads.regs & before.locs.regs;
        let mut pointees = 0;
        for number in (0..16).filter(|n| call.reads.regs >> n & 1 == 1 && *n != crate::value::RSP) {
            let from = match values.reg(number) {
                Value::Frame(from) => from,
                Value::SomeFrame => i32::MIN,
                Value::Pointer(Pointer { parameter: Some(register), .. }) => {
                    pointees |= (self.start.entry.pointees >> register & 1) << number;
                    continue;
                }
                _ => continue,
            };
            let object = Locs { frame: Some(from), ..Locs::default() };
            if object.meets(&before.locs) {
                pointees |= 1 << number;
            }
        }
        let mut stack = Locs::default();
        match values.stack() {
            Some(offset) if self.frame.graph.nodes[at].tail.is_none() => stack.add_slots(offset, call.stack),
            Some(offset) => stack.add_slots(offset + 8, call.stack),
            None if call.stack > 0 => stack.frame = Some(i32::MIN),
            None => {}
        }
        let stack = if stack.meets(&Locs { regs: 0, flags: 0, ..before.locs.clone() }) { call.stack } else { 0 };
        Entry { regs, flags: call.reads.flags & before.locs.flags, pointees, stack }
    }

    /// A tainted object of the frame that a callee may reach through memory.
    fn stack_object(&mut self, at: usize, before: &Taint) {
        let stored = self.frame.stored().is_some_and(|from| {
            let object = Locs { frame: Some(from), ..Locs::default() };
            object.meets(&Locs { regs: 0, flags: 0, ..before.locs.clone() })
        });
        if stored {
            self.walk.stack_object(self.frame.graph.nodes[at].site);
        }
    }
}

impl Entry {
    /// Takes over what another call passes.
    pub fn join(&mut self, other: &Self) {
        self.regs |= other.regs;
        self.flags |= other.flags;
        self.pointees |= other.pointees;
        self.stack = self.stack.max(other.stack);
    }
}

enum Rebased {
    /// In the caller's frame: from where, how many bytes.
    Frame(Option<i32>, i32),
    /// Elsewhere.
    Outside(Store),
}

/// A store of a callee, as its caller sees it.
fn rebased(store: Store, values: &Values) -> Rebased {
    let Where::Object(pointer) = store.access.place else { return Rebased::Outside(store) };
    let Some(register) = pointer.parameter else { return Rebased::Outside(store) };
    match values.reg(register.into()) {
        Value::Frame(base) => Rebased::Frame(Some(pointer.offset.map_or(base, |o| base.wrapping_add(o))), {
            if pointer.offset.is_some() {
                store.access.bytes
            } else {
                0
            }
        }),
        Value::SomeFrame => Rebased::Frame(None, 0),
        Value::Pointer(outer) => {
            let offset = outer.offset.zip(pointer.offset).map(|(a, b)| a.wrapping_add(b));
            let place = Where::Object(Pointer { offset, ..outer });
            Rebased::Outside(Store { access: Access { place, ..store.access }, ..store })
        }
        Value::Static(address) => {
            let place = match pointer.offset {
                Some(offset) => Where::Static(address.wrapping_add(i64::from(offset) as u64), false),
                None => Where::Object(Pointer { parameter: None, ..pointer }),
            };
            Rebased::Outside(Store { access: Access { place, ..store.access }, ..store })
        }
        Value::Unknown | Value::Code(_) => {
            let place = Where::Object(Pointer { parameter: None, ..pointer });
            Rebased::Outside(Store { access: Access { place, ..store.access }, ..store })
        }
    }
}
