//! Scope tables and a tune by example, for tests that show or compare them. They belong to no deployed kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use xk_runtime::{Probe, SiteStatus, State, TuneStatus};
use xk_table::{
    AsmLine, ConstRef, CriticalSpan, DataSite, Escape, Exit, ExitKind, Fit, Form, Function, InPlace, Indirection,
    KernelRef, Kind, Mode, Op, OpCode, Patch, ProbeKind, Program, Proof, Range, Scope, ScopeTable, Unit, Values, When,
    SCHEMA, STATUS_FLAGS,
};

fn op(code: OpCode, width: u8, dst: u8, [a, b, c]: [u8; 3], imm: i64) -> Op {
    Op { code, width, dst, a, b, c, imm }
}

fn asm(offset: u32, text: &str, iv: Option<usize>) -> AsmLine {
    AsmLine { offset, text: text.into(), iv, order: None }
}

fn function(symbol: &str, module: Option<&str>, source: &str) -> Function {
    Function {
        symbol: symbol.into(),
        module: module.map(Into::into),
        text_offset: 0x1000,
        section: ".text".into(),
        bytes: "90".repeat(256),
        mask: "ff".repeat(256),
        source: source.into(),
    }
}

/// An instruction of three bytes with a number of eight bits.
fn patch(offset: u32, iv: usize) -> Patch {
    Patch { offset, insn_len: 3, field: 2, size: 1, width: 4, iv }
}

/// A select with two values, at a site that kprobes optimise.
fn select() -> CriticalSpan {
    CriticalSpan {
        function: 0,
        start: 0x4e,
        end: 0x59,
        assembly: vec![
            asm(0x4e, "cmp $0x1,%cl", None),
            asm(0x51, "sbb %eax,%eax", None),
            asm(0x53, "and $0xffffffe0,%eax", Some(0)),
            asm(0x56, "add $0x40,%eax", Some(1)),
        ],
        expression: vec!["rax = (cl < 0x1 ? V : 2·V)".into()],
        ivs: vec![Fit::linear(-1, 0, 4), Fit::linear(2, 0, 4)],
        indirection: Indirection {
            offset: 0x59,
            insn_len: 3,
            when: When::Before,
            kind: Kind::Rematerialise,
            probe: ProbeKind::Jump,
            probe_reason: None,
            window: 7,
            window_lead: 4,
            window_reason: None,
            program: Program {
                ops: vec![
                    op(OpCode::Reg, 1, 0, [1, 0, 0], 0),
                    op(OpCode::Imm, 1, 1, [0; 3], 1),
                    op(OpCode::Ult, 1, 2, [0, 1, 0], 0),
                    op(OpCode::Iv, 4, 3, [0; 3], 0),
                    op(OpCode::Neg, 4, 3, [3, 0, 0], 0),
                    op(OpCode::Iv, 4, 4, [0; 3], 1),
                    op(OpCode::Select, 4, 5, [2, 3, 4], 0),
                    op(OpCode::SetReg, 4, 0, [5, 0, 0], 0),
                ],
            },
        },
        proof: Proof::Proved { solver: "Z3 version 4.8.12".into(), millis: 31 },
        in_place: Some(InPlace {
            patches: vec![patch(0x53, 0), patch(0x56, 1)],
            range: Range::of(10, 63),
            proof: Proof::Proved { solver: "Z3 version 4.8.12".into(), millis: 9 },
        }),
        in_place_reason: None,
        only_in_place: None,
        visible: Vec::new(),
    }
}

