//! Liveness: which registers and flags may be read at or after an instruction before they
//! are written.
//!
//! It errs on the side of "live". A call reads what its prototype passes, or what the
//! callee's own code may read if it is in the object; of helpers in assembly, which have
//! conventions of their own, every register is assumed. No call is taken to destroy a
//! register. What a function returns, and the registers that it preserves, are live at its
//! end, and nothing else is (System V ABI): flags survive neither a call nor a return.

use std::collections::HashMap;

use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind};

use crate::insn::{Insn, Node, SymbolRef, Target};
use crate::object::{successors, Object};
use crate::prototypes::{is_transparent, Prototypes};
use crate::semantics::gpr;
use crate::state::{Flag, RSP};

/// Registers (bits 0..16) and flags (bits 16..22, in the order of [`Flag::ALL`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live(u32);

const ALL_REGISTERS: u32 = 0xffff;
const ALL_FLAGS: u32 = 0x3f << 16;
/// rax, rcx, rdx, rsi, rdi, r8 to r11 (System V ABI).
pub const CALLER_SAVED: u32 = 0x0fc7;
/// The registers that a function gives back unchanged: the others.
const CALLEE_SAVED: u32 = ALL_REGISTERS & !CALLER_SAVED;
const RAX: u32 = 1 << 0;
const RDX: u32 = 1 << 2;
/// The registers that pass arguments, in order.
pub const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];

impl Live {
    /// Everything.
    pub const ALL: Self = Self(ALL_REGISTERS | ALL_FLAGS);

    /// Whether register `number` may be read.
    #[must_use]
    pub fn register(self, number: usize) -> bool {
        self.0 >> number & 1 == 1
    }

    /// Whether `flag` may be read.
    #[must_use]
    pub fn flag(self, flag: Flag) -> bool {
        self.0 >> (16 + flag as usize) & 1 == 1
    }

    /// Those of `registers`, as bits.
    pub fn among(self, registers: u32) -> Self {
        Self(self.0 & registers)
    }
}

fn flag_bits(rflags: u32) -> u32 {
    Flag::ALL.iter().filter(|flag| rflags & flag.iced() != 0).map(|flag| 1 << (16 + *flag as u32)).sum()
}

/// The first `count` registers that pass arguments.
fn passed(count: usize) -> u32 {
    ARGUMENTS.iter().take(count).fold(1 << RSP, |bits, register| bits | 1 << register)
}

/// What an instruction does to liveness.
struct Effect {
    reads: u32,
    kills: u32,
    /// The function of the object that is called, if its code says what it reads.
    callee: Option<Node>,
}

impl Effect {
    fn of(reads: u32, kills: u32) -> Self {
        Self { reads, kills, callee: None }
    }
}

struct Effects<'a> {
    object: &'a Object,
    prototypes: &'a Prototypes,
    factory: InstructionInfoFactory,
}

