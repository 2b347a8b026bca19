//! What registers and stack slots of a frame hold, as far as the addresses of memory
//! depend on it: places in the frame, pointers to typed objects, parameters.
//!
//! In: a graph. Out: the values before each instruction. What is not known is
//! [`Value::Unknown`]; a value is only ever claimed if every path agrees.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::btf::{Prototype, TypeId};
use crate::graph::{Callee, Graph};
use crate::location::{Access, Pointer, RegisterSet, Where};
use crate::world::World;

/// Number of the stack pointer.
pub const RSP: usize = 4;
/// Number of the frame pointer.
const RBP: usize = 5;
/// The registers that pass arguments, in order.
pub const ARGUMENTS: [usize; 6] = xk_lift::flow::ARGUMENTS;
/// rax, rcx, rdx, rsi, rdi, r8 to r11 (System V ABI).
pub const CALLER_SAVED: RegisterSet = RegisterSet::from_bits(0x0fc7);

/// What stands for the unknown distance between the parts of a frame; larger than any.
const ALIGNED: i32 = 1 << 20;

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// Anything.
    Unknown,
    /// An address in the frame: bytes above the return address.
    Frame(i32),
    /// An address somewhere in the frame.
    SomeFrame,
    /// An address in an object.
    Pointer(Pointer),
    /// The address of something static.
    Static(u64),
    /// The address of a function with this prototype.
    Code(TypeId),
}

/// The values before an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    regs: [Value; 16],
    /// Eight-byte slots of the frame.
    slots: BTreeMap<i32, Value>,
    /// Those that were pushed: registers that the compiler saves. No address of them
    /// is ever taken.
    pushed: BTreeSet<i32>,
}

/// The number of a general register, with its bytes.
#[must_use]
pub fn gpr(register: Register) -> Option<(usize, usize)> {
    register.is_gpr().then(|| (register.full_register().number(), register.size()))
}

fn join(a: Value, b: Value) -> Value {
    use Value::{Frame, Pointer as P, SomeFrame, Unknown};
    match (a, b) {
        _ if a == b => a,
        (Frame(_) | SomeFrame, Frame(_) | SomeFrame) => SomeFrame,
        (P(x), P(y)) if x.ty == y.ty && (x.ty != 0 || x.parameter == y.parameter) => P(Pointer {
            ty: x.ty,
            offset: x.offset.filter(|_| x.offset == y.offset),
            parameter: x.parameter.filter(|_| x.parameter == y.parameter),
        }),
        _ => Unknown,
    }
}

impl Values {
    /// At the entry of a function with this prototype.
    #[must_use]
    pub fn at_entry(prototype: Option<&Prototype>) -> Self {
        let mut regs = [Value::Unknown; 16];
        regs[RSP] = Value::Frame(0);
        if prototype.is_none() {
            // Assembly takes pointers in any register.
            for (register, value) in regs.iter_mut().enumerate().filter(|(register, _)| *register != RSP) {
                *value = Value::Pointer(Pointer { ty: 0, offset: Some(0), parameter: Some(register as u8) });
            }
        }
        for (n, &register) in ARGUMENTS.iter().enumerate() {
            let ty = prototype.and_then(|p| p.parameters.get(n)).copied().unwrap_or(0);
            let parameter = Some(register as u8);
            regs[register] = Value::Pointer(Pointer { ty, offset: Some(0), parameter });
        }
        Self { regs, slots: BTreeMap::new(), pushed: BTreeSet::new() }
    }

    /// A register.
    #[must_use]
    pub fn reg(&self, number: usize) -> Value {
        self.regs[number]
    }

    /// Distance of the stack pointer from the return address, if it is known.
    #[must_use]
    pub fn stack(&self) -> Option<i32> {
        match self.regs[RSP] {
            Value::Frame(offset) => Some(offset),
            _ => None,
        }
    }

    /// Takes over what another path brings; whether anything changed.
    fn merge(&mut self, other: &Self) -> bool {
        let before = self.clone();
        for (mine, theirs) in self.regs.iter_mut().zip(other.regs) {
            *mine = join(*mine, theirs);
        }
        self.slots.retain(|at, mine| match other.slots.get(at) {
            Some(theirs) => {
                *mine = join(*mine, *theirs);
                *mine != Value::Unknown
            }
            None => false,
        });
        self.pushed.retain(|at| other.pushed.contains(at));
        *self != before
    }

