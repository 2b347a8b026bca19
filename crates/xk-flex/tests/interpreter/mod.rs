//! A plain interpreter for objects of one program `f` that calls no helper but those of `xk_flex.bpf.h`, and some that
//! acquire and release. It reads the object by itself.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};
use xk_testing::guest::repository;

/// How a run ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum End {
    /// With the lower half of r0.
    Returned(u32),
    /// It takes more steps than are allowed.
    #[default]
    TooLong,
}

/// Where `xk_flex_control` is.
const CONTROL: u64 = 0x5000_0000;
/// Where other variables and maps are.
const OTHER: u64 = 0x6000_0000;
/// The first of the references that helpers return.
const REFERENCES: u64 = 0x7000_0000;

/// What user space tells the runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Control {
    /// All runs end.
    pub terminate: u64,
    /// Nanoseconds.
    pub deadline: u64,
    /// Nanoseconds that an instruction takes besides one.
    pub more: u64,
    /// Turns between looks.
    pub interval: u64,
}

/// What a run did.
#[derive(Debug, Default)]
pub struct Ran {
    /// How it ended.
    pub end: End,
    /// Why it was ended, and by which look.
    pub ended: Option<(u32, u32)>,
    /// Calls of helpers that release, in order: number, and which reference.
    pub released: Vec<(i64, u64)>,
    /// References that were acquired.
    pub acquired: u64,
    /// Those that are not released yet.
    pub held: BTreeSet<u64>,
    /// How often it looked at the time.
    pub looks: usize,
    /// Instructions that a kernel would have executed: of each `may_goto` it makes four.
    pub executed: usize,
    /// What is in memory at the end, by bytes.
    pub memory: HashMap<u64, u8>,
}

const STACK: u64 = 0x1000_0000;
const FRAME: u64 = 512;

struct Machine {
    /// Instructions of both sections, with absolute targets of calls.
    code: Vec<[u8; 8]>,
    calls: HashMap<usize, usize>,
    words: HashMap<usize, u64>,
    memory: HashMap<u64, u8>,
    /// Nanoseconds of an instruction.
    pace: u64,
}

impl Machine {
    fn read(bytes: &[u8], control: Control) -> (Self, usize) {
        let file = object::File::parse(bytes).unwrap();
        let (calls, words, memory) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut machine = Self { code: vec![], calls, words, memory, pace: 1 + control.more };
        let sections: Vec<_> = file
            .sections()
            .filter(|section| section.kind() == object::SectionKind::Text && section.size() > 0)
            .collect();
        let mut starts = HashMap::new();
        for section in &sections {
            starts.insert(section.index(), machine.code.len());
            machine.code.extend(section.data().unwrap().chunks(8).map(|insn| <[u8; 8]>::try_from(insn).unwrap()));
        }
        for section in &sections {
            let base = starts[&section.index()];
            for at in base..base + section.size() as usize / 8 {
                let insn = machine.code[at];
                if insn[0] == 0x85 && insn[1] >> 4 == 1 {
                    machine.calls.insert(at, (at as i64 + 1 + imm(insn)) as usize);
                }
            }
            for (offset, reloc) in section.relocations() {
                let RelocationTarget::Symbol(symbol) = reloc.target() else { panic!("{reloc:?}") };
                let symbol = file.symbol_by_index(symbol).unwrap();
                let at = base + offset as usize / 8;
                if machine.code[at][0] == 0x85 {
                    let target = starts[&symbol.section_index().unwrap()] as i64 + symbol.address() as i64 / 8;
                    machine.calls.insert(at, (target + imm(machine.code[at]) + 1) as usize);
                } else {
                    let is_control = symbol.name().unwrap() == "xk_flex_control";
                    machine.words.insert(at, if is_control { CONTROL } else { OTHER });
                }
            }
        }
        for (number, value) in [control.terminate, control.deadline, control.interval].into_iter().enumerate() {
            machine.store(CONTROL + 8 * number as u64, 8, value);
        }
        let entry = file.symbol_by_name("f").unwrap();
        (machine, starts[&entry.section_index().unwrap()] + entry.address() as usize / 8)
    }

