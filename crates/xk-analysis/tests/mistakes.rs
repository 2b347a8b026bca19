//! Updates that are wrong in one respect: the solvers refute each of them, and agree about
//! those that are right.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::fixture::*;
use common::usable::{c_text, USABLE};
use xk_analysis::program::{execute, iv_term, Links};
use xk_analysis::proof::{obligation, ProofError, Solver};
use xk_lift::flow::{Flow, Live};
use xk_lift::insn::{Insn, Node};
use xk_lift::object::Object;
use xk_lift::prototypes::Prototypes;
use xk_lift::semantics::{is_immediate, step, Substitution};
use xk_lift::state::{State, REGISTERS};
use xk_lift::term::Terms;
use xk_table::{CriticalSpan, Op, OpCode, Program, Range, When};
use xk_testing::Random;

/// The proof obligation of a span, made anew from the table alone.
struct Obligation {
    terms: Terms,
    actual: State,
    wanted: State,
    live: Live,
    ivs: Vec<xk_lift::term::TermId>,
    range: Range,
}

impl Obligation {
    fn new(object: &Object, span: &CriticalSpan, range: Range) -> Self {
        let function = function(object);
        let mut terms = Terms::new();
        let (mut actual, mut wanted) = (State::unknown(&mut terms), State::unknown(&mut terms));
        let at =
            |offset: u32| Node { section: function.start.section, offset: function.start.offset + u64::from(offset) };
        let after = u32::from(span.indirection.when != When::Before) * u32::from(span.indirection.insn_len);
        let point = at(span.indirection.offset + after);
        let insns: Vec<&Insn> = object.insns.range(at(span.start)..point).map(|(_, insn)| insn).collect();
        for insn in insns {
            let offset = (insn.node.offset - function.start.offset) as u32;
            let line = span.assembly.iter().find(|line| line.offset == offset);
            let mut substitution = Substitution::default();
            if let Some(iv) = line.and_then(|line| line.iv) {
                let iv = Some(iv_term(&mut terms, &span.ivs[iv]));
                if (0..insn.raw.op_count()).any(|i| is_immediate(insn.raw.op_kind(i))) {
                    substitution.immediate = iv;
                } else {
                    substitution.displacement = iv;
                }
            }
            // What the update replaces is not executed.
            if span.indirection.when != When::Instead || offset != span.indirection.offset {
                step(&mut terms, &mut actual, insn, Substitution::default()).unwrap();
            }
            step(&mut terms, &mut wanted, insn, substitution).unwrap();
        }
        let ivs = span.ivs.iter().map(|fit| iv_term(&mut terms, fit)).collect::<Vec<_>>();
        let ivs = ivs.into_iter().map(|iv| terms.zext(iv, 64)).collect();
        Self { terms, actual, wanted, live: Flow::new(object, &Prototypes::default()).live_in(point), ivs, range }
    }

    fn decide(&mut self, program: &Program, solver: &Solver) -> Result<u64, ProofError> {
        let mut updated = self.actual.clone();
        execute(&mut self.terms, &mut updated, program, &self.ivs, &Links::new());
        let query = obligation(&mut self.terms, &updated, &self.wanted, self.live, self.range, &[]);
        solver.refute(&query)
    }

    /// Looks for a state that tells the update from the wanted state.
    fn counterexample(&mut self, program: &Program, random: &mut Random) -> bool {
        let mut updated = self.actual.clone();
        execute(&mut self.terms, &mut updated, program, &self.ivs, &Links::new());
        (0..200).any(|_| {
            let values: Vec<u64> = (0..32).map(|_| random.value()).collect();
            let span = (self.range.max - self.range.min) as u64 + 1;
            let v = self.range.min as u64 + random.next_u64() % span;
            let symbols = |name: &str| {
                u128::from(match REGISTERS.iter().position(|r| *r == name) {
                    Some(number) => values[number],
                    None if name == "V" => v,
                    None => values[16 + name.bytes().map(usize::from).sum::<usize>() % 16],
                })
            };
            let memory = |at: u64| (values[at as usize % 31] >> 3) as u8;
            let same = |a, b| self.terms.evaluate(a, &symbols, &memory) == self.terms.evaluate(b, &symbols, &memory);
            let registers = (0..16).all(|r| !self.live.register(r) || same(updated.regs[r], self.wanted.regs[r]));
            let flags = xk_lift::state::Flag::ALL
                .into_iter()
                .all(|f| !self.live.flag(f) || same(updated.flag(f), self.wanted.flag(f)));
            !(registers && flags)
        })
    }
}

