use serde_json::json;

use super::*;
use crate::engine::{Conclusion, EngineName, Ground, SearchSpec};
use crate::history::{Goal, Order, Outcome, Sample, Trial};
use crate::knob::{Backing, Plain};
use crate::sensor::Sensor;
use crate::space::tests::dimension;
use crate::{Point, Signature, Space, Value};

pub fn context() -> Context {
    Context { build_id: "b".into(), hardware: "h".into(), schema: "s".into() }
}

pub fn spec() -> SearchSpec {
    SearchSpec {
        space: Space::new(vec![dimension("a", &[1, 2], 0, None)]).unwrap(),
        goal: Goal::Maximise,
        engine: EngineName::Racing,
        seed: 1,
        seed_drawn: false,
        limit: 10,
        minimum: 0.02,
        share: crate::engine::level::FIRST,
        warm: None,
        command: "true".into(),
        lead: "target".into(),
        others: vec![],
    }
}

pub fn trial() -> Trial {
    Trial { point: Point(vec![1]), order: Order::Bracketed }
}

pub fn signature(value: f64) -> Signature {
    Signature([("x".to_owned(), value)].into())
}

pub fn sensors() -> Vec<Sensor> {
    vec![Sensor { name: "x".into(), of: vec![], per: vec![], similar: 0.2, within: 0.0 }]
}

#[test]
fn a_search_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = Outcome::Measured(Sample { default: vec![1.0, 0.1 + 0.2], value: 1.0 / 3.0, ..Sample::default() });
    let id = {
        let store = Store::open(folder.path()).unwrap();
        let id = store.begin("disk", &context(), &signature(1.0), &spec()).unwrap();
        store.begin_trial(id, 0, &trial()).unwrap();
        store.end_trial(id, 0, &outcome).unwrap();
        store.begin_trial(id, 1, &trial()).unwrap();
        id
    };
    let store = Store::open(folder.path()).unwrap();
    let open = store.open_searches("disk", &context()).unwrap();
    assert_eq!((open.len(), &open[0].spec, open[0].id), (1, &spec(), id));
    // Numbers come back to the last bit: what is proposed next depends on them.
    assert_eq!(store.history(id).unwrap(), [crate::history::Record { trial: trial(), outcome: outcome.clone() }]);
    assert_eq!(store.unfinished(id).unwrap(), Some(trial()));
    // What has ended does not end again, or otherwise.
    store.end_trial(id, 0, &Outcome::failed("again")).unwrap();
    assert_eq!(store.history(id).unwrap()[0].outcome, outcome);
    let conclusion = Conclusion { best: Point(vec![1]), ground: Ground::Seen };
    store.end(id, State::Done, Some(&conclusion)).unwrap();
    assert_eq!(store.search(None).unwrap().unwrap().conclusion, Some(conclusion));
    assert!(store.open_searches("disk", &context()).unwrap().is_empty());
}

#[test]
fn what_is_held_is_known_to_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let held = |name: &str, ours: i64| ChangedKnob {
        name: name.into(),
        backing: Backing::Plain(Plain::File("/nonexistent".into())),
        original: Value::Number(1),
        ours: vec![Value::Number(ours)],
    };
    let store = Store::open(folder.path()).unwrap();
    store.record(&held("a", 2)).unwrap();
    store.record(&held("b", 2)).unwrap();
    store.record(&held("a", 3)).unwrap();
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(store.changed().unwrap(), [held("b", 2), held("a", 3)]);
    store.release("b").unwrap();
    assert_eq!(store.changed().unwrap(), [held("a", 3)]);
}

#[test]
fn memories_are_found_by_likeness_and_fade() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let setting = [("a".to_owned(), Value::Number(2))].into();
    store.remember("disk", &context(), &signature(10.0), &setting, 0.5).unwrap();
    let find = |value| store.remembered("disk", &context(), &signature(value), &sensors()).unwrap();
    let known = find(9.0).unwrap();
    assert_eq!((&known.setting, known.effect, known.confidence), (&setting, 0.5, 1.0));
    assert_eq!(find(7.0), None);
    let other = Context { build_id: "another".into(), ..context() };
    assert_eq!(store.remembered("disk", &other, &signature(10.0), &sensors()).unwrap(), None);
    store.demote(known.id).unwrap();
    assert_eq!(find(10.0).unwrap().confidence, 0.5);
    store.demote(known.id).unwrap();
    assert_eq!(find(10.0), None, "it did not hold twice");
    store.confirm(known.id, 0.4).unwrap();
    let known = find(10.0).unwrap();
    assert_eq!((known.effect, known.confidence), (0.4, 1.0));
    store.db.execute("UPDATE memory SET made = made - 90 * 24 * 3600", []).unwrap();
    assert!((find(10.0).unwrap().confidence - 0.5).abs() < 0.001, "it decays");
    store.refute(known.id).unwrap();
    assert_eq!(find(10.0), None, "it was refuted");
    store.confirm(known.id, 0.4).unwrap();
    store.db.execute("UPDATE memory SET made = 0", []).unwrap();
    assert_eq!(find(10.0), None, "it is too old");
}

