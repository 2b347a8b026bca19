//! Checks of kept settings: what is in force while `xk tune` checks what it has kept, and afterwards, however a check ends.
//! The knobs are ordinary files, and every window of the target records their values.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod tuning;

use std::fs;
use std::process::{Command, Stdio};

use tuning::{contains, signal, wait_until, FileSearch, Running, COUNTED, LIMIT, RECORDED, SENSOR};

const KEPT: [&str; 2] = ["1024", "fast"];

/// A search that has kept a setting.
fn kept(more: &str) -> FileSearch {
    let bench = FileSearch::new(RECORDED, more);
    bench.workload("");
    bench.run(0, &mut bench.tune());
    assert_eq!(bench.knobs(), KEPT);
    fs::write(bench.path("log"), "").unwrap();
    bench
}

#[test]
fn what_is_kept_stays_in_force_while_it_is_watched() {
    let bench = kept("");
    let mut daemon = bench.daemon();
    wait_until("many windows were measured", || bench.windows().len() >= 20);
    signal(&daemon, "-TERM");
    assert!(daemon.wait().unwrap().success());
    let seen = bench.windows();
    assert!(seen.iter().all(|window| window == "fast 1024"), "{seen:?}");
    assert_eq!(bench.knobs(), KEPT, "the end of the daemon reverts nothing that is kept");
    contains(&bench.said(), &["ahead = 1024, mode = fast, and stays: the target is 2148 (on average 2148)"]);
}

#[test]
fn a_search_that_is_started_again_compares_what_it_keeps_in_pairs() {
    let bench = kept("");
    let text = bench.run(0, &mut bench.tune());
    contains(
        &text,
        &["compared with the default: the search was started again", "better than the default again, by +842.1 %"],
    );
    assert_eq!(bench.knobs(), KEPT);
    let default = bench.windows().iter().filter(|window| *window == "slow 128").count();
    assert_eq!(default, 12, "one window of each pair");
    let concluded = bench.entries().into_iter().filter(|entry| entry["what"]["event"] == "concluded").count();
    assert_eq!(concluded, 2);
    // `--afresh` searches again.
    let text = bench.run(0, bench.tune().arg("--afresh"));
    contains(&text, &["ahead = 128 (restored): the search is made afresh", "is better than the default"]);
    assert_eq!(bench.knobs(), KEPT);
}

#[test]
fn a_gain_that_has_vanished_is_noticed_and_reverted() {
    let bench = kept("");
    let mut daemon = bench.daemon();
    wait_until("it is watched", || bench.windows().len() >= 10);
    // Now the knobs make no difference, and the target is at what the default gave.
    bench.workload("gain=0 base=128");
    wait_until("it was reverted", || bench.knobs() == ["128", "slow"] && bench.said().contains("(restored)"));
    contains(&bench.said(), &["compared with the default: the target has changed", "not shown to be better any more"]);
    wait_until("a search has found nothing", || bench.said().contains("Nothing was shown"));
    signal(&daemon, "-TERM");
    daemon.wait().unwrap();
    assert_eq!(bench.knobs(), ["128", "slow"]);
}

#[test]
fn a_gain_that_has_changed_and_is_still_there_stays() {
    let bench = kept("");
    let mut daemon = bench.daemon();
    wait_until("it is watched", || bench.windows().len() >= 10);
    bench.workload("base=-90");
    let again = "mode = fast is better than the default again";
    wait_until("it was compared", || bench.said().contains(again));
    let so_far = bench.windows().len();
    wait_until("it is watched again", || bench.windows().len() >= so_far + 20);
    signal(&daemon, "-TERM");
    daemon.wait().unwrap();
    assert!(bench.windows()[so_far..].iter().all(|window| window == "fast 1024"), "no second comparison");
    assert_eq!(bench.said().matches(again).count(), 1);
    assert_eq!(bench.knobs(), KEPT);
}

#[test]
fn a_constraint_that_only_the_kept_setting_violates_reverts_it_at_once() {
    let bench = kept(LIMIT);
    bench.workload("[ $m = fast ] && latency=9");
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["violates a constraint: latency = 9, at most 5 is allowed, and does not with the default"]);
    let seen = bench.windows();
    // A failed window is repeated once. Then one window with the default shows what is to blame.
    assert_eq!(seen[..3], ["fast 1024", "fast 1024", "slow 128"]);
    assert_ne!(bench.knobs()[1], "fast");
}

#[test]
fn a_constraint_that_the_default_violates_too_is_not_blamed_on_what_is_kept() {
    let bench = kept(LIMIT);
    for (broken, words) in [("latency=9", "violates a constraint"), ("exit 3", "failed")] {
        bench.workload(broken);
        contains(&bench.run(0, &mut bench.tune()), &[words, "and stays", "the default is no better"]);
        assert_eq!(bench.knobs(), KEPT);
    }
    assert_eq!(bench.windows().iter().filter(|window| *window == "slow 128").count(), 2, "one window for each");
    bench.workload("");
    contains(&bench.run(0, &mut bench.tune()), &["better than the default again"]);
}

#[test]
fn what_something_else_has_set_is_left_alone_and_the_rest_is_reverted() {
    let bench = kept("");
    fs::write(bench.path("ahead"), "77\n").unwrap();
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["ahead = 77: something else has set it since", "mode = slow (restored)", "not 1024 any more"]);
    assert_eq!(bench.windows()[0], "slow 77", "no window was measured before");
    // The search begins from there.
    assert_eq!(bench.status()["kept"][0]["original"], 77);
}

