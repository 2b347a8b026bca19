//! Several searches of one machine: what one keeps, another leaves in force and does not search.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod tuning;

use std::fs;
use std::process::Command;

use tuning::{contains, FileSearch, SCORE};

/// The description of a search over one parameter of the folder.
fn describe(bench: &FileSearch, name: &str, parameters: &str) {
    let folder = bench.folder.path().display().to_string();
    // Each window notes what is in force.
    let target = format!("echo $(cat FOLDER/ahead) $(cat FOLDER/mode) >> FOLDER/seen; {SCORE}");
    let text = format!(
        "schema = 1\nname = \"{name}\"\n{parameters}\n[target]\ncommand = '''{target}'''\nmeasure = \"number\"\ngoal = \
         \"maximise\"\ntimeout = \"20s\"\n[search]\nabort_after = 1000.0\n"
    );
    fs::write(bench.path(&format!("{name}.toml")), text.replace("FOLDER", &folder)).unwrap();
}

fn choices(name: &str, file: &str, choices: &str) -> String {
    format!("[[parameter]]\nname = \"{name}\"\nfile = \"FOLDER/{file}\"\nchoices = [{choices}]\nsettle = \"0s\"\n")
}

/// What was in force in the windows since the last call, in one column.
fn seen(bench: &FileSearch, column: usize) -> Vec<String> {
    let text = fs::read_to_string(bench.path("seen")).unwrap();
    fs::remove_file(bench.path("seen")).unwrap();
    let mut values: Vec<String> = text.lines().map(|line| line.split(' ').nth(column).unwrap().to_owned()).collect();
    values.sort();
    values.dedup();
    values
}

#[test]
fn a_search_leaves_alone_what_another_search_keeps() {
    let bench = FileSearch::new(SCORE, "");
    let (ahead, mode) = (choices("ahead", "ahead", "128, 1024"), choices("mode", "mode", "\"slow\", \"fast\""));
    describe(&bench, "first", &ahead);
    describe(&bench, "second", &format!("{ahead}{mode}"));
    let tune = |name: &str| -> Command { bench.command(&[bench.path(name).to_str().unwrap()]) };
    contains(&bench.run(0, &mut tune("first.toml")), &["ahead = 1024 (was 128)"]);
    assert_eq!(bench.knobs(), ["1024", "slow"]);
    fs::remove_file(bench.path("seen")).unwrap();

    // The second search begins with what the first keeps, and says what it leaves alone.
    let left_out = ["left out: ahead: search first keeps it at 1024; `xk tune revert`"];
    contains(&bench.run(0, tune("second.toml").arg("--plan")), &left_out);
    let text = bench.run(0, &mut tune("second.toml"));
    contains(&text, &left_out);
    contains(&text, &["mode = fast (was slow)"]);
    assert!(!text.contains("compared with the default"), "{text}");
    assert_eq!((seen(&bench, 0), bench.knobs()), (vec!["1024".to_owned()], ["1024".into(), "fast".into()]));

    // The first search compares only its own knob.
    let text = bench.run(0, &mut tune("first.toml"));
    contains(&text, &["ahead = 1024 is compared with the default", "better than the default again"]);
    assert_eq!((seen(&bench, 1), bench.knobs()), (vec!["fast".to_owned()], ["1024".into(), "fast".into()]));
    let status = bench.run(0, &mut bench.command(&["status"]));
    contains(&status, &["ahead = 1024 is kept by search first; it was 128", "mode = fast is kept by search second"]);

    // Nothing is left for a third one.
    describe(&bench, "third", &ahead);
    let text = bench.run(1, &mut tune("third.toml"));
    contains(&text, &["third: no parameter is left to search: ahead: search first keeps it at 1024"]);
    bench.run(0, &mut bench.command(&["revert"]));
    assert_eq!(bench.knobs(), ["128", "slow"]);
}

/// A name belongs to a search: elsewhere it may be that of another knob.
#[test]
fn knobs_of_the_same_name_are_kept_side_by_side() {
    let bench = FileSearch::new(SCORE, "");
    describe(&bench, "first", &choices("knob", "ahead", "128, 1024"));
    describe(&bench, "second", &choices("knob", "mode", "\"slow\", \"fast\""));
    for name in ["first.toml", "second.toml"] {
        bench.run(0, &mut bench.command(&[bench.path(name).to_str().unwrap()]));
    }
    assert_eq!(bench.knobs(), ["1024", "fast"]);
    assert_eq!(bench.status()["kept"].as_array().unwrap().len(), 2);
    bench.run(0, &mut bench.command(&["revert"]));
    assert_eq!(bench.knobs(), ["128", "slow"]);
}

/// Older versions stored kept knobs by name, and not the search.
#[test]
fn what_an_older_version_kept_is_reverted_by_the_next_search() {
    let bench = FileSearch::new(SCORE, "");
    describe(&bench, "first", &choices("ahead", "ahead", "128, 1024"));
    let mut tune = bench.command(&[bench.path("first.toml").to_str().unwrap()]);
    bench.run(0, &mut tune);
    let database = rusqlite::Connection::open(bench.path("state/tuner.sqlite")).unwrap();
    let changed = database.execute("UPDATE kept SET name = 'ahead', kept = json_remove(kept, '$.search')", ()).unwrap();
    assert_eq!(changed, 1);
    let text = bench.run(0, &mut tune);
    contains(&text, &["ahead = 128 (restored): an older version keeps it", "ahead = 1024 (was 128)"]);
    assert_eq!(bench.status()["kept"].as_array().unwrap().len(), 1);
}