    /// Where `base + index * … + displacement` in `segment` is.
    #[must_use]
    pub fn locate(&self, base: Register, index: Register, displacement: i64, segment: Register) -> Where {
        let at = displacement as i32;
        let computed = index != Register::None;
        if matches!(segment, Register::GS | Register::FS) {
            let plain = (base == Register::None || base == Register::RIP) && !computed;
            return if plain { Where::PerCpu(displacement as u64) } else { Where::Based(None, at) };
        }
        if base == Register::None || base == Register::RIP {
            return Where::Static(displacement as u64);
        }
        let Some((number, 8)) = gpr(base) else { return Where::Based(None, at) };
        match (self.regs[number], computed) {
            (Value::Frame(offset), false) => Where::Frame(offset.wrapping_add(at)),
            (Value::Frame(_) | Value::SomeFrame, _) => Where::SomeFrame,
            (Value::Pointer(pointer), _) => {
                let offset = pointer.offset.filter(|_| !computed).map(|offset| offset.wrapping_add(at));
                Where::Object(Pointer { offset, ..pointer })
            }
            (Value::Static(address), false) => Where::Static(address.wrapping_add(displacement as u64)),
            (Value::Static(_), true) => Where::Based(None, at),
            (Value::Unknown | Value::Code(_), _) => Where::Based((!computed).then_some(number as u8), at),
        }
    }

    fn operand(&self, insn: &Instruction) -> Where {
        let displacement = insn.memory_displacement64() as i64;
        self.locate(insn.memory_base(), insn.memory_index(), displacement, insn.memory_segment())
    }

    /// The prototype of the function that an indirect call or jump goes to, if it was
    /// read from a field that says so.
    #[must_use]
    pub fn called(&self, world: &World, insn: &Instruction) -> Option<TypeId> {
        let value = match insn.op0_kind() {
            OpKind::Memory => self.load(world, self.operand(insn)),
            OpKind::Register => self.regs[gpr(insn.op0_register())?.0],
            _ => {
                let thunk = world.function_at(insn.near_branch_target())?.called("__x86_indirect_")?;
                let register = thunk.rsplit('_').next()?;
                self.regs[xk_lift::state::REGISTERS.iter().position(|name| *name == register)?]
            }
        };
        match value {
            Value::Code(prototype) => Some(prototype),
            _ => None,
        }
    }

    /// Whether an indirect call goes through `pv_ops`.
    #[must_use]
    pub fn is_paravirt(&self, world: &World, insn: &Instruction) -> bool {
        let place = (insn.op0_kind() == OpKind::Memory).then(|| self.operand(insn));
        matches!(place, Some(Where::Static(at)) if world.object(at).is_some_and(|(name, _)| name == "pv_ops"))
    }

    fn forget_slots(&mut self, at: i32, bytes: i32) {
        self.slots.retain(|&slot, _| slot + 8 <= at || slot >= at.saturating_add(bytes));
    }

    fn load(&self, world: &World, place: Where) -> Value {
        let typed = |ty| match ty {
            0 => Value::Unknown,
            ty => Value::Pointer(Pointer { ty, offset: Some(0), parameter: None }),
        };
        match place {
            Where::Frame(at) => self.slots.get(&at).copied().unwrap_or(Value::Unknown),
            Where::Object(Pointer { ty, offset: Some(offset), .. }) if ty != 0 => {
                match world.types.code_at(ty, offset) {
                    0 => typed(world.types.pointer_at(ty, offset)),
                    code => Value::Code(code),
                }
            }
            Where::Static(address) => match world.object(address) {
                // arch/x86/include/asm/paravirt_types.h; other objects have no type in BTF.
                Some(("pv_ops", offset)) => {
                    let ty = world.types.structure_named("paravirt_patch_template");
                    match world.types.code_at(ty, offset as i32) {
                        0 => Value::Unknown,
                        code => Value::Code(code),
                    }
                }
                _ => Value::Unknown,
            },
            Where::PerCpu(address) => {
                let Some((name, offset)) = world.object(address) else { return Value::Unknown };
                typed(world.types.pointer_at(world.types.variable(name), offset as i32))
            }
            _ => Value::Unknown,
        }
    }

