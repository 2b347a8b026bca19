//! Fixtures in C, compiled as the kernel is, with the values of one instruction as the
//! critical span.

#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used)]

pub mod execute;

use std::process::Command;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind};
use xk_kernel::Module;
use xk_span::callers::Callers;
use xk_span::scope::scopes;
use xk_span::text;
use xk_span::value::gpr;
use xk_span::walk::Walk;
use xk_span::world::World;
use xk_table::{
    ConstRef, CriticalSpan, Fit, Indirection, KernelRef, Kind, Mode, Op, OpCode, ProbeKind, Program, Proof, ScopeTable,
    Values, When, SCHEMA, STATUS_FLAGS,
};

/// The constant of every fixture: no other number is like it.
pub const V: u64 = 12347;

const PRELUDE: &str = "typedef unsigned int u32; typedef unsigned long u64;\n\
    struct s { u32 a, b; u64 c; };\n\
    extern u64 g(u64), h(u64); extern void k(void), l(void), m(struct s *);\n\
    #define noinline __attribute__((noinline, noclone))\n";

/// A translation unit, compiled and loaded as a module.
pub struct CompiledUnit {
    pub world: World,
    pub callers: Callers,
}

impl CompiledUnit {
    /// Compiles `text` with `V` defined and with the types of the unit beside it.
    pub fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (source, object) = (folder.path().join("unit.c"), folder.path().join("unit.ko"));
        std::fs::write(&source, format!("{PRELUDE}#define V {V}ul\n{text}\n")).unwrap();
        let flags = "-c -O2 -std=gnu11 -gbtf -fno-jump-tables -mno-red-zone -mcmodel=kernel -fno-PIE \
            -fno-asynchronous-unwind-tables -fno-stack-protector -fno-strict-aliasing -fcf-protection=none \
            -fno-ipa-ra -mno-sse -mno-mmx -mno-80387 -falign-functions=16 -mindirect-branch=thunk-extern \
            -mindirect-branch-register -fno-inline-functions-called-once -fno-ipa-sra -fno-ipa-cp";
        let mut gcc = Command::new("gcc-12");
        gcc.args(flags.split_whitespace()).arg("-o").arg(&object).arg(&source);
        assert!(gcc.status().expect("gcc-12 is needed: apt-get install gcc-12").success(), "does not compile:\n{text}");
        let world = World::of_modules(&[Module::open(&object).unwrap()]);
        let callers = Callers::new(&world);
        Self { world, callers }
    }

    /// The instructions of a function.
    pub fn insns(&self, function: &str) -> Vec<Instruction> {
        let function = self.world.named(function).next().unwrap_or_else(|| panic!("no function {function}"));
        let bytes = self.world.read(function.start, (function.end - function.start) as usize).unwrap();
        Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE).into_iter().collect()
    }

    /// Address of the instruction of `function` that holds V.
    pub fn seed(&self, function: &str) -> Instruction {
        let holds = |insn: &Instruction| {
            let immediate = (0..insn.op_count()).any(|n| match insn.op_kind(n) {
                OpKind::Register | OpKind::Memory | OpKind::NearBranch64 => false,
                _ => insn.immediate(n) == V,
            });
            immediate || insn.memory_displacement64() == V
        };
        let found: Vec<Instruction> = self.insns(function).into_iter().filter(holds).collect();
        assert_eq!(found.len(), 1, "{function} has one instruction with V");
        found[0]
    }

    /// Addresses of the calls and jumps of `function` to `callee`.
    pub fn calls(&self, function: &str, callee: &str) -> Vec<u64> {
        let target = self.world.named(callee).next().unwrap_or_else(|| panic!("no function {callee}")).start;
        let insns = self.insns(function).into_iter();
        insns
            .filter(|i| i.op_count() > 0 && i.op0_kind() == OpKind::NearBranch64 && i.near_branch_target() == target)
            .map(|insn| insn.ip())
            .collect()
    }

    pub fn call(&self, function: &str, callee: &str) -> u64 {
        let calls = self.calls(function, callee);
        assert_eq!(calls.len(), 1, "{function} calls {callee} once");
        calls[0]
    }

    /// Addresses of the returns of `function`.
    pub fn returns(&self, function: &str) -> Vec<u64> {
        let insns = self.insns(function).into_iter();
        insns.filter(|insn| insn.flow_control() == FlowControl::Return).map(|insn| insn.ip()).collect()
    }

    /// Addresses of the conditional branches of `function`.
    pub fn branches(&self, function: &str) -> Vec<u64> {
        let insns = self.insns(function).into_iter();
        insns.filter(|insn| insn.flow_control() == FlowControl::ConditionalBranch).map(|insn| insn.ip()).collect()
    }

    /// A table whose critical spans are the instructions with V in `functions`.
    pub fn table(&self, functions: &[&str]) -> ScopeTable {
        let mut table = empty();
        for name in functions {
            let start = self.world.named(name).next().unwrap().start;
            table.functions.push(text::function(&self.world, start));
            let seed = self.seed(name);
            table.spans.push(span(table.functions.len() - 1, (seed.ip() - start) as u32, &seed));
        }
        table
    }

    /// A table whose critical spans are these instructions of `function`.
    pub fn table_at(&self, function: &str, sites: impl Iterator<Item = (Instruction, When)>) -> ScopeTable {
        let mut table = empty();
        let start = self.world.named(function).next().unwrap().start;
        table.functions.push(text::function(&self.world, start));
        for (insn, when) in sites {
            let mut span = span(0, (insn.ip() - start) as u32, &insn);
            span.indirection.when = when;
            table.spans.push(span);
        }
        table
    }

    /// The same with its safe spans.
    pub fn confined(&self, functions: &[&str]) -> ScopeTable {
        let mut table = self.table(functions);
        scopes(&mut Walk::new(&self.world, &self.callers), &mut table).unwrap();
        table.check().unwrap();
        table
    }

    /// Whether a thread at `address` is inside.
    pub fn inside(&self, table: &ScopeTable, address: u64) -> bool {
        inside(&self.world, table, address)
    }
}

