//! Which instructions access a field of a structure, as far as that is evident from the types of the kernel (BTF).
//!
//! Types of registers are followed through each function: from its parameters, from `current`, from what functions return
//! that it calls, and through pointers that are loaded from fields. Where ways with different types meet, where a
//! register is computed in another way, or where its value was in the frame, its type is unknown. So what is found
//! accesses the field, unless the source casts pointers, and what is not found may access it, too.

use std::collections::HashMap;
use std::ops::Range;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use libbpf_rs::btf::types::{Array, Composite, Enum, Enum64, Float, Func, FuncProto, Int, MemberAttr, Ptr};
use libbpf_rs::btf::{Btf, BtfType, TypeId};
use libbpf_rs::btf::{HasSize, ReferencesType};
use xk_kernel::Image;
use xk_span::world::{Function, World};

use crate::error::Error;
use crate::place::Class;

/// The registers of the first arguments, by their numbers.
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];
/// What a call overwrites.
const VOLATILE: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];
/// Variables of each CPU that begin with the pointer to the current task: of Linux 6.12, and of later ones.
const CURRENT: [&str; 2] = ["pcpu_hot", "current_task"];
/// Structures in structures that are looked into.
const DEPTH: usize = 16;

/// For each register, the structure to which it points.
type State = [Option<TypeId>; 16];

/// A field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    structure: TypeId,
    bytes: Range<u32>,
}

/// What the types are read from.
#[derive(Debug)]
pub(crate) struct Raw {
    btf: Vec<u8>,
    /// Where a CPU has its pointer to the current task.
    current: Vec<u64>,
}

impl Raw {
    /// Of vmlinux, if it has types.
    pub(crate) fn new(image: &Image) -> Option<Self> {
        let current = CURRENT.iter().flat_map(|name| image.symbols(name)).map(|symbol| symbol.address).collect();
        Some(Self { btf: image.btf()?, current })
    }
}

/// The types of a kernel.
#[derive(Debug)]
pub(crate) struct Fields {
    types: Btf<'static>,
    prototypes: HashMap<String, TypeId>,
    task: Option<TypeId>,
    /// Where a CPU has its pointer to the current task.
    current: Vec<u64>,
}

