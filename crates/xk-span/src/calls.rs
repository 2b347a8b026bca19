//! What a call reads and changes, by the callee's prototype or by its own code.
//!
//! A C function takes arguments where the System V ABI has them and preserves what the
//! ABI says. Code without a prototype (assembly, thunks) has conventions of its own:
//! every register may be read, and what comes back is what its instructions leave.

use iced_x86::{Instruction, Mnemonic, OpKind};

use crate::btf::Prototype;
use crate::graph::Callee;
use crate::location::{Locations, RegisterSet};
use crate::value::{Values, ARGUMENTS, CALLER_SAVED};
use crate::world::{Function, World};

const RAX: usize = 0;

/// Who is called, as far as that decides what can be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A C function.
    C(u64),
    /// Code with a convention of its own.
    Assembly(u64),
    /// Code that is not known before it runs, and how it is called.
    Unknown(String),
}

/// A call, before it is known what is passed.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who.
    pub kind: Kind,
    /// Registers that may be read.
    pub reads: Locations,
    /// Bytes of arguments on the stack.
    pub stack: i32,
    /// Registers that surely hold nothing of before.
    pub kills: Locations,
    /// Registers that may hold a result.
    pub results: RegisterSet,
}

/// What a function may give back.
#[must_use]
pub fn results(world: &World, function: &Function) -> Locations {
    if !world.is_c(function) {
        return Locations::all_registers();
    }
    let registers = world.prototype(function).map_or(RegisterSet::RESULTS, result_registers);
    Locations { registers, ..Locations::default() }
}

/// The registers in which a function returns its result.
fn result_registers(prototype: &Prototype) -> RegisterSet {
    match prototype.results {
        0 => RegisterSet::EMPTY,
        1 => RegisterSet::of(RAX),
        _ => RegisterSet::RESULTS,
    }
}

fn arguments(count: usize) -> RegisterSet {
    ARGUMENTS.into_iter().take(count).collect()
}

impl Call {
    /// What the call or jump `insn` to `callee` may do in a state.
    #[must_use]
    pub fn new(world: &World, callee: Callee, insn: &Instruction, values: Option<&Values>) -> Self {
        let mut this = Self {
            kind: Kind::Unknown("an indirect call".into()),
            reads: Locations { registers: arguments(6), ..Locations::default() },
            stack: 0,
            kills: Locations { registers: CALLER_SAVED, ..Locations::default() },
            results: RegisterSet::RESULTS,
        };
        let Callee::Direct(address) = callee else { return this.indirect(world, insn, values) };
        let Some(function) = world.function_at(address) else {
            this.kind = Kind::Assembly(address);
            return this.assembly();
        };
        let known = world.prototype(function);
        (this.stack, this.results) = (8 * 8, results(world, function).registers & RegisterSet::RESULTS);
        if let Some(known) = known.filter(|p| !p.variadic) {
            this.passes(known);
        }
        let name = function.name();
        if let Some(to) = function.called("__SCT__").and_then(|name| name.strip_prefix("__SCT__")) {
            return this.static_call(world, to);
        }
        if function.start == function.end {
            this.kind = Kind::Unknown(format!("{name}, whose code is not here"));
        } else if world.is_c(function) {
            this.kind = Kind::C(address);
        } else {
            this.kind = Kind::Assembly(address);
            return this.assembly();
        }
        this
    }

    fn indirect(mut self, world: &World, insn: &Instruction, values: Option<&Values>) -> Self {
        if matches!(insn.mnemonic(), Mnemonic::Vmcall | Mnemonic::Vmmcall) {
            // arch/x86/include/asm/kvm_para.h: rax, rbx, rcx, rdx, rsi.
            self.kind = Kind::Unknown("a hypercall".into());
            self.reads.registers = RegisterSet::from_bits(0b100_1111);
            (self.kills, self.results) = (Locations::default(), RegisterSet::of(RAX));
            return self;
        }
        let known = values.and_then(|values| values.called(world, insn)).and_then(|id| world.types.numbered(id));
        if let Some(known) = known.filter(|p| !p.variadic) {
            self.passes(&known);
        } else if values.is_some_and(|values| values.is_paravirt(world, insn)) {
            // Those that are not declared with a prototype take at most one argument
            // (PV_CALLEE_SAVE in arch/x86/include/asm/paravirt_types.h).
            self.reads.registers = arguments(1);
        }
        if insn.op_count() > 0 && insn.op0_kind() == OpKind::Memory {
            // Callees of pv_ops may preserve more than others.
            self.kills = Locations::default();
        }
        self
    }

    fn passes(&mut self, known: &Prototype) {
        self.reads.registers = arguments(known.parameters.len());
        self.stack = 8 * known.parameters.len().saturating_sub(6) as i32;
        self.results = result_registers(known);
    }

    fn assembly(mut self) -> Self {
        self.reads = Locations::all_registers();
        self.kills = Locations::default();
        self.stack = 0;
        self
    }

    /// Which function it is may change. Its prototype is that of the first one
    /// (include/linux/static_call.h), of the iterator for a tracepoint.
    fn static_call(mut self, world: &World, to: &str) -> Self {
        let first = match to {
            "cond_resched" | "might_resched" => "__cond_resched".to_owned(),
            other => other.strip_prefix("tp_func_").map_or(other.to_owned(), |event| format!("__traceiter_{event}")),
        };
        self.kind = Kind::Unknown(format!("the static call {to}"));
        (self.reads.registers, self.results, self.stack) = (arguments(6), RegisterSet::RESULTS, 8 * 8);
        if let Some(known) = world.types.function(&first).filter(|p| !p.variadic) {
            self.passes(known);
        }
        self
    }
}
