//! Checks of kept settings: what is in force while `xk tune` checks what it has kept, and afterwards, however a check ends.
//! The knobs are ordinary files, and every window of the target records their values.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod tuning;

use std::fs;
use std::process::{Child, Command, Stdio};

use tuning::{contains, wait_until, FileSearch};

/// Better with more read ahead and with mode fast, and a file may change that. Records the knobs of each window.
const RECORDED: &str = "a=$(cat FOLDER/ahead); m=$(cat FOLDER/mode); echo $m $a >> FOLDER/log; . FOLDER/workload; \
                        [ $m = fast ] && a=$((a * 2)); echo latency = ${latency:-1}; echo $((100 + a * ${gain:-1} + ${base:-0}))";

const LIMIT: &str = "[[constraint]]\nname = \"latency\"\nat_most = 5.0\n";

const KEPT: [&str; 2] = ["1024", "fast"];

/// A search that has kept a setting.
fn kept(more: &str) -> FileSearch {
    let bench = FileSearch::new(RECORDED, more);
    workload(&bench, "");
    bench.run(0, &mut bench.tune());
    assert_eq!(bench.knobs(), KEPT);
    fs::write(bench.path("log"), "").unwrap();
    bench
}

/// Shell variables that change the target: `gain` of the knobs, `base`, `latency`.
fn workload(bench: &FileSearch, variables: &str) {
    fs::write(bench.path("new"), variables).unwrap();
    fs::rename(bench.path("new"), bench.path("workload")).unwrap();
}

/// The knobs during each window since the setting was kept.
fn windows(bench: &FileSearch) -> Vec<String> {
    fs::read_to_string(bench.path("log")).unwrap().lines().map(str::to_owned).collect()
}

fn daemon(bench: &FileSearch) -> Child {
    let mut command = bench.tune();
    let command = command.args(["--daemon", "--every", "50ms"]);
    command.stdout(fs::File::create(bench.path("said")).unwrap()).stderr(Stdio::inherit()).spawn().unwrap()
}

fn said(bench: &FileSearch) -> String {
    fs::read_to_string(bench.path("said")).unwrap_or_default()
}

fn signal(process: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &process.id().to_string()]).status().unwrap().success());
}

#[test]
fn what_is_kept_stays_in_force_while_it_is_watched() {
    let bench = kept("");
    let mut daemon = daemon(&bench);
    wait_until("many windows were measured", || windows(&bench).len() >= 20);
    signal(&daemon, "-TERM");
    assert!(daemon.wait().unwrap().success());
    let seen = windows(&bench);
    assert!(seen.iter().all(|window| window == "fast 1024"), "{seen:?}");
    assert_eq!(bench.knobs(), KEPT, "the end of the daemon reverts nothing that is kept");
    contains(&said(&bench), &["ahead = 1024, mode = fast, and stays: the target is 2148 (on average 2148)"]);
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
    let default = windows(&bench).iter().filter(|window| *window == "slow 128").count();
    assert_eq!(default, 8, "one window of each pair");
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
    let mut daemon = daemon(&bench);
    wait_until("it is watched", || windows(&bench).len() >= 10);
    // Now the knobs make no difference, and the target is at what the default gave.
    workload(&bench, "gain=0 base=128");
    wait_until("it was reverted", || bench.knobs() == ["128", "slow"] && said(&bench).contains("(restored)"));
    contains(&said(&bench), &["compared with the default: the target has changed", "not shown to be better any more"]);
    wait_until("a search has found nothing", || said(&bench).contains("Nothing was shown"));
    signal(&daemon, "-TERM");
    daemon.wait().unwrap();
    assert_eq!(bench.knobs(), ["128", "slow"]);
}

#[test]
fn a_gain_that_has_changed_and_is_still_there_stays() {
    let bench = kept("");
    let mut daemon = daemon(&bench);
    wait_until("it is watched", || windows(&bench).len() >= 10);
    workload(&bench, "base=-90");
    let again = "mode = fast is better than the default again";
    wait_until("it was compared", || said(&bench).contains(again));
    let so_far = windows(&bench).len();
    wait_until("it is watched again", || windows(&bench).len() >= so_far + 20);
    signal(&daemon, "-TERM");
    daemon.wait().unwrap();
    assert!(windows(&bench)[so_far..].iter().all(|window| window == "fast 1024"), "no second comparison");
    assert_eq!(said(&bench).matches(again).count(), 1);
    assert_eq!(bench.knobs(), KEPT);
}

