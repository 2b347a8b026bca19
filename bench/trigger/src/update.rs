//! The updates of ours that are measured, in the forms in which the analysis
//! generates them, with their results in `rax` or the status flags, which are
//! dead where they are applied (see `place`).

use xk_harness::{empty_table, site};
use xk_runtime::{AddressError, AddressOf};
use xk_table::{
    hex, CriticalSpan, DataSite, Fit, Function, Indirection, Mode, Op, OpCode, Program, Proof, ScopeTable, Values,
};

use crate::place::Place;

const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RSP: u8 = 4;
const R15: u8 = 15;
/// Overflow, sign and zero: what a signed conditional branch reads.
const SIGNED: i64 = 0x8c0;

/// An update.
pub struct Update {
    /// Its name in the result.
    pub name: &'static str,
    ops: Vec<Op>,
    ivs: Vec<Fit>,
}

const fn op(code: OpCode, width: u8) -> Op {
    Op { code, width, dst: 0, a: 0, b: 0, c: 0, imm: 0 }
}

const fn fit(a: i64, b: i64, width: u8) -> Fit {
    Fit::linear(a, b, width)
}

/// `eax = V`: as of `SHRINK_BATCH` and `MAX_SOFTIRQ_RESTART`.
pub fn value() -> Update {
    Update {
        name: "value",
        ops: vec![op(OpCode::Iv, 4), Op { dst: RAX, ..op(OpCode::SetReg, 4) }],
        ivs: vec![fit(1, 0, 4)],
    }
}

/// Updates that read state too; the first is the one that is reported as such.
pub fn expressions() -> Vec<Update> {
    vec![compare(), compare_memory(), shift(), select()]
}

/// flags = `cmp $(V - 1), %r15d`: as of `NR_MAX_BATCHED_MIGRATION`.
fn compare() -> Update {
    let ops = vec![
        Op { a: R15, ..op(OpCode::Reg, 4) },
        Op { dst: 1, ..op(OpCode::Iv, 4) },
        Op { dst: 2, a: 0, b: 1, ..op(OpCode::FlagsSub, 4) },
        Op { a: 2, imm: SIGNED, ..op(OpCode::SetFlags, 8) },
    ];
    Update { name: "compare", ops, ivs: vec![fit(1, -1, 4)] }
}

/// flags = `cmpl $(V - 1), 0x18(%rsp)`: as of `process_backlog >= 16`.
fn compare_memory() -> Update {
    let ops = vec![
        Op { a: RSP, ..op(OpCode::Reg, 8) },
        Op { dst: 1, a: 0, imm: 0x18, ..op(OpCode::Load, 4) },
        Op { dst: 2, ..op(OpCode::Iv, 4) },
        Op { dst: 3, a: 1, b: 2, ..op(OpCode::FlagsSub, 4) },
        Op { a: 3, imm: SIGNED, ..op(OpCode::SetFlags, 8) },
    ];
    Update { name: "compare_memory", ops, ivs: vec![fit(1, -1, 4)] }
}

/// `eax = edx >> V`: as of `ca->delay_min >> 3`.
fn shift() -> Update {
    let ops = vec![
        Op { a: RDX, ..op(OpCode::Reg, 4) },
        Op { dst: 1, ..op(OpCode::Iv, 1) },
        Op { dst: 2, imm: 0x1f, ..op(OpCode::Imm, 1) },
        Op { dst: 3, a: 1, b: 2, ..op(OpCode::And, 1) },
        Op { dst: 4, a: 0, b: 3, ..op(OpCode::Shr, 4) },
        Op { dst: RAX, a: 4, ..op(OpCode::SetReg, 4) },
    ];
    Update { name: "shift", ops, ivs: vec![fit(1, 0, 1)] }
}

/// `eax = (-(cl < 1) & -V) + 2V`: as of `BLK_MAX_REQUEST_COUNT`.
fn select() -> Update {
    let ops = vec![
        Op { dst: 0, ..op(OpCode::Imm, 4) },
        Op { dst: 1, a: RCX, ..op(OpCode::Reg, 1) },
        Op { dst: 2, imm: 1, ..op(OpCode::Imm, 1) },
        Op { dst: 3, a: 1, b: 2, ..op(OpCode::Ult, 1) },
        Op { dst: 4, a: 0, b: 3, ..op(OpCode::Sub, 4) },
        Op { dst: 5, imm: 0, ..op(OpCode::Iv, 4) },
        Op { dst: 6, a: 4, b: 5, ..op(OpCode::And, 4) },
        Op { dst: 7, imm: 1, ..op(OpCode::Iv, 4) },
        Op { dst: 8, a: 6, b: 7, ..op(OpCode::Add, 4) },
        Op { dst: RAX, a: 8, ..op(OpCode::SetReg, 4) },
    ];
    Update { name: "select", ops, ivs: vec![fit(-1, 0, 4), fit(2, 0, 4)] }
}

impl Update {
    /// The scope table of a constant with this one update, at `place` of `symbol`.
    pub fn table(&self, symbol: &str, code: &[u8], place: &Place) -> ScopeTable {
        let plain = site(0, place.offset, place.insn_len);
        let program = Program { ops: self.ops.clone() };
        let indirection = Indirection { window: place.window, program, ..plain.indirection };
        let proof = Proof::Proved { solver: "dead state: see place.rs".into(), millis: 0 };
        let span = CriticalSpan { ivs: self.ivs.clone(), indirection, proof, ..plain };
        ScopeTable {
            values: Values::proved(1, 1000),
            functions: vec![running(symbol, code)],
            spans: vec![span],
            ..empty_table(self.name, 3, Mode::Global)
        }
    }
}

/// A function of vmlinux as it runs now: whatever patches itself has done so.
pub fn running(symbol: &str, code: &[u8]) -> Function {
    Function {
        symbol: symbol.into(),
        module: None,
        text_offset: 0,
        section: ".text".into(),
        bytes: hex(code),
        mask: hex(&vec![0xff; code.len()]),
        source: String::new(),
    }
}

/// The one function that is probed.
pub struct At(pub u64);

impl AddressOf for At {
    fn address(&self, _: &Function) -> Result<Option<u64>, AddressError> {
        Ok(Some(self.0))
    }

    fn data_address(&self, data: &DataSite) -> Result<Option<u64>, AddressError> {
        Err(AddressError::NoObjects { symbol: data.symbol.clone() })
    }
}
