//! Tests for order in the places of tests for equality: which updates make them, and for which values that is
//! proved.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod fixture;

use fixture::{Fixture, DEFAULT};
use xk_analysis::analyse::conclude;
use xk_analysis::data::DataSeeds;
use xk_analysis::verify::{At, Claim};
use xk_table::{Order, Range, Values};

/// The compiler tests for equality: no other number is left.
const CONCLUDED: &str = "extern int g(int);\n\
    int f(int d) { if (d > V + 1) __builtin_unreachable(); if (d > V) return g(d); return 0; }\n";
/// From below.
const DOWNWARDS: &str = "extern int g(int);\n\
    int f(int d) { if (d < V - 1) __builtin_unreachable(); if (d < V) return g(d); return 0; }\n";
const UNSIGNED: &str = "extern int g(unsigned);\n\
    int f(unsigned d) { if (d > V + 1u) __builtin_unreachable(); if (d > V + 0u) return g(d); return 0; }\n";
/// It counts to the constant, and has perhaps counted beyond a new one.
const LOOP: &str = "extern int g(int);\nint f(void) { int n = 0; for (int i = 0; i < V; i++) n += g(i); return n; }\n";
/// Behind the loop the compiler knows how far it has counted, if nobody counts beyond the largest number.
const COUNTED: &str = "extern int g(int);\n\
    int f(void) { int n = 0; while (n++ < V && !g(n)) ; if (n <= V) return 1; return g(-1); }\n";
/// Nobody knows how far it has counted when it begins.
const STARTED: &str = "extern int g(int);\n\
    int f(int n) { if (n > V) __builtin_unreachable(); while (n++ < V && !g(n)) ; if (n <= V) return 1;\n\
    return g(-1); }\n";
/// The compiler relies on the last test when nobody holds the number any more: a change may come meanwhile.
const LATER: &str = "extern int g(int), h(void);\n\
    int f(void) { int n = 0; while (n++ < V) if (g(n)) { h(); return n <= V ? 1 : g(-1); } return g(-2); }\n";
/// One test of the source is for equality itself.
const BOTH: &str = "extern int g(int), h(int);\n\
    int f(int d, int e) { if (e == V) return h(e); if (d > V + 1) __builtin_unreachable(); if (d > V) return g(d);\n\
    return 0; }\n";
const ORDER: &str = "extern int g(int);\nint f(int d) { if (d > V) return g(d); return 0; }\n";

fn orders(fixture: &Fixture) -> Vec<Order> {
    fixture.table.spans.iter().flat_map(|span| &span.assembly).filter_map(|line| line.order).collect()
}

#[test]
fn an_update_tests_for_order_where_the_code_tests_for_equality() {
    let (min, max) = (i64::from(i32::MIN), i64::from(i32::MAX));
    for (text, order, range) in [
        (CONCLUDED, Order::AtLeast, Range::of(min, max - 1)),
        (DOWNWARDS, Order::AtMost, Range::of(min + 1, max)),
        // Of -1 as an unsigned number there is none above it.
        (UNSIGNED, Order::AboveOrEqual, Range::of(0, max)),
        (LOOP, Order::AtLeast, Range::of(1, max)),
        (COUNTED, Order::AtLeast, Range::of(min, max - 1)),
        (BOTH, Order::AtLeast, Range::of(min, max - 1)),
    ] {
        let fixture = Fixture::new(text);
        assert_eq!(orders(&fixture), [order], "{text}");
        assert_eq!(fixture.table.values.proved, Some(range), "{text}");
        let report = fixture.altered(|_| ());
        assert_eq!(report.faults, [], "{text}");
        assert!(report.agreeing.len() > report.inconclusive.len(), "{text}: {:?}", report.inconclusive);
        assert!(report.proofs.iter().all(|proofs| proofs.len() == 1), "{text}");
        // No number in an instruction is a test for order.
        assert!(fixture
            .table
            .spans
            .iter()
            .all(|span| span.in_place.is_none() || span.assembly.iter().all(|l| l.order.is_none())));
    }
}