/// Whether a thread at `address` is inside.
pub fn inside(world: &World, table: &ScopeTable, address: u64) -> bool {
    table.scopes.iter().any(|scope| {
        let start = text::address(world, &table.functions[scope.function]).unwrap();
        address.checked_sub(start).and_then(|at| u32::try_from(at).ok()).is_some_and(|at| scope.contains(at))
    })
}

fn empty() -> ScopeTable {
    ScopeTable {
        schema: SCHEMA,
        kernel: KernelRef { release: String::new(), build_id: String::new() },
        constant: ConstRef {
            id: "unit.c:L1:12347:0".into(),
            name: Some("V".into()),
            text: String::new(),
            token: V.to_string(),
            default: V as i64,
        },
        values: Values::proved(1, 100_000),
        functions: Vec::new(),
        spans: Vec::new(),
        data: Vec::new(),
        scopes: Vec::new(),
        mode: Mode::Global,
        escapes: Vec::new(),
        scoped: None,
        units: Vec::new(),
        stages: std::collections::BTreeMap::new(),
    }
}

fn op(code: OpCode, dst: u8, imm: i64) -> Op {
    Op { code, width: 8, dst, a: 0, b: 0, c: 0, imm }
}

/// An update behind `seed` that writes whatever `seed` writes.
fn span(function: usize, offset: u32, seed: &Instruction) -> CriticalSpan {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(seed);
    let writes = |access| !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
    let mut ops = vec![op(OpCode::Iv, 0, 0)];
    let registers = info.used_registers().iter().filter(|used| writes(used.access()));
    ops.extend(registers.filter_map(|used| Some(op(OpCode::SetReg, gpr(used.register())?.0 as u8, 0))));
    if seed.rflags_modified() != 0 {
        ops.push(op(OpCode::SetFlags, 0, STATUS_FLAGS as i64));
    }
    if info.used_memory().iter().any(|used| writes(used.access())) {
        ops.push(op(OpCode::Store, 0, 0));
    }
    CriticalSpan {
        function,
        start: offset,
        end: offset + seed.len() as u32,
        assembly: Vec::new(),
        expression: Vec::new(),
        ivs: vec![Fit::linear(1, 0, 8)],
        indirection: Indirection {
            offset,
            insn_len: seed.len() as u8,
            when: When::After,
            kind: Kind::Value,
            probe: ProbeKind::Int3,
            probe_reason: None,
            window: 0,
            window_lead: 0,
            window_reason: None,
            program: Program { ops },
        },
        proof: Proof::Proved { solver: "by hand".into(), millis: 0 },
        in_place: None,
        in_place_reason: None,
        only_in_place: None,
        visible: Vec::new(),
    }
}