/// A setting is not refuted because a service fails once in the middle of a comparison.
#[test]
fn a_window_that_fails_in_a_comparison_refutes_nothing() {
    for failing in ["[ -e FOLDER/waits ]", "[ $m = slow ]"] {
        let bench = kept("");
        // After four windows, either with the setting or with the default.
        let fails = format!(
            "[ $(wc -l < FOLDER/log) -gt 4 ] && {failing} && exit 3; [ $m = slow ] && touch FOLDER/waits; true"
        );
        bench.workload(&fails.replace("FOLDER", bench.folder.path().to_str().unwrap()));
        let text = bench.run(0, &mut bench.tune());
        contains(&text, &["is compared with the default", "and stays: the target", "fail"]);
        assert_eq!(
            (bench.knobs().map(String::from), bench.status()["kept"].as_array().unwrap().len()),
            (KEPT.map(String::from), 2)
        );
        bench.workload("");
        contains(&bench.run(0, &mut bench.tune()), &["better than the default again"]);
    }
}

/// A comparison of a kept setting that waits in a window with the default.
fn at_the_default(bench: &FileSearch) -> Running {
    bench.workload(
        "[ $m = slow ] && { touch FOLDER/waits; sleep 1000; }"
            .replace("FOLDER", bench.folder.path().to_str().unwrap())
            .as_str(),
    );
    let child = Running(bench.tune().stdout(Stdio::null()).spawn().unwrap());
    wait_until("the default is in force", || bench.path("waits").exists());
    assert_eq!(bench.knobs(), ["128", "slow"]);
    child
}

#[test]
fn a_signal_in_a_comparison_leaves_what_is_kept() {
    for signal in ["-INT", "-TERM"] {
        let bench = kept("");
        let mut child = at_the_default(&bench);
        tuning::signal(&child, signal);
        assert!(child.wait().unwrap().success());
        assert_eq!(bench.knobs(), KEPT);
        assert_eq!(bench.status()["kept"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn sigkill_in_a_comparison_leaves_what_is_kept() {
    let bench = kept("");
    let mut child = at_the_default(&bench);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the guardian has put it back", || bench.knobs() == KEPT);
    bench.workload("");
    contains(&bench.run(0, &mut bench.tune()), &["better than the default again"]);
}

#[test]
fn the_next_start_puts_back_what_is_kept_when_the_guardian_was_killed_too() {
    let bench = kept("");
    let mut child = at_the_default(&bench);
    let guardian = Command::new("pgrep").args(["-P", &child.id().to_string(), "-f", "tune guard"]).output().unwrap();
    let guardian = String::from_utf8(guardian.stdout).unwrap();
    assert!(Command::new("kill").args(["-KILL", guardian.trim()]).status().unwrap().success());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(bench.knobs(), ["128", "slow"], "nobody was left to put it back");
    bench.workload("");
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["ahead = 1024 (restored)", "mode = fast (restored)", "better than the default again"]);
    assert_eq!(bench.knobs(), KEPT);
}

/// The sensors read something else with the setting than with the default. What a check forbids is forbidden for the search
/// that follows, which begins with the default.
#[test]
fn what_a_check_forbids_is_not_tried_by_the_next_search() {
    let bench = FileSearch::new("", LIMIT);
    let folder = bench.folder.path().display().to_string();
    fs::write(bench.path("counter"), "0 0\n").unwrap();
    let size = format!("[ $(cat {folder}/mode) = fast ] && size=100");
    bench.workload(&size);
    bench.describe(&format!("{COUNTED}{RECORDED}"), &format!("{SENSOR}{LIMIT}"));
    bench.run(0, &mut bench.tune());
    assert_eq!(bench.knobs(), KEPT);
    fs::write(bench.path("log"), "").unwrap();
    bench.workload(&format!("{size}; [ \"$(cat {folder}/mode) $(cat {folder}/ahead)\" = 'fast 1024' ] && latency=9"));
    contains(&bench.run(0, &mut bench.tune()), &["violates a constraint: latency = 9", "is better than the default"]);
    let tried = bench.windows().iter().filter(|window| *window == "fast 1024").count();
    assert_eq!(tried, 2, "only in the check, which repeats a window");
}

#[test]
fn another_workload_ends_what_is_kept() {
    let bench = FileSearch::new("", "");
    fs::write(bench.path("counter"), "0 0\n").unwrap();
    bench.workload("");
    bench.describe(&format!("{COUNTED}{RECORDED}"), SENSOR);
    bench.run(0, &mut bench.tune());
    assert_eq!(bench.knobs(), KEPT);
    let mut daemon = bench.daemon();
    wait_until("it is watched", || bench.said().matches("and stays").count() >= 3);
    bench.workload("size=100");
    wait_until("it is over", || bench.said().contains("the sensors show another workload"));
    let tuned = || bench.said().split("another workload").last().is_some_and(|later| later.contains("is better than"));
    wait_until("the new workload is tuned", tuned);
    signal(&daemon, "-TERM");
    daemon.wait().unwrap();
    assert_eq!(bench.knobs(), KEPT);
    // The setting of the old workload is remembered, and not refuted.
    bench.workload("");
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["another workload", "remembered: ahead = 1024, mode = fast"]);
}
