//! From C to proved updates: fixtures compiled as the kernel is, analysed
//! against themselves as the deployed kernel. Each accepted constant is run
//! concretely - deployed code with updates against the code that the compiler
//! makes for the other value -, each refusal is the expected one, both solvers
//! agree, and broken updates are refuted.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
#[path = "common/emulator.rs"]
mod emulator;
#[path = "common/fixture.rs"]
mod fixture;

use common::Random;
use emulator::Emulator;
use fixture::*;
use xk_sie::analyse::{confirmed, Analysis};
use xk_sie::flow::{Flow, Live};
use xk_sie::insn::{Insn, Node};
use xk_sie::object::Object;
use xk_sie::program::{execute, iv_term, Links};
use xk_sie::proof::{obligation, ProofError, Solver};
use xk_sie::prototypes::Prototypes;
use xk_sie::semantics::{is_immediate, step, Substitution};
use xk_sie::state::{State, REGISTERS};
use xk_sie::term::Terms;
use xk_table::{CriticalSpan, Fit, Kind, Op, OpCode, Program, Range, When};

// ---------------------------------------------------------------- accepted

/// A fixture that must be usable.
struct Usable {
    what: &'static str,
    text: &'static str,
    default: i64,
    fitted: &'static [i64],
    unseen: &'static [i64],
    /// How and when each span is updated.
    spans: &'static [(Kind, When)],
}

use Kind::{Invert, Rematerialise, Value};
use When::{Before, Instead};

