//! The operations of an update: their meaning as terms against the C code that
//! `xk.ko` runs (`kernel/xk/ops/ops.c`, compiled in user space), and the checker of
//! the table against the checker of the module.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use xk_analysis::program::{execute, Link, Links, PER_CPU};
use xk_lift::insn::SymbolRef;
use xk_lift::state::{Flag, State, REGISTERS};
use xk_lift::term::Terms;
use xk_table::{Op, OpCode, Program, MAX_IVS, MAX_OPS, MAX_TEMPS};
use xk_testing::Random;

const MEMORY: usize = 4096;
const EINVAL: i32 = -22;
const EFAULT: i32 = -14;
/// What `ops_run` takes for this CPU's per-CPU data.
const PER_CPU_BASE: u64 = 0xffff_8880_0000_0800;

/// A program with everything it acts on.
struct Case {
    program: Program,
    ivs: Vec<u64>,
    registers: [u64; 16],
    flags: u64,
    base: u64,
    memory: Vec<u8>,
}

/// What became of it.
struct Outcome {
    status: i32,
    registers: [u64; 16],
    flags: u64,
    memory: Vec<u8>,
}

/// `ops_run`, which the module's own Makefile builds.
fn ops_run() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("xk-user");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/xk/user");
        let made = Command::new("make").arg("-C").arg(sources).arg(format!("OUT={}", folder.display())).status();
        assert!(made.unwrap().success(), "kernel/xk/user does not build");
        folder.join("ops_run")
    })
}

fn run_in_c(cases: &[Case]) -> Vec<Outcome> {
    let mut input = Vec::new();
    for case in cases {
        for word in [case.program.ops.len() as u32, case.ivs.len() as u32, 1, 0] {
            input.extend(word.to_le_bytes());
        }
        for op in &case.program.ops {
            input.extend([op.code as u8, op.width, op.dst, op.a, op.b, op.c, 0, 0]);
            input.extend(op.imm.to_le_bytes());
        }
        let words = case.ivs.iter().chain(&case.registers).chain([&case.flags, &case.base]);
        input.extend(words.flat_map(|w| w.to_le_bytes()));
        input.extend(&case.memory);
    }
    let mut child = Command::new(ops_run()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "ops_run: {}", output.status);
    let size = 8 + 17 * 8 + MEMORY;
    assert_eq!(output.stdout.len(), size * cases.len());
    let outcome = |answer: &[u8]| {
        let word = |i: usize| u64::from_le_bytes(answer[8 + 8 * i..16 + 8 * i].try_into().unwrap());
        Outcome {
            status: i32::from_le_bytes(answer[..4].try_into().unwrap()),
            registers: std::array::from_fn(word),
            flags: word(16),
            memory: answer[8 + 17 * 8..].to_vec(),
        }
    };
    output.stdout.chunks(size).map(outcome).collect()
}

fn state(random: &mut Random, program: Program, ivs: Vec<u64>) -> Case {
    let base = 0x1000 * (1 + random.below(1 << 20) as u64);
    Case {
        program,
        ivs,
        registers: std::array::from_fn(|_| match random.below(4) {
            // Some of them are addresses.
            0 => base + 64 + random.below(MEMORY - 128) as u64,
            _ => random.value(),
        }),
        flags: random.next_u64() & 0x8d5 | 0x202,
        base,
        memory: (0..MEMORY / 8).flat_map(|_| random.value().to_le_bytes()).collect(),
    }
}

/// A well-formed program: temporaries are written before they are read.
fn well_formed(random: &mut Random) -> Case {
    let ivs: Vec<u64> = (0..1 + random.below(MAX_IVS)).map(|_| random.value()).collect();
    let mut case = state(random, Program::default(), ivs);
    let mut written: Vec<u8> = Vec::new();
    let len = 2 + random.below(MAX_OPS - 6);
    while case.program.ops.len() < len {
        let code = if written.len() < 2 { random.pick(&OpCode::ALL[..4]) } else { random.pick(&OpCode::ALL) };
        let temp = |random: &mut Random| {
            // The youngest are the most interesting.
            let from = written.len().saturating_sub(if random.below(2) == 0 { 4 } else { 32 });
            written.get(from + random.below((written.len() - from).max(1))).copied().unwrap_or(0)
        };
        let mut op = Op {
            code,
            width: random.pick(&[1, 2, 4, 8]),
            dst: random.below(MAX_TEMPS.into()) as u8,
            a: temp(random),
            b: temp(random),
            c: temp(random),
            imm: 0,
        };
        if let Some(address) = fill_in(random, &case, &mut op) {
            case.program.ops.push(address);
            written.push(op.dst);
        }
        case.program.ops.push(op);
        if (op.code as u8) < OpCode::SetReg as u8 {
            written.push(op.dst);
        }
    }
    case.program.ops.push(Op { code: OpCode::SetReg, width: 8, dst: 0, a: written[0], b: 0, c: 0, imm: 0 });
    case
}

