//! From C to proved updates: fixtures compiled as the kernel is, analysed
//! against themselves as the deployed kernel. Each accepted constant is run
//! concretely - deployed code with updates against the code that the compiler
//! makes for the other value -, and each refusal is the expected one.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::emulator::Emulator;
use common::fixture::*;
use common::usable::{c_text, USABLE};
use xk_analysis::analyse::Analysis;
use xk_analysis::proof::Solver;
use xk_analysis::study::Builds;
use xk_lift::object::Object;
use xk_table::{CriticalSpan, Fit, When};
use xk_testing::Random;

// ---------------------------------------------------------------- accepted

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
        values.retain(|&v| analysis.values.contains(v));
        assert!(values.len() > usable.fitted.len(), "{}: only {values:?} are among {}", usable.what, analysis.values);
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
    let max = analysis.values.hull().max;
    assert!(analysis.data.iter().all(|d| [max as u64, 2 * max as u64].contains(&d.fit.apply(max))));
}

/// What a module may only read is changed there, too; what the linker computes is not,
/// nor is anything that has no name of its own.
#[test]
fn constant_data_of_a_module_follow_the_value_in_place() {
    let in_module = |text: &str| {
        let text = format!("{PRELUDE}{text}");
        let build = from_c(&text);
        let unit = Builds { module: Some("m".into()), ..builds(&build, 8, &[9, 16], &[100, 7000]) };
        let deployed = Itself::of(&unit.base);
        analysed(vec![unit], 8, &deployed, &solver())
    };
    let analysis = in_module(
        "static const struct s policy[] = { { 1, 2 }, { 3, 4, .d = V - 1 } };\n\
         u32 f(u32 x) { return g(policy[x].d); } u32 k(u32 x) { return x < V ? x : V; }",
    );
    let analysis = analysis.unwrap();
    let found: Vec<_> = analysis.data.iter().map(|d| (d.symbol.as_str(), d.offset, d.fit.a, d.fit.b)).collect();
    assert_eq!(found, [("policy", 24 + 16, 1, -1)]);
    assert!(!analysis.spans.is_empty(), "the code beside it follows, too");
    let pointer = in_module("extern u32 a[]; u32 *const p[] = { a, &a[V] }; u32 f(u32 x) { return *p[x]; }");
    assert_eq!(reason(&pointer.unwrap_err()), "read_only_data");
    let sealed = "__attribute__((section(\".data..ro_after_init\"))) u32 a = V; u32 f(u32 x) { return x < a; }";
    assert_eq!(reason(&in_module(sealed).unwrap_err()), "read_only_data");
}

/// Both instructions of a test for a range follow V: `x - V > 100000 - V`. Neither holds V itself.
#[test]
fn a_test_for_a_range_follows_the_value() {
    let text = body(
        "mov %edi,%ecx; lea -{V}(%rcx),%eax; cmp $(100000-{V}),%eax; ja 1f; mov %ecx,8(%rsi); mov $1,%eax; ret\n\
         1: mov %ecx,16(%rsi); mov $2,%eax; ret",
    );
    let build = from_assembly(&text);
    let analysis = plain(&build, 5000, &[300, 1000], &[50000]).unwrap();
    for v in [300, 1000, 50000, 99999] {
        end_to_end("a range", &analysis, &build(5000), &build(v), v);
    }
}

/// A reference into a table is updated from the table's address or not at all.
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
    assert_eq!(try_with(&Itself::of(&base), &says("timeout")), "solver_timeout");
    assert_eq!(try_with(&Itself::of(&base), &says("unknown")), "solver_timeout");
    for answer in ["sat", "", "(error \"line 3\")", "unsat\nerror", "unsatisfied"] {
        assert_eq!(try_with(&Itself::of(&base), &says(answer)), "no_indirection", "{answer:?}");
    }
}

#[test]
fn values_that_no_unit_has_in_common_leave_no_range() {
    let text = format!("{PRELUDE}u64 f(u32 x) {{ if (x > V) return g(x); return h(x); }}");
    let build = from_c(&text);
    let units = vec![builds(&build, 100, &[50, 60], &[]), builds(&build, 100, &[1000, 2000], &[])];
    let deployed = Itself::of(&build(100));
    assert_eq!(reason(&analysed(units, 100, &deployed, &solver()).unwrap_err()), "empty_range");
}

/// Where only powers of two were looked at, what lies between them is not accepted.
#[test]
fn powers_of_two_are_accepted_one_by_one() {
    let text = format!("{PRELUDE}u64 f(u32 x) {{ return g(x / V); }}");
    let build = from_c(&text);
    let unit = builds(&build, 16, &[8, 32], &[64, 4, 256]);
    let deployed = Itself::of(&unit.base);
    let values = analysed(vec![unit], 16, &deployed, &solver()).unwrap().values;
    assert_eq!((values.proved, values.compiled.as_slice()), (None, [4i64, 8, 16, 32, 64, 256].as_slice()));
    assert!(!values.contains(48) && !values.contains(128));
}
