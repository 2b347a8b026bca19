//! Searches while the service is disturbed: a limit that is broken for a while, a service that is down, a workload that
//! changes, a knob that could not be restored. The knobs are ordinary files.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod tuning;

use std::fs;

use tuning::{contains, signal, wait_until, FileSearch, COUNTED, LIMIT, RECORDED, SENSOR};

#[test]
fn a_limit_that_the_default_breaks_once_does_not_end_a_search() {
    let bench = FileSearch::new(RECORDED, LIMIT);
    bench.workload(
        "[ -e FOLDER/broken ] && { rm FOLDER/broken; latency=9; }".replace("FOLDER", &folder(&bench)).as_str(),
    );
    fs::write(bench.path("broken"), "").unwrap();
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["the default violates a constraint (latency = 9, at most 5 is allowed); measured again in"]);
    contains(&text, &["is better than the default"]);
    assert_eq!(bench.knobs(), ["1024", "fast"]);
    // A limit that the default always breaks is an error.
    bench.run(0, &mut bench.command(&["revert"]));
    bench.workload("latency=9");
    let text = bench.run(1, bench.tune().arg("--afresh"));
    contains(&text, &["the default itself violates a constraint (latency = 9"]);
    assert_eq!(text.matches("measured again in").count(), 4);
}

#[test]
fn a_daemon_outlives_a_service_that_is_down() {
    let bench = FileSearch::new(RECORDED, "");
    bench.workload("exit 3");
    let mut daemon = bench.daemon();
    wait_until("it waits", || bench.said().matches("the next check is in").count() >= 2);
    bench.workload("");
    wait_until("it has found what is better", || bench.said().contains("is better than the default"));
    // What is kept survives the next failure.
    bench.workload("exit 3");
    wait_until("it cannot judge", || bench.said().contains("the default is no better"));
    assert_eq!(bench.knobs(), ["1024", "fast"]);
    signal(&daemon, "-TERM");
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn another_workload_in_the_middle_of_a_search_begins_another_search() {
    let bench = FileSearch::new("", "");
    fs::write(bench.path("counter"), "0 0\n").unwrap();
    // After so many windows, the work is another one, and nothing helps with it.
    let count = "[ $(wc -l < FOLDER/log) -gt 12 ] && { size=100; gain=0; }; true";
    bench.workload(&count.replace("FOLDER", &folder(&bench)));
    fs::write(bench.path("log"), "").unwrap();
    bench.describe(&format!("{COUNTED}{RECORDED}"), SENSOR);
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["the sensors show another workload: this search waits for the old one", "Nothing was shown"]);
    assert_eq!(bench.knobs(), ["128", "slow"], "the trials of the old workload confirm nothing in the new one");
    // The old workload comes back.
    bench.workload("");
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["resuming search 1 after", "ahead = 1024 (was 128)"]);
}

/// A file that cannot be written back is not tuned, and not touched.
#[test]
fn a_knob_that_does_not_take_its_own_value_is_refused_before_anything_runs() {
    let bench = FileSearch::new(RECORDED, "");
    bench.workload("");
    let search = fs::read_to_string(bench.path("search.toml")).unwrap();
    let get = format!("file = \"{}/ahead\"", folder(&bench));
    // No one may change which file has the text of a kernel's version.
    let fixed = search.replace(&get, "file = \"/proc/sys/kernel/osrelease\"");
    assert_ne!(fixed, search);
    fs::write(bench.path("search.toml"), fixed).unwrap();
    let text = bench.run(1, &mut bench.tune());
    contains(&text, &["ahead: /proc/sys/kernel/osrelease does not take"]);
    assert_eq!(bench.windows(), [""; 0]);
}

fn folder(bench: &FileSearch) -> String {
    bench.folder.path().display().to_string()
}

/// The windows of a whole grid tell which setting was in force in them: only the leader is compared with fresh defaults.
#[test]
fn the_points_of_a_whole_grid_share_their_windows_with_the_default() {
    let bench = FileSearch::new(RECORDED, "[search]\nengine = \"exhaustive\"\n");
    bench.workload("");
    contains(&bench.run(0, &mut bench.tune()), &["the best measured setting", "(17 trials)"]);
    let windows = bench.windows();
    let default = |window: &&String| *window == "slow 128";
    // That of the search, two around the first and the thirteenth of 13 points, and one after each repeat of the best.
    assert_eq!((windows.len(), windows.iter().filter(default).count()), (26, 9), "{windows:?}");
}

/// A hundred windows fit into the settle time: with it, the first window would have a hundredth of the rate.
#[test]
fn the_time_to_settle_does_not_make_the_first_window_another_workload() {
    let bench = FileSearch::new("", "");
    fs::write(bench.path("counter"), "0\n").unwrap();
    bench.workload("");
    let counted = format!("echo $(($(cat FOLDER/counter) + 1000)) > FOLDER/counter; {RECORDED}");
    let rate = "[[sensor]]\nname = \"rate\"\nof = [\"FOLDER/counter:1\"]\nsimilar = 0.9\n\
                [search]\nengine = \"orthogonal\"\ntrials = 4\n";
    bench.describe(&counted, rate);
    let file = bench.path("search.toml");
    let text = fs::read_to_string(&file).unwrap().replacen("settle = \"0s\"", "settle = \"1s\"", 1);
    fs::write(&file, text).unwrap();
    let text = bench.run(0, &mut bench.tune());
    assert!(!text.contains("another workload"), "{text}");
    contains(&text, &["trial 4:"]);
}