/// Gives an operation operands that it accepts. Returns the operation that must come before it, if it accesses memory.
fn fill_in(random: &mut Random, case: &Case, op: &mut Op) -> Option<Op> {
    match op.code {
        OpCode::Iv => op.imm = random.below(case.ivs.len()) as i64,
        OpCode::Imm => op.imm = random.value() as i64,
        OpCode::Reg => {
            (op.a, op.b) = (random.below(16) as u8, 0);
            if op.width == 1 && random.below(2) == 0 {
                (op.a, op.b) = (op.a % 4, 1);
            }
        }
        OpCode::Sext => {
            op.width = random.pick(&[2, 4, 8]);
            op.b = 1 << random.below(op.width.trailing_zeros() as usize);
        }
        OpCode::Cond => op.imm = random.below(16) as i64,
        OpCode::SetFlags => op.imm = [0x8d5, 1 << random.pick(&[0, 2, 4, 6, 7, 11])][random.below(2)],
        OpCode::SetReg => op.dst = random.pick(&[0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
        OpCode::Text => {
            op.imm = random.below(MEMORY - 3) as i64;
            // One field has one meaning: these follow from where it is.
            (op.width, op.b, op.c) = (8, (op.imm % 2) as u8, (op.imm / 2 % 9) as u8);
        }
        OpCode::PerCpu => op.width = 8,
        OpCode::Load | OpCode::Store => {
            // Through an address that is one: a fault ends the program.
            let address = Op { code: OpCode::Imm, width: 8, dst: op.dst, a: 0, b: 0, c: 0, imm: 0 };
            let offset = random.below(64) as i64 - 32;
            let place = case.base as i64 + 64 + random.below(MEMORY - 128) as i64;
            (op.a, op.imm) = (op.dst, offset);
            return Some(Op { imm: place - offset, ..address });
        }
        _ => {}
    }
    None
}

/// The fields that a program reads. Which ones are relative to rip follows from the program, as an
/// instruction's encoding is not there to ask.
fn links(case: &Case) -> Links {
    let texts = case.program.ops.iter().filter(|op| op.code == OpCode::Text);
    texts
        .map(|op| {
            let symbol = SymbolRef { name: format!("linked{}", op.imm), offset: 0 };
            (op.imm as u32, Link { symbol, behind: (op.b == 1).then_some(op.c) })
        })
        .collect()
}

/// The address of which the linker wrote the field at `offset`; the function is the memory.
fn address(case: &Case, offset: u32) -> u64 {
    let at = offset as usize;
    let field = i32::from_le_bytes(case.memory[at..at + 4].try_into().unwrap());
    let behind = links(case)[&offset].behind;
    let base = behind.map_or(0, |behind| case.base + u64::from(offset) + 4 + u64::from(behind));
    base.wrapping_add(i64::from(field) as u64)
}

/// What the terms say, compared with what C did.
fn disagreement(case: &Case, outcome: &Outcome) -> Option<String> {
    let mut terms = Terms::new();
    let mut state = State::unknown(&mut terms);
    let ivs: Vec<_> = (0..case.ivs.len()).map(|i| terms.symbol(format!("iv{i}"), 64)).collect();
    execute(&mut terms, &mut state, &case.program, &ivs, &links(case));
    let symbols = |name: &str| {
        let linked = name.strip_prefix("&linked").map(|offset| address(case, offset.parse().unwrap()));
        let per_cpu = (name == PER_CPU).then_some(PER_CPU_BASE);
        let register = REGISTERS.iter().position(|r| *r == name).map(|n| case.registers[n]);
        let flag = Flag::ALL.into_iter().find(|f| format!("{f:?}") == name).map(|f| case.flags >> f.bit() & 1);
        let iv = name.strip_prefix("iv").and_then(|n| n.parse::<usize>().ok()).map(|n| case.ivs[n]);
        u128::from(
            register.or(flag).or(iv).or(linked).or(per_cpu).unwrap_or_else(|| panic!("unexpected unknown {name}")),
        )
    };
    let memory = |at: u64| case.memory.get(at.wrapping_sub(case.base) as usize).copied().unwrap_or(0);
    for (number, register) in REGISTERS.iter().enumerate() {
        let value = terms.evaluate(state.regs[number], &symbols, &memory) as u64;
        if value != outcome.registers[number] {
            return Some(format!("{register}: C {:#x}, terms {value:#x}", outcome.registers[number]));
        }
    }
    for flag in Flag::ALL {
        let value = terms.evaluate(state.flag(flag), &symbols, &memory) as u64;
        if value != outcome.flags >> flag.bit() & 1 {
            return Some(format!("{flag:?}: terms {value}"));
        }
    }
    if outcome.flags & !0x8d5 != 0x202 {
        return Some(format!("flags that are no status flags: {:#x}", outcome.flags));
    }
    if case.program.stores() {
        for (offset, &real) in outcome.memory.iter().enumerate() {
            let value = terms.evaluate_byte(state.memory, case.base + offset as u64, &symbols, &memory);
            if value != real {
                return Some(format!("memory+{offset:#x}: C {real:#x}, terms {value:#x}"));
            }
        }
    } else if case.memory != outcome.memory {
        return Some("memory changed without a store".into());
    }
    None
}

#[test]
fn programs_mean_what_the_module_does() {
    let mut random = Random(3);
    let cases: Vec<Case> = (0..3000).map(|_| well_formed(&mut random)).collect();
    let mut used = std::collections::BTreeSet::new();
    for (case, outcome) in cases.iter().zip(run_in_c(&cases)) {
        assert_eq!(case.program.check(case.ivs.len()), Ok(()), "{:?}", case.program);
        assert_eq!(outcome.status, 0, "{:?}", case.program);
        if let Some(what) = disagreement(case, &outcome) {
            panic!("{what}\n{:#?}", case.program.ops);
        }
        used.extend(case.program.ops.iter().map(|op| (op.code as u8, op.width)));
    }
    // A sign extension to one byte does not exist, and addresses are whole.
    let expected = OpCode::ALL.len() * 4 - 1 - 2 * 3;
    assert_eq!(used.len(), expected, "every operation at every width");
}

/// The comparison notices a program that is not the one that C ran.
#[test]
fn a_wrong_operation_is_noticed() {
    let mut random = Random(4);
    let mut cases: Vec<Case> = (0..400).map(|_| well_formed(&mut random)).collect();
    let outcomes = run_in_c(&cases);
    let swaps = [(OpCode::SetReg, 4, 8), (OpCode::SetReg, 2, 4), (OpCode::SetReg, 1, 2)];
    for (code, width, other) in swaps {
        let noticed = cases.iter_mut().zip(&outcomes).any(|(case, outcome)| {
            let Some(at) = case.program.ops.iter().rposition(|op| op.code == code && op.width == width) else {
                return false;
            };
            case.program.ops[at].width = other;
            let noticed = disagreement(case, outcome).is_some();
            case.program.ops[at].width = width;
            noticed
        });
        assert!(noticed, "{code:?} with width {other} instead of {width}");
    }
}

/// Breaks a well-formed program in one or two places.
fn malformed(random: &mut Random) -> Case {
    let mut case = well_formed(random);
    for _ in 0..1 + random.below(2) {
        let at = random.below(case.program.ops.len().max(1));
        if case.program.ops.is_empty() {
            break;
        }
        let op = &mut case.program.ops[at];
        let byte = random.pick(&[0u8, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 33, 128, 255]);
        match random.below(8) {
            0 => op.width = byte,
            1 => op.dst = byte,
            2 => op.a = byte,
            3 => op.b = byte,
            4 => op.c = byte,
            5 => op.imm = random.value() as i64,
            6 => op.code = random.pick(&OpCode::ALL),
            _ => case.program.ops.truncate(at),
        }
    }
    // Mutated addresses would only fault.
    case
}

#[test]
fn both_checkers_give_the_same_verdict() {
    let mut random = Random(5);
    let cases: Vec<Case> = (0..6000).map(|_| malformed(&mut random)).collect();
    let mut verdicts = [0usize; 2];
    for (case, outcome) in cases.iter().zip(run_in_c(&cases)) {
        let mut ours = case.program.check(case.ivs.len()).map_err(|error| error.to_string());
        // The length of the function is for `ScopeTable::check`.
        if case.program.ops.iter().any(|op| op.code == OpCode::Text && op.imm > MEMORY as i64 - 4) {
            ours = Err("beyond the function".into());
        }
        assert!([0, EINVAL, EFAULT].contains(&outcome.status), "{}", outcome.status);
        let accepted = outcome.status != EINVAL;
        assert_eq!(ours.is_ok(), accepted, "{ours:?}\n{:#?}", case.program.ops);
        verdicts[usize::from(accepted)] += 1;
        if outcome.status == 0 {
            assert_eq!(disagreement(case, &outcome), None, "{:#?}", case.program.ops);
        } else {
            assert_eq!(case.registers, outcome.registers, "a program that fails changes no register");
        }
    }
    assert!(verdicts.iter().all(|&n| n > 1000), "refused and accepted: {verdicts:?}");
}
