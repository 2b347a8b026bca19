//! Constants that initialise static data: for which values that is shown.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod fixture;

use fixture::{Fixture, DEFAULT};
use xk_analysis::study::Study;
use xk_analysis::theorem::NotShown;
use xk_table::{Fit, Range};

/// A unit with words of data as wide as what depends on the constant.
fn studied(fixture: &Fixture) -> Study {
    let mut studies = [fixture.study(&[17, 64, 100])];
    let found = [(studies[0].seeds().unwrap().clone(), studies[0].data().clone())];
    let words = fixture.theorem(&studies, &found, |theorem| theorem.sized().unwrap());
    fixture.with_means(|means| studies[0].size_words(means, &words[0]));
    let [study] = studies;
    study
}

/// What is proved of a unit for all values, with the functions of V of its data changed.
fn shown(text: &'static str, alter: impl Fn(&mut Fit)) -> Result<Range, NotShown> {
    let fixture = Fixture::new(text);
    let study = studied(&fixture);
    let mut data = study.data().clone();
    data.values_mut().for_each(alter);
    let functions = [(study.seeds().unwrap().clone(), data)];
    fixture.theorem(&[study], &functions, |theorem| theorem.for_all().unwrap())
}

fn why(text: &'static str) -> String {
    match shown(text, |_| {}) {
        Err(NotShown::Initialises { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

const TOP: &str = "struct s { char kind; int n; void *p; }; int before = 3;
    struct s pair[2] = { { 1, 7, &before }, { 2, 2 * V + 1, &pair } }; int after = 4;
    int f(int x) { return x + V < pair[x].n + after; } void w(int x) { pair[x].n = after = before = x; }";

#[test]
fn an_object_is_shown_for_every_value() {
    assert_eq!(shown(TOP, |_| {}), Ok(Range::of(i64::from(i32::MIN), i64::from(i32::MAX))));
}

#[test]
fn a_variable_of_a_function_is_shown() {
    let text = "int *p; int f(int x) { static int name = 5; return name += x; }
        void k(int x) { static int name = 6; static int a[] = { 0, V, V - 1, 9 }; a[x] = 1; p = a; name += x; }";
    assert_eq!(shown(text, |_| {}), Ok(Range::of(i64::from(i32::MIN), i64::from(i32::MAX))));
}

#[test]
fn a_wrong_function_of_v_is_not_shown() {
    for wrong in [|fit: &mut Fit| fit.a += 1, |fit: &mut Fit| fit.b += 1] {
        let Err(NotShown::Initialises { why, .. }) = shown(TOP, wrong) else { panic!("it is shown") };
        assert_eq!(why, "pair+0x14 may hold something else");
    }
    // At the default it is right.
    let once = |fit: &mut Fit| *fit = Fit::linear(fit.a + 1, fit.b - DEFAULT, fit.width);
    assert!(matches!(shown(TOP, once), Err(NotShown::Initialises { .. })));
}

/// No value that was compiled shows that these words depend on the constant.
#[test]
fn what_changes_beyond_the_compiled_values_is_noticed() {
    assert_eq!(
        why("int limit[3] = { V, V > 1000 }; int f(int x) { return limit[x]; } void w(int x) { limit[x] = x; }"),
        "limit+0x0 may hold something else"
    );
    assert_eq!(
        why("int a, b; struct { int n, *p; } s = { V, V > 1000 ? &a : &b }; int f(void) { return s.n; }
            void w(int *x) { s.p = x; a++; b++; }"),
        "s+0x8 may hold something else"
    );
    assert_eq!(
        why("int other = V > 1000; int limit = V; int f(int x) { return x < limit; } void w(int x) { limit = other = x; }"),
        "other+0x0 may hold something else"
    );
}

/// Code that reads the object must not be compared with code that knows what it holds.
#[test]
fn nothing_is_concluded_from_the_default_of_an_object() {
    let text = "static int limit[2] = { V, 3 }; int f(int x) { return limit[0] < 1000 ? x + V : -x; }";
    assert!(shown(text, |_| {}).is_err());
}

/// An object of eight bytes need not be one number.
#[test]
fn only_the_word_that_follows_is_written() {
    let text = "struct { int used, limit; } s = { 0, V }; int f(int x) { return x < s.limit + V; } void w(int x) { s.used = x; }";
    let study = studied(&Fixture::new(text));
    assert_eq!(study.data().iter().map(|((_, at), fit)| (*at, *fit)).collect::<Vec<_>>(), [(4, Fit::linear(1, 0, 4))]);
}
