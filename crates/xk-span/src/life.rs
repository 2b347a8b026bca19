//! The life of a number that an update tests for order: from the constants that it begins with to the test.
//!
//! The deployed code tests it for equality ([`xk_table::Order`]). When the update goes, a number that has passed the
//! value would never meet the test. So a transition waits until no thread holds one.
//!
//! In: the comparison. Out: the instructions of every frame before which the number is alive. Followed backwards are
//! copies, sums with a number that the instruction holds, and arguments, to every caller. A number that comes from
//! anywhere else has no end that a stack could show: that is an error.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::effect::Effect;
use crate::error::{UnknownLife, UnknownSource};
use crate::frame::{Act, Frame};
use crate::graph::Callee;
use crate::location::{Locations, RegisterSet, Where};
use crate::value::{gpr, Values, ARGUMENTS, CALLER_SAVED, RSP};
use crate::walk::Walk;

/// Frames and places that one number may be in.
const MOST: usize = 20_000;

/// Where a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// A general register, by number.
    Register(usize),
    /// Bytes of the frame: the first, and how many.
    Slot(i32, i32),
}

/// Where a number comes from, at an instruction that writes it.
enum Source {
    /// It begins here.
    Begins,
    /// It was elsewhere, or was another number by a constant.
    From(Place),
}

/// What is alive, by the function that opens the frame.
pub type Life = BTreeMap<u64, BTreeSet<u64>>;

/// The life of the number that the comparison at `test` reads first, in the frame of `root`.
///
/// # Errors
/// Where it comes from somewhere that cannot be followed.
pub fn life(walk: &mut Walk<'_>, root: u64, test: u64) -> Result<Life, UnknownLife> {
    let frame = walk.frame(root)?;
    let name = walk.world.place_name(test);
    let at = frame.graph.at(test).ok_or_else(|| UnknownLife::NotReached(name.clone()))?;
    let number = operand(&frame.graph.nodes[at].insn, 0, frame.values[at].as_ref());
    let number = number.ok_or_else(|| UnknownLife::Memory(name.clone()))?;
    let mut life = Life::new();
    let mut seen = BTreeSet::new();
    let mut todo = vec![(root, at, number)];
    while let Some(next) = todo.pop() {
        if !seen.insert(next) {
            continue;
        }
        if seen.len() > MOST {
            return Err(UnknownLife::TooManyPlaces { place: name, limit: MOST });
        }
        let (root, at, place) = next;
        let frame = walk.frame(root)?;
        life.entry(root).or_default().insert(frame.graph.nodes[at].insn.ip());
        if at == frame.graph.first() {
            todo.extend(passed(walk, root, place)?);
        }
        for (from, node) in frame.graph.nodes.iter().enumerate().filter(|(_, node)| node.next.contains(&at)) {
            let unknown = |why| UnknownLife::Instruction { place: walk.world.place_name(node.site), why };
            match before(&frame, from, place).map_err(unknown)? {
                Source::Begins => {}
                Source::From(place) => todo.push((root, from, place)),
            }
        }
    }
    Ok(life)
}

/// Where a number is before the instruction `at`, if it is in `place` after it.
fn before(frame: &Frame, at: usize, place: Place) -> Result<Source, UnknownSource> {
    let node = &frame.graph.nodes[at];
    match &frame.acts[at] {
        // What hands the frame over and goes on has not jumped.
        Act::Call(_) if node.tail.is_some() => Ok(Source::From(place)),
        Act::Call(_) => match place {
            Place::Register(number) if CALLER_SAVED.contains(number) => Err(UnknownSource::Returned),
            Place::Slot(first, bytes) if frame.reachable.is_some_and(|from| first.saturating_add(bytes) > from) => {
                Err(UnknownSource::Callee)
            }
            place => Ok(Source::From(place)),
        },
        Act::Plain(effect) if effect.writes.meets(&place.locations()) => {
            written(&node.insn, effect, frame.values[at].as_ref(), place).ok_or(UnknownSource::Computed(node.insn))
        }
        Act::Plain(_) => Ok(Source::From(place)),
    }
}

