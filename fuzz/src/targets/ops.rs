//! The operations of xk.ko, compiled for user space with sanitizers: checked,
//! and run in both ways that the module knows. Its checker and the table's must
//! accept the same programs.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{ensure, Context, Result};
use xk_table::{Op, OpCode, Program, MAX_IVS, MAX_OPS};

use super::Input;

const MEMORY: usize = 4096;
const EINVAL: i32 = -22;

const USER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernel/xk/user");
/// Beside the fuzzer itself: built once.
fn built() -> Result<std::path::PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().unwrap_or(Path::new(".")).join("xk-fuzz-user"))
}

/// Slots, stores, registers, then operations of 16 bytes.
pub fn seeds() -> Result<Vec<Vec<u8>>> {
    let made = Command::new("make").args(["-s", "-C", USER]).arg(format!("OUT={}", built()?.display())).status()?;
    ensure!(made.success(), "kernel/xk/user does not build");
    let op = |code: OpCode, width: u8, operands: [u8; 4], imm: i64| {
        let [dst, a, b, c] = operands;
        [&[code as u8, width, dst, a, b, c, 0, 0][..], &imm.to_le_bytes()].concat()
    };
    let iv = op(OpCode::Iv, 4, [0; 4], 0);
    let reg = op(OpCode::Reg, 4, [1, 7, 0, 0], 0);
    let compare = op(OpCode::FlagsSub, 4, [2, 1, 0, 0], 0);
    let flags = op(OpCode::SetFlags, 8, [0, 2, 0, 0], 0x8d5);
    let text = op(OpCode::Text, 8, [3, 0, 1, 2], 8);
    let load = op(OpCode::Load, 4, [1, 3, 0, 0], 4);
    let store = op(OpCode::Store, 4, [0, 3, 1, 0], -4);
    let set = op(OpCode::SetReg, 4, [7, 1, 0, 0], 0);
    let with = |ops: &[Vec<u8>]| [&[2, 1, 7][..], &ops.concat()].concat();
    Ok(vec![
        with(&[iv.clone(), reg.clone(), compare, flags]),
        with(&[iv.clone(), set.clone()]),
        with(&[iv, text, load, store, reg, set]),
    ])
}

/// `ops_run`, for as long as it lives.
struct Runner {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Runner {
    fn new() -> Result<Self> {
        let mut child = Command::new(built()?.join("ops_run")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = child.stdout.take().context("no output")?;
        Ok(Self { child, input, output })
    }

    /// The status: 0, `EFAULT` or `EINVAL`; `None` if the program died of it.
    fn ask(&mut self, record: &[u8]) -> Option<i32> {
        let mut answer = [0; 8 + 17 * 8 + MEMORY];
        let asked = self.input.write_all(record).and_then(|()| self.input.flush());
        asked.and_then(|()| self.output.read_exact(&mut answer)).ok()?;
        Some(i32::from_le_bytes([answer[0], answer[1], answer[2], answer[3]]))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

thread_local! {
    static RUNNER: RefCell<Option<Runner>> = const { RefCell::new(None) };
}

/// Runs one program, and compares the verdicts.
pub fn run(input: &Input<'_>) -> String {
    let Some((&[slots, stores, registers], rest)) = input.bytes.split_first_chunk::<3>() else { return "cut".into() };
    let (slots, stores) = (usize::from(slots) % (MAX_IVS + 1), stores & 1 != 0);
    let ops: Vec<&[u8]> = rest.chunks_exact(16).take(MAX_OPS).collect();
    let mut record = Vec::new();
    for word in [ops.len() as u32, slots as u32, u32::from(stores), 0] {
        record.extend(word.to_le_bytes());
    }
    record.extend(ops.concat());
    let base = 0xffff_8880_0000_0000_u64;
    let value = |at: usize| u64::from(registers).wrapping_mul(at as u64 + 1) << (at % 8 * 7);
    let values = (0..slots).map(value);
    // Every other register points into memory.
    let registers = (0..17).map(|at| if at % 2 == 1 { base + value(at) % MEMORY as u64 } else { value(at) });
    record.extend(values.chain(registers).chain([base]).flat_map(u64::to_le_bytes));
    record.extend((0..MEMORY).map(|at| (at * 7) as u8 ^ slots as u8));
    let status = RUNNER.with_borrow_mut(|runner| {
        if runner.is_none() {
            *runner = Runner::new().ok();
        }
        runner.as_mut().and_then(|runner| runner.ask(&record))
    });
    let Some(status) = status else { panic!("ops_run died, or could not be started") };
    if let Some(program) = ops.iter().map(|op| decoded(op)).collect::<Option<Vec<Op>>>().map(|ops| Program { ops }) {
        let declared = stores || !program.stores();
        let inside = |op: &&Op| op.code != OpCode::Text || op.imm <= MEMORY as i64 - 4;
        if declared && program.ops.iter().filter(inside).count() == program.ops.len() {
            let verdict = program.check(slots);
            assert_eq!(verdict.is_err(), status == EINVAL, "{verdict:?}, but {status}: {program:?}");
        }
        let codes: String = program.ops.iter().take(4).map(|op| char::from(b'A' + op.code as u8)).collect();
        return format!("status {} {codes}", status == 0);
    }
    assert_eq!(status, EINVAL, "an operation that is none was accepted");
    "none".into()
}

/// `None` when the code is none.
fn decoded(bytes: &[u8]) -> Option<Op> {
    let code = OpCode::of_number(*bytes.first()?)?;
    let imm = i64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    Some(Op { code, width: bytes[1], dst: bytes[2], a: bytes[3], b: bytes[4], c: bytes[5], imm })
}
