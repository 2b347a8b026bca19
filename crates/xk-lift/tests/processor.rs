//! The semantics against the processor.
//!
//! Every encoding that [`xk_lift::semantics::step`] accepts is executed
//! natively on random states and compared with the terms' concrete values. The
//! forms are not listed by hand: all one- and two-byte opcodes are combined
//! with prefixes, with every `reg` field and with every shape of operand, and
//! whatever the semantics claim to cover is tested. What they must cover is
//! [`COVERED`].

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "processor/native.rs"]
mod native;
#[path = "processor/states.rs"]
mod states;

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic};
use native::{Machine, Processor};
use states::{memory_operand, random_state};
use xk_lift::insn::{Insn, Node as At};
use xk_lift::semantics::{is_immediate, step, Substitution};
use xk_lift::state::{Flag, State, REGISTERS};
use xk_lift::term::{Node, Terms};
use xk_testing::Random;

use Mnemonic as M;

/// The instructions that the semantics cover: no more, no less.
const COVERED: &[Mnemonic] = &[
    M::Mov,
    M::Movzx,
    M::Movsx,
    M::Movsxd,
    M::Lea,
    M::Add,
    M::Adc,
    M::Sub,
    M::Sbb,
    M::Cmp,
    M::Inc,
    M::Dec,
    M::Neg,
    M::And,
    M::Or,
    M::Xor,
    M::Test,
    M::Not,
    M::Shl,
    M::Sal,
    M::Shr,
    M::Sar,
    M::Imul,
    M::Mul,
    M::Div,
    M::Idiv,
    M::Rol,
    M::Ror,
    M::Rcl,
    M::Rcr,
    M::Shld,
    M::Shrd,
    M::Bt,
    M::Bts,
    M::Btr,
    M::Btc,
    M::Bsf,
    M::Bsr,
    M::Tzcnt,
    M::Popcnt,
    M::Bswap,
    M::Xadd,
    M::Cmpxchg,
    M::Clc,
    M::Stc,
    M::Cmc,
    M::Lahf,
    M::Sahf,
    M::Pause,
    M::Prefetcht0,
    M::Prefetcht1,
    M::Prefetcht2,
    M::Prefetchnta,
    M::Prefetch,
    M::Prefetchw,
    M::Push,
    M::Pop,
    M::Leave,
    M::Cbw,
    M::Cwd,
    M::Cwde,
    M::Cdqe,
    M::Cdq,
    M::Cqo,
    M::Xchg,
    M::Nop,
    M::Endbr64,
    M::Seto,
    M::Setno,
    M::Setb,
    M::Setae,
    M::Sete,
    M::Setne,
    M::Setbe,
    M::Seta,
    M::Sets,
    M::Setns,
    M::Setp,
    M::Setnp,
    M::Setl,
    M::Setge,
    M::Setle,
    M::Setg,
    M::Cmovo,
    M::Cmovno,
    M::Cmovb,
    M::Cmovae,
    M::Cmove,
    M::Cmovne,
    M::Cmovbe,
    M::Cmova,
    M::Cmovs,
    M::Cmovns,
    M::Cmovp,
    M::Cmovnp,
    M::Cmovl,
    M::Cmovge,
    M::Cmovle,
    M::Cmovg,
];

/// States per form: code and kind of operand.
const STATES_PER_FORM: usize = 300;

/// Encodings after which a form counts as not covered.
const REFUSALS_PER_FORM: usize = 200;

// -------------------------------------------------------------------- model

fn decode(bytes: &[u8]) -> Option<(Insn, usize)> {
    let mut decoder = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE);
    let raw = decoder.decode();
    (!raw.is_invalid()).then(|| (plain(raw), raw.len()))
}

fn plain(raw: Instruction) -> Insn {
    Insn {
        node: At { section: 0, offset: 0 },
        raw,
        displacement: None,
        displacement_at: None,
        pool: None,
        immediate: None,
        target: None,
    }
}

/// An instruction's state as terms.
struct Model {
    terms: Terms,
    state: State,
}

impl Model {
    fn new(insn: &Insn, substitution: impl Fn(&mut Terms) -> Substitution) -> Option<Self> {
        let mut terms = Terms::new();
        let mut state = State::unknown(&mut terms);
        let substitution = substitution(&mut terms);
        step(&mut terms, &mut state, insn, substitution).ok()?;
        Some(Self { terms, state })
    }

