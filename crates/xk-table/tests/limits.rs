//! What a table accepts, and why no more, in sentences.

#![allow(clippy::unwrap_used)] // a test

use xk_harness::example;
use xk_table::{range_words, why_no_others, NotAccepted, Range, ScopeTable, Values};

#[test]
fn what_was_not_compiled_is_refused_with_what_was() {
    let table = example::powers_table();
    let message = |number: i128| NotAccepted::new(&table, number).to_string();
    assert_eq!(
        message(48),
        "BLK_MAX_REQUEST_COUNT: 48 is none of the compiled values, 4, 8, 16, 32, 64, 128 (others are not proved: \
         the code divides or masks by shifting: only powers of two were compiled; 2 was compiled and is refused: \
         blk_add_rq_to_plug+0x4e is `add %eax,%eax` there)"
    );
    assert!(message(2).ends_with("is `add %eax,%eax` there)"), "it is said once");
    let mut table = example::table();
    table.values.compiled = vec![1 << 30, 1 << 31];
    let message = |number: i128| NotAccepted::new(&table, number).to_string();
    assert_eq!(
        message((1 << 30) + 1),
        "BLK_MAX_REQUEST_COUNT: 1073741825 is outside the proved range, 1 to 1073741823, and none of the compiled \
         values 1073741824, 2147483648 (to 1073741823: no larger value is proved)"
    );
}

#[test]
fn bounds_are_explained() {
    let mut table = example::table();
    let ends = |table: &ScopeTable| {
        let [below, above] = <[String; 2]>::try_from(why_no_others(table)).unwrap();
        (below, above)
    };
    let (below, above) = ends(&table);
    assert_eq!(above, "to 1073741823: no larger value is proved");
    assert!(below.starts_with("from 1: 0 was compiled and is refused: "), "{below}");
    table.values.refused.clear();
    assert_eq!(ends(&table).0, "from 1: no smaller value is proved");
    table.values = Values::proved(1, i64::from(i32::MAX));
    let beyond = "beyond it, 2·V does not fit the 4 bytes that blk_add_rq_to_plug+0x56 has for it";
    assert_eq!(ends(&table).1, format!("to 2147483647: {beyond}"));
    table.values = Values::proved(1, i64::MAX);
    assert!(ends(&table).1.ends_with(": the largest 64-bit number"));
    let mut table = example::data_table();
    table.values = Values::proved(1, i64::from(u32::MAX));
    assert!(ends(&table).1.ends_with(": beyond it, V does not fit the 4 bytes at net_hotdata+0x38"));
}

#[test]
fn what_is_not_proved_is_said_and_what_was_refused() {
    let mut powers = example::powers_table();
    let [unproved, refused] = <[String; 2]>::try_from(why_no_others(&powers)).unwrap();
    assert!(unproved.starts_with("others are not proved: the code divides"), "{unproved}");
    assert!(refused.starts_with("2 was compiled and is refused: "), "{refused}");
    powers.values.refused.clear();
    powers.values.unproved = None;
    assert_eq!(why_no_others(&powers), ["others are not proved: no proof was tried"]);
}

#[test]
fn bounds_of_the_type_are_powers() {
    assert_eq!(range_words(Range::of(1, i64::MAX)), "1 to 2^63-1");
}