#[test]
fn that_nothing_was_better_is_forgotten_sooner_and_stays_here() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let setting = [("a".to_owned(), Value::Number(1))].into();
    store.remember("disk", &context(), &signature(10.0), &setting, 0.0).unwrap();
    let find = || store.remembered("disk", &context(), &signature(10.0), &sensors()).unwrap();
    assert_eq!(find().unwrap().effect, 0.0);
    assert_eq!(store.exportable_memories().unwrap(), []);
    store.db.execute("UPDATE memory SET made = made - 8 * 24 * 3600", []).unwrap();
    assert_eq!(find(), None);
    store.db.execute("UPDATE memory SET effect = 0.5", []).unwrap();
    assert_eq!(find().unwrap().effect, 0.5, "what was proved is remembered longer");
}

#[test]
fn no_more_than_a_thousand_are_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.db.execute_batch("PRAGMA synchronous = OFF").unwrap();
    for value in 0..1002 {
        store.remember("disk", &context(), &signature(2f64.powi(value - 500)), &Default::default(), 0.5).unwrap();
    }
    let count: i64 = store.db.query_row("SELECT count(*) FROM memory", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1000);
    assert!(store.remembered("disk", &context(), &signature(2f64.powi(-500)), &sensors()).unwrap().is_none());
}

#[test]
fn a_limit_that_was_crossed_is_known_for_that_workload() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let setting = [("a".to_owned(), Value::Number(2))].into();
    store.forbid("disk", &context(), &signature(10.0), &setting, "p99 = 7").unwrap();
    let find = |value| store.forbidden("disk", &context(), &signature(value), &sensors()).unwrap();
    assert_eq!((find(10.0).len(), find(50.0).len()), (1, 0));
}

#[test]
fn the_journal_shows_what_was_tampered_with() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    for number in 0..4 {
        store.note("me", &json!({ "event": number })).unwrap();
    }
    assert_eq!((store.journal().unwrap().0.len(), store.journal().unwrap().1), (4, None));
    for sql in ["UPDATE journal SET who = 'you'", "DELETE FROM journal WHERE number = 2"] {
        assert!(store.db.execute(sql, []).unwrap_err().to_string().contains("append-only"));
    }
    let tampered = |sql: &str| {
        store.db.execute_batch("DROP TRIGGER journal_is_not_changed; DROP TRIGGER journal_is_not_shortened").unwrap();
        store.db.execute_batch(&format!("BEGIN; {sql}")).unwrap();
        let broken = store.journal().unwrap().1;
        store.db.execute_batch("ROLLBACK").unwrap();
        store.db.execute_batch(TABLES).unwrap();
        broken
    };
    assert_eq!(tampered("UPDATE journal SET who = 'you' WHERE number = 2"), Some(2));
    assert_eq!(tampered("UPDATE journal SET at = at + 1 WHERE number = 3"), Some(3));
    assert_eq!(tampered("DELETE FROM journal WHERE number = 2"), Some(3));
    assert_eq!(store.journal().unwrap().1, None);
}