#[test]
fn another_test_is_found() {
    let fixture = Fixture::new(CONCLUDED);
    for order in [None, Some(Order::AtMost), Some(Order::AboveOrEqual), Some(Order::BelowOrEqual)] {
        let alter = |line: &mut xk_table::AsmLine| line.order = line.order.and(order);
        fixture.finds(At::Span(0), Claim::Proof, |table| table.spans[0].assembly.iter_mut().for_each(alter));
    }
    // The update that compares for equality is right for what it says it is, and the values are not.
    let study = fixture.study(&[DEFAULT + 2, DEFAULT + 7, 2 * DEFAULT, 3 * DEFAULT + 1]);
    let plain = conclude(&fixture.input(), &[study], Values::proved(1, 1000)).unwrap();
    fixture.finds(At::Table, Claim::Values, |table| table.spans = plain.spans);
}

/// A bound that does not hold on every path is not relied on, nor one of a number that is not alive.
#[test]
fn a_number_is_bounded_from_its_beginning_to_its_test() {
    let ordered = |text| {
        let fixture = Fixture { text, ..Fixture::new(ORDER) };
        let studies = [fixture.study(&[DEFAULT + 2, DEFAULT + 7, 2 * DEFAULT, 3 * DEFAULT + 1])];
        let functions = [(studies[0].seeds().cloned().unwrap(), DataSeeds::new())];
        fixture.theorem(&studies, &functions, |theorem| theorem.ordered().unwrap().is_some())
    };
    assert!(ordered(COUNTED));
    assert!(!ordered(STARTED));
    assert!(!ordered(LATER));
}

/// A change while the kernel runs may find a state beyond the value, which a test for equality does not meet.
#[test]
fn a_compiled_value_needs_a_test_for_order() {
    let whole = Range::of(i64::from(i32::MIN), i64::from(i32::MAX));
    let verdicts = |text, proved| {
        let fixture = Fixture { text, ..Fixture::new(ORDER) };
        let study = fixture.study(&[DEFAULT + 2, DEFAULT + 7, 2 * DEFAULT, 3 * DEFAULT + 1]);
        let functions = [(study.seeds().cloned().unwrap(), DataSeeds::new())];
        fixture.theorem(&[study], &functions, |theorem| theorem.compiled(&[DEFAULT, 3 * DEFAULT], proved).unwrap())
    };
    let found = verdicts(CONCLUDED, None);
    assert_eq!(found[&DEFAULT], Ok(()));
    let why = found[&(3 * DEFAULT)].as_ref().unwrap_err().to_string();
    assert!(why.contains("unit.c: f+0x") && why.contains("tests for equality"), "{why}");
    // What is proved covers every state.
    assert_eq!(verdicts(CONCLUDED, Some(whole))[&(3 * DEFAULT)], Ok(()));
    assert_eq!(verdicts(ORDER, None)[&(3 * DEFAULT)], Ok(()));
}

/// What the update does, no compiled code does.
#[test]
fn no_value_beyond_the_proved_ones_is_accepted() {
    let fixture = Fixture::new(CONCLUDED);
    let mut study = fixture.study(&[DEFAULT + 2, DEFAULT + 7, 2 * DEFAULT, 3 * DEFAULT + 1]);
    let functions = [(study.seeds().cloned().unwrap(), DataSeeds::new())];
    let (seeds, _) =
        fixture.theorem(std::slice::from_ref(&study), &functions, |theorem| theorem.ordered().unwrap().unwrap());
    study.test_for_order(seeds[0].clone());
    let functions = [(seeds[0].clone(), DataSeeds::new())];
    let verdict = |proved| {
        let value = 3 * DEFAULT;
        fixture.theorem(std::slice::from_ref(&study), &functions, |theorem| {
            theorem.compiled(&[value], proved).unwrap().remove(&value).unwrap()
        })
    };
    let why = verdict(Some(Range::of(1, 2 * DEFAULT))).unwrap_err().to_string();
    assert!(why.starts_with("unit.c: f+0x") && why.contains("the update tests for order"), "{why}");
    assert_eq!(verdict(Some(Range::of(1, 1000))), Ok(()));
}
