//! `kernel/xk/ops/ops.c` in user space: fuzzed, and its checker compared with
//! `Program::check`, which must accept and refuse the same programs.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use xk_table::{Op, OpCode, Program};

const MEMORY: usize = 4096;
const ANSWER: usize = 4 + 4 + 17 * 8 + MEMORY;
const EINVAL: i32 = -22;

/// The folder with `fuzz` and `ops_run`.
fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("xk-user");
        let made = Command::new("make")
            .arg("-C")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/xk/user"))
            .arg(format!("OUT={}", folder.display()))
            .status()
            .unwrap();
        assert!(made.success());
        folder
    })
}

#[test]
fn both_interpreters_agree_on_random_programs() {
    for seed in ["1", "20240229", "0xdeadbeef"] {
        let output = Command::new(programs().join("fuzz")).args(["200000", seed]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// An operation as bytes that need not be one.
#[derive(Clone, Copy)]
struct Raw([u8; 8], i64);

impl From<Op> for Raw {
    fn from(op: Op) -> Self {
        Self([op.code as u8, op.width, op.dst, op.a, op.b, op.c, 0, 0], op.imm)
    }
}

/// What the C checker says of each program: `None` if it accepts, else the
/// operation that it refuses.
fn checked(programs_and_stores: &[(Vec<Raw>, bool)], ivs: u32) -> Vec<Option<i32>> {
    let mut input = Vec::new();
    for (program, stores) in programs_and_stores {
        for word in [program.len() as u32, ivs, u32::from(*stores), 0] {
            input.extend(word.to_le_bytes());
        }
        for Raw(bytes, imm) in program {
            input.extend(bytes);
            input.extend(imm.to_le_bytes());
        }
        input.resize(input.len() + ivs as usize * 8 + 17 * 8 + 8 + MEMORY, 0);
    }
    let mut child =
        Command::new(programs().join("ops_run")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout.len(), ANSWER * programs_and_stores.len());
    output
        .stdout
        .chunks(ANSWER)
        .map(|answer| {
            let word = |at: usize| i32::from_le_bytes(answer[at..at + 4].try_into().unwrap());
            (word(0) == EINVAL).then(|| word(4))
        })
        .collect()
}

fn op(code: OpCode, width: u8) -> Op {
    Op { code, width, dst: 0, a: 0, b: 0, c: 0, imm: 0 }
}

/// Programs that both checkers refuse: what is wrong, the program, and the index of the operation, or -1.
fn malformed() -> Vec<(&'static str, Vec<Op>, i32)> {
    use OpCode as C;
    let iv = op(C::Iv, 8);
    let set = op(C::SetReg, 8);
    let at = |wrong: Op| vec![iv, wrong, set];
    vec![
        ("no operation", vec![], -1),
        ("no effect", vec![iv], -1),
        ("width", vec![op(C::Iv, 3), set], 0),
        ("zero width", vec![op(C::Iv, 0), set], 0),
        ("slot", vec![Op { imm: 2, ..iv }, set], 0),
        ("negative slot", vec![Op { imm: -1, ..iv }, set], 0),
        ("slot beyond 32 bits", vec![Op { imm: 1 << 32, ..iv }, set], 0),
        ("temporary", vec![Op { dst: 32, ..iv }, set], 0),
        ("read before written", vec![iv, Op { a: 1, ..set }], 1),
        ("read out of range", vec![iv, Op { a: 200, ..set }], 1),
        ("second operand", at(Op { b: 1, ..op(C::Add, 8) }), 1),
        ("third operand", at(Op { c: 1, ..op(C::Select, 8) }), 1),
        ("register", at(Op { a: 16, ..op(C::Reg, 8) }), 1),
        ("high byte of a wide register", at(Op { b: 1, ..op(C::Reg, 8) }), 1),
        ("high byte of rsp", at(Op { a: 4, b: 1, ..op(C::Reg, 1) }), 1),
        ("register part", at(Op { b: 2, ..op(C::Reg, 1) }), 1),
        ("stack pointer", vec![iv, Op { dst: 4, ..set }], 1),
        ("destination register", vec![iv, Op { dst: 16, ..set }], 1),
        ("extension to the same width", at(Op { b: 4, ..op(C::Sext, 4) }), 1),
        ("extension from nothing", at(op(C::Sext, 4)), 1),
        ("condition", at(Op { imm: 16, ..op(C::Cond, 1) }), 1),
        ("negative condition", at(Op { imm: -1, ..op(C::Cond, 1) }), 1),
        ("no flags", at(op(C::SetFlags, 8)), 1),
        ("interrupt flag", at(Op { imm: 0x200, ..op(C::SetFlags, 8) }), 1),
        ("trap flag among others", at(Op { imm: 0x9d5, ..op(C::SetFlags, 8) }), 1),
        ("sign of flags", at(Op { imm: -1, ..op(C::SetFlags, 8) }), 1),
        ("half an address", at(op(C::Text, 4)), 1),
        ("address before the function", at(Op { imm: -1, ..op(C::Text, 8) }), 1),
        ("address relative to what", at(Op { b: 2, ..op(C::Text, 8) }), 1),
        ("more than an immediate behind", at(Op { b: 1, c: 9, ..op(C::Text, 8) }), 1),
        ("half a distance", at(op(C::PerCpu, 4)), 1),
    ]
}

#[test]
fn every_kind_of_malformed_program_is_refused() {
    use OpCode as C;
    let iv = op(C::Iv, 8);
    let set = op(C::SetReg, 8);
    let cases = malformed();
    let mut programs: Vec<(Vec<Raw>, bool)> =
        cases.iter().map(|(_, ops, _)| (ops.iter().copied().map(Raw::from).collect(), false)).collect();
    let mut expected: Vec<Option<i32>> = cases.iter().map(|case| Some(case.2)).collect();
    for (name, ops, _) in &cases {
        assert!(Program { ops: ops.clone() }.check(2).is_err(), "Program::check accepts: {name}");
    }
    let raw_good: Vec<Raw> = [iv, set].map(Raw::from).to_vec();
    let mut more = |program: Vec<Raw>, stores, answer| {
        programs.push((program, stores));
        expected.push(answer);
    };
    more(raw_good.clone(), false, None);
    for code in [0, 31, 255] {
        let mut unknown = raw_good.clone();
        unknown[1].0[0] = code;
        more(unknown, false, Some(1));
    }
    // What only the kernel knows: how long the function is.
    let text = |imm| [iv, Op { imm, ..op(C::Text, 8) }, set].map(Raw::from).to_vec();
    more(text(MEMORY as i64 - 4), false, None);
    more(text(MEMORY as i64 - 3), false, Some(1));
    more(text(i64::MAX), false, Some(1));
    let store = vec![Raw::from(iv), Raw::from(op(C::Store, 8))];
    more(store.clone(), false, Some(1));
    more(store, true, None);

    for (i, (got, want)) in checked(&programs, 2).into_iter().zip(expected).enumerate() {
        assert_eq!(got, want, "case {i}: {}", cases.get(i).map_or("", |case| case.0));
    }
}

/// Xorshift: the same programs in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

#[test]
fn both_checkers_accept_the_same_programs() {
    use OpCode as C;
    const CODES: [OpCode; 30] = [
        C::Iv,
        C::Imm,
        C::Reg,
        C::Flags,
        C::Load,
        C::Add,
        C::Sub,
        C::Mul,
        C::And,
        C::Or,
        C::Xor,
        C::Shl,
        C::Shr,
        C::Sar,
        C::Not,
        C::Neg,
        C::Sext,
        C::Eq,
        C::Ult,
        C::Slt,
        C::Select,
        C::FlagsAdd,
        C::FlagsSub,
        C::FlagsLogic,
        C::Cond,
        C::SetReg,
        C::SetFlags,
        C::Store,
        C::Text,
        C::PerCpu,
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut programs = Vec::new();
    for _ in 0..4000 {
        let length = random.below(6);
        let mut program: Vec<Op> = (0..length)
            .map(|at| Op {
                code: CODES[random.below(if at == 0 { 4 } else { 30 }) as usize],
                width: [1, 2, 4, 8, 8, 8, 8, 3][random.below(8) as usize],
                dst: random.below(34) as u8 / 8,
                a: random.below(18) as u8 / 8,
                b: random.below(18) as u8 / 8,
                c: random.below(18) as u8 / 8,
                imm: [0, 1, 2, 15, 16, 0x8d5, -1, 0x200][random.below(8) as usize],
            })
            .collect();
        program.push(op(C::SetReg, 8));
        programs.push(Program { ops: program });
    }
    let raw: Vec<_> =
        programs.iter().map(|p| (p.ops.iter().copied().map(Raw::from).collect::<Vec<_>>(), true)).collect();
    let mut accepted = 0;
    for (program, refused) in programs.iter().zip(checked(&raw, 2)) {
        assert_eq!(program.check(2).is_err(), refused.is_some(), "{program:?}");
        accepted += usize::from(refused.is_none());
    }
    assert!(accepted > 100 && accepted < 3900, "{accepted} accepted: the comparison says little");
}
