//! The simulation: what it accepts is the same for every state and value, and what is not the
//! same is not accepted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::collections::{BTreeMap, HashSet};

use common::fixture::{builds, from_c, solver, PRELUDE};
use iced_x86::Mnemonic;
use xk_analysis::constants::Field;
use xk_analysis::constants::Seeds;
use xk_analysis::equality::{self, Holder};
use xk_analysis::simulation::{simulate, Build, Mismatch, Replacement, Replacements, Rules};
use xk_analysis::study::{Means, Study};
use xk_lift::flow::Flow;
use xk_lift::insn::Node;
use xk_lift::notes::Notes;
use xk_lift::object::Object;
use xk_lift::prototypes::Prototypes;
use xk_table::{Fit, Range};
use xk_testing::{compile_c, noted_c, Random};

const INT: Range = Range::of(i32::MIN as i64, i32::MAX as i64);

/// A build, with what the compiler says of it.
struct Built {
    object: Object,
    notes: Notes,
}

impl Built {
    fn of(text: &str, v: &str) -> Self {
        let object = Object::parse(&compile_c(text, v)).unwrap();
        let notes = Notes::read(&noted_c(text, v), &object);
        Self { object, notes }
    }

    fn opaque(text: &str) -> Self {
        Self::of(&format!("extern char xk_opaque[];\n{text}"), "((int)(long)xk_opaque)")
    }
}

fn compare(
    base: &Built,
    other: &Built,
    replacements: &Replacements,
    range: Option<Range>,
    default: i64,
) -> Result<Option<Range>, Mismatch> {
    let (prototypes, noreturns, solver) = (Prototypes::default(), HashSet::new(), solver());
    let flows = [base, other].map(|built| Flow::new(&built.object, &prototypes));
    let rules = Rules { default, noreturns: &noreturns, prototypes: &prototypes, solver: &solver };
    let [base, other] = [base, other].map(|built| (&built.object, Some(&built.notes)));
    let base = Build { object: base.0, flow: &flows[0], notes: base.1 };
    let other = Build { object: other.0, flow: &flows[1], notes: other.1 };
    simulate(base, other, replacements, range, rules)
}

/// What the functions of V look like, judged by a few values.
fn guessed(text: &str, default: i64, values: &[i64]) -> Option<(Built, Seeds)> {
    let (prototypes, noreturns, solver) = (Prototypes::default(), HashSet::new(), solver());
    let means = Means { default, noreturns: &noreturns, prototypes: &prototypes, solver: &solver };
    let build = from_c(text);
    let unit = builds(&build, default, values, &[]);
    let mut study = Study::new(unit.source, None, unit.base, &prototypes);
    unit.variants.into_iter().for_each(|(value, variant)| study.add(&means, value, variant));
    let seeds = study.seeds().cloned()?;
    Some((Built::of(text, &default.to_string()), seeds))
}

fn functions(seeds: &Seeds) -> Replacements {
    seeds.iter().map(|(key, fit)| (*key, Replacement::Function(*fit))).collect()
}

/// For which values a guess is shown, with the guess.
fn shown(body: &str, default: i64, values: &[i64]) -> Result<(Range, Seeds), String> {
    let text = format!("{PRELUDE}{body}");
    let (base, seeds) = guessed(&text, default, values).ok_or("there is no guess")?;
    match compare(&base, &Built::opaque(&text), &functions(&seeds), Some(INT), default) {
        Ok(range) => Ok((range.unwrap(), seeds)),
        Err(mismatch) => Err(mismatch.detail),
    }
}

