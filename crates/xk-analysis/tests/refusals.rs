//! Each reason to refuse a constant, with a fixture that must be refused for it.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::fixture::{
    analysed, body, builds, from_assembly, from_c, plain, says, solver, Build, Itself, ALTERNATIVE, PRELUDE,
};
use xk_analysis::proof::Solver;
use xk_analysis::registers::by_convention;
use xk_lift::object::Object;
use xk_table::Refusal;

/// One row for each reason: without one, a new reason does not compile.
macro_rules! reasons {
    ($($reason:ident: $fixture:expr,)*) => {
        const FIXTURES: &[(&str, fn() -> Refusal)] = &[$((stringify!($reason), $fixture)),*];

        fn reason(refusal: &Refusal) -> &'static str {
            match refusal {
                $(Refusal::$reason { .. } => stringify!($reason),)*
            }
        }
    };
}

reasons! {
    LayoutChange: || c("static u32 a[V]; u32 *f(u32 x) { return &a[x]; }"),
    DeadCode: || c("u64 f(u64 x) { return g(x); }"),
    Shape: || c("u64 f(u64 x) { return V > 10 ? g(x) : h(x); }"),
    BootOnly: || c("__attribute__((section(\".init.text\"))) u64 f(u64 x) { return g(x + V * 1000); }"),
    ReadOnlyData: || c("const u32 a[] = {1, V}; u32 f(u32 x) { return a[x]; }"),
    InlineAssembly: || assembly(ALTERNATIVE),
    NonLinear: || c("u64 f(u64 x) { return g(x + V * V); }"),
    NotDeployed: || deployed_as(|_| Itself::default(), &solver()),
    IdentityMismatch: || deployed_as(altered, &solver()),
    RegisterAllocation: || by_convention("unit.c", &["-O2".into()]).expect_err("-fipa-ra is accepted"),
    SolverTimeout: || deployed_as(Itself::of, &says("timeout")),
    NoIndirection: || assembly("shr ${V},%edi; and ${V},%edi; call g; ret"),
    Unprobeable: || c("__attribute__((section(\".noinstr.text\"))) u64 f(u64 x) { return g(x + V * 1000); }"),
    UnsupportedInstruction: || assembly("in ${V},%al; ret"),
    EmptyRange: no_value_in_common,
}

const DEFAULT: i64 = 8;
const FITTED: [i64; 3] = [9, 12, 16];

/// Why the constant V of this code is refused.
fn refusal(build: &Build<'_>) -> Refusal {
    plain(build, DEFAULT, &FITTED, &[]).expect_err("the fixture is accepted")
}

fn c(text: &str) -> Refusal {
    refusal(&from_c(&format!("{PRELUDE}{text}\n")))
}

fn assembly(text: &str) -> Refusal {
    refusal(&from_assembly(&body(text)))
}

/// A constant that is usable on the right kernel with a solver that answers.
fn deployed_as(deployed: impl Fn(&Object) -> Itself, solver: &Solver) -> Refusal {
    let text = format!("{PRELUDE}u64 f(u32 x) {{ if (x > V) return g(x); return h(x); }}");
    let build = from_c(&text);
    assert!(plain(&build, DEFAULT, &FITTED, &[]).is_ok());
    let deployed = deployed(&build(DEFAULT));
    analysed(vec![builds(&build, DEFAULT, &FITTED, &[])], DEFAULT, &deployed, solver)
        .expect_err("the fixture is accepted")
}

fn altered(object: &Object) -> Itself {
    let mut deployed = Itself::of(object);
    deployed.functions[0].1[2] ^= 1;
    deployed
}

/// One unit was compiled with smaller values only, another with larger ones.
fn no_value_in_common() -> Refusal {
    let text = format!("{PRELUDE}u64 f(u32 x) {{ if (x > V) return g(x); return h(x); }}");
    let build = from_c(&text);
    let units = vec![builds(&build, 100, &[50, 60], &[]), builds(&build, 100, &[1000, 2000], &[])];
    let deployed = Itself::of(&build(100));
    analysed(units, 100, &deployed, &solver()).expect_err("the fixture is accepted")
}

#[test]
fn every_reason_has_a_constant_that_is_refused_for_it() {
    let wrong: Vec<String> = FIXTURES
        .iter()
        .map(|(wanted, fixture)| (wanted, fixture()))
        .filter(|(wanted, refusal)| reason(refusal) != **wanted)
        .map(|(wanted, refusal)| format!("{wanted}: refused because: {refusal}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One unit can never agree, another has not been compiled with anything else yet: the first says why.
#[test]
fn of_several_units_the_one_that_says_why_counts() {
    let text = format!("{PRELUDE}const u32 a[] = {{1, V}}; u32 f(u32 x) {{ return a[x]; }}");
    let fixed = from_c(&text);
    let plain = format!("{PRELUDE}u64 f(u32 x) {{ if (x > V) return g(x); return h(x); }}");
    let plain = from_c(&plain);
    let units = vec![builds(&plain, DEFAULT, &[], &[]), builds(&fixed, DEFAULT, &FITTED[..2], &[])];
    let refusal = analysed(units, DEFAULT, &Itself::of(&plain(DEFAULT)), &solver()).expect_err("it is accepted");
    assert!(matches!(refusal, Refusal::ReadOnlyData { .. }), "{refusal}");
}

/// A unit is not the deployed one if any of its functions differs, whether the constant is in it or not.
#[test]
fn every_function_of_a_unit_counts() {
    let text = format!(
        "{PRELUDE}u64 f(u32 x) {{ if (x > V) return g(x); return h(x); }} u64 other(u64 x) {{ return x * 1000; }}"
    );
    let build = from_c(&text);
    let units = || vec![builds(&build, DEFAULT, &FITTED, &[])];
    let mut deployed = Itself::of(&build(DEFAULT));
    let analysis = analysed(units(), DEFAULT, &deployed, &solver()).expect("it is refused");
    assert_eq!(analysis.units.iter().map(|unit| unit.functions).collect::<Vec<_>>(), [2]);
    let other = deployed.functions.iter_mut().find(|(name, _)| name == "other").unwrap();
    other.1[3] ^= 1;
    let refusal = analysed(units(), DEFAULT, &deployed, &solver()).expect_err("it is accepted");
    assert!(refusal.to_string().contains("other+"), "{refusal}");
    deployed.functions.retain(|(name, _)| name != "other");
    let refusal = analysed(units(), DEFAULT, &deployed, &solver()).expect_err("it is accepted");
    assert!(matches!(refusal, Refusal::NotDeployed { .. }), "{refusal}");
}