    /// What differs from what the processor did.
    fn disagreement(&self, before: &Machine, after: &Machine, buffer: u64) -> Option<String> {
        let symbols = |undefined: u128| {
            move |name: &str| {
                if let Some(number) = REGISTERS.iter().position(|r| *r == name) {
                    return u128::from(before.regs[number]);
                }
                if let Some(flag) = Flag::ALL.into_iter().find(|f| format!("{f:?}") == name) {
                    return u128::from(before.flags >> flag.bit() & 1);
                }
                assert!(name.starts_with("undefined") || name == "GS_base", "unexpected unknown {name}");
                if name == "GS_base" {
                    0
                } else {
                    undefined
                }
            }
        };
        let (zeros, ones) = (symbols(0), symbols(1));
        let first = |at: u64| before.memory.get(at.wrapping_sub(buffer) as usize).copied().unwrap_or(0);
        for (number, register) in REGISTERS.iter().enumerate() {
            // Some values depend on the processor: scans of 0.
            let register_with = |symbols| self.terms.evaluate(self.state.regs[number], symbols, &first) as u64;
            let (value, or) = (register_with(&zeros), register_with(&ones));
            if value != after.regs[number] && or != after.regs[number] {
                return Some(format!("{register}: processor {:#x}, terms {value:#x}", after.regs[number]));
            }
        }
        for flag in Flag::ALL {
            let value = self.terms.evaluate(self.state.flag(flag), &zeros, &first);
            let defined = value == self.terms.evaluate(self.state.flag(flag), &ones, &first);
            let real = u128::from(after.flags >> flag.bit() & 1);
            if defined && value != real {
                return Some(format!("{flag:?}: processor {real}, terms {value}"));
            }
        }
        // Only bytes that the model or the processor wrote can differ.
        let mut written: BTreeSet<usize> =
            (0..after.memory.len()).filter(|&i| after.memory[i] != before.memory[i]).collect();
        let mut memory = self.state.memory;
        while let Node::Store(older, address, value) = *self.terms.node(memory) {
            let at = self.terms.evaluate(address, &zeros, &first) as u64;
            let bytes = u64::from(self.terms.bits(value) / 8);
            written.extend((0..bytes).map(|i| at.wrapping_add(i).wrapping_sub(buffer) as usize));
            memory = older;
        }
        for index in written {
            let value = self.terms.evaluate_byte(self.state.memory, buffer + index as u64, &zeros, &first);
            let Some(&real) = after.memory.get(index) else {
                return Some(format!("store outside the buffer: {index:#x}"));
            };
            if value != real {
                return Some(format!("memory+{index:#x}: processor {real:#x}, terms {value:#x}"));
            }
        }
        None
    }
}

// -------------------------------------------------------------------- forms

const PREFIXES: [&[u8]; 14] = [
    &[],
    &[0x66],
    &[0x48],
    &[0x40],
    &[0x4d], // W R B
    &[0x47], // R X B
    &[0x66, 0x43],
    &[0x65], // gs: its base is 0 in user space
    &[0xf3],
    &[0xf3, 0x48],
    &[0x66, 0xf3],
    &[0xf0], // lock
    &[0xf0, 0x48],
    &[0x66, 0xf0],
];

/// Bytes behind the opcode: ModRM with this `reg` field, and what it asks for.
fn operand_shapes(random: &mut Random, reg: u8, buffer: u64) -> Vec<Vec<u8>> {
    let small = (random.below(15) as u8).wrapping_sub(7).wrapping_mul(8);
    let large = ((random.below(1 << 16) as u32).wrapping_sub(1 << 15)).wrapping_mul(8).to_le_bytes();
    let absolute = ((buffer + 0x100) as u32).to_le_bytes();
    let (scale, any) = (random.below(4) as u8, random.below(8) as u8);
    let modrm = |mode: u8, rm: u8| mode << 6 | reg << 3 | rm;
    let sib = |scale: u8, index: u8, base: u8| scale << 6 | index << 3 | base;
    vec![
        vec![modrm(3, 0)],
        vec![modrm(3, reg)],
        vec![modrm(3, any)],
        vec![modrm(3, 4 + any % 4)], // ah … bh or spl … dil
        vec![modrm(0, 3)],
        vec![modrm(1, 6), small],
        [&[modrm(2, 7)][..], &large].concat(),
        vec![modrm(1, 4), sib(scale, 1, 2), small],
        [&[modrm(0, 4), sib(scale, 6, 5)][..], &large].concat(),
        [&[modrm(0, 4), sib(0, 4, 5)][..], &absolute].concat(),
        vec![modrm(1, 4), sib(0, 4, 4), small], // rsp
    ]
}