#[test]
fn what_follows_v_in_another_way_than_guessed_is_not_shown() {
    type Truth = fn(i64) -> i64;
    let families: [(&str, Truth, std::ops::Range<i64>); 7] = [
        ("V/56", |v| v / 56, 200..6000),
        ("V/192", |v| v / 192, 400..9000),
        ("V/50", |v| v / 50, 100..5000),
        ("250/V", |v| 250 / v, 2..240),
        ("(V&~1)", |v| v & !1, 10..4000),
        ("(V|16)", |v| v | 16, 10..4000),
        ("(V^8)", |v| v ^ 8, 10..4000),
    ];
    let mut random = Random(0x5eed);
    let mut guesses = 0;
    for (form, truth, among) in families {
        let body = format!("u64 f(u64 x) {{ return g(x + {form}); }}");
        for _ in 0..3 {
            let default = among.start + random.below((among.end - among.start) as usize) as i64;
            let near = [default + 7, default - 3, default + 40, default + 1, default - 1];
            let Ok((range, seeds)) = shown(&body, default, &near.map(|v| v.max(1))) else { continue };
            guesses += 1;
            for v in range.min.max(default - 4000).max(1)..=range.max.min(default + 4000) {
                for fit in seeds.values() {
                    let bits = 64 - u32::from(fit.width) * 8;
                    let (ours, wanted) = (fit.apply(v) << bits, (truth(v) as u64) << bits);
                    assert_eq!(ours, wanted, "{form} from {default}: {v} of {range} was shown with {fit:?}");
                }
            }
        }
    }
    assert!(guesses >= 5, "{guesses} guesses were narrowed to something");
}

#[test]
fn what_the_compiler_concluded_from_the_default_is_not_shown() {
    let body = "u64 f(u32 x) { u64 r = 0; if (x == 20) r += g(1); if (x == V) r += h(2); return r; }";
    let found = shown(body, 10, &[11, 30, 40]);
    assert!(found.as_ref().map_or(true, |(range, _)| !range.contains(20)), "{found:?}");
}

/// Bodies that are shown, with the default and values to guess from.
const RIGHT: [(&str, i64); 12] = [
    ("u64 f(u64 x) { return g(x + V); }", 100),
    ("u64 f(s32 x) { if (x > V) return g(x); return h(x); }", 10),
    ("u64 f(u64 *p, u64 n) { u64 s = 0; for (u64 i = 0; i < n; i++) if (p[i] > V) s += p[i]; return s; }", 12),
    ("u64 f(u64 n) { int i = V; do { n = h(n); } while (g(n) && --i); return n; }", 5),
    ("void f(struct s *s) { s->a = V; s->c = g(s->c); s->b = V; }", 77),
    ("u64 f(u32 x) { return x * (u32)V; }", 1000),
    ("u64 f(s32 x) { s32 y = V - x; if (y < 0) y = 0; return g(y); }", 30),
    ("u64 f(u64 x) { u64 a[4]; a[0] = V; a[1] = x; return g((u64)a); }", 30),
    ("u64 f(u64 x) { shared = V; __atomic_thread_fence(5); shared = x; return g(V); }", 30),
    // What is read then comes of a memory that both builds write as other terms.
    ("u64 f(s64 *p, s64 **q) { p[0] = V; if (**q == 2) return g(1); return h(**q ? : p[9]); }", 2500),
    // In an instruction of which only the operands are known: as a number, and in an address.
    ("u64 f(u64 *p) { __atomic_fetch_add(p, V, 5); return 0; }", 300),
    ("u64 f(char *p) { return g(__atomic_fetch_add((u64 *)(p + V), 1, 5)); }", 300),
];

#[test]
fn what_is_right_is_shown_for_all_values() {
    for (body, default) in RIGHT {
        let values = [default + 1, default * 2 + 3, default + 60];
        let (range, _) = shown(body, default, &values).unwrap_or_else(|why| panic!("{body}: {why}"));
        let least = Range::of(1, i64::from(i32::MAX));
        assert!(range.contains(least.min) && range.contains(least.max), "{body}: {range} only");
    }
}

#[test]
fn a_wrong_function_of_v_is_not_shown() {
    for (body, default) in RIGHT {
        let text = format!("{PRELUDE}{body}");
        let values = [default + 1, default * 2 + 3, default + 60];
        let (base, seeds) = guessed(&text, default, &values).expect(body);
        let opaque = Built::opaque(&text);
        for (key, fit) in &seeds {
            let wrong = |fit: Fit| {
                let mut seeds = seeds.clone();
                seeds.insert(*key, fit);
                compare(&base, &opaque, &functions(&seeds), Some(INT), default)
            };
            for (da, db) in [(0, 1), (1, 0), (1, -default)] {
                let other = Fit { a: fit.a + da, b: fit.b + db, ..*fit };
                // As good at the default, and at no other value: then the default is all.
                let found = wrong(other);
                let range = found.as_ref().ok().and_then(|range| *range);
                let around = |range: Range| range.min >= default - 1 && range.max <= default + 1;
                assert!(found.is_err() || range.is_some_and(around), "{body}: {other:?} for {fit:?}: {found:?}");
            }
        }
    }
}

