//! What registers and stack hold, followed through a function: addresses of the frame, and references that must be
//! released.
//!
//! Out: what may be held before each instruction, where it is, and how deep the frame is used. What is not known counts
//! as held, and as a frame of unknown depth.

use std::collections::BTreeMap;

use crate::calls::{helper, helper_name, helper_release, kfunc, kfunc_release, Effect, Release, Told, LOOKUP};
use crate::elf::Object;
use crate::flow::Graph;
use crate::insn::{Callee, Insn, FRAME};

/// An address is relative to the frame (0), or to what an argument points to (its number).
type Base = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Neither an address of interest nor a reference.
    Other,
    /// The constant 0.
    Null,
    /// A number, certainly no pointer.
    Number,
    /// An address.
    Address(Base, i64),
    /// An address at an unknown distance from one of these bases, one bit each.
    Lost(u8),
    /// What the call at this instruction acquired, or NULL.
    Reference(usize),
    /// A map in which a lookup acquires a socket.
    SocketMap,
}

impl Value {
    fn bases(self) -> u8 {
        match self {
            Self::Address(base, _) => 1 << base,
            Self::Lost(bases) => bases,
            _ => 0,
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Null | Self::Number)
    }

    fn lost(self, other: Self) -> Self {
        match self.bases() | other.bases() {
            0 => Self::Other,
            bases => Self::Lost(bases),
        }
    }

    fn join(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Null, Self::Reference(at)) | (Self::Reference(at), Self::Null) => Self::Reference(at),
            _ if self.is_number() && other.is_number() => Self::Number,
            _ => self.lost(other),
        }
    }

    /// The result of arithmetic. That on 32 bits is a number, whatever the operands are.
    fn combine(self, other: Self, is_wide: bool) -> Self {
        match self.lost(other) {
            Self::Other if !is_wide || self.is_number() && other.is_number() => Self::Number,
            lost => lost,
        }
    }
}

/// What the call at an instruction acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Acquired {
    /// Which lock or region; nothing for a reference.
    kind: Option<&'static str>,
    /// It may be held several times.
    several: bool,
    /// The address in the frame that the call was told.
    address: Option<i64>,
    /// How many are held already.
    order: usize,
}

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a register.
    Register(u8),
    /// In the frame, at this offset.
    Slot(i64),
}

/// What may be held before an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The call that acquires it.
    pub call: usize,
    /// Which lock or region; nothing for a reference.
    pub kind: Option<&'static str>,
    /// It may be held several times.
    pub several: bool,
    /// Where the reference, or NULL, is; nothing if that is not known.
    pub place: Option<Place>,
    /// The address in the frame that the acquiring call was told.
    pub address: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    registers: [Value; 11],
    slots: BTreeMap<i64, Value>,
    held: BTreeMap<usize, Acquired>,
}

impl State {
    fn join(&self, other: &Self) -> Self {
        let mut state = self.clone();
        for (value, other) in state.registers.iter_mut().zip(other.registers) {
            *value = value.join(other);
        }
        for (at, value) in &other.slots {
            let own = state.slots.get(at).copied().unwrap_or(Value::Other);
            state.slots.insert(*at, own.join(*value));
        }
        for (at, value) in &mut state.slots {
            *value = value.join(other.slots.get(at).copied().unwrap_or(Value::Other));
        }
        state.slots.retain(|_, value| *value != Value::Other);
        for (at, held) in &other.held {
            let join = |own: &mut Acquired| {
                own.several |= held.several;
                own.address = own.address.filter(|address| held.address == Some(*address));
                own.order = own.order.max(held.order);
            };
            state.held.entry(*at).and_modify(join).or_insert(*held);
        }
        state
    }

    fn acquire(&mut self, at: usize, kind: Option<&'static str>, address: Option<i64>) {
        for value in self.registers.iter_mut().chain(self.slots.values_mut()) {
            if *value == Value::Reference(at) {
                *value = Value::Other;
            }
        }
        let new = Acquired { kind, several: false, address, order: self.held.len() };
        self.held.entry(at).and_modify(|held| held.several = true).or_insert(new);
    }

