//! Tests for equality that the compiler made of tests for order.
//!
//! A compiler that knows the constant may know what values can come: it compiles `depth > 4` to
//! `depth == 5` where no larger depth is left. A kernel that is changed while it runs may have such
//! a depth, and then never meets the test. So may a loop that counts to the constant, which has counted
//! beyond the new one when the change comes; there even a compiler that does not know the value tests for
//! equality, since the value does not change. So this is asked whatever was proved.
//!
//! In: the deployed build with the places that follow the constant, and a build in which the constant is
//! volatile ([`xk_const::Opaque::Changing`]). Out: the tests of functions with more tests for equality between
//! the constant and something else than that build has there. Which test belongs to which is not asked, so a
//! test that the compiler has doubled counts, too: what is refused here may be good. Where the builds inline
//! other functions, a test may be in another function, and those of the whole unit are counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iced_x86::{ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use xk_lift::flow::successors;
use xk_lift::insn::{Insn, Node, OPAQUE, OPAQUE_OBJECT};
use xk_lift::live::CALLER_SAVED;
use xk_lift::object::Object;
use xk_lift::semantics::gpr;
use xk_lift::state::{Flag, RSP};

use crate::constants::{Field, Seeds};

/// Where a build holds the constant.
#[derive(Debug, Clone, Copy)]
pub enum Holder<'a> {
    /// In these fields.
    Fields(&'a Seeds),
    /// In the address or the contents of the opaque symbol.
    Symbol,
}

/// What a value depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Origin {
    /// On anything but the constant.
    #[default]
    Other,
    /// On nothing: a number in an instruction.
    Known,
    /// On the constant alone.
    Constant,
    /// On the constant and something else.
    Both,
}

impl Origin {
    /// Of what is computed from two values, or is the one or the other.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known, origin) | (origin, Self::Known) => origin,
            (same, also) if same == also => same,
            _ => Self::Both,
        }
    }
}

/// Origins at a place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Origins {
    registers: [Origin; 16],
    flags: Origin,
    /// Of the slots of the frame, by displacement from the stack pointer.
    slots: BTreeMap<i64, Origin>,
}

impl Origins {
    /// What holds on both paths; whether that is less than what held here.
    fn meet(&mut self, other: &Self) -> bool {
        let before = self.clone();
        for (ours, theirs) in self.registers.iter_mut().zip(other.registers) {
            *ours = ours.with(theirs);
        }
        self.flags = self.flags.with(other.flags);
        for at in other.slots.keys() {
            self.slots.entry(*at).or_default();
        }
        for (at, ours) in &mut self.slots {
            *ours = ours.with(other.slots.get(at).copied().unwrap_or_default());
        }
        *self != before
    }
}

/// The tests for equality that may stand for tests for order. Without an opaque build every test may.
#[must_use]
pub fn concluded(base: &Object, places: &Seeds, opaque: Option<&Object>) -> Vec<Node> {
    let deployed = tests(base, Holder::Fields(places));
    let source = opaque.map_or_else(BTreeMap::new, |opaque| tests(opaque, Holder::Symbol));
    let excess = |(name, nodes): &(&String, &Vec<Node>)| nodes.len() > source.get(*name).map_or(0, Vec::len);
    let found: Vec<Node> = deployed.iter().filter(excess).flat_map(|(_, nodes)| nodes.iter().copied()).collect();
    let count = |found: &BTreeMap<String, Vec<Node>>| found.values().map(Vec::len).sum::<usize>();
    let names = |object: &Object| object.functions.values().map(|f| f.name.clone()).collect::<BTreeSet<_>>();
    let inlined_otherwise = opaque.is_some_and(|opaque| names(opaque) != names(base));
    if inlined_otherwise && count(&deployed) <= count(&source) {
        return Vec::new();
    }
    found
}

/// The tests for equality between the constant and something else, by function: `f.part.0` and
/// `f.cold` are `f`.
#[must_use]
pub fn tests(object: &Object, holder: Holder<'_>) -> BTreeMap<String, Vec<Node>> {
    let mut found: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    for function in object.functions.values() {
        let name = function.name.split('.').next().unwrap_or_default();
        found.entry(name.to_owned()).or_default().extend(tests_from(object, function.start, holder));
    }
    found.retain(|_, nodes| {
        nodes.sort_unstable();
        nodes.dedup();
        !nodes.is_empty()
    });
    found
}

/// Those that a walk from the entry of a function meets.
fn tests_from(object: &Object, start: Node, holder: Holder<'_>) -> Vec<Node> {
    let mut at_entry: HashMap<Node, Origins> = HashMap::from([(start, Origins::default())]);
    let mut work = vec![start];
    while let Some(node) = work.pop() {
        let (Some(insn), Some(mut origins)) = (object.insns.get(&node), at_entry.get(&node).cloned()) else { continue };
        origins.execute(insn, holder);
        for next in successors(object, insn) {
            let changed = match at_entry.get_mut(&next) {
                Some(there) => there.meet(&origins),
                None => at_entry.insert(next, origins.clone()).is_none(),
            };
            if changed {
                work.push(next);
            }
        }
    }
    let is_test = |node: &Node, origins: &Origins| {
        let code = object.insns.get(node).map(|insn| insn.raw.condition_code());
        matches!(code, Some(ConditionCode::e | ConditionCode::ne)) && origins.flags == Origin::Both
    };
    at_entry.iter().filter(|(node, origins)| is_test(node, origins)).map(|(node, _)| *node).collect()
}