impl Fields {
    /// All types, and the field of a class, if it has one.
    ///
    /// # Errors
    /// [`Error::Types`], [`Error::NoField`].
    pub(crate) fn of_class(raw: Option<&Raw>, class: &Class) -> Result<Option<(Self, Field)>, Error> {
        let Class::Field(text) = class else { return Ok(None) };
        let fields = Self::new(raw.ok_or_else(|| Error::Types { reason: "the kernel has none".into() })?)?;
        let field = fields.find(text)?;
        Ok(Some((fields, field)))
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`Error::Types`].
    fn new(raw: &Raw) -> Result<Self, Error> {
        let failed = |reason: String| Error::Types { reason };
        // libbpf reads files only.
        let file = tempfile::NamedTempFile::new().map_err(|error| failed(error.to_string()))?;
        std::fs::write(file.path(), &raw.btf).map_err(|error| failed(error.to_string()))?;
        let types = Btf::from_path(file.path()).map_err(|error| failed(error.to_string()))?;
        let mut prototypes = HashMap::new();
        for function in types.type_by_kind::<Func<'_>>() {
            let Some(name) = function.name() else { continue };
            prototypes.insert(name.to_string_lossy().into_owned(), function.referenced_type_id());
        }
        let task = types.type_by_name::<Composite<'_>>("task_struct").map(|task| task.type_id());
        Ok(Self { types, prototypes, task, current: raw.current.clone() })
    }

    /// The field of a text such as `file.f_mode`, or `sock.sk_rcvbuf`; members of members by more dots.
    ///
    /// # Errors
    /// [`Error::NoField`].
    fn find(&self, text: &str) -> Result<Field, Error> {
        let none = |what: String| Error::NoField { text: text.to_owned(), what };
        let (structure, members) = text.split_once('.').ok_or_else(|| none("it names no member".into()))?;
        let found = self.types.type_by_name::<Composite<'_>>(structure);
        let found = found.ok_or_else(|| none(format!("the kernel has no structure {structure}")))?;
        let (mut bytes, mut here) = (0..0, found.type_id());
        for name in members.split('.') {
            let (own, ty) = self.member(here, name, 0).ok_or_else(|| none(format!("there is no member {name}")))?;
            (bytes, here) = (bytes.start + own.start..bytes.start + own.end, ty);
        }
        Ok(Field { structure: found.type_id(), bytes })
    }

    /// The member of a structure, also of an anonymous one in it: its bytes, and its type.
    fn member(&self, structure: TypeId, name: &str, depth: usize) -> Option<(Range<u32>, TypeId)> {
        let composite: Composite<'_> = self.types.type_by_id(structure)?;
        for member in composite.iter() {
            let (bytes, ty) = (self.bytes(&member.attr, member.ty), self.plain(member.ty));
            match member.name.map(|name| name.to_string_lossy()) {
                Some(other) if other == name => return Some((bytes, ty)),
                None if depth < DEPTH => {
                    if let Some((inner, ty)) = self.member(ty, name, depth + 1) {
                        return Some((bytes.start + inner.start..bytes.start + inner.end, ty));
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// A type without `const`, names and the like.
    fn plain(&self, ty: TypeId) -> TypeId {
        self.types.type_by_id::<BtfType<'_>>(ty).map_or(ty, |ty| ty.skip_mods_and_typedefs().type_id())
    }

    /// The bytes of a member; of one of some bits, those in which its bits are.
    fn bytes(&self, attr: &MemberAttr, ty: TypeId) -> Range<u32> {
        match *attr {
            MemberAttr::Normal { offset } => offset / 8..offset / 8 + self.size(ty),
            MemberAttr::BitField { size, offset } => offset / 8..(offset + u32::from(size)).div_ceil(8),
        }
    }

    fn size(&self, ty: TypeId) -> u32 {
        let of = |size: usize| u32::try_from(size).unwrap_or(0);
        let by = &self.types;
        let plain = self.plain(ty);
        None.or_else(|| Some(of(by.type_by_id::<Composite<'_>>(plain)?.size())))
            .or_else(|| Some(of(by.type_by_id::<Int<'_>>(plain)?.size())))
            .or_else(|| Some(of(by.type_by_id::<Enum<'_>>(plain)?.size())))
            .or_else(|| Some(of(by.type_by_id::<Enum64<'_>>(plain)?.size())))
            .or_else(|| Some(of(by.type_by_id::<Float<'_>>(plain)?.size())))
            .or_else(|| by.type_by_id::<Ptr<'_>>(plain).map(|_| 8))
            .or_else(|| {
                let array: Array<'_> = by.type_by_id(plain)?;
                Some(of(array.capacity()).saturating_mul(self.size(array.ty())))
            })
            .unwrap_or(0)
    }

    /// The structure to which a pointer points.
    fn pointee(&self, pointer: TypeId) -> Option<TypeId> {
        let pointer: Ptr<'_> = self.types.type_by_id(self.plain(pointer))?;
        let to = self.plain(pointer.referenced_type_id());
        self.types.type_by_id::<Composite<'_>>(to).map(|_| to)
    }

    /// What lies at a byte of a structure: the structure itself, then what is in it, each with the rest of the offset.
    fn within(&self, structure: TypeId, at: u32) -> Vec<(TypeId, u32)> {
        let (mut all, mut next) = (Vec::new(), vec![(structure, at, 0)]);
        while let Some((ty, at, depth)) = next.pop() {
            all.push((ty, at));
            if depth > DEPTH {
                continue;
            }
            if let Some(composite) = self.types.type_by_id::<Composite<'_>>(ty) {
                for member in composite.iter() {
                    let bytes = self.bytes(&member.attr, member.ty);
                    if bytes.contains(&at) {
                        next.push((self.plain(member.ty), at - bytes.start, depth + 1));
                    }
                }
            } else if let Some(array) = self.types.type_by_id::<Array<'_>>(ty) {
                let inner = self.plain(array.ty());
                let size = self.size(inner);
                next.extend((size > 0).then(|| (inner, at % size, depth + 1)));
            }
        }
        all
    }

    /// The structure to which the pointer at a byte of a structure points, if all that may lie there agrees.
    fn pointer_at(&self, structure: TypeId, at: u32) -> Option<TypeId> {
        let mut found = self.within(structure, at).into_iter().filter(|(_, rest)| *rest == 0);
        let first = found.find_map(|(ty, _)| self.pointee(ty))?;
        found.filter_map(|(ty, _)| self.pointee(ty)).all(|other| other == first).then_some(first)
    }

    /// The structure that begins at a byte of a structure.
    fn part_at(&self, structure: TypeId, at: u32) -> Option<TypeId> {
        let begins = |(ty, rest): &(TypeId, u32)| *rest == 0 && self.types.type_by_id::<Composite<'_>>(*ty).is_some();
        self.within(structure, at).into_iter().find(begins).map(|(ty, _)| ty)
    }

    fn is_access(&self, structure: TypeId, at: u32, size: u32, field: &Field) -> bool {
        let overlaps = |rest: u32| rest < field.bytes.end && field.bytes.start < rest + size.max(1);
        self.within(structure, at).into_iter().any(|(ty, rest)| ty == field.structure && overlaps(rest))
    }

    /// What the parameters of a function point to. A clone may have others.
    fn entry(&self, function: &Function) -> State {
        let mut state = State::default();
        let prototype = function.names.iter().find_map(|name| self.prototypes.get(name));
        let prototype = prototype.and_then(|id| self.types.type_by_id::<FuncProto<'_>>(*id));
        let Some(prototype) = prototype else { return state };
        for (parameter, register) in prototype.iter().zip(ARGUMENTS) {
            // One by value takes another number of registers.
            if self.types.type_by_id::<Composite<'_>>(self.plain(parameter.ty)).is_some() {
                break;
            }
            state[register.number()] = self.pointee(parameter.ty);
        }
        state
    }

    fn returned(&self, function: &Function) -> Option<TypeId> {
        let id = function.names.iter().find_map(|name| self.prototypes.get(name))?;
        self.pointee(self.types.type_by_id::<FuncProto<'_>>(*id)?.referenced_type_id())
    }

    /// The instructions that access a field.
    pub(crate) fn accesses(&self, world: &World, function: &Function, all: &[Instruction], field: &Field) -> Vec<u64> {
        let states = self.states(world, function, all);
        let accesses = all.iter().zip(&states).filter(|(insn, state)| {
            let Some((structure, at)) = state.as_ref().and_then(|state| based(insn, state)) else { return false };
            let size = u32::try_from(insn.memory_size().size()).unwrap_or(0);
            touches(insn) && self.is_access(structure, at, size, field)
        });
        accesses.map(|(insn, _)| insn.ip()).collect()
    }

    /// The types before each instruction; nothing before one that is not reached.
    fn states(&self, world: &World, function: &Function, all: &[Instruction]) -> Vec<Option<State>> {
        let numbers: HashMap<u64, usize> = all.iter().enumerate().map(|(number, insn)| (insn.ip(), number)).collect();
        let mut states: Vec<Option<State>> = vec![None; all.len()];
        let mut infos = InstructionInfoFactory::new();
        let mut next = vec![(0, self.entry(function))];
        while let Some((number, state)) = next.pop() {
            let Some(known) = states.get_mut(number) else { continue };
            let met = known.map_or(state, |known| {
                let mut met = known;
                met.iter_mut().zip(state).for_each(|(one, other)| *one = one.filter(|one| Some(*one) == other));
                met
            });
            if *known == Some(met) {
                continue;
            }
            *known = Some(met);
            let insn = &all[number];
            let after = self.after(world, insn, met, &mut infos);
            if goes_on(insn) {
                next.push((number + 1, after));
            }
            let target = (insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64)
                .then(|| numbers.get(&insn.near_branch_target()))
                .flatten();
            if insn.flow_control() != FlowControl::Call {
                next.extend(target.map(|target| (*target, after)));
            }
        }
        states
    }

    /// The types after an instruction.
    fn after(&self, world: &World, insn: &Instruction, before: State, infos: &mut InstructionInfoFactory) -> State {
        let mut state = before;
        if matches!(insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            let near = insn.op0_kind() == OpKind::NearBranch64;
            let callee = near.then(|| world.function_at(insn.near_branch_target())).flatten();
            // The bytes of the tracer: the kernel makes a no-op of it, and a tracer keeps all registers.
            if callee.is_some_and(|callee| callee.called("__fentry__").is_some()) {
                return state;
            }
            VOLATILE.iter().for_each(|register| state[register.number()] = None);
            state[Register::RAX.number()] = callee.and_then(|callee| self.returned(callee));
            return state;
        }
        for used in infos.info(insn).used_registers() {
            let writes = matches!(
                used.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            );
            if writes && used.register().full_register().is_gpr64() {
                state[used.register().full_register().number()] = None;
            }
        }
        if insn.op_count() != 2 || insn.op0_kind() != OpKind::Register || !insn.op0_register().is_gpr64() {
            return state;
        }
        let to = insn.op0_register().number();
        match (insn.mnemonic(), insn.op1_kind()) {
            (Mnemonic::Mov, OpKind::Register) if insn.op1_register().is_gpr64() => {
                state[to] = before[insn.op1_register().number()];
            }
            (Mnemonic::Mov, OpKind::Memory) if insn.memory_segment() == Register::GS => {
                let is_current = insn.memory_index() == Register::None
                    && matches!(insn.memory_base(), Register::None | Register::RIP)
                    && self.current.contains(&insn.memory_displacement64());
                state[to] = self.task.filter(|_| is_current);
            }
            (Mnemonic::Mov, OpKind::Memory) => {
                state[to] = based(insn, &before).and_then(|(structure, at)| self.pointer_at(structure, at));
            }
            (Mnemonic::Lea, _) => {
                state[to] = based(insn, &before).and_then(|(structure, at)| self.part_at(structure, at));
            }
            (Mnemonic::Add, kind) if kind != OpKind::Register && kind != OpKind::Memory => {
                let at = u32::try_from(insn.immediate(1)).ok();
                state[to] = before[to].zip(at).and_then(|(structure, at)| self.part_at(structure, at));
            }
            _ => {}
        }
        state
    }
}

/// The structure that the memory operand of an instruction lies in, and where.
fn based(insn: &Instruction, state: &State) -> Option<(TypeId, u32)> {
    let base = insn.memory_base();
    let has_memory = (0..insn.op_count()).any(|number| insn.op_kind(number) == OpKind::Memory);
    if !has_memory || !base.is_gpr64() || insn.memory_index() != Register::None {
        return None;
    }
    Some((state[base.number()]?, u32::try_from(insn.memory_displacement64() as i64).ok()?))
}

/// Whether an instruction reads or writes the memory of its operand.
fn touches(insn: &Instruction) -> bool {
    !matches!(
        insn.mnemonic(),
        Mnemonic::Lea
            | Mnemonic::Nop
            | Mnemonic::Prefetchw
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchnta
    )
}

/// Whether the next instruction may be executed after one.
fn goes_on(insn: &Instruction) -> bool {
    !matches!(
        insn.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
            | FlowControl::Interrupt
    )
}