/// Each way to break one operation of a program.
fn mutants(program: &Program) -> Vec<(String, Program)> {
    let mut all = Vec::new();
    for (index, op) in program.ops.iter().enumerate() {
        let mut push = |what: &str, new: Op| {
            let mut mutant = program.clone();
            mutant.ops[index] = new;
            all.push((format!("{index} {:?}: {what}", op.code), mutant));
        };
        for width in [1, 2, 4, 8] {
            if width != op.width {
                push("width", Op { width, ..*op });
            }
        }
        match op.code {
            OpCode::SetReg => push("register", Op { dst: (op.dst + 1) % 16, ..*op }),
            OpCode::Reg => push("source", Op { a: (op.a + 1) % 16, ..*op }),
            OpCode::SetFlags => {
                for flag in xk_lift::state::Flag::ALL {
                    push("flag", Op { imm: op.imm ^ flag.mask() as i64, ..*op });
                }
            }
            OpCode::Load | OpCode::Store | OpCode::Imm | OpCode::Iv => push("immediate", Op { imm: op.imm + 1, ..*op }),
            OpCode::Cond => push("condition", Op { imm: op.imm ^ 1, ..*op }),
            OpCode::FlagsSub => {
                push("operands", Op { a: op.b, b: op.a, ..*op });
                push("operation", Op { code: OpCode::FlagsAdd, ..*op });
            }
            OpCode::Add => push("operation", Op { code: OpCode::Sub, ..*op }),
            OpCode::Sub => push("operation", Op { code: OpCode::Add, ..*op }),
            _ => {}
        }
    }
    all
}

fn immediates_only(text: &str) -> bool {
    !text.contains("x * V")
}

#[test]
fn both_solvers_accept_the_updates_and_refute_broken_ones() {
    let (z3, cvc5) = (solver(), Solver::cvc5(20).expect("cvc5 is needed: apt-get install cvc5"));
    let mut random = Random(11);
    let (mut refuted, mut equivalent, mut second) = (0, 0, 0);
    for usable in USABLE.iter().filter(|u| immediates_only(u.text)) {
        let text = c_text(usable);
        let build = from_c(&text);
        let base = build(usable.default);
        let analysis = plain(&build, usable.default, usable.fitted, &[]).unwrap();
        for span in &analysis.spans {
            let program = &span.indirection.program;
            let mut obligation = Obligation::new(&base, span, analysis.values.hull());
            obligation.decide(program, &z3).unwrap_or_else(|e| panic!("{}: {e}", usable.what));
            obligation.decide(program, &cvc5).unwrap_or_else(|e| panic!("{}: {e} by cvc5", usable.what));
            second += 1;
            assert!(!obligation.counterexample(program, &mut random), "{}: proved and wrong", usable.what);
            // Off by one.
            let right = obligation.ivs.clone();
            let one = obligation.terms.constant(1, 64);
            for (slot, &iv) in right.iter().enumerate() {
                obligation.ivs[slot] = obligation.terms.bin(xk_lift::term::BinOp::Add, iv, one);
                let verdict = obligation.decide(program, &z3);
                assert!(
                    matches!(verdict, Err(ProofError::Refuted)),
                    "{}: IV {slot} off by one: {verdict:?}",
                    usable.what
                );
                obligation.ivs[slot] = iv;
            }
            for (what, mutant) in mutants(program) {
                if mutant.check(span.ivs.len()).is_err() {
                    continue;
                }
                match obligation.decide(&mutant, &z3) {
                    Err(ProofError::Refuted) => refuted += 1,
                    Err(error) => panic!("{}: {what}: {error}", usable.what),
                    Ok(_) => {
                        equivalent += 1;
                        let wrong = obligation.counterexample(&mutant, &mut random);
                        assert!(!wrong, "{}: {what}: proved and wrong", usable.what);
                    }
                }
            }
        }
    }
    println!("{second} spans, {refuted} mutants refuted, {equivalent} equivalent");
    assert!(refuted > 150 && second > 15, "{refuted} refuted, {equivalent} accepted");
}