    /// The values after `insn`, which is no call.
    fn step(&mut self, world: &World, insn: &Instruction, changes: &Changes) {
        let first = gpr(insn.op0_register()).filter(|_| insn.op_count() > 0 && insn.op0_kind() == OpKind::Register);
        let result = self.result(world, insn);
        let stored = self.stored(insn);
        let stack = self.pushed(insn);
        for store in &changes.stores {
            match store.place {
                Where::Frame(at) => self.forget_slots(at, store.bytes),
                Where::SomeFrame => self.slots.clear(),
                _ => {}
            }
        }
        for number in changes.registers.numbers().filter(|&number| number != RSP) {
            self.regs[number] = Value::Unknown;
        }
        match (first, result) {
            (Some((number, 8)), Some(value)) => self.regs[number] = value,
            (Some((RSP, _)), None) if changes.registers.contains(RSP) => self.regs[RSP] = Value::SomeFrame,
            _ => {}
        }
        if let Some((at, value)) = stored {
            self.slots.insert(at, value);
            if insn.mnemonic() == Mnemonic::Push {
                self.pushed.insert(at);
            } else {
                self.pushed.remove(&at);
            }
        }
        if let Some(value) = stack {
            self.regs[RSP] = value;
        }
    }

    /// What the first operand holds after `insn`, if it is an address that can be told.
    fn result(&self, world: &World, insn: &Instruction) -> Option<Value> {
        let register = |n: u32| match insn.op_kind(n) {
            OpKind::Register => gpr(insn.op_register(n)).filter(|(_, bytes)| *bytes == 8).map(|(n, _)| self.regs[n]),
            _ => None,
        };
        let immediate = || match insn.op_kind(1) {
            OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate64 => Some(insn.immediate(1) as i64),
            _ => None,
        };
        match insn.mnemonic() {
            Mnemonic::Mov if insn.op1_kind() == OpKind::Memory => Some(self.load(world, self.operand(insn))),
            Mnemonic::Mov => match immediate() {
                Some(value) => Some(Value::Static(value as u64)),
                None => register(1),
            },
            Mnemonic::Lea => Some(match self.operand(insn) {
                Where::Frame(at) => Value::Frame(at),
                Where::SomeFrame => Value::SomeFrame,
                Where::Object(pointer) => Value::Pointer(pointer),
                Where::Static(address) => Value::Static(address),
                _ => Value::Unknown,
            }),
            Mnemonic::Add | Mnemonic::Sub => {
                let by = immediate()?;
                let by = if insn.mnemonic() == Mnemonic::Sub { by.wrapping_neg() } else { by };
                let by = i32::try_from(by).ok()?;
                match register(0)? {
                    Value::Frame(at) => Some(Value::Frame(at.wrapping_add(by))),
                    Value::Pointer(pointer) => {
                        let offset = pointer.offset.map(|offset| offset.wrapping_add(by));
                        Some(Value::Pointer(Pointer { offset, ..pointer }))
                    }
                    other => Some(other).filter(|other| *other == Value::SomeFrame),
                }
            }
            // The aligned frame is below everything that was pushed before, at an unknown distance.
            Mnemonic::And => match register(0)? {
                Value::Frame(at) if insn.op0_register() == Register::RSP => Some(Value::Frame(at - ALIGNED)),
                Value::Frame(_) | Value::SomeFrame => Some(Value::SomeFrame),
                _ => None,
            },
            Mnemonic::Pop => self.stack().and_then(|at| self.slots.get(&at)).copied(),
            _ => None,
        }
    }

    /// A value that goes to a slot as a whole.
    fn stored(&self, insn: &Instruction) -> Option<(i32, Value)> {
        let whole = |n: u32| {
            let register = gpr(insn.op_register(n)).filter(|(_, bytes)| *bytes == 8);
            register.map(|(n, _)| self.regs[n]).filter(|value| *value != Value::Unknown)
        };
        match insn.mnemonic() {
            Mnemonic::Mov if insn.op0_kind() == OpKind::Memory && insn.op1_kind() == OpKind::Register => {
                match self.operand(insn) {
                    Where::Frame(at) => Some((at, whole(1)?)),
                    _ => None,
                }
            }
            Mnemonic::Push if insn.op0_kind() == OpKind::Register => Some((self.stack()? - 8, whole(0)?)),
            _ => None,
        }
    }