/// Pairs of bodies, and whether they do the same.
const PAIRS: [(&str, &str, bool); 25] = [
    ("u64 f(u64 x) { return g(x); }", "u64 f(u64 x) { return h(x); }", false),
    ("u64 f(u64 x) { return g(x) + 1; }", "u64 f(u64 x) { return g(x) - ~0; }", true),
    ("u64 f(u64 x) { return g(x); }", "u64 f(u64 x) { return g(x + 1); }", false),
    ("u64 f(u64 x) { return x / 8; }", "u64 f(u64 x) { return x >> 3; }", true),
    ("u64 f(s64 x) { return x / 8; }", "u64 f(s64 x) { return x >> 3; }", false),
    ("void f(u64 *p) { p[0] = 1; p[1] = 2; }", "void f(u64 *p) { p[1] = 2; p[0] = 1; }", true),
    ("void f(u64 *p) { p[0] = 1; g(1); p[1] = 2; }", "void f(u64 *p) { p[1] = 2; g(1); p[0] = 1; }", false),
    ("void f(u64 *p) { p[0] = 1; }", "void f(u64 *p) { p[0] = 1; p[1] = p[1]; g(1); }", false),
    ("void f(u64 *p, u64 *q) { *p = 1; *q = 2; }", "void f(u64 *p, u64 *q) { *q = 2; *p = 1; }", false),
    ("u64 f(u64 *p) { while (*(volatile u64 *)p); return 0; }", "u64 f(u64 *p) { return 0; }", false),
    // What `p` points to is not the array, unless its address got out before `p` came in.
    (
        "void f(u64 *p) { volatile u64 a[2]; *(volatile u64 *)p = 1; a[0] = 2; g((u64)a); }",
        "void f(u64 *p) { volatile u64 a[2]; a[0] = 2; *(volatile u64 *)p = 1; g((u64)a); }",
        true,
    ),
    (
        "void f(u64 x) { volatile u64 a[2]; volatile u64 *p = (void *)g((u64)a); *p = 1; a[0] = 2; h(x); }",
        "void f(u64 x) { volatile u64 a[2]; volatile u64 *p = (void *)g((u64)a); a[0] = 2; *p = 1; h(x); }",
        false,
    ),
    (
        "void f(u64 x) { volatile u64 a[2]; shared = (u64)a; volatile u64 *p = (void *)g(x); *p = 1; a[0] = 2; h(x); }",
        "void f(u64 x) { volatile u64 a[2]; shared = (u64)a; volatile u64 *p = (void *)g(x); a[0] = 2; *p = 1; h(x); }",
        false,
    ),
    (
        "void f(u64 x) { volatile u64 a[2]; shared = (u64)a; volatile u64 *p = *(u64 **)x; *p = 1; a[0] = 2; h(x); }",
        "void f(u64 x) { volatile u64 a[2]; shared = (u64)a; volatile u64 *p = *(u64 **)x; a[0] = 2; *p = 1; h(x); }",
        false,
    ),
    (
        "void f(u64 **p, u64 x) { volatile u64 a[2]; *p = (u64 *)a; volatile u64 *q = p[x]; *q = 1; a[0] = 2; g(1); }",
        "void f(u64 **p, u64 x) { volatile u64 a[2]; *p = (u64 *)a; volatile u64 *q = p[x]; a[0] = 2; *q = 1; g(1); }",
        false,
    ),
    (
        "u64 f(u64 *p) { u64 s = 0; for (int i = 0; i < 9; i++) s += p[i]; return s; }",
        "u64 f(u64 *p) { u64 s = 0; for (int i = 0; i < 8; i++) s += p[i]; return s; }",
        false,
    ),
    (
        "u64 f(u64 x) { if (x > 5) return g(x); return h(x); }",
        "u64 f(u64 x) { if (x <= 5) return h(x); return g(x); }",
        true,
    ),
    (
        "u64 f(u64 x) { if (x > 5) return g(x); return h(x); }",
        "u64 f(u64 x) { if (x >= 5) return g(x); return h(x); }",
        false,
    ),
    ("u64 f(u64 *p) { return __atomic_fetch_add(p, 1, 5); }", "u64 f(u64 *p) { return (*p)++; }", false),
    ("u64 f(u64 *p) { __atomic_thread_fence(5); return *p; }", "u64 f(u64 *p) { return *p; }", false),
    (
        "u64 f(u64 x) { u64 y = g(x); return y + shared; }",
        "u64 f(u64 x) { u64 z = shared; u64 y = g(x); return y + z; }",
        false,
    ),
    ("u64 f(u64 x, u64 y) { return x < y ? x : y; }", "u64 f(u64 x, u64 y) { if (y > x) return x; return y; }", true),
    ("u64 f(u32 x) { return x; }", "u64 f(s32 x) { return (s64)x; }", false),
    ("u64 f(u64 x) { if (!x) __builtin_trap(); return x; }", "u64 f(u64 x) { return x; }", false),
    ("u64 f(u64 x) { u8 c = x; return g(c); }", "u64 f(u64 x) { u16 c = x; return g(c); }", false),
];