/// Every candidate encoding, with random constants, in random order.
fn encodings(random: &mut Random, buffer: u64) -> Vec<Vec<u8>> {
    let mut all = vec![vec![0xf3, 0x0f, 0x1e, 0xfa]];
    for opcode in 0..512usize {
        for prefix in PREFIXES {
            for reg in 0..8 {
                for shape in operand_shapes(random, reg, buffer) {
                    let mut bytes = prefix.to_vec();
                    if opcode >= 256 {
                        bytes.push(0x0f);
                    }
                    bytes.push(opcode as u8);
                    bytes.extend(shape);
                    bytes.extend(random.value().to_le_bytes());
                    all.push(bytes);
                }
            }
        }
        // Absolute 64-bit addresses (a0 … a3).
        if (0xa0..=0xa3).contains(&opcode) {
            for prefix in PREFIXES {
                let mut bytes = prefix.to_vec();
                bytes.push(opcode as u8);
                bytes.extend((buffer + 0x80).to_le_bytes());
                all.extend(std::iter::repeat_n(bytes, 64));
            }
        }
    }
    for last in (1..all.len()).rev() {
        all.swap(last, random.below(last + 1));
    }
    all
}

/// The same instruction with another immediate and displacement, and the
/// constants of the original as substitutions: what spans do with V.
fn substituted(insn: &Insn) -> Option<Model> {
    let mut other = insn.clone();
    let immediate = (0..insn.raw.op_count()).find(|&i| is_immediate(insn.raw.op_kind(i)));
    let value = immediate.map(|i| insn.raw.immediate(i));
    if let Some(index) = immediate {
        other.raw.set_immediate_u64(index, insn.raw.immediate(index) ^ 0x55);
    }
    let displacement = memory_operand(&insn.raw).then(|| insn.raw.memory_displacement64());
    if displacement.is_some() && !insn.raw.is_ip_rel_memory_operand() {
        other.raw.set_memory_displacement64(0x1234);
    }
    Model::new(&other, |terms| Substitution {
        immediate: value.map(|v| terms.constant(u128::from(v), 64)),
        displacement: displacement.map(|v| terms.constant(u128::from(v), 64)),
        pool: None,
    })
}

/// Code, whether an operand is memory, whether there is a lock prefix.
type Form = (Code, bool, bool);

/// Runs one encoding on `count` states; panics where the terms are wrong.
fn check(processor: &mut Processor, random: &mut Random, insn: &Insn, bytes: &[u8], count: usize) -> usize {
    let models = [Model::new(insn, |_| Substitution::default()), substituted(insn)];
    let buffer = processor.buffer();
    let mut done = 0;
    processor.load(bytes);
    for _ in 0..count {
        let Some(before) = random_state(random, &insn.raw, buffer) else { break };
        let after = processor.run(&before);
        for (model, how) in models.iter().zip(["as it is", "with substituted constants"]) {
            let Some(model) = model else { panic!("`{}` is covered, but not {how}", insn.text()) };
            if let Some(what) = model.disagreement(&before, &after, buffer) {
                panic!(
                    "`{}` ({bytes:02x?}) {how}: {what}\nregisters {:#x?}\nflags {:#x}",
                    insn.text(),
                    before.regs,
                    before.flags
                );
            }
        }
        done += 1;
    }
    done
}

#[test]
fn every_supported_form_does_what_the_processor_does() {
    let (mut processor, _guard) = Processor::new();
    let mut random = Random(1);
    let mut forms: BTreeMap<Form, (usize, Vec<Vec<u8>>)> = BTreeMap::new();
    let mut refused: BTreeMap<Form, usize> = BTreeMap::new();
    for bytes in encodings(&mut random, processor.buffer()) {
        let Some((insn, len)) = decode(&bytes) else { continue };
        let form = (insn.raw.code(), memory_operand(&insn.raw), insn.raw.has_lock_prefix());
        let enough = forms.get(&form).is_some_and(|(done, _)| *done >= STATES_PER_FORM);
        if enough || (!forms.contains_key(&form) && refused.get(&form).is_some_and(|n| *n >= REFUSALS_PER_FORM)) {
            continue;
        }
        if Model::new(&insn, |_| Substitution::default()).is_none() {
            *refused.entry(form).or_default() += 1;
            continue;
        }
        let (done, examples) = forms.entry(form).or_default();
        let ran = check(&mut processor, &mut random, &insn, &bytes[..len], 2);
        *done += ran;
        if ran > 0 && examples.len() < 64 {
            examples.push(bytes[..len].to_vec());
        }
    }
    for ((code, ..), (done, examples)) in &mut forms {
        assert!(!examples.is_empty(), "{code:?}: supported, but never executed");
        for bytes in examples.iter().cycle() {
            if *done >= STATES_PER_FORM {
                break;
            }
            let (insn, _) = decode(bytes).unwrap();
            *done += check(&mut processor, &mut random, &insn, bytes, 8);
        }
    }
    let found: BTreeSet<String> = forms.keys().map(|(code, ..)| format!("{:?}", code.mnemonic())).collect();
    let expected: BTreeSet<String> = COVERED.iter().map(|m| format!("{m:?}")).collect();
    assert_eq!(found, expected, "the instructions that the semantics cover");
    let states: usize = forms.values().map(|(done, _)| done).sum();
    println!("{} forms, {states} states", forms.len());
    assert!(forms.len() > 250, "{} forms", forms.len());
}

