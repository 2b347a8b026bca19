//! What the golden tests render. The expected texts are in `tests/golden`;
//! `XK_BLESS=1 cargo test` writes them anew.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use xk_runtime::{Probe, SiteStatus, TuneStatus};
use xk_table::{
    AsmLine, ConstRef, CriticalSpan, Fit, Function, Indirection, KernelRef, Kind, Op, OpCode, ProbeKind, Program,
    Proof, Range, ScopeTable, Unit, Validation, When, SCHEMA, STATUS_FLAGS,
};

use crate::context::Tables;

fn op(code: OpCode, width: u8, dst: u8, [a, b, c]: [u8; 3], imm: i64) -> Op {
    Op { code, width, dst, a, b, c, imm }
}

fn asm(offset: u32, text: &str, iv: Option<usize>) -> AsmLine {
    AsmLine { offset, text: text.into(), iv }
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

/// A select with two values that is probed with a jump, and a comparison in a module that is not.
pub fn table() -> ScopeTable {
    let select = CriticalSpan {
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
    };
    let compare = CriticalSpan {
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
            probe_reason: Some("the update runs behind the instruction".into()),
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
    };
    let unit = |source: &str, module: Option<&str>, functions, spans| Unit {
        source: source.into(),
        module: module.map(Into::into),
        functions,
        spans,
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
        range: Range::of(1, 0x3fff_ffff),
        functions: vec![
            function("blk_add_rq_to_plug", None, "block/blk-mq.c"),
            function("example_full", Some("example"), "drivers/example.c"),
        ],
        spans: vec![select, compare],
        data: Vec::new(),
        validation: Validation {
            fitted: vec![1, 33, 64],
            unseen: vec![7, 127, 128, 4096],
            open: BTreeMap::from([(0, "blk_add_rq_to_plug+0x4e is `xor %eax,%eax` there".into())]),
        },
        units: vec![
            unit("block/blk-core.c", None, 90, 0),
            unit("block/blk-mq.c", None, 210, 1),
            unit("drivers/example.c", Some("example"), 12, 1),
        ],
        stages: BTreeMap::from([("analyse".into(), 0.4), ("compile".into(), 3.25), ("users".into(), 0.05)]),
    }
}

/// The tables of the fixture's kernel.
pub fn tables(good: Vec<ScopeTable>) -> Tables {
    Tables::of("0123456789abcdef0123456789abcdef01234567", good)
}

/// A tune of [`table`].
pub fn tune() -> TuneStatus {
    TuneStatus {
        id: 1,
        name: "block/blk.h:L335:32:0".into(),
        value: 128,
        default: 32,
        range: Range::of(1, 0x3fff_ffff),
        detached: true,
        broken: false,
        // Beyond the largest number that a process can have.
        owner_pid: 4_194_305,
        age: Duration::from_secs(75),
        sites: vec![SiteStatus {
            address: 0xffff_ffff_8100_1059,
            symbol: "blk_add_rq_to_plug".into(),
            module: None,
            offset: 0x59,
            probe: Probe::Jump,
            reason: None,
            hits: 1204,
            applied: 1204,
            faults: 0,
            missed: 0,
        }],
    }
}

/// Compares with the text that was agreed upon.
pub fn golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("XK_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "differs from {}; XK_BLESS=1 accepts it", path.display());
}