#[test]
fn what_does_something_else_is_not_the_same() {
    for (ours, theirs, same) in PAIRS {
        let object = |body: &str| Built::of(&format!("{PRELUDE}{body}"), "0");
        let found = compare(&object(ours), &object(theirs), &Replacements::new(), None, 0);
        assert_eq!(found.is_ok(), same, "{ours}\n{theirs}\n{found:?}");
    }
}

/// Pairs that no compiler writes, and whether they do the same.
const ASSEMBLY: [(&str, &str, bool); 18] = [
    // A known number of stores, of another width, and moved before another one.
    (
        "xor %eax, %eax; mov $3, %ecx; rep stosq; movq $7, (%rdi); ret",
        "movq $7, 24(%rdi); movq $0, (%rdi); movq $0, 8(%rdi); movq $0, 16(%rdi); xor %eax, %eax; ret",
        true,
    ),
    (
        "movq $7, 12(%rdi); xor %eax, %eax; mov $3, %ecx; rep stosl; ret",
        "movq $0, (%rdi); movl $0, 8(%rdi); movq $7, 12(%rdi); xor %eax, %eax; ret",
        true,
    ),
    // One more, another value, downwards, and through what may be the same memory.
    (
        "xor %eax, %eax; mov $3, %ecx; rep stosq; movq $7, (%rdi); ret",
        "movq $7, 16(%rdi); movq $0, (%rdi); movq $0, 8(%rdi); xor %eax, %eax; ret",
        false,
    ),
    (
        "mov $1, %eax; mov $2, %ecx; rep stosq; xor %eax, %eax; ret",
        "movq $0, (%rdi); movq $0, 8(%rdi); xor %eax, %eax; ret",
        false,
    ),
    (
        "std; xor %eax, %eax; mov $2, %ecx; rep stosq; cld; ret",
        "std; movq $0, (%rdi); movq $0, 8(%rdi); xor %eax, %eax; cld; ret",
        false,
    ),
    (
        "movq $7, (%rsi); xor %eax, %eax; mov $2, %ecx; rep stosq; ret",
        "movq $0, (%rdi); movq $0, 8(%rdi); movq $7, (%rsi); xor %eax, %eax; ret",
        false,
    ),
    // How often is not known.
    ("mov %rsi, %rcx; xor %eax, %eax; rep stosq; ret", "xor %eax, %eax; mov %rsi, %rcx; rep stosq; ret", true),
    // Another preserved register, which each build saves.
    (
        "push %rbx; mov %rdi, %rbx; call g; mov %rbx, %rax; pop %rbx; ret",
        "push %r12; mov %rdi, %r12; call g; mov %r12, %rax; pop %r12; ret",
        true,
    ),
    // The caller does not get its register back.
    (
        "push %rbx; mov %rdi, %rbx; call g; mov %rbx, %rax; pop %rbx; ret",
        "push %rbx; mov %rdi, %rbx; call g; mov %rbx, %rax; add $8, %rsp; ret",
        false,
    ),
    (
        "push %rbx; mov %rdi, %rbx; call g; mov %rbx, %rax; add $8, %rsp; ret",
        "push %rbx; mov %rdi, %rbx; call g; mov %rbx, %rax; pop %rbx; ret",
        false,
    ),
    // It returns to somewhere else.
    ("mov %rdi, %rax; ret", "mov %rdi, %rax; push %rdi; ret", false),
    // What is pushed before a call may be an argument.
    ("mov $1, %eax; push $1; call g; pop %rcx; ret", "mov $1, %eax; push %rax; call g; pop %rcx; ret", true),
    ("push $1; call g; pop %rcx; ret", "push $2; call g; pop %rcx; ret", false),
    ("push $2; push $1; call g; pop %rcx; pop %rcx; ret", "push $1; push $2; call g; pop %rcx; pop %rcx; ret", false),
    // One build has counted on already: by one, from an argument.
    (
        "mov %edx, %ecx; 1: mov %ecx, (%rdi); inc %ecx; cmp %esi, %ecx; jne 1b; xor %eax, %eax; xor %edx, %edx; ret",
        "lea 1(%rdx), %ecx; 1: lea -1(%rcx), %r8d; mov %r8d, (%rdi); cmp %esi, %ecx; lea 1(%rcx), %ecx; jne 1b; \
         xor %eax, %eax; xor %edx, %edx; ret",
        true,
    ),
    (
        "mov %edx, %ecx; 1: mov %ecx, (%rdi); inc %ecx; cmp %esi, %ecx; jne 1b; xor %eax, %eax; xor %edx, %edx; ret",
        "lea 2(%rdx), %ecx; 1: lea -1(%rcx), %r8d; mov %r8d, (%rdi); cmp %esi, %ecx; lea 1(%rcx), %ecx; jne 1b; \
         xor %eax, %eax; xor %edx, %edx; ret",
        false,
    ),
    // From an argument or a number.
    (
        "mov $1, %ecx; test %edx, %edx; je 1f; mov %edx, %ecx; 1: mov %ecx, (%rdi); inc %ecx; cmp %esi, %ecx; jne 1b; \
         xor %eax, %eax; xor %edx, %edx; ret",
        "mov $2, %ecx; test %edx, %edx; je 1f; lea 1(%rdx), %ecx; 1: lea -1(%rcx), %r8d; mov %r8d, (%rdi); \
         cmp %esi, %ecx; lea 1(%rcx), %ecx; jne 1b; xor %eax, %eax; xor %edx, %edx; ret",
        true,
    ),
    (
        "mov $1, %ecx; test %edx, %edx; je 1f; mov %edx, %ecx; 1: mov %ecx, (%rdi); inc %ecx; cmp %esi, %ecx; jne 1b; \
         xor %eax, %eax; xor %edx, %edx; ret",
        "mov $3, %ecx; test %edx, %edx; je 1f; lea 1(%rdx), %ecx; 1: lea -1(%rcx), %r8d; mov %r8d, (%rdi); \
         cmp %esi, %ecx; lea 1(%rcx), %ecx; jne 1b; xor %eax, %eax; xor %edx, %edx; ret",
        false,
    ),
];