    /// The stack pointer after an instruction that moves it by itself.
    fn pushed(&self, insn: &Instruction) -> Option<Value> {
        match (insn.mnemonic(), self.regs[RBP]) {
            (Mnemonic::Leave, Value::Frame(at)) => return Some(Value::Frame(at + 8)),
            (Mnemonic::Leave, _) => return Some(Value::SomeFrame),
            _ => {}
        }
        if insn.flow_control() == FlowControl::Call {
            // It comes back: tracing, thunks that preserve everything.
            return None;
        }
        let by = insn.stack_pointer_increment();
        (by != 0).then(|| self.stack().map_or(Value::SomeFrame, |at| Value::Frame(at.wrapping_add(by))))
    }

    /// Behind a call: registers that it may change are unknown, and so are slots that
    /// it may reach.
    fn call(&mut self, world: &World, callee: Callee, reachable: Option<i32>) {
        let prototype = match callee {
            Callee::Direct(address) => world.function_at(address).and_then(|function| world.prototype(function)),
            Callee::Indirect => None,
        };
        for number in CALLER_SAVED.numbers() {
            self.regs[number] = Value::Unknown;
        }
        if let Some(ty) = prototype.map(|p| p.result).filter(|ty| *ty != 0) {
            self.regs[0] = Value::Pointer(Pointer { ty, offset: Some(0), parameter: None });
        }
        if let Some(from) = reachable {
            self.slots.retain(|&at, _| at + 8 <= from || self.pushed.contains(&at));
        }
    }
}

/// What an instruction may change.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Registers.
    pub registers: RegisterSet,
    /// Memory.
    pub stores: Vec<Access>,
}

/// The values before every instruction of `graph`; `None` where control never comes.
///
/// `changes` says what an instruction may change.
pub fn values(
    world: &World,
    graph: &Graph,
    prototype: Option<&Prototype>,
    changes: &mut dyn FnMut(&Instruction, &Values) -> Changes,
) -> Vec<Option<Values>> {
    let mut states: Vec<Option<Values>> = vec![None; graph.nodes.len()];
    let mut reachable: Option<i32> = None;
    loop {
        let first = graph.first();
        states.iter_mut().for_each(|state| *state = None);
        states[first] = Some(Values::at_entry(prototype));
        let mut todo = std::collections::BTreeSet::from([first]);
        let before = reachable;
        while let Some(at) = todo.pop_first() {
            let Some(mut state) = states[at].clone() else { continue };
            let node = &graph.nodes[at];
            let taken = taken(&node.insn, &state);
            reachable = reachable.into_iter().chain(taken).min();
            if let Some(callee) = node.call {
                state.call(world, callee, reachable);
            } else {
                let changes = changes(&node.insn, &state);
                state.step(world, &node.insn, &changes);
            }
            for &next in &node.next {
                let changed = match &mut states[next] {
                    Some(known) => known.merge(&state),
                    unknown => {
                        *unknown = Some(state.clone());
                        true
                    }
                };
                if changed {
                    todo.insert(next);
                }
            }
        }
        // Slots that a call may reach through an address that is taken after it.
        if reachable == before {
            return states;
        }
    }
}

/// The lowest slot whose address `insn` makes available to others.
#[must_use]
pub fn taken(insn: &Instruction, state: &Values) -> Option<i32> {
    let address = match insn.mnemonic() {
        Mnemonic::Lea if insn.op0_register() != Register::RSP => match state.operand(insn) {
            Where::Frame(at) => Value::Frame(at),
            Where::SomeFrame => Value::SomeFrame,
            _ => return None,
        },
        // The frame pointer is the compiler's own; every other copy is an address.
        Mnemonic::Mov if insn.op1_kind() == OpKind::Register && insn.op0_register() != Register::RBP => {
            let (source, _) = gpr(insn.op1_register())?;
            state.reg(source)
        }
        _ => return None,
    };
    match address {
        Value::Frame(at) => Some(at),
        Value::SomeFrame => Some(i32::MIN),
        _ => None,
    }
}

/// The address that `insn` stores where others may find it; slots that only the
/// compiler uses do not count.
#[must_use]
pub fn published(insn: &Instruction, state: &Values, reachable: Option<i32>) -> Option<Value> {
    let store = insn.mnemonic() == Mnemonic::Mov && insn.op0_kind() == OpKind::Memory;
    let (register, 8) = gpr(insn.op1_register()).filter(|_| store && insn.op1_kind() == OpKind::Register)? else {
        return None;
    };
    match state.operand(insn) {
        Where::Frame(at) if reachable.is_none_or(|from| at < from) => None,
        _ => Some(state.reg(register)),
    }
}