    /// What is held, the last that was acquired first.
    fn listed(&self) -> Vec<Held> {
        let mut held: Vec<_> = self.held.iter().collect();
        held.sort_by_key(|(at, held)| std::cmp::Reverse((held.order, **at)));
        let listed = held.into_iter().map(|(&call, held)| Held {
            call,
            kind: held.kind,
            several: held.several,
            place: self.find(Value::Reference(call)),
            address: held.address,
        });
        listed.collect()
    }

    fn numbers(&self) -> u16 {
        let numbers = self.registers.iter().enumerate().filter(|(_, value)| value.is_number());
        numbers.fold(0, |numbers, (register, _)| numbers | 1 << register)
    }

    /// A place of a value, at best one that calls do not overwrite.
    fn find(&self, value: Value) -> Option<Place> {
        let saved = (6..10_u8).chain(0..6);
        let register = saved.map(Place::Register);
        let slots = self.slots.iter().filter(|(_, other)| **other == value).map(|(at, _)| Place::Slot(*at));
        let holds = |place: &Place| match place {
            Place::Register(register) => self.registers[usize::from(*register)] == value,
            Place::Slot(_) => true,
        };
        let mut found: Vec<Place> = register.filter(holds).collect();
        let volatile = found.iter().position(|place| matches!(place, Place::Register(0..=5))).unwrap_or(found.len());
        found.splice(volatile..volatile, slots);
        found.first().copied()
    }

    /// A reference is released, or is NULL.
    fn release(&mut self, value: Value) {
        if let Value::Reference(at) = value {
            if self.held.get(&at).is_some_and(|held| !held.several) {
                self.held.remove(&at);
            }
        }
    }

    /// The only lock or region of a kind ends.
    fn leave(&mut self, kind: &str) {
        let mut of_kind = self.held.iter().filter(|(_, held)| held.kind == Some(kind));
        if let (Some((&at, Acquired { several: false, .. })), None) = (of_kind.next(), of_kind.next()) {
            self.held.remove(&at);
        }
    }
}

/// The lowest address that is used, relative to each base; nothing if it is not known.
type Lowest = [Option<i64>; 6];

/// What is known of a function.
#[derive(Debug, Clone)]
pub struct Track {
    /// What may be held before each instruction, the last that was acquired first.
    pub held: BTreeMap<usize, Vec<Held>>,
    /// Registers that are certainly numbers before each instruction, one bit each.
    pub numbers: BTreeMap<usize, u16>,
    lowest: Lowest,
    returns: u8,
    leaks: bool,
}

impl Track {
    /// How many bytes of the stack are used, if that is known.
    #[must_use]
    pub fn depth(&self) -> Option<i64> {
        self.lowest[0].map(|lowest| -lowest)
    }
}

/// Follows one function.
struct Tracker<'a> {
    object: &'a Object,
    code: usize,
    graph: &'a Graph,
    known: &'a [Option<Track>],
}

/// Follows a function. `known` are those that it calls.
#[must_use]
pub fn track(object: &Object, function: usize, graph: &Graph, known: &[Option<Track>]) -> Track {
    let function = &object.functions[function];
    let mut registers = [Value::Other; 11];
    if !function.is_program {
        (1..=5).for_each(|register| registers[register] = Value::Address(register, 0));
    }
    registers[usize::from(FRAME)] = Value::Address(0, 0);
    let entry = State { registers, slots: BTreeMap::new(), held: BTreeMap::new() };
    Tracker { object, code: function.code, graph, known }.run(entry)
}