/// A function of this code.
fn assembled(code: &str) -> Built {
    let lines = code.replace("; ", "\\n");
    let function = format!(".globl f\\n.type f, @function\\nf:\\n{lines}\\n.size f, . - f\\n");
    Built::of(&format!("{PRELUDE}asm(\"{function}\");"), "0")
}

#[test]
fn a_factor_stands_for_no_more_than_its_own_instructions() {
    let times = |code: &str, theirs: &str| {
        let base = assembled(code);
        let last = base.object.insns.values().rfind(|insn| insn.raw.mnemonic() == Mnemonic::Add).unwrap();
        let three = Replacements::from([((last.node, Field::Product), Replacement::Value(3))]);
        compare(&base, &assembled(theirs), &three, None, 3).is_ok()
    };
    let three = "lea (%rdi,%rdi,2), %rax; ret";
    assert!(times("mov %rdi, %rax; add %rax, %rax; ret", three));
    // The update would multiply what the first instruction has multiplied by 5.
    assert!(!times("lea (%rdi,%rdi,4), %rax; jmp 1f; 1: add %rax, %rax; ret", three));
}

#[test]
fn what_no_compiler_writes_is_compared() {
    for (ours, theirs, same) in ASSEMBLY {
        let found = compare(&assembled(ours), &assembled(theirs), &Replacements::new(), None, 0);
        assert_eq!(found.is_ok(), same, "{ours}\n{theirs}\n{found:?}");
    }
}