#[test]
fn a_constraint_that_only_the_kept_setting_violates_reverts_it_at_once() {
    let bench = kept(LIMIT);
    workload(&bench, "[ $m = fast ] && latency=9");
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["violates a constraint: latency = 9, at most 5 is allowed, and does not with the default"]);
    let seen = windows(&bench);
    // A failed window is repeated once. Then one window with the default shows what is to blame.
    assert_eq!(seen[..3], ["fast 1024", "fast 1024", "slow 128"]);
    assert_ne!(bench.knobs()[1], "fast");
}

#[test]
fn a_constraint_that_the_default_violates_too_is_not_blamed_on_what_is_kept() {
    let bench = kept(LIMIT);
    for (broken, words) in [("latency=9", "violates a constraint"), ("exit 3", "failed")] {
        workload(&bench, broken);
        contains(&bench.run(0, &mut bench.tune()), &[words, "and stays", "the default is no better"]);
        assert_eq!(bench.knobs(), KEPT);
    }
    assert_eq!(
        windows(&bench).iter().filter(|window| *window == "slow 128").count(),
        3,
        "a violation, and a failure, which is repeated"
    );
    workload(&bench, "");
    contains(&bench.run(0, &mut bench.tune()), &["better than the default again"]);
}

#[test]
fn what_something_else_has_set_is_left_alone_and_the_rest_is_reverted() {
    let bench = kept("");
    fs::write(bench.path("ahead"), "77\n").unwrap();
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["ahead = 77: something else has set it since", "mode = slow (restored)", "not 1024 any more"]);
    assert_eq!(windows(&bench)[0], "slow 77", "no window was measured before");
    // The search begins from there.
    assert_eq!(bench.status()["kept"][0]["original"], 77);
}

/// A comparison of a kept setting that waits in a window with the default.
fn at_the_default(bench: &FileSearch) -> Child {
    workload(
        bench,
        "[ $m = slow ] && { touch FOLDER/waits; sleep 1000; }"
            .replace("FOLDER", bench.folder.path().to_str().unwrap())
            .as_str(),
    );
    let child = bench.tune().stdout(Stdio::null()).spawn().unwrap();
    wait_until("the default is in force", || bench.path("waits").exists());
    assert_eq!(bench.knobs(), ["128", "slow"]);
    child
}

#[test]
fn a_signal_in_a_comparison_leaves_what_is_kept() {
    for signal in ["-INT", "-TERM"] {
        let bench = kept("");
        let mut child = at_the_default(&bench);
        self::signal(&child, signal);
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
    workload(&bench, "");
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
    workload(&bench, "");
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["ahead = 1024 (restored)", "mode = fast (restored)", "better than the default again"]);
    assert_eq!(bench.knobs(), KEPT);
}

#[test]
fn another_workload_ends_what_is_kept() {
    let sensor =
        "[[sensor]]\nname = \"size\"\nof = [\"FOLDER/counter:1\"]\nper = [\"FOLDER/counter:2\"]\nsimilar = 0.2\n";
    let count = "c=$(cat FOLDER/counter); set -- $c; echo $(($1 + ${size:-10})) $(($2 + 1)) > FOLDER/counter; ";
    let bench = FileSearch::new("", "");
    fs::write(bench.path("counter"), "0 0\n").unwrap();
    workload(&bench, "");
    let target = RECORDED.replace(". FOLDER/workload;", &format!(". FOLDER/workload; {count}"));
    bench.describe(&target, sensor);
    bench.run(0, &mut bench.tune());
    assert_eq!(bench.knobs(), KEPT);
    let mut daemon = daemon(&bench);
    wait_until("it is watched", || said(&bench).matches("and stays").count() >= 3);
    workload(&bench, "size=100");
    wait_until("it is over", || said(&bench).contains("the sensors show another workload"));
    let tuned = || said(&bench).split("another workload").last().is_some_and(|later| later.contains("is better than"));
    wait_until("the new workload is tuned", tuned);
    signal(&daemon, "-TERM");
    daemon.wait().unwrap();
    assert_eq!(bench.knobs(), KEPT);
    // The setting of the old workload is remembered, and not refuted.
    workload(&bench, "");
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["another workload", "remembered: ahead = 1024, mode = fast"]);
}
