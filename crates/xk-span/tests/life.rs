//! What is inside while a number is alive that an update tests for order, and which numbers are refused.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::CompiledUnit;
use xk_span::error::ConfineError;
use xk_span::scope::scopes;
use xk_span::walk::Walk;
use xk_table::{AsmLine, Mode, Order, Refusal, ScopeTable};

/// The table of `f`, whose comparison with V is made a test for order.
fn ordered(unit: &CompiledUnit) -> Result<ScopeTable, ConfineError> {
    let mut table = unit.table(&["f"]);
    let start = unit.world.named("f").next().unwrap().start;
    let offset = (unit.seed("f").ip() - start) as u32;
    let line = AsmLine { offset, text: "cmp".into(), iv: Some(0), order: Some(Order::AtLeast) };
    table.spans[0].assembly = vec![line];
    scopes(&mut Walk::new(&unit.world, &unit.callers), &mut table)?;
    table.check().unwrap();
    Ok(table)
}

fn refused(text: &str) -> String {
    match ordered(&CompiledUnit::new(text)) {
        Err(ConfineError::Refused(Refusal::EmptyRange { place, detail })) => format!("{place}: {detail}"),
        other => panic!("not refused: {other:?}\n{text}"),
    }
}

#[test]
fn a_loop_is_inside_while_its_counter_is_alive() {
    let unit = CompiledUnit::new("u64 f(u64 x) { u64 i = 0; do x = g(i ^ x); while (++i != V); l(); return 0; }");
    let table = ordered(&unit).unwrap();
    assert_eq!(table.mode, Mode::Task);
    assert!(unit.inside(&table, unit.call("f", "g")));
    assert!(!unit.inside(&table, unit.call("f", "l")), "it has ended");
    // Nothing of this is needed where the code itself has the test.
    let table = unit.confined(&["f"]);
    assert!(!unit.inside(&table, unit.call("f", "g")));
}

#[test]
fn a_counter_in_the_frame_is_followed() {
    let unit = CompiledUnit::new(
        "u64 f(u64 x) { volatile u64 i; k(); i = 0; do x = g(i ^ x); while (++i != V); l(); return 0; }",
    );
    let table = ordered(&unit).unwrap();
    let inside = ["k", "g", "l"].map(|callee| unit.inside(&table, unit.call("f", callee)));
    assert_eq!(inside, [false, true, false]);
}

#[test]
fn an_argument_begins_with_the_callers() {
    let unit = CompiledUnit::new(
        "noinline static u64 f(u64 d, u64 x) { if (d == V) return h(x); if (x > 5) { x = f(d + 1, x - 1); k(); }\n\
           return g(x); }\n\
         noinline static u64 between(u64 d, u64 x) { x = f(d * 1, x); k(); return x + 1; }\n\
         u64 one(u64 x) { k(); x = between(3, x); l(); return x; }\n\
         u64 other(u64 x) { x = f(0, x) + 1; l(); return x; }",
    );
    let table = ordered(&unit).unwrap();
    let inside = |function: &str, callee: &str| unit.inside(&table, unit.call(function, callee));
    assert!(inside("f", "f"), "who is called has it");
    assert!(!inside("f", "k"), "nobody has it any more");
    assert!(inside("between", "f") && inside("one", "between") && inside("other", "f"));
    assert!(!inside("between", "k") && !inside("one", "k") && !inside("one", "l") && !inside("other", "l"));
}

#[test]
fn a_number_from_elsewhere_is_refused() {
    for (text, why) in [
        ("u64 f(u64 *p) { return *p == V ? g(1) : h(2); }", "memory outside of the frame"),
        ("u64 f(u64 *p) { u64 x = *p; k(); return x == V ? g(1) : h(2); }", "is not followed"),
        ("u64 f(u64 x) { x = g(x); return x == V ? g(1) : h(2); }", "a call returns the number"),
        ("u64 f(u64 x, u64 y) { x ^= y; return x == V ? g(1) : h(2); }", "is not followed"),
        ("u64 f(u64 x) { return x == V ? g(1) : h(2); }", "the number is an argument, and no analysed code calls it"),
        (
            "noinline static u64 f(u64 x) { return x == V ? g(1) : h(2); }\n\
             u64 (*p)(u64) = f; u64 one(void) { return f(0) + 1; }",
            "the number is an argument, and it is also called through a pointer",
        ),
        (
            "extern void change(u64 *); u64 f(void) { u64 i = 0; change(&i); if (i == V) return g(1); return h(2); }",
            "a function that is called may write the number",
        ),
        ("u64 f(u64 n) { u64 i = n & 7; do g(i); while (++i != V); return 0; }", "is not followed"),
    ] {
        let found = refused(text);
        assert!(found.contains("f+0x") && found.contains(why), "{found}\n{text}");
    }
}