const USABLE: &[Usable] = &[
    Usable {
        what: "compare and branch",
        text: "u64 f(u32 x) { if (x > V) return g(x); return h(x); }",
        default: 100,
        fitted: &[50, 99, 1000],
        unseen: &[3, 127, 128, 70000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "signed compare at the edge of an 8-bit immediate",
        text: "u64 f(s32 x) { if (x < V) return g(1); return h(2); }",
        default: 127,
        fitted: &[100, 128, 129],
        unseen: &[5, 126, 130, 1000, 100000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "64-bit compare at the edge of a 32-bit immediate",
        text: "u64 f(u64 x) { if (x > V##ul) return g(1); return h(2); }",
        default: 1000,
        fitted: &[900, 2000, 5000],
        unseen: &[800, 70000, 2147483646],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "select",
        text: "u32 f(s32 x) { return x ? V : 2 * V; }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 1000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "shift count",
        text: "u64 f(u64 x) { return x >> V; }",
        default: 5,
        fitted: &[3, 6, 9],
        unseen: &[2, 4, 20],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "multiplication",
        text: "u64 f(u64 x) { return x * V; }",
        default: 1000,
        fitted: &[1001, 999, 1234],
        unseen: &[998, 1111, 5000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "mask",
        text: "u64 f(u64 x) { return g(x & (V - 1)) + x; }",
        default: 100,
        fitted: &[99, 101, 1000],
        unseen: &[50, 77, 5000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "store of an immediate",
        text: "void f(struct s *p) { p->a = V; h(1); }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 1000000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "narrow stores",
        text: "void f(struct s *p) { p->d = V; p->e = V - 1; h(1); }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 50],
        spans: &[(Value, Before), (Rematerialise, Before)],
    },
    Usable {
        what: "two uses in a block",
        text: "u64 f(struct s *p, u32 x) { p->a = V; p->b = x + V; return g(x * 3); }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 1000],
        spans: &[(Invert, Before), (Rematerialise, Before)],
    },
    Usable {
        what: "V in both arms",
        text: "u64 f(struct s *p, u64 x) { if (p->a) p->c = x + V; else p->c = x - V; return g(x); }",
        default: 100,
        fitted: &[90, 101, 1000],
        unseen: &[50, 99, 200, 5000],
        spans: &[(Invert, Before), (Rematerialise, Instead)],
    },
    Usable {
        what: "compare with memory",
        text: "void f(struct s *p) { if (p->a >= V) g(1); else h(2); }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 1000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "addition whose old value is lost",
        text: "u64 f(u64 x) { return g(x + V); }",
        default: 1000,
        fitted: &[999, 1001, 4000],
        unseen: &[500, 2000, 100000],
        spans: &[(Invert, Before)],
    },
    Usable {
        what: "64-bit immediate",
        text: "u64 f(u64 x) { return g(x ^ ((u64)V << 32 | 0x218)); }",
        default: 10,
        fitted: &[7, 11, 300],
        unseen: &[3, 12, 1000],
        spans: &[(Value, Before)],
    },
    Usable {
        what: "argument of a call",
        text: "u64 f(u64 x) { g(x); return h(V); }",
        default: 10,
        fitted: &[7, 11, 300],
        unseen: &[3, 12, 1000],
        spans: &[(Value, Before)],
    },
    Usable {
        what: "minimum",
        text: "u64 f(u32 x) { return g(x < V ? x : V); }",
        default: 100,
        fitted: &[90, 101, 1000],
        unseen: &[50, 99, 5000],
        spans: &[(Value, Before)],
    },
    Usable {
        what: "bound of a loop",
        text: "u64 f(struct s *p) { u64 sum = 0; for (u32 i = 0; i < V; i++) sum += g(i); return sum; }",
        default: 20,
        fitted: &[10, 21, 30],
        unseen: &[5, 19, 40],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "read, modify, write",
        text: "void f(struct s *p) { p->c += V; h(1); }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 1000],
        spans: &[(Invert, Before)],
    },
];

fn c_text(usable: &Usable) -> String {
    // 64-bit literals are written V##ul in the table.
    format!(
        "#define CAT_(a,b) a##b\n#define CAT(a,b) CAT_(a,b)\n{PRELUDE}{}\n",
        usable.text.replace("V##ul", "CAT(V,ul)")
    )
}

/// Runs deployed code with updates against the variant, on random states.
fn end_to_end(what: &str, analysis: &Analysis, base: &Object, variant: &Object, v: i64) {
    let (ours, theirs) = (function(base), function(variant));
    let mut random = Random(v as u64 ^ 0x77);
    let mut agreed = 0;
    for seed in 0..40 {
        let regs: [u64; 16] = std::array::from_fn(|_| match random.below(3) {
            // Around the value is where comparisons change their mind.
            0 => (v as u64).wrapping_add(random.below(5) as u64).wrapping_sub(2),
            1 => random.value(),
            _ => 0x1000_0000 + 64 * random.below(1 << 16) as u64,
        });
        let expected = Emulator::new(variant, theirs, seed, regs).run();
        let found = Emulator::new(base, ours, seed, regs).with(&analysis.spans, v).run();
        assert_eq!(found, expected, "{what}: V = {v}, registers {regs:#x?}");
        agreed += usize::from(expected.is_some());
    }
    assert!(agreed > 35, "{what}: the fixture does not end");
}

fn function(object: &Object) -> &xk_sie::object::Function {
    object.functions.values().find(|f| f.name == "f").unwrap()
}

#[test]
fn usable_constants_behave_as_if_compiled_with_the_other_value() {
    let mut wrong = Vec::new();
    for usable in USABLE {
        let text = c_text(usable);
        let build = from_c(&text);
        let analysis = plain(&build, usable.default, usable.fitted, usable.unseen)
            .unwrap_or_else(|refusal| panic!("{}: {refusal}", usable.what));
        let found: Vec<_> = analysis.spans.iter().map(|s| (s.indirection.kind, s.indirection.when)).collect();
        assert!(!found.is_empty(), "{}", usable.what);
        if found != usable.spans {
            wrong.push(format!(
                "{}: {found:?} {:?}",
                usable.what,
                analysis.spans.iter().map(|s| &s.expression).collect::<Vec<_>>()
            ));
        }
        let base = build(usable.default);
        let mut values: Vec<i64> = usable.fitted.iter().chain(usable.unseen).copied().collect();
        values.retain(|&v| analysis.range.contains(v));
        assert!(values.len() > usable.fitted.len(), "{}: only {values:?} lie in {}", usable.what, analysis.range);
        for v in values {
            end_to_end(usable.what, &analysis, &base, &build(v), v);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without the updates, or with another value, the concrete runs differ.
#[test]
fn the_concrete_runs_notice_a_missing_update() {
    for usable in USABLE {
        let text = c_text(usable);
        let build = from_c(&text);
        let v = usable.fitted[2];
        let (base, variant) = (build(usable.default), build(v));
        let analysis = plain(&build, usable.default, usable.fitted, &[]).unwrap();
        let differs = |spans: &[CriticalSpan], value: i64| {
            let mut random = Random(9);
            (0..400).any(|seed| {
                let regs: [u64; 16] = std::array::from_fn(|_| match random.below(3) {
                    0 => random.pick(&[v, usable.default]) as u64 + random.below(3) as u64 - 1,
                    1 => random.value(),
                    _ => 0x1000_0000 + 64 * random.below(1 << 16) as u64,
                });
                let found = Emulator::new(&base, function(&base), seed, regs).with(spans, value).run();
                found != Emulator::new(&variant, function(&variant), seed, regs).run()
            })
        };
        assert!(!differs(&analysis.spans, v), "{}", usable.what);
        for missing in 0..analysis.spans.len() {
            let mut spans = analysis.spans.clone();
            spans.remove(missing);
            assert!(differs(&spans, v), "{}: without update {missing}", usable.what);
        }
        assert!(differs(&analysis.spans, usable.default), "{}: with the deployed value", usable.what);
    }
}

// ----------------------------------------------------------------- refused

#[track_caller]
fn refused(what: &str, build: &Build<'_>, default: i64, fitted: &[i64], reasons: &[&str]) {
    match plain(build, default, fitted, &[]) {
        Ok(analysis) => panic!("{what}: accepted with {:#?}", analysis.spans),
        Err(refusal) => assert!(reasons.contains(&reason(&refusal).as_str()), "{what}: {refusal}"),
    }
}

#[track_caller]
fn refused_c(what: &str, text: &str, default: i64, fitted: &[i64], reasons: &[&str]) {
    let text = format!("{PRELUDE}{text}\n");
    refused(what, &from_c(&text), default, fitted, reasons);
}

#[test]
fn what_no_update_can_repair_is_refused() {
    refused_c("division", "u64 f(u64 x) { return g(x / V); }", 10, &[7, 11, 13], &["shape", "non_linear"]);
    refused_c(
        "unrolled loop",
        "void f(u32 *p, u32 *q) { for (int i = 0; i < V; i++) p[i] = q[i] * 3; }",
        3,
        &[2, 4],
        &["shape"],
    );
    refused_c("array", "static u32 a[V]; u32 *f(u32 x) { return &a[x]; }", 8, &[9, 16], &["layout_change"]);
    refused_c("initialised array", "u32 a[V] = {1}; u32 f(u32 x) { return a[x]; }", 8, &[9, 16], &["layout_change"]);
    refused_c(
        "constant table",
        "const u32 a[] = {1, V}; u32 f(u32 x) { return a[x]; }",
        8,
        &[9, 16],
        &["read_only_data"],
    );
    refused_c(
        "pointer into a table",
        "u32 a[64]; u32 *p = &a[V]; u32 f(u32 x) { return p[x]; }",
        8,
        &[9, 16],
        &["read_only_data"],
    );
    refused_c("no use", "u64 f(u64 x) { return g(x); }", 8, &[9, 16], &["dead_code"]);
    refused_c("square", "u64 f(u64 x) { return g(x + V * V); }", 8, &[9, 10, 16], &["non_linear"]);
    refused_c(
        "boot only",
        "__attribute__((section(\".init.text\"))) u64 f(u64 x) { return g(x + V * 1000); }",
        8,
        &[9, 16],
        &["boot_only"],
    );
    refused_c(
        "must not be probed",
        "__attribute__((section(\".noinstr.text\"))) u64 f(u64 x) { return g(x + V * 1000); }",
        8,
        &[9, 16],
        &["unprobeable"],
    );
    refused_c("atomic", "void f(u32 *p) { __sync_fetch_and_add(p, V); }", 8, &[9, 16], &["no_indirection"]);
    // The first instruction destroys what the second needs for another value.
    let lost = body("shr ${V},%edi; and ${V},%edi; call g; ret");
    refused("old value lost", &from_assembly(&lost), 3, &[4, 9], &["no_indirection"]);
    refused_c("decides which function", "u64 f(u64 x) { return V > 10 ? g(x) : h(x); }", 8, &[9, 16], &["shape"]);
}

#[test]
fn code_that_the_kernel_replaces_is_refused() {
    let text = body(ALTERNATIVE);
    refused("replacement", &from_assembly(&text), 32, &[10, 100], &["inline_assembly"]);
    // In the original the use is visible, but it is not what runs.
    let original =
        ALTERNATIVE.replace(".byte 0x90,0x90,0x90,0x90,0x90", "mov ${V},%edi").replace("2: mov ${V}", "2: mov $7");
    refused(
        "original",
        &from_assembly(&body(&original)),
        32,
        &[10, 100],
        &["unsupported_instruction", "inline_assembly"],
    );
}

const FIXUP: &str = ".section __ex_table,\"a\"; .long 1b - ., 3b - ., 1\n.text\n";

/// A fault leaves with what the deployed code had computed.
#[test]
fn nothing_is_updated_behind_a_fault() {
    let open = body(&format!("mov ${{V}},%edi; 1: mov (%rsi),%rdx; call g; ret; 3: call h; ret\n{FIXUP}"));
    let analysis = plain(&from_assembly(&open), 32, &[10, 100], &[1000]).unwrap();
    let end = 5 + u32::from(analysis.spans[0].indirection.when == When::Before);
    assert!(analysis.spans[0].indirection.offset < end, "before the load that may fault");
    let seed = body(&format!("1: movl ${{V}},(%rsi); call g; ret; 3: call h; ret\n{FIXUP}"));
    refused("store that may fault", &from_assembly(&seed), 32, &[10, 100], &["unsupported_instruction", "unprobeable"]);
}

/// A later span is not computed from a state that an earlier one has changed:
/// ecx is edi + 200 in the deployed code, and edi + V once it was updated.
#[test]
fn spans_do_not_reach_back_over_earlier_updates() {
    let text = body("lea {V}(%rdi),%ecx; mov %ecx,8(%rsi); and ${V},%edi; mov %edi,16(%rsi); mov $1,%eax; ret");
    let build = from_assembly(&text);
    match plain(&build, 200, &[300, 1000], &[5000]) {
        Err(refusal) => assert_eq!(reason(&refusal), "no_indirection", "{refusal}"),
        Ok(analysis) => {
            for v in [300, 1000, 5000] {
                end_to_end("two dependent uses", &analysis, &build(200), &build(v), v);
            }
        }
    }
}

/// A reference into a table is updated from the table's address or not at all.
/// A value in writable data is changed there; nothing else of the object is.
#[test]
fn data_follows_the_value_in_place() {
    let text = format!(
        "{PRELUDE}u32 limit = V; struct s pair = {{ 7, 2 * V }}; u32 f(u32 x) {{ return x < limit + pair.b; }}"
    );
    let build = from_c(&text);
    let analysis = plain(&build, 8, &[9, 16], &[100, 70000]).unwrap();
    assert!(analysis.spans.is_empty());
    let found: Vec<_> = analysis.data.iter().map(|d| (d.symbol.as_str(), d.offset, d.width, d.fit)).collect();
    assert!(found.contains(&("limit", 0, 4, Fit::linear(1, 0, 4))), "{found:?}");
    // The word of `pair` is no wider than the values that were seen need.
    assert!(found.iter().any(|(name, offset, _, fit)| *name == "pair" && *offset == 4 && fit.a == 2), "{found:?}");
    assert!(analysis.data.iter().all(|d| d.fit.apply(analysis.range.max) == 2 * analysis.range.max as u64
        || d.fit.apply(analysis.range.max) == analysis.range.max as u64));
}

#[test]
fn an_offset_from_a_symbol_keeps_its_symbol() {
    let text = body("mov table+8*{V}(%rip),%rdi; call g; ret");
    let build = from_assembly(&text);
    match plain(&build, 32, &[10, 100], &[50]) {
        Err(refusal) => assert_eq!(reason(&refusal), "no_indirection", "{refusal}"),
        Ok(analysis) => end_to_end("table", &analysis, &build(32), &build(10), 10),
    }
}

#[test]
fn the_deployed_kernel_must_agree() {
    let text = format!("{PRELUDE}u64 f(u32 x) {{ if (x > V) return g(x); return h(x); }}");
    let build = from_c(&text);
    let try_with = |deployed: &Itself, solver: &Solver| {
        let unit = builds(&build, 100, &[50, 1000], &[]);
        reason(&analysed(vec![unit], 100, deployed, solver).unwrap_err())
    };
    let base = build(100);
    assert_eq!(try_with(&Itself::default(), &solver()), "not_deployed");
    let mut twice = Itself::of(&base);
    twice.functions.push(twice.functions[0].clone());
    assert_eq!(try_with(&twice, &solver()), "not_deployed");
    let mut other = Itself::of(&base);
    other.functions[0].1[2] ^= 1;
    assert_eq!(try_with(&other, &solver()), "identity_mismatch");
    let mut short = Itself::of(&base);
    short.functions[0].1.pop();
    assert_eq!(try_with(&short, &solver()), "identity_mismatch");
    // The solver decides: without its word there is no span.
    let says = |answer: &str| Solver {
        command: vec!["sh".into(), "-c".into(), format!("cat > /dev/null; echo '{answer}'")],
        name: "stub".into(),
        timeout_s: 1,
    };
    assert_eq!(try_with(&Itself::of(&base), &says("timeout")), "solver_timeout");
    assert_eq!(try_with(&Itself::of(&base), &says("unknown")), "solver_timeout");
    for answer in ["sat", "", "(error \"line 3\")", "unsat\nerror", "unsatisfied"] {
        assert_eq!(try_with(&Itself::of(&base), &says(answer)), "no_indirection", "{answer:?}");
    }
}

#[test]
fn a_fit_needs_values_that_confirm_it() {
    let text = format!("{PRELUDE}u64 f(u32 x) {{ if (x > V) return g(x); return h(x); }}");
    let analysis = plain(&from_c(&text), 100, &[50, 99], &[90, 110, 200]).unwrap();
    assert_eq!(confirmed(&analysis, 3), Ok(()));
    let refusal = confirmed(&analysis, 4).unwrap_err();
    assert_eq!(reason(&refusal), "empty_range");
    assert!(
        refusal.to_string().contains("3 compiled values") && refusal.to_string().contains("unit.c: f+"),
        "{refusal}"
    );
}

#[test]
fn values_that_no_unit_has_in_common_leave_no_range() {
    let text = format!("{PRELUDE}u64 f(u32 x) {{ if (x > V) return g(x); return h(x); }}");
    let build = from_c(&text);
    let units = vec![builds(&build, 100, &[50, 60], &[]), builds(&build, 100, &[1000, 2000], &[])];
    let deployed = Itself::of(&build(100));
    assert_eq!(reason(&analysed(units, 100, &deployed, &solver()).unwrap_err()), "empty_range");
}

// ------------------------------------------------------------------ proofs

/// The proof obligation of a span, made anew from the table alone.
struct Obligation {
    terms: Terms,
    actual: State,
    wanted: State,
    live: Live,
    ivs: Vec<xk_sie::term::TermId>,
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
            let v = self.range.min as u64 + random.next() % span;
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
            let flags = xk_sie::state::Flag::ALL
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
                for flag in xk_sie::state::Flag::ALL {
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
            let mut obligation = Obligation::new(&base, span, analysis.range);
            obligation.decide(program, &z3).unwrap_or_else(|e| panic!("{}: {e}", usable.what));
            obligation.decide(program, &cvc5).unwrap_or_else(|e| panic!("{}: {e} by cvc5", usable.what));
            second += 1;
            assert!(!obligation.counterexample(program, &mut random), "{}: proved and wrong", usable.what);
            // Off by one.
            let right = obligation.ivs.clone();
            let one = obligation.terms.constant(1, 64);
            for (slot, &iv) in right.iter().enumerate() {
                obligation.ivs[slot] = obligation.terms.bin(xk_sie::term::BinOp::Add, iv, one);
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
        let mut obligation = Obligation::new(&build(200), &analysis.spans[0], analysis.range);
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
            ("a register more", vec![iv, reg(7), compare, flags(0x8d5), op(OpCode::SetReg, 4, 7, 0, 0, 0)]),
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
