//! The benchmarks and the stress of transitions, in short.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::process::{Command, Stdio};

use serde_json::Value;

/// The object on the last line that `cargo xtask` prints with these arguments.
fn xtask(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{arguments:?}: {}: {text}", output.status);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn nothing_is_left_of_tunes_that_end_under_load() {
    let ends = xtask(&["stress", "--rounds", "3", "--json"]);
    for kind in ["sigkill", "lease", "rmmod_target", "rmmod_xk"] {
        assert_eq!(ends["rounds"][kind], 3, "{ends}");
    }
    assert_eq!(ends["violations"], 0);
}

#[test]
fn values_meet_in_no_mode_that_promises_it() {
    let atomicity = xtask(&["bench", "atomicity", "--transitions", "200", "--preempt", "--json"]);
    for mode in ["task", "global"] {
        assert_eq!((&atomicity[mode]["transitions"], &atomicity[mode]["violations"]), (&200.into(), &0.into()));
    }
    assert!(atomicity["now"]["violations"].as_u64().unwrap() > 0, "{atomicity}");
}