#[test]
fn who_reads_on_sees_that_the_end_was_tampered_with() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let note = |events: std::ops::Range<i32>| {
        events.for_each(|number| store.note("me", &json!({ "event": number })).unwrap());
    };
    let read = |mark: &mut Mark| {
        let mut events = Vec::new();
        store.read_on(mark, |entry| events.push(entry.what["event"].as_i64().unwrap())).unwrap();
        events
    };
    let mut mark = Mark::default();
    assert_eq!(read(&mut mark), [0; 0]);
    note(0..3);
    assert_eq!(read(&mut mark), [0, 1, 2]);
    assert_eq!(read(&mut mark), [0; 0]);
    note(3..5);
    assert_eq!((read(&mut mark), mark.broken), (vec![3, 4], None));
    let tampered = |sql: &str| {
        store.db.execute_batch("DROP TRIGGER journal_is_not_changed; DROP TRIGGER journal_is_not_shortened").unwrap();
        store.db.execute_batch(&format!("BEGIN; {sql}")).unwrap();
        let mut mark = mark.clone();
        note(9..11);
        let came = read(&mut mark);
        store.db.execute_batch("ROLLBACK").unwrap();
        store.db.execute_batch(TABLES).unwrap();
        (came, mark.broken)
    };
    assert_eq!(tampered(""), (vec![9, 10], None));
    // Cut off and written anew; written over; emptied, then shorter than it was.
    assert_eq!(tampered("DELETE FROM journal WHERE number > 3"), (vec![], Some(5)));
    assert_eq!(tampered("UPDATE journal SET hash = 'x' WHERE number = 5"), (vec![9, 10], Some(5)));
    assert_eq!(tampered("DELETE FROM journal"), (vec![], Some(5)));
}

#[test]
fn a_damaged_database_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tuner.sqlite");
    std::fs::write(&path, b"this is no database, and never was one; it is long enough to have a header").unwrap();
    let error = Store::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("tuner.sqlite") && error.contains("move it away"), "{error}");
}

#[test]
fn a_locked_database_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.db.busy_timeout(Duration::ZERO).unwrap();
    let other = Connection::open(folder.path().join("tuner.sqlite")).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = store.note("me", &json!({})).unwrap_err().to_string();
    assert!(error.contains("another process has held it"), "{error}");
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.note("me", &json!({ "event": 1 })).unwrap();
    let pages: i64 = store.db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    store.db.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(())).unwrap();
    let error = store.note("me", &json!("x".repeat(100_000))).unwrap_err().to_string();
    assert!(error.contains("the disk is full"), "{error}");
    assert_eq!((store.journal().unwrap().0.len(), store.journal().unwrap().1), (1, None));
}

#[test]
fn two_tuners_do_not_work_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let lock = Lock::take(folder.path(), Duration::ZERO).unwrap();
    let shared = lock.share().unwrap();
    drop(lock);
    let error = Lock::take(folder.path(), Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "the guardian still holds it: {error}");
    drop(shared);
    assert!(Lock::take(folder.path(), Duration::ZERO).is_ok());
}

#[test]
fn every_number_comes_back_and_the_journal_stands() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let id = store.begin("disk", &context(), &signature(1.0), &spec()).unwrap();
    let mut random = crate::random::Random::new(1);
    let outcomes: Vec<Outcome> = (0..300)
        .map(|_| Outcome::Measured(Sample { value: random.normal().exp() * 1e3, ..Sample::default() }))
        .collect();
    for (number, outcome) in outcomes.iter().enumerate() {
        store.begin_trial(id, number, &trial()).unwrap();
        store.end_trial(id, number, outcome).unwrap();
        store.note("x", &json!({ "evidence": outcome })).unwrap();
    }
    let back: Vec<Outcome> = store.history(id).unwrap().into_iter().map(|record| record.outcome).collect();
    // Hundreds of numbers are no message.
    assert!(back == outcomes);
    assert_eq!(store.journal().unwrap().1, None);
}

/// Databases and scripts of users have these names.
#[test]
fn stored_names_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let id = store.begin("disk", &context(), &signature(1.0), &spec()).unwrap();
    store.begin_trial(id, 0, &trial()).unwrap();
    let stored: String = store.db.query_row("SELECT trial FROM trial", [], |row| row.get(0)).unwrap();
    assert_eq!(stored, r#"{"point":[1],"kind":"sandwich"}"#);
    let stored: String = store.db.query_row("SELECT question FROM search", [], |row| row.get(0)).unwrap();
    assert_eq!(serde_json::from_str::<SearchSpec>(&stored).unwrap(), spec());
    let shown = serde_json::to_value(store.search(None).unwrap()).unwrap();
    assert_eq!((&shown["begun"]["limit"], &shown["state"]), (&json!(10), &json!("open")));
    let backing = Backing::Plain(Plain::File("/x".into()));
    let (original, ours) = (Value::Number(1), vec![Value::Number(2)]);
    store.record(&ChangedKnob { name: "a".into(), backing, original, ours }).unwrap();
    let stored: String = store.db.query_row("SELECT held FROM held", [], |row| row.get(0)).unwrap();
    assert_eq!(stored, r#"{"name":"a","plain":{"file":"/x"},"original":1,"ours":[2]}"#);
}