/// The comparison notices a wrong rule: the processor executes the left
/// instruction, the terms the right one.
#[test]
fn a_wrong_rule_is_noticed() {
    let wrong: &[(&str, &[u8], &[u8])] = &[
        ("32-bit mov does not clear the upper half", &[0x89, 0xc8], &[0x66, 0x89, 0xc8]),
        ("add for adc", &[0x48, 0x11, 0xc8], &[0x48, 0x01, 0xc8]),
        ("signed for unsigned condition", &[0x0f, 0x92, 0xc0], &[0x0f, 0x9c, 0xc0]),
        ("be for b", &[0x0f, 0x92, 0xc0], &[0x0f, 0x96, 0xc0]),
        ("movsx for movzx", &[0x0f, 0xb6, 0xc1], &[0x0f, 0xbe, 0xc1]),
        ("al for ah", &[0x00, 0xc1], &[0x00, 0xe1]),
        ("sar for shr", &[0xd3, 0xe8], &[0xd3, 0xf8]),
        ("64-bit for 32-bit shift count", &[0xd3, 0xe0], &[0x48, 0xd3, 0xe0]),
        ("inc for add 1: carry", &[0x83, 0xc0, 0x01], &[0xff, 0xc0]),
        ("mul for imul: high part", &[0x48, 0xf7, 0xe1], &[0x48, 0xf7, 0xe9]),
        ("cmp for test: flags only", &[0x85, 0xc8], &[0x39, 0xc8]),
        ("scale", &[0x48, 0x8d, 0x04, 0x48], &[0x48, 0x8d, 0x04, 0x88]),
        ("push of another register", &[0x50], &[0x51]),
        ("bt of another bit", &[0x48, 0x0f, 0xba, 0xe0, 0x05], &[0x48, 0x0f, 0xba, 0xe0, 0x06]),
        ("idiv for div", &[0x48, 0xf7, 0xf1], &[0x48, 0xf7, 0xf9]),
        ("ror for rol", &[0xc1, 0xc0, 0x03], &[0xc1, 0xc8, 0x03]),
        ("rol for rcl", &[0xd1, 0xd0], &[0xd1, 0xc0]),
        ("shrd for shld", &[0x48, 0x0f, 0xa5, 0xc8], &[0x48, 0x0f, 0xad, 0xc8]),
        ("bsf for bsr", &[0x0f, 0xbd, 0xc1], &[0x0f, 0xbc, 0xc1]),
        ("bsf for tzcnt: flags", &[0xf3, 0x0f, 0xbc, 0xc1], &[0x0f, 0xbc, 0xc1]),
        ("btr for bts", &[0x0f, 0xab, 0xc8], &[0x0f, 0xb3, 0xc8]),
        ("xadd for xchg: memory", &[0x48, 0x0f, 0xc1, 0x0b], &[0x48, 0x87, 0x0b]),
        ("cmpxchg for xchg", &[0xf0, 0x0f, 0xb1, 0x0b], &[0x87, 0x0b]),
        ("bswap of the lower half", &[0x48, 0x0f, 0xc8], &[0x0f, 0xc8]),
        ("popcnt of the lower half", &[0xf3, 0x48, 0x0f, 0xb8, 0xc1], &[0xf3, 0x0f, 0xb8, 0xc1]),
        ("leave for pop", &[0xc9], &[0x5d]),
        ("clc for stc", &[0xf8], &[0xf9]),
        ("cdq for cqo", &[0x48, 0x99], &[0x99]),
    ];
    let (mut processor, _guard) = Processor::new();
    let mut random = Random(2);
    for (what, executed, modelled) in wrong {
        let (insn, _) = decode(modelled).unwrap();
        let (run, _) = decode(executed).unwrap();
        let model = Model::new(&insn, |_| Substitution::default()).unwrap();
        processor.load(executed);
        let buffer = processor.buffer();
        let noticed = (0..STATES_PER_FORM).any(|_| {
            // Both must be possible, and the state suit the one that runs.
            let Some(before) = random_state(&mut random, &run.raw, buffer) else { return false };
            model.disagreement(&before, &processor.run(&before), buffer).is_some()
        });
        assert!(noticed, "{what}");
    }
}