/// A comparison in a module, at a site that kprobes do not optimise.
fn compare() -> CriticalSpan {
    CriticalSpan {
        function: 1,
        start: 0x10,
        end: 0x13,
        assembly: vec![asm(0x10, "cmp $0x1f,%esi", Some(0))],
        expression: vec!["flags = compare esi with V - 1".into()],
        ivs: vec![Fit::linear(1, -1, 4)],
        indirection: Indirection {
            offset: 0x10,
            insn_len: 3,
            when: When::After,
            kind: Kind::Value,
            probe: ProbeKind::Int3,
            probe_reason: Some("the update runs after the instruction".into()),
            window: 0,
            window_lead: 0,
            window_reason: Some("a jump label is switched in these bytes".into()),
            program: Program {
                ops: vec![
                    op(OpCode::Reg, 4, 0, [6, 0, 0], 0),
                    op(OpCode::Iv, 4, 1, [0; 3], 0),
                    op(OpCode::FlagsSub, 4, 2, [0, 1, 0], 0),
                    op(OpCode::SetFlags, 8, 0, [2, 0, 0], STATUS_FLAGS as i64),
                ],
            },
        },
        proof: Proof::Proved { solver: "Z3 version 4.8.12".into(), millis: 12 },
        in_place: None,
        in_place_reason: Some("`cmp $0x1f,%esi`: the kernel patches these bytes itself".into()),
        only_in_place: None,
        visible: Vec::new(),
    }
}

/// The safe spans of both.
fn scopes() -> Vec<Scope> {
    let exit = |offset, kind, to: Option<&str>| Exit { offset, kind, to: to.map(Into::into) };
    let plugged = Scope {
        function: 0,
        ranges: vec![[0x4e, 0x60], [0x80, 0x84]],
        spans: vec![0],
        instructions: 7,
        exits: vec![exit(0x5e, ExitKind::Branch, Some("+0x90")), exit(0x80, ExitKind::Return, None)],
        whole: None,
    };
    let full = Scope {
        function: 1,
        ranges: vec![[0, 0x100]],
        spans: vec![1],
        instructions: 64,
        exits: Vec::new(),
        whole: Some("example_full+0x40: a jump through a table".into()),
    };
    vec![plugged, full]
}

/// The table of a constant with two sites: a select that is reached by a jump, and a comparison in a module.
#[must_use]
pub fn table() -> ScopeTable {
    let unit = |source: &str, module: Option<&str>, functions, spans| Unit {
        source: source.into(),
        module: module.map(Into::into),
        functions,
        spans,
    };
    let returned = Escape {
        place: "blk_add_rq_to_plug+0x0 (block/blk-mq.c)".into(),
        field: "the value that it returns".into(),
        reason: "it is also called through a pointer".into(),
    };
    ScopeTable {
        schema: SCHEMA,
        kernel: KernelRef {
            release: "6.12.117+deb12-amd64".into(),
            build_id: "0123456789abcdef0123456789abcdef01234567".into(),
        },
        constant: ConstRef {
            id: "block/blk.h:L335:32:0".into(),
            name: Some("BLK_MAX_REQUEST_COUNT".into()),
            text: "#define BLK_MAX_REQUEST_COUNT\t32".into(),
            token: "32".into(),
            default: 32,
        },
        values: Values {
            refused: BTreeMap::from([(0, "blk_add_rq_to_plug+0x4e is `xor %eax,%eax` there".into())]),
            ..Values::proved(1, 0x3fff_ffff)
        },
        functions: vec![
            function("blk_add_rq_to_plug", None, "block/blk-mq.c"),
            function("example_full", Some("example"), "drivers/example.c"),
        ],
        spans: vec![select(), compare()],
        data: Vec::new(),
        scopes: scopes(),
        mode: Mode::Task,
        escapes: vec![returned],
        scoped: Some("fixture".into()),
        units: vec![
            unit("block/blk-core.c", None, 90, 0),
            unit("block/blk-mq.c", None, 210, 1),
            unit("drivers/example.c", Some("example"), 12, 1),
        ],
        stages: BTreeMap::from([("analyse".into(), 0.4), ("compile".into(), 3.25), ("users".into(), 0.05)]),
    }
}

/// A constant that only initialises a static object, in half-pages.
#[must_use]
pub fn data_table() -> ScopeTable {
    let mut table = table();
    let site = |symbol: &str, offset, fit: Fit| DataSite {
        symbol: symbol.into(),
        module: None,
        section: ".data".into(),
        section_offset: 0x2000,
        offset,
        width: fit.width,
        fit,
        source: "net/core/hotdata.c".into(),
    };
    table.constant = ConstRef {
        id: "net/core/hotdata.c:L17:300:0".into(),
        name: None,
        text: "\t.netdev_budget = 300,".into(),
        token: "300".into(),
        default: 300,
    };
    table.values = Values::proved(1, 4096);
    table.functions.clear();
    table.spans.clear();
    table.scopes.clear();
    (table.mode, table.escapes) = (Mode::Now, Vec::new());
    let half = Fit { form: Form::Quotient(2), ..Fit::linear(1, 1, 2) };
    table.data = vec![site("net_hotdata", 0x38, Fit::linear(1, 0, 4)), site("net_hotdata", 0x3c, half)];
    table.units = vec![Unit { source: "net/core/hotdata.c".into(), module: None, functions: 0, spans: 0 }];
    table
}