/// Where the number comes from that `insn` writes to `place`.
fn written(insn: &Instruction, effect: &Effect, values: Option<&Values>, place: Place) -> Option<Source> {
    use Mnemonic as M;
    if insn.has_lock_prefix() || effect.writes.slots_from.is_some() {
        return None;
    }
    if insn.mnemonic() == M::Push || insn.mnemonic() == M::Pop {
        let register = Place::Register(gpr(insn.op0_register()).filter(|_| insn.op0_kind() == OpKind::Register)?.0);
        let top = values?.stack()?;
        let (written, source) = match insn.mnemonic() {
            M::Push => (Place::Slot(top - 8, 8), register),
            _ => (register, Place::Slot(top, 8)),
        };
        return written.holds(place).then_some(Source::From(source));
    }
    if !operand(insn, 0, values)?.holds(place) {
        return None;
    }
    let immediate = |n: u32| n < insn.op_count() && is_immediate(insn.op_kind(n));
    let copied = || operand(insn, 1, values).map(Source::From);
    match insn.mnemonic() {
        M::Mov if immediate(1) => Some(Source::Begins),
        M::Xor | M::Sub if same_registers(insn) => Some(Source::Begins),
        M::Mov | M::Movzx | M::Movsx | M::Movsxd => copied(),
        M::Lea if insn.memory_index() == Register::None => {
            let number = gpr(insn.memory_base())?.0;
            (number != RSP).then_some(Source::From(Place::Register(number)))
        }
        M::Add | M::Sub if immediate(1) => Some(Source::From(operand(insn, 0, values)?)),
        M::Inc | M::Dec => Some(Source::From(operand(insn, 0, values)?)),
        _ => None,
    }
}

fn is_immediate(kind: OpKind) -> bool {
    use OpKind as K;
    matches!(
        kind,
        K::Immediate8
            | K::Immediate16
            | K::Immediate32
            | K::Immediate64
            | K::Immediate8to16
            | K::Immediate8to32
            | K::Immediate8to64
            | K::Immediate32to64
    )
}

fn same_registers(insn: &Instruction) -> bool {
    insn.op1_kind() == OpKind::Register && insn.op0_register() == insn.op1_register()
}

/// A register, or memory in the frame.
fn operand(insn: &Instruction, n: u32, values: Option<&Values>) -> Option<Place> {
    match insn.op_kind(n) {
        OpKind::Register => {
            let (number, bytes) = gpr(insn.op_register(n))?;
            // The rest of the register would be another number.
            (bytes >= 4 || n > 0 || insn.mnemonic() == Mnemonic::Cmp).then_some(Place::Register(number))
        }
        OpKind::Memory => {
            let displacement = insn.memory_displacement64() as i64;
            let values = values?;
            match values.locate(insn.memory_base(), insn.memory_index(), displacement, insn.memory_segment()) {
                Where::Frame(at) => Some(Place::Slot(at, insn.memory_size().size() as i32)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Where the callers of a function have what they pass in `place`.
fn passed(walk: &mut Walk<'_>, entry: u64, place: Place) -> Result<Vec<(u64, usize, Place)>, UnknownLife> {
    let name = walk.world.place_name(entry);
    let Place::Register(number) = place else { return Err(UnknownLife::StackAtEntry(name)) };
    if !ARGUMENTS.contains(&number) {
        return Err(UnknownLife::RegisterAtEntry(name));
    }
    let by_others = |why| UnknownLife::Argument { place: name.clone(), why };
    let function = walk.world.function_at(entry).ok_or_else(|| by_others("the function has no name"))?;
    if let Some(why) = walk.called_by_others(function) {
        return Err(by_others(why));
    }
    let mut callers = Vec::new();
    for (caller, site) in walk.call_sites(function) {
        if walk.world.is_over(caller.start) {
            if caller.owner != 0 {
                return Err(by_others("code that initialises a module calls it"));
            }
            continue;
        }
        let root = caller.start;
        let frame = walk.frame(root)?;
        let Some(at) = frame.graph.at(site) else { continue };
        let node = &frame.graph.nodes[at];
        if [node.call, node.tail].contains(&Some(Callee::Direct(entry))) {
            callers.push((root, at, place));
        }
    }
    Ok(callers)
}

impl Place {
    fn locations(self) -> Locations {
        let mut locations = Locations::default();
        match self {
            Self::Register(number) => locations.registers = RegisterSet::of(number),
            Self::Slot(at, bytes) => locations.add_slots(at, bytes),
        }
        locations
    }

    /// Whether all of `part` is in it.
    fn holds(self, part: Self) -> bool {
        match (self, part) {
            (Self::Slot(at, bytes), Self::Slot(first, count)) => at <= first && first + count <= at + bytes,
            (a, b) => a == b,
        }
    }
}
