//! Policies in user space (`kernel/xk_sched/user`): what the fuzzer finds, and what a replay compares.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use xk_harness::sched::{mistakes, Expected};

/// The program that runs a policy, in a folder of this test.
fn program(test: &str, policy: &Path) -> PathBuf {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/xk_sched");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let mut make = Command::new("make");
    make.args(["-s", "-C"]).arg(kernel.join("user"));
    make.arg(format!("POLICY={}", kernel.join(policy).display())).arg(format!("OUT={}", out.display()));
    assert!(make.status().unwrap().success());
    out.join(policy.file_stem().unwrap())
}

fn policies() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/xk_sched/policies");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "c")).collect()
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

#[test]
fn every_policy_schedules_random_threads_and_its_recording_is_replayed() {
    for policy in policies() {
        let program = program("policies", &policy);
        let recording = program.with_extension("recording");
        for seed in 1..=8 {
            let seed = seed.to_string();
            let fuzz = run(&program, &["fuzz", &seed, "5000", "--record", recording.to_str().unwrap()]);
            assert!(fuzz.status.success(), "{}: {}", policy.display(), said(&fuzz));
            let replay = run(&program, &["replay", recording.to_str().unwrap()]);
            assert!(replay.status.success(), "{}, seed {seed}: {}", policy.display(), said(&replay));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let program = program("seed", Path::new("policies/rr.c"));
    let recordings = ["first", "second"].map(|name| {
        let path = program.with_file_name(name);
        assert!(run(&program, &["fuzz", "7", "3000", "--record", path.to_str().unwrap()]).status.success());
        fs::read(path).unwrap()
    });
    assert!(recordings[0].len() > 10_000 && recordings[0] == recordings[1]);
    let print = run(&program, &["print", program.with_file_name("first").to_str().unwrap()]);
    assert!(print.status.success() && said(&print).contains("\nnew_place thread 1 NOT_QUEUED "), "{}", said(&print));
}

/// Those that the fuzzer cannot make: a change outside of events, and a lock that nobody unlocks. It replaces no policy.
const OUTSIDE: [&str; 2] = ["change_outside", "place_deadlocks"];

#[test]
fn the_fuzzer_finds_every_mistake() {
    let program = program("mistakes", Path::new("../sched_faulty/xk_sched_faulty.c"));
    let none = run(&program, &["fuzz", "1", "20000"]);
    assert!(none.status.success(), "{}", said(&none));
    for mistake in mistakes().into_iter().filter(|mistake| !OUTSIDE.contains(&mistake.kind) && !mistake.is_in_adopt()) {
        // Two seeds, as the first machine may have one core.
        let found = (2..4).any(|seed: u32| {
            let output = run(&program, &["fuzz", &seed.to_string(), "20000", &format!("kind={}", mistake.kind)]);
            let text = said(&output);
            let is_right = match mistake.result {
                Expected::Ejected { event, .. } if text.contains("is ejected\n") => {
                    let (_, report) = text.split_once("is ejected\n").unwrap();
                    report.starts_with(event) || report.starts_with(&event.replace("unblock_", "new_"))
                }
                // What leaves an event, or is noticed by its time, ends the program.
                Expected::Ejected { .. } => !output.status.success(),
                Expected::Refused => text.contains("the policy is not registered"),
                Expected::Fatal => output.status.code().is_none(),
            };
            is_right && !output.status.success()
        });
        assert!(found, "{}", mistake.kind);
    }
}