/// Shifts that stand for divisions, of a global and of a per-CPU variable; one runs
/// instead of its instruction.
#[must_use]
pub fn powers_table() -> ScopeTable {
    let mut table = table();
    table.values = Values {
        unproved: Some("the code divides or masks by shifting: only powers of two were compiled".into()),
        refused: BTreeMap::from([(2, "blk_add_rq_to_plug+0x4e is `add %eax,%eax` there".into())]),
        ..Values::compiled([4, 8, 16, 32, 64, 128])
    };
    let log2 = Fit { form: Form::Log2, ..Fit::linear(1, 0, 1) };
    let [shift, divide] = &mut table.spans[..] else { return table };
    shift.assembly = vec![asm(0x4e, "mov 0x1915,%ebx  # nr_cpu_ids+0x0", None), asm(0x54, "shr $5,%ebx", Some(0))];
    (shift.end, shift.ivs) = (0x57, vec![log2]);
    shift.expression = vec!["rbx = ([&nr_cpu_ids] >> log2(V))".into()];
    shift.indirection.program.ops = vec![
        op(OpCode::Text, 8, 0, [0, 1, 0], 0x50),
        op(OpCode::Load, 4, 1, [0; 3], 0),
        op(OpCode::Iv, 1, 2, [0; 3], 0),
        op(OpCode::Shr, 4, 3, [1, 2, 0], 0),
        op(OpCode::SetReg, 4, 3, [3, 0, 0], 0),
    ];
    divide.assembly = vec![asm(0x10, "cmpq $0x1f,%gs:8(%rax)", Some(0))];
    divide.indirection.when = When::Instead;
    divide.indirection.probe_reason = Some("the update runs instead of the instruction".into());
    divide.ivs = vec![Fit { form: Form::Log2, ..Fit::linear(2, -1, 8) }];
    divide.expression = vec!["flags = compare [((rax + 0x8) + GS_base)] with 2·log2(V) - 1".into()];
    divide.indirection.program.ops = vec![
        op(OpCode::Reg, 8, 0, [0; 3], 0),
        op(OpCode::PerCpu, 8, 1, [0; 3], 0),
        op(OpCode::Add, 8, 2, [0, 1, 0], 0),
        op(OpCode::Load, 8, 3, [2, 0, 0], 8),
        op(OpCode::Iv, 8, 4, [0; 3], 0),
        op(OpCode::FlagsSub, 8, 5, [3, 4, 0], 0),
        op(OpCode::SetFlags, 8, 0, [5, 0, 0], STATUS_FLAGS as i64),
    ];
    table
}

/// A tune of [`table`].
#[must_use]
pub fn tune() -> TuneStatus {
    TuneStatus {
        id: 1,
        name: "block/blk.h:L335:32:0".into(),
        value: 128,
        default: 32,
        values: Values::proved(1, 0x3fff_ffff),
        detached: true,
        broken: false,
        // Beyond the largest number that a process can have.
        owner_pid: 4_194_305,
        age: Duration::from_secs(75),
        lease: Some(Duration::from_secs(600)),
        mode: Mode::Task,
        state: State::Stable,
        blocking: 0,
        blockers: String::new(),
        scopes: 1,
        ignored: Vec::new(),
        policy: None,
        sites: vec![SiteStatus {
            address: 0xffff_ffff_8100_1059,
            symbol: "blk_add_rq_to_plug".into(),
            module: None,
            offset: 0x59,
            probe: Probe::Jump,
            reason: None,
            note: None,
            counted: true,
            hits: 1204,
            applied: 1204,
            faults: 0,
            missed: 0,
        }],
    }
}