impl Tracker<'_> {
    fn run(&self, entry: State) -> Track {
        let mut at_start: Vec<Option<State>> = vec![None; self.graph.blocks.len()];
        at_start[0] = Some(entry);
        let mut work = vec![0];
        while let Some(number) = work.pop() {
            let Some(state) = at_start[number].clone() else { continue };
            for (next, state) in self.leave_block(number, state) {
                let joined = at_start[next].as_ref().map_or_else(|| state.clone(), |known| known.join(&state));
                if at_start[next].as_ref() != Some(&joined) {
                    at_start[next] = Some(joined);
                    work.push(next);
                }
            }
        }
        let mut track =
            Track { held: BTreeMap::new(), numbers: BTreeMap::new(), lowest: [Some(0); 6], returns: 0, leaks: false };
        for (block, state) in self.graph.blocks.iter().zip(at_start) {
            let Some(mut state) = state else { continue };
            for at in self.insns(block.start, block.end) {
                track.held.insert(at, state.listed());
                track.numbers.insert(at, state.numbers());
                self.note(at, &state, &mut track);
                self.step(at, &mut state);
            }
        }
        track
    }

    fn insn(&self, at: usize) -> Insn {
        self.object.code[self.code].insns[at]
    }

    /// Instructions without the second halves.
    fn insns(&self, start: usize, end: usize) -> impl Iterator<Item = usize> + '_ {
        (start..end).filter(move |at| *at == start || self.insn(at - 1).code != Insn::LD_IMM64)
    }

    /// The states in which control leaves a block. A reference that is compared with 0 is NULL on one side.
    fn leave_block(&self, number: usize, mut state: State) -> Vec<(usize, State)> {
        let block = &self.graph.blocks[number];
        self.insns(block.start, block.end).for_each(|at| self.step(at, &mut state));
        let last = self.insn(block.last);
        let tested =
            last.is_branch() && last.is_wide() && !last.is_register() && last.imm == 0 && last.code != Insn::MAY_GOTO;
        let null = match last.operation() {
            1 if tested => Some(0),
            5 if tested => Some(1),
            _ => None,
        };
        let mut states = Vec::new();
        for (side, next) in block.successors.iter().enumerate() {
            let mut state = state.clone();
            if null == Some(side) && block.successors.len() == 2 {
                state.release(state.registers[usize::from(last.dst)]);
            }
            states.push((*next, state));
        }
        states
    }

    fn step(&self, at: usize, state: &mut State) {
        let insn = self.insn(at);
        let (dst, src) = (usize::from(insn.dst), usize::from(insn.src));
        if insn.code == Insn::CALL {
            return self.call(at, insn, state);
        }
        if insn.is_alu() {
            let (own, other) = (state.registers[dst], state.registers[src.min(10)]);
            let wide_step = insn.step().filter(|_| insn.is_wide());
            state.registers[dst] = match own {
                _ if insn.is_copy() => other,
                _ if insn.constant() == Some(0) => Value::Null,
                _ if insn.constant().is_some() => Value::Number,
                Value::Address(base, offset) if wide_step.is_some() => {
                    Value::Address(base, offset.saturating_add(wide_step.unwrap_or(0)))
                }
                _ if insn.is_cast() => Value::Other,
                _ if insn.is_move() => other.combine(other, insn.is_wide()),
                own if insn.is_register() => own.combine(other, insn.is_wide()),
                own => own.combine(Value::Number, insn.is_wide()),
            };
        } else if insn.is_load() {
            state.registers[dst] = match state.registers[src] {
                Value::Address(0, base) if insn.is_double() => {
                    state.slots.get(&(base + i64::from(insn.off))).copied().unwrap_or(Value::Other)
                }
                _ => Value::Other,
            };
        } else if insn.is_store() {
            let value = match insn.stores_register() {
                true => state.registers[src],
                false if insn.is_zero() => Value::Null,
                false => Value::Number,
            };
            if let Value::Address(0, base) = state.registers[dst] {
                let slot = base + i64::from(insn.off);
                // An address may still be there after a store of a part.
                state.slots.retain(|at, old| (*at - slot).abs() >= 8 || old.bases() != 0);
                if insn.is_double() && value != Value::Other {
                    state.slots.insert(slot, value);
                }
            }
            for register in (0..10).filter(|register| insn.writes() >> register & 1 == 1) {
                state.registers[register] = Value::Other;
            }
        } else if self.object.loads_socket_map(self.code, at) {
            state.registers[dst] = Value::SocketMap;
        } else {
            for register in (0..10).filter(|register| insn.writes() >> register & 1 == 1) {
                state.registers[register] = Value::Other;
            }
        }
    }

    /// Copies of a call are one: what they acquire is held in one place.
    fn call(&self, at: usize, insn: Insn, state: &mut State) {
        let own = self.object.original(self.code, at);
        let mut result = Value::Other;
        let effect = self.effect(at, insn, state);
        match &effect {
            Effect::Release(register) | Effect::Exchange(register) => {
                state.release(state.registers[usize::from(*register)])
            }
            Effect::Leave(kind) => state.leave(kind),
            Effect::Enter(kind) => state.acquire(own, Some(kind), self.address(at, state)),
            Effect::Nothing | Effect::Acquire => {}
        }
        if matches!(effect, Effect::Acquire | Effect::Exchange(_)) {
            state.acquire(own, None, None);
            result = Value::Reference(own);
        }
        if let Some(callee) = self.callee(at) {
            if callee.leaks {
                state.acquire(own, None, None);
            }
            let returned = (1..=5).filter(|register| callee.returns >> register & 1 == 1);
            result = returned.fold(result, |value, register| value.lost(state.registers[register]));
        }
        state.registers[..6].fill(Value::Other);
        state.registers[0] = result;
    }

    /// The address in the frame by which what this call acquires is released.
    fn address(&self, at: usize, state: &State) -> Option<i64> {
        let (_, Told::Address(register)) = release(self.object, self.code, at)? else { return None };
        match state.registers[usize::from(register)] {
            Value::Address(0, offset) => Some(offset),
            _ => None,
        }
    }

    fn effect(&self, at: usize, insn: Insn, state: &State) -> Effect {
        match insn.callee() {
            Some(Callee::Helper(LOOKUP)) if state.registers[1] == Value::SocketMap => Effect::Acquire,
            Some(Callee::Helper(number)) => helper(number),
            // clang writes calls of functions of the kernel as calls of functions of the object.
            _ => self.object.external(self.code, at).map_or(Effect::Nothing, kfunc),
        }
    }

    fn callee(&self, at: usize) -> Option<&Track> {
        let is_call = self.insn(at).callee() == Some(Callee::Subprogram);
        self.known[self.object.target(self.code, at).filter(|_| is_call)?].as_ref()
    }

    /// Notes which addresses an instruction uses.
    fn note(&self, at: usize, state: &State, track: &mut Track) {
        let insn = self.insn(at);
        let value = |register: u8| state.registers[usize::from(register)];
        let mut note = |value: Value, offset: Option<i64>| match (value, offset) {
            (Value::Address(base, own), Some(offset)) => {
                track.lowest[base] = track.lowest[base].map(|lowest| lowest.min(own.saturating_add(offset)));
            }
            _ => (0..6).filter(|base| value.bases() >> base & 1 == 1).for_each(|base| track.lowest[base] = None),
        };
        if insn.is_load() {
            note(value(insn.src), Some(insn.off.into()));
        } else if insn.is_store() {
            note(value(insn.dst), Some(insn.off.into()));
            let is_slot = matches!(value(insn.dst), Value::Address(0, _)) && insn.stores_register() && insn.is_double();
            if insn.reads() >> insn.src & 1 == 1 && insn.code & 7 == 3 && !is_slot {
                // It goes where it is not followed.
                note(value(insn.src), None);
            }
        } else if insn.code == Insn::CALL {
            let callee = self.callee(at);
            for register in 1..=5_u8 {
                note(value(register), callee.map_or(Some(0), |callee| callee.lowest[usize::from(register)]));
            }
        } else if insn.code == Insn::EXIT {
            track.returns |= value(0).bases();
            track.leaks |= !state.held.is_empty();
        }
    }
}

/// What releases what the call at an instruction acquires; nothing if that is not known.
#[must_use]
pub fn release(object: &Object, code: usize, at: usize) -> Option<(Release, Told)> {
    match object.code[code].insns[at].callee() {
        Some(Callee::Helper(number)) => helper_release(number),
        _ => object.external(code, at).and_then(kfunc_release),
    }
}

/// What is held, and the call that acquires it, in words.
#[must_use]
pub fn words(object: &Object, code: usize, at: usize, kind: Option<&'static str>) -> (String, String) {
    let insn = object.code[code].insns[at];
    let call = match insn.callee() {
        Some(Callee::Helper(number)) => helper_name(number).unwrap_or("a helper").to_owned(),
        _ => object.external(code, at).map_or_else(
            || {
                object
                    .target(code, at)
                    .map_or_else(|| "a call".to_owned(), |found| object.functions[found].name.clone())
            },
            str::to_owned,
        ),
    };
    let what = match kind {
        None => "a reference".to_owned(),
        Some(kind @ ("spin lock" | "iterator")) => format!("a {kind}"),
        Some(kind) => format!("a region ({kind})"),
    };
    (what, format!("{call}()"))
}