/// So many tests for equality of the constant with something else has the deployed build, and the opaque one.
fn equalities(body: &str, default: i64, values: &[i64]) -> (usize, usize) {
    let text = format!("{PRELUDE}{body}");
    let (base, seeds) = guessed(&text, default, values).expect("a guess");
    let opaque = Built::opaque(&text);
    let count = |found: BTreeMap<String, Vec<Node>>| found.values().map(Vec::len).sum();
    let deployed = count(equality::tests(&base.object, Holder::Fields(&seeds)));
    (deployed, count(equality::tests(&opaque.object, Holder::Symbol)))
}

#[test]
fn tests_for_equality_that_the_compiler_made_are_counted() {
    // The compiler knows that no more than V + 1 comes.
    let concluded = "int f(int d) { if (d > V + 1) __builtin_unreachable(); if (d > V) return g(d); return 0; }";
    assert_eq!(equalities(concluded, 10, &[5, 12, 20, 40, 77]), (1, 0));
    let spilled =
        "int f(int d) { int r = g(d); if (d > V + 1) __builtin_unreachable(); if (d > V) return g(r); return r; }";
    assert_eq!(equalities(spilled, 10, &[5, 12, 20, 40, 77]), (1, 0));
    // The source tests for equality.
    let equal = "int f(int d) { if (d == V) return g(d); return 0; }";
    assert_eq!(equalities(equal, 10, &[5, 12, 20, 40, 77]), (1, 1));
    // A loop that has counted beyond the value when the change comes would not end.
    let counted = "int f(int n) { int i; for (i = 0; i < V; i++) n += g(i); return n; }";
    assert_eq!(equalities(counted, 100, &[50, 120, 200, 400, 770]), (1, 0));
    let order = "int f(int d) { if (d > V) return g(d); return 0; }";
    assert_eq!(equalities(order, 10, &[5, 12, 20, 40, 77]), (0, 0));
    // A third number, with which something is compared that was computed from both.
    let computed = "int f(int d) { if ((d + shared) << V == 3072) return g(d); return 0; }";
    assert_eq!(equalities(computed, 5, &[3, 4, 6, 7, 8]), (0, 0));
    // A test for order, which the compiler writes as a shift.
    let bound = "int f(u64 d) { if (d > ~0ul / V) return g(d); return 0; }";
    assert_eq!(equalities(bound, 1024, &[512, 2048, 256, 4096]), (0, 0));
    let equal = "int f(u64 d) { if (d >> V == 3) return g(d); return 0; }";
    assert_eq!(equalities(equal, 5, &[3, 4, 6, 7, 8]), (0, 0));
    // What depends on the constant alone is none.
    let alone = "int f(int d) { if (V != 0 && d > V) return g(d); return 0; }";
    assert_eq!(equalities(alone, 10, &[5, 12, 20, 40, 77]), (0, 0));
    // Where the builds inline other functions, the tests of the unit are counted.
    let text = format!("{PRELUDE}int f(int d) {{ if (d == V) return g(d); return 0; }}");
    let (base, seeds) = guessed(&text, 10, &[5, 12, 20, 40, 77]).expect("a guess");
    let with = |text: &str| {
        let opaque = Built::opaque(&format!("{PRELUDE}{text}"));
        equality::concluded(&base.object, &seeds, Some(&opaque.object)).len()
    };
    assert_eq!(equality::concluded(&base.object, &seeds, None).len(), 1);
    assert_eq!(with("int f(int d) { if (d > V) return g(d); return 0; }"), 1);
    let outlined = "static __attribute__((noinline)) int e(int d) { return d == V ? g(d) : 0; }";
    assert_eq!(with(&format!("{outlined} int f(int d) {{ return e(d); }}")), 0);
    let order = "static __attribute__((noinline)) int e(int d) { return d > V ? g(d) : 0; }";
    assert_eq!(with(&format!("{order} int f(int d) {{ return e(d); }}")), 1);
}