/// Programs that are wrong in one respect, each for a span of its own.
#[test]
fn every_kind_of_mistake_is_refuted() {
    let z3 = solver();
    let op = |code, width, dst, a, b, imm| Op { code, width, dst, a, b, c: 0, imm };
    let iv = op(OpCode::Iv, 4, 0, 0, 0, 0);
    let reg = |number| op(OpCode::Reg, 4, 1, number, 0, 0);
    let compare = op(OpCode::FlagsSub, 4, 2, 1, 0, 0);
    let flags = |mask| op(OpCode::SetFlags, 8, 0, 2, 0, mask);
    let check = |text: &str, right: Vec<Op>, wrong: Vec<(&str, Vec<Op>)>| {
        let text = body(text);
        let build = from_assembly(&text);
        let analysis = plain(&build, 200, &[300, 1000], &[]).unwrap();
        let mut obligation = Obligation::new(&build(200), &analysis.spans[0], analysis.values.hull());
        obligation.decide(&Program { ops: right }, &z3).unwrap();
        for (what, ops) in wrong {
            let verdict = obligation.decide(&Program { ops }, &z3);
            assert!(matches!(verdict, Err(ProofError::Refuted)), "{what}: {verdict:?}");
        }
    };
    check(
        "cmp ${V},%edi; ja 1f; mov $1,%eax; ret; 1: mov $2,%eax; ret",
        vec![iv, reg(7), compare, flags(0x8d5)],
        vec![
            ("wrong register", vec![iv, reg(6), compare, flags(0x8d5)]),
            ("wrong width", vec![iv, reg(7), op(OpCode::FlagsSub, 2, 2, 1, 0, 0), flags(0x8d5)]),
            ("swapped", vec![iv, reg(7), op(OpCode::FlagsSub, 4, 2, 0, 1, 0), flags(0x8d5)]),
            ("wrong flag", vec![iv, reg(7), compare, flags(0x80)]),
            ("missing carry", vec![iv, reg(7), compare, flags(0x8d4)]),
            ("missing zero", vec![iv, reg(7), compare, flags(0x895)]),
            ("a register more", vec![iv, reg(7), compare, flags(0x8d5), op(OpCode::SetReg, 4, 3, 0, 0, 0)]),
        ],
    );
    let set = |width, dst| op(OpCode::SetReg, width, dst, 0, 0, 0);
    check(
        "mov ${V},%edi; jmp g",
        vec![iv, set(4, 7)],
        vec![
            ("wrong register", vec![iv, set(4, 6)]),
            ("a byte of it", vec![iv, set(1, 7)]),
            ("sign extended", vec![iv, op(OpCode::Sext, 8, 0, 0, 1, 0), set(8, 7)]),
        ],
    );
    let base = op(OpCode::Reg, 8, 1, 7, 0, 0);
    let store = |width, offset| op(OpCode::Store, width, 0, 1, 0, offset);
    check(
        "movl ${V},8(%rdi); mov $1,%eax; ret",
        vec![iv, base, store(4, 8)],
        vec![
            ("wrong offset", vec![iv, base, store(4, 9)]),
            ("too narrow", vec![iv, base, store(1, 8)]),
            ("too wide", vec![iv, base, store(8, 8)]),
            ("wrong base", vec![iv, op(OpCode::Reg, 8, 1, 6, 0, 0), store(4, 8)]),
        ],
    );
}