impl Effects<'_> {
    /// What a function outside of the object reads.
    fn external(&self, symbol: &SymbolRef) -> u32 {
        let known = self.prototypes.arguments(&symbol.name).filter(|_| symbol.offset == 0);
        match known {
            Some(count) => passed(count),
            // Behind a retpoline is a C function.
            None if symbol.name.starts_with("__x86_indirect_") => ALL_REGISTERS & !CALLEE_SAVED | 1 << RSP,
            None => ALL_REGISTERS,
        }
    }

    fn call(&self, insn: &Insn) -> Effect {
        match &insn.target {
            Some(Target::External(symbol)) if is_transparent(&symbol.name) => Effect::of(1 << RSP, ALL_FLAGS),
            Some(Target::External(symbol)) => Effect::of(self.external(symbol), ALL_FLAGS),
            // Its own code says what it reads, whatever BTF says of functions of that name; a
            // weak function may be another one in the end.
            Some(Target::Local(node)) => match self.object.functions.get(node) {
                Some(function) if !function.weak => Effect { callee: Some(*node), ..Effect::of(1 << RSP, ALL_FLAGS) },
                _ => Effect::of(ALL_REGISTERS, ALL_FLAGS),
            },
            None => Effect::of(ALL_REGISTERS, ALL_FLAGS),
        }
    }

    /// What the caller of the function at `node` reads when it returns.
    fn returned(&self, node: Node) -> u32 {
        let name = self.object.function_at(node).and_then(|function| function.name.split('.').next());
        let result = match name.and_then(|name| self.prototypes.result(name)) {
            Some(0) => 0,
            Some(_) => RAX,
            None => RAX | RDX,
        };
        CALLEE_SAVED | 1 << RSP | result
    }

    /// What is read after control has left the function.
    fn leaves(&self, insn: &Insn) -> Option<u32> {
        match (insn.raw.flow_control(), &insn.target) {
            (FlowControl::Return, _) => Some(self.returned(insn.node)),
            (FlowControl::IndirectBranch, _) => Some(ALL_REGISTERS),
            (FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch, Some(Target::External(symbol))) => {
                Some(match symbol.name.as_str() {
                    "__x86_return_thunk" => self.returned(insn.node),
                    _ => self.external(symbol) | CALLEE_SAVED | 1 << RSP,
                })
            }
            _ => None,
        }
    }

    fn of(&mut self, insn: &Insn) -> Effect {
        if self.object.goes_to(insn, "__fentry__") {
            return Effect::of(0, 0);
        }
        let site =
            self.object.in_alternative.contains(&insn.node).then(|| self.object.alternative(insn.node)).flatten();
        if let Some(site) = site {
            // Whatever any of the pieces of code reads.
            let own = site.reads.iter().fold(flag_bits(insn.raw.rflags_read()), |bits, register| bits | 1 << register);
            let count = site.paravirtual.and_then(|offset| self.prototypes.paravirtual(offset));
            let calls = match (site.calls, count) {
                (false, _) => 0,
                (true, Some(count)) => passed(count),
                (true, None) => ALL_REGISTERS,
            };
            return Effect::of(own | calls, 0);
        }
        if insn.is_call() {
            return self.call(insn);
        }
        let leaves = self.leaves(insn);
        if let (Some(reads), true) = (leaves, insn.raw.flow_control() != FlowControl::ConditionalBranch) {
            return Effect::of(reads, ALL_FLAGS);
        }
        self.ordinary(insn, leaves.unwrap_or(0))
    }

    fn ordinary(&mut self, insn: &Insn, leaves: u32) -> Effect {
        let raw = &insn.raw;
        // The flags survive a shift by zero, the registers a repeated string
        // operation with count zero.
        let may_do_nothing = raw.has_rep_prefix()
            || raw.has_repne_prefix()
            || (matches!(
                raw.mnemonic(),
                Mnemonic::Shl
                    | Mnemonic::Sal
                    | Mnemonic::Shr
                    | Mnemonic::Sar
                    | Mnemonic::Rol
                    | Mnemonic::Ror
                    | Mnemonic::Rcl
                    | Mnemonic::Rcr
                    | Mnemonic::Shld
                    | Mnemonic::Shrd
            ) && raw.op_kind(raw.op_count() - 1) == OpKind::Register);
        let mut result = Effect {
            reads: flag_bits(raw.rflags_read()) | leaves,
            kills: if may_do_nothing { 0 } else { flag_bits(raw.rflags_modified()) },
            callee: None,
        };
        for used in self.factory.info(raw).used_registers() {
            let Some((number, bits, _)) = gpr(used.register()) else { continue };
            match used.access() {
                OpAccess::Write if bits >= 32 && !may_do_nothing => result.kills |= 1 << number,
                OpAccess::Write => result.reads |= 1 << number,
                _ => result.reads |= 1 << number,
            }
        }
        result
    }
}

/// What is read after an instruction: at other instructions, by their place in the
/// order, and outside of the object.
struct Behind {
    at: Vec<usize>,
    /// Where it continues if it faults: it has written nothing then.
    fault: Option<usize>,
    /// The function that is called, if its code says what it reads.
    callee: Option<usize>,
    effect: Effect,
}

/// What may be read at each instruction of `object`.
pub fn liveness(object: &Object, prototypes: &Prototypes) -> HashMap<Node, Live> {
    let mut effects = Effects { object, prototypes, factory: InstructionInfoFactory::new() };
    // Against the flow of control, so that few rounds are needed.
    let places: HashMap<Node, usize> = object.insns.keys().rev().enumerate().map(|(at, node)| (*node, at)).collect();
    let code: Vec<Behind> = object
        .insns
        .values()
        .rev()
        .map(|insn| {
            let mut effect = effects.of(insn);
            let next = successors(object, insn);
            let at: Vec<usize> = next.iter().filter_map(|node| places.get(node).copied()).collect();
            if at.len() < next.len() {
                // Whatever is there may read everything.
                effect.reads |= Live::ALL.0 & !effect.kills;
            }
            let fault = object.fixups.get(&insn.node).and_then(|node| places.get(node).copied());
            Behind { at, fault, callee: effect.callee.and_then(|start| places.get(&start).copied()), effect }
        })
        .collect();
    let mut live = vec![Live::default(); code.len()];
    loop {
        let mut changed = false;
        for (at, Behind { at: next, fault, callee, effect }) in code.iter().enumerate() {
            let out = next.iter().fold(0, |acc, &next| acc | live[next].0);
            let fault = fault.map_or(0, |at| live[at].0);
            let callee = callee.map_or(0, |start| live[start].0 & CALLER_SAVED);
            let new = Live(out & !effect.kills | fault | effect.reads | callee);
            if live[at] != new {
                live[at] = new;
                changed = true;
            }
        }
        if !changed {
            return object.insns.keys().rev().copied().zip(live).collect();
        }
    }
}