    fn load(&self, at: u64, size: u64) -> u64 {
        (0..size).map(|byte| u64::from(self.memory.get(&(at + byte)).copied().unwrap_or(0)) << (8 * byte)).sum()
    }

    /// An atomic access of eight bytes.
    fn atomic(&mut self, kind: i64, at: u64, src: usize, r: &mut [u64; 11]) {
        let old = self.load(at, 8);
        match kind {
            0xf1 if old != r[0] => {}
            0xe1 | 0xf1 => self.store(at, 8, r[src]),
            0 | 1 => self.store(at, 8, old.wrapping_add(r[src])),
            other => panic!("atomic {other:#x}"),
        }
        match kind {
            0xf1 => r[0] = old,
            1 | 0xe1 => r[src] = old,
            _ => {}
        }
    }

    fn store(&mut self, at: u64, size: u64, value: u64) {
        for byte in 0..size {
            self.memory.insert(at + byte, (value >> (8 * byte)) as u8);
        }
    }
}

fn imm(insn: [u8; 8]) -> i64 {
    i32::from_le_bytes(insn[4..].try_into().unwrap()).into()
}

fn alu(op: u8, a: u64, b: u64, wide: bool) -> u64 {
    let shift = if wide { b & 63 } else { b & 31 };
    let (a, b) = if wide { (a, b) } else { (a & 0xffff_ffff, b & 0xffff_ffff) };
    let result = match op {
        0 => a.wrapping_add(b),
        1 => a.wrapping_sub(b),
        2 => a.wrapping_mul(b),
        3 => a.checked_div(b).unwrap_or(0),
        4 => a | b,
        5 => a & b,
        6 => a << shift,
        7 => a >> shift,
        8 => a.wrapping_neg(),
        9 => a.checked_rem(b).unwrap_or(a),
        10 => a ^ b,
        11 => b,
        12 if wide => (a as i64 >> shift) as u64,
        12 => (a as i32 >> shift) as u64,
        _ => panic!("alu {op}"),
    };
    if wide {
        result
    } else {
        result & 0xffff_ffff
    }
}

fn compare(op: u8, a: u64, b: u64, wide: bool) -> bool {
    let (a, b) = if wide { (a, b) } else { (a & 0xffff_ffff, b & 0xffff_ffff) };
    let (s, t) = if wide { (a as i64, b as i64) } else { (i64::from(a as i32), i64::from(b as i32)) };
    match op {
        1 => a == b,
        2 => a > b,
        3 => a >= b,
        4 => a & b != 0,
        5 => a != b,
        6 => s > t,
        7 => s >= t,
        10 => a < b,
        11 => a <= b,
        12 => s < t,
        13 => s <= t,
        _ => panic!("jump {op}"),
    }
}

impl Ran {
    /// A helper; what it returns.
    fn helper(&mut self, number: i64, r: &[u64; 11], machine: &Machine, now: usize) -> u64 {
        match number {
            5 => {
                self.looks += 1;
                now as u64 * machine.pace
            }
            130 => {
                let field = |offset| machine.load(r[2] + offset, 4) as u32;
                self.ended = Some((field(16), field(20)));
                0
            }
            // The number of the CPU.
            8 => 1,
            // The report of a run with locks.
            132 => {
                let field = |offset| machine.load(r[1] + offset, 4) as u32;
                self.held.remove(&(r[1] - REFERENCES));
                self.ended = Some((field(16), field(20)));
                0
            }
            // Each second lookup finds something.
            84 | 131 => {
                self.acquired += 1;
                if self.acquired % 2 == 0 {
                    0
                } else {
                    self.held.insert(self.acquired);
                    REFERENCES + self.acquired
                }
            }
            86 | 133 => {
                assert!(self.held.remove(&r[1].wrapping_sub(REFERENCES)), "a reference is released: {:#x}", r[1]);
                self.released.push((number, r[1] - REFERENCES));
                0
            }
            other => panic!("helper {other}"),
        }
    }
}