impl Origins {
    fn execute(&mut self, insn: &Insn, holder: Holder<'_>) {
        if insn.is_call() {
            for number in (0..16).filter(|number| CALLER_SAVED >> number & 1 == 1) {
                self.registers[number] = Origin::Other;
            }
            self.flags = Origin::Other;
            return;
        }
        let (result, flags) = self.result(insn, holder);
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&insn.raw);
        for used in info.used_registers() {
            let Some(number) = number(used.register()) else { continue };
            match used.access() {
                OpAccess::Write | OpAccess::ReadWrite if used.register().size() >= 4 => self.registers[number] = result,
                OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite => {
                    self.registers[number] = self.registers[number].with(result);
                }
                _ => {}
            }
            if number == RSP && used.access() != OpAccess::Read {
                // The slots are others now.
                self.slots.clear();
            }
        }
        if let Some(at) = slot(&insn.raw).filter(|_| writes_first(&mut factory, &insn.raw)) {
            self.slots.insert(at, result);
        }
        if insn.raw.rflags_modified() & Flag::Zf.iced() != 0 {
            self.flags = flags;
        }
    }

    /// What an instruction computes depends on this, and its flags. Addresses do not count: what stands at
    /// an address that follows the constant is another value. Flags count where the constant itself is
    /// compared, or their difference: what was computed from both and is compared with a third number has
    /// no bound that could have been passed. Nor does the zero flag of a number that `shr` moves to the right as far as the
    /// constant says: it tells whether the number is below a power of two, for every number.
    fn result(&self, insn: &Insn, holder: Holder<'_>) -> (Origin, Origin) {
        let raw = &insn.raw;
        if matches!(raw.mnemonic(), Mnemonic::Xor | Mnemonic::Sub) && same_register(raw) {
            return (Origin::Other, Origin::Other);
        }
        let held = |field| match holder {
            Holder::Fields(seeds) => seeds.get(&(insn.node, field)).is_some_and(|fit| fit.a != 0),
            Holder::Symbol => {
                let symbol = if field == Field::Immediate { &insn.immediate } else { &insn.displacement };
                let wanted = if field == Field::Pool { OPAQUE_OBJECT } else { OPAQUE };
                symbol.as_ref().is_some_and(|symbol| symbol.name == wanted)
            }
        };
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(raw);
        let by_constant = raw.mnemonic() == Mnemonic::Shr && held(Field::Immediate);
        let (mut result, mut compared) = (Origin::Known, raw.mnemonic() == Mnemonic::Test && same_register(raw));
        for operand in 0..raw.op_count() {
            let reads = matches!(
                info.op_access(operand),
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            );
            let origin = match raw.op_kind(operand) {
                OpKind::Memory if raw.mnemonic() == Mnemonic::Lea => {
                    let parts = [raw.memory_base(), raw.memory_index()].into_iter().filter_map(number);
                    let sum = parts.fold(Origin::Known, |sum, number| sum.with(self.registers[number]));
                    sum.with(if held(Field::Displacement) { Origin::Constant } else { Origin::Known })
                }
                OpKind::Memory if !reads => Origin::Known,
                OpKind::Memory if held(Field::Pool) => Origin::Constant,
                OpKind::Memory => slot(raw).and_then(|at| self.slots.get(&at)).copied().unwrap_or_default(),
                OpKind::Register if !reads => Origin::Known,
                OpKind::Register => {
                    number(raw.op_register(operand)).map_or(Origin::Other, |number| self.registers[number])
                }
                _ if held(Field::Immediate) => Origin::Constant,
                _ => Origin::Known,
            };
            result = result.with(origin);
            compared |= origin == Origin::Constant && !(by_constant && operand == 1);
        }
        for number in implicit(raw, &mut InstructionInfoFactory::new()) {
            result = result.with(self.registers[number]);
        }
        let result = match result.with(if held(Field::Product) { Origin::Both } else { Origin::Known }) {
            // A counter is made of numbers alone, and is any number when the change comes.
            Origin::Known => Origin::Other,
            origin => origin,
        };
        (result, if compared { result } else { Origin::Other })
    }
}

/// Registers that an instruction reads without naming them: not those of an address.
fn implicit(raw: &Instruction, factory: &mut InstructionInfoFactory) -> Vec<usize> {
    let named = |register: Register| {
        let same = |other: Register| other.full_register() == register.full_register();
        let operand = (0..raw.op_count()).any(|at| raw.op_kind(at) == OpKind::Register && same(raw.op_register(at)));
        operand || same(raw.memory_base()) || same(raw.memory_index())
    };
    let reads = |access| matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite);
    let used = factory.info(raw).used_registers().iter();
    used.filter(|used| reads(used.access()) && !named(used.register()))
        .filter_map(|used| number(used.register()))
        .collect()
}

/// Of a general register.
fn number(register: Register) -> Option<usize> {
    gpr(register).map(|(number, ..)| number)
}

fn same_register(raw: &Instruction) -> bool {
    raw.op0_kind() == OpKind::Register && raw.op1_kind() == OpKind::Register && raw.op0_register() == raw.op1_register()
}

/// The displacement of an operand on the stack.
fn slot(raw: &Instruction) -> Option<i64> {
    let memory = (0..raw.op_count()).any(|at| raw.op_kind(at) == OpKind::Memory);
    let plain = raw.memory_base() == Register::RSP && raw.memory_index() == Register::None;
    (memory && plain).then_some(raw.memory_displacement64() as i64)
}

fn writes_first(factory: &mut InstructionInfoFactory, raw: &Instruction) -> bool {
    raw.op0_kind() == OpKind::Memory && matches!(factory.info(raw).op0_access(), OpAccess::Write | OpAccess::ReadWrite)
}
