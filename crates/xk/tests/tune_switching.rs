//! What switching itself costs: sham switches, and the settle time. The knobs are ordinary files and a command, and
//! switching disturbs the target.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod tuning;

use std::fs;

use serde_json::Value;
use tuning::{contains, FileSearch, SCORE};

/// A search over one number. Setting it does something else as well.
fn search(set: &str, target: &str, more: &str) -> FileSearch {
    let bench = FileSearch::new(target, more);
    let text = fs::read_to_string(bench.path("search.toml")).unwrap();
    let target = &text[text.find("[target]").unwrap()..];
    let knob =
        "[[parameter]]\nname = \"ahead\"\nmin = 16\nmax = 1024\nsteps = \"exponential\"\nsettle = \"0s\"\ncommand = \
                { get = 'cat FOLDER/ahead', set = 'echo $VALUE > FOLDER/ahead; SET' }\n";
    let knob = knob.replace("SET", set).replace("FOLDER", &bench.folder.path().display().to_string());
    fs::write(bench.path("search.toml"), format!("schema = 1\n{knob}\n{target}")).unwrap();
    bench
}

/// The verdicts of the sham switches.
fn verdicts(bench: &FileSearch) -> Vec<Value> {
    let entries = bench.entries().into_iter().map(|entry| entry["what"].clone());
    entries.filter(|what| what["event"] == "switching").map(|what| what["evidence"].clone()).collect()
}

#[test]
fn sham_switches_show_that_switching_costs_nothing() {
    let bench = FileSearch::new(SCORE, "");
    contains(
        &bench.run(0, &mut bench.tune()),
        &["switching costs less than the minimum effect", "+0.0 % (+0.0 % to +0.0 %)"],
    );
    let verdicts = verdicts(&bench);
    assert_eq!(verdicts.len(), 1);
    assert_eq!((&verdicts[0]["outcome"], &verdicts[0]["shams"]), (&"negligible".into(), &3.into()));
}

/// The target is disturbed for 0.3 s.
#[test]
fn the_settle_time_is_lengthened_until_the_target_has_settled() {
    let set = "date +%s%N > FOLDER/switched";
    let target =
        "now=$(date +%s%N); last=$(cat FOLDER/switched 2>/dev/null || echo 0); a=$(($(cat FOLDER/ahead) + 1000)); \
                  [ $((now - last)) -lt 300000000 ] && a=$((a * 8 / 10)); echo $a";
    let bench = search(set, target, "");
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["the settle time is 0.1 s from now on", "the settle time is 0.4 s from now on", "ahead = 1024"]);
    let verdicts = verdicts(&bench);
    let last = verdicts.last().unwrap();
    assert_eq!((&last["outcome"], last["after"].as_f64()), (&"negligible".into(), Some(0.4)), "{verdicts:#?}");
    let first = verdicts[0]["effect"]["middle"].as_f64().unwrap();
    assert!((first - 0.8f64.ln()).abs() < 0.01, "{first}");
}

/// The first window after each switch is worse, however long the tuner waits.
#[test]
fn a_cost_that_waiting_does_not_end_is_reported_and_effects_are_right_nevertheless() {
    let target =
        "a=$(cat FOLDER/ahead); m=$(cat FOLDER/fresh); echo 0 > FOLDER/fresh; echo $(((a + 1000) * (10 - m * 2)))";
    let bench = search("echo 1 > FOLDER/fresh", target, "");
    fs::write(bench.path("fresh"), "0\n").unwrap();
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["-20.0 % (-20.0 % to -20.0 %)", "with every setting alike", "ahead = 1024 is better"]);
    // (1024 + 1000) / (128 + 1000)
    contains(&text, &["is better than the default by +79.4 % (+79.4 % to +79.4 %)"]);
}

/// A switch makes the next window better: a candidate must not win by that.
#[test]
fn a_setting_is_not_better_because_a_switch_is() {
    let target = "m=$(cat FOLDER/fresh); echo 0 > FOLDER/fresh; echo $((1000 + m * 200))";
    let bench = search("echo 1 > FOLDER/fresh", target, "");
    fs::write(bench.path("fresh"), "0\n").unwrap();
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["a window differs by +20.0 %", "with every setting alike", "Nothing was shown to be better"]);
    assert!(text.lines().filter(|line| line.starts_with("trial ")).all(|line| line.contains("+0.0 %")), "{text}");
}