/// Compiles C after a prelude, whose lines are not counted.
pub fn compile(prelude: &str, text: &str, level: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("test.bpf.c"), folder.path().join("test.o"));
    fs::write(&source, format!("{prelude}#line 1\n{text}\nchar _license[] SEC(\"license\") = \"GPL\";\n")).unwrap();
    let mut command = Command::new("clang-19");
    command.args([level, "-g", "-target", "bpf", "-mcpu=v3", "-w", "-I"]).arg(repository().join("bpf"));
    assert!(command.arg("-c").arg(&source).arg("-o").arg(&object).status().unwrap().success());
    fs::read(object).unwrap()
}

/// Runs `f(argument)`; the number of steps is bounded.
pub fn run(bytes: &[u8], argument: u64, control: Control, steps: usize) -> Ran {
    run_in(bytes, argument, control, steps, &[])
}

/// Runs it with these words in memory, by their addresses.
pub fn run_in(bytes: &[u8], argument: u64, control: Control, steps: usize, memory: &[(u64, u64)]) -> Ran {
    let mut ran = Ran::default();
    let (mut machine, mut at) = Machine::read(bytes, control);
    memory.iter().for_each(|(at, value)| machine.store(*at, 8, *value));
    let (mut r, mut frames) = ([0xdead_u64; 11], Vec::new());
    (r[1], r[10]) = (argument, STACK);
    for step in 0..steps {
        let insn = machine.code[at];
        let (code, dst, src) = (insn[0], usize::from(insn[1] & 15), usize::from(insn[1] >> 4));
        let off = i64::from(i16::from_le_bytes([insn[2], insn[3]]));
        let operand = if code & 8 != 0 { r[src.min(10)] } else { imm(insn) as u64 };
        let size = [4, 2, 1, 8][usize::from(code >> 3 & 3)];
        let mut next = at as i64 + 1;
        ran.executed += if code == 0xe5 { 4 } else { 1 };
        match (code & 7, code) {
            (0, 0x18) => {
                let high = (imm(machine.code[at + 1]) as u64) << 32;
                r[dst] = machine.words.get(&at).copied().unwrap_or(high | imm(insn) as u64 & 0xffff_ffff);
                next += 1;
            }
            (1, _) => r[dst] = machine.load(r[src].wrapping_add_signed(off), size),
            (2, _) => machine.store(r[dst].wrapping_add_signed(off), size, imm(insn) as u64),
            (3, 0xdb) => machine.atomic(imm(insn), r[dst].wrapping_add_signed(off), src, &mut r),
            (3, _) => machine.store(r[dst].wrapping_add_signed(off), size, r[src]),
            (4 | 7, _) => r[dst] = alu(code >> 4, r[dst], operand, code & 7 == 7),
            (_, 0x05) => next += off,
            (_, 0x06) => next += imm(insn),
            (_, 0xe5) => {}
            (_, 0x85) if src == 0 => {
                r[0] = ran.helper(imm(insn), &r, &machine, step + 1);
                r[1..6].fill(0xbad);
            }
            (_, 0x85) => {
                frames.push((at + 1, r));
                (1..=9).filter(|register| *register > 5).for_each(|register| r[register] = 0xbad);
                r[10] += FRAME;
                next = machine.calls[&at] as i64;
            }
            (_, 0x95) => {
                let Some((back, saved)) = frames.pop() else {
                    ran.end = End::Returned(r[0] as u32);
                    ran.memory = machine.memory;
                    return ran;
                };
                let result = r[0];
                r = saved;
                r[..6].fill(0xbad);
                (r[0], next) = (result, back as i64);
            }
            (class, _) => next += if compare(code >> 4, r[dst], operand, class == 5) { off } else { 0 },
        }
        at = next as usize;
    }
    ran
}
