//! `xk sched record` in a guest under load, and the recordings replayed out here: the program that runs a policy in user
//! space must decide as the kernel's did, and must notice each decision that is altered.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use xk_testing::guest::{output_of, repository};

const KERNEL: &str = "debian13-backports";
const POLICIES: [&str; 4] = ["fifo", "rr", "weighted", "latency"];

/// `struct xk_sched_recording_head` and `struct xk_sched_record`.
const HEAD: usize = 8 + 2 * 4 + 2 * 8 + 32 + 64;
const RECORD: usize = 48;
/// Kinds of records.
const END: u8 = 32;
const CHANGE: u8 = 33;
const STEAL: u8 = 34;

/// The program that runs this file, in a folder of this test.
fn program(policy: &Path) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sched-record");
    let mut make = Command::new("make");
    make.args(["-s", "-C", "kernel/xk_sched/user"]).arg(format!("POLICY={}", policy.display()));
    output_of(make.arg(format!("OUT={}", out.display())));
    out.join(policy.file_stem().unwrap())
}

/// Boots a guest, and records each policy there, while threads communicate, compute, yield, and change their nice values
/// and affinities, and a CPU goes and comes.
fn record(out: &Path) {
    let release = output_of(Command::new("lab/lab").args(["info", KERNEL, "release"]));
    let modules = |folder: &str| output_of(Command::new("scripts/build-module").args([release.as_str(), folder]));
    let (core, policies) = (modules("kernel/xk_sched"), modules("kernel/xk_sched/policies"));
    let wanted = |path: &&str| POLICIES.iter().any(|name| path.ends_with(&format!("_{name}.ko")));
    let policies = policies.lines().filter(wanted).collect::<Vec<_>>().join(" ");
    let (names, xk) = (POLICIES.join(" "), env!("CARGO_BIN_EXE_xk"));
    let cpu = "/sys/devices/system/cpu/cpu3/online";
    let script = format!(
        "set -e\nfor module in {core} {policies}; do insmod $module; done\n\
         cat >/tmp/load <<'END'\n\
         hackbench -g 1 -l 20 >/dev/null & bench=$!\n\
         spinners=; for i in 1 2 3 4 5 6; do (while :; do :; done) & spinners=\"$spinners $!\"; done\n\
         for cpus in 1 0,2 3; do for pid in $spinners; do taskset -pc $cpus $pid; done; done\n\
         renice -n 5 -p $spinners; renice -n -5 -p $bench; echo 0 >{cpu}; for pid in $spinners; do taskset -pc 0-3 $pid; done; echo 1 >{cpu}\n\
         wait $bench; kill $spinners; wait; true\n\
         END\n\
         for policy in {names}; do\n\
         {xk} sched record $policy $XK_OUT/$policy -- sh /tmp/load >/dev/null\n\
         {xk} sched record $policy /tmp/again -- true && exit 1\n\
         done\n\
         {xk} sched status | tee /dev/stderr | grep -q ' 0 ejected'",
    );
    let mut lab = Command::new("lab/lab");
    lab.args(["run", "--kernel", KERNEL, "--cpus", "4", "--timeout", "900", "--out"]).arg(out).arg(&script);
    let output = lab.current_dir(repository()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(errors.matches("has had threads").count(), POLICIES.len(), "a policy is recorded twice: {errors}");
}

fn replay(program: &Path, recording: &Path) -> Output {
    Command::new(program).arg("replay").arg(recording).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

/// How many events and decisions were the same.
fn counts(said: &str) -> [usize; 2] {
    let mut numbers = said.split_whitespace().filter_map(|word| word.parse().ok());
    [numbers.next().expect(said), numbers.next().expect(said)]
}

/// The recording with one byte of a record changed.
fn altered(recording: &Path, record: usize, byte: usize) -> PathBuf {
    let mut bytes = fs::read(recording).unwrap();
    bytes[HEAD + record * RECORD + byte] ^= 1;
    let path = recording.with_extension("altered");
    fs::write(&path, bytes).unwrap();
    path
}

/// Where records of this kind are.
fn records(recording: &Path, kind: u8) -> Vec<usize> {
    let bytes = fs::read(recording).unwrap();
    let found = bytes[HEAD..].chunks(RECORD).enumerate().filter(|(_, record)| record[0] == kind);
    found.map(|(index, _)| index).collect()
}

/// Each answer of the policy is compared: states, threads, queues, cores.
fn alterations_are_noticed(program: &Path, recording: &Path) {
    // Offsets of `state`, `core`, `thread`, `answer`, `queue`.
    for (kind, bytes) in [(CHANGE, &[1, 4, 8, 12, 16][..]), (END, &[1, 12]), (STEAL, &[8, 16])] {
        let all = records(recording, kind);
        let Some(&middle) = all.get(all.len() / 2) else { continue };
        for &byte in bytes {
            let output = replay(program, &altered(recording, middle, byte));
            let text = said(&output);
            assert!(
                output.status.code() == Some(1) && text.contains("differs") && text.contains("recorded: "),
                "byte {byte} of record {middle}: {text}"
            );
        }
    }
}

#[test]
fn a_recorded_run_is_replayed_with_the_same_decisions() {
    let out = tempfile::tempdir().unwrap();
    record(out.path());
    for name in POLICIES {
        let source = repository().join(format!("kernel/xk_sched/policies/{name}.c"));
        let (program, recording) = (program(&source), out.path().join(name));
        let output = replay(&program, &recording);
        let text = said(&output);
        assert!(output.status.success(), "{name}: {text}");
        let [events, decisions] = counts(&text);
        println!("{name}: {events} events, {decisions} decisions");
        assert!(events > 500 && decisions > 500, "{name}: {text}");
        alterations_are_noticed(&program, &recording);
    }
    let stolen = records(&out.path().join("rr"), STEAL).len();
    assert!(stolen > 0, "no thread was stolen");
    another_policy_differs(&out.path().join("rr"));
}

/// A policy that chooses another thread than the one that was recorded.
fn another_policy_differs(recording: &Path) {
    let source = fs::read_to_string(repository().join("kernel/xk_sched/policies/rr.c")).unwrap();
    let changed = source.replace(
        "if (ready(policy, core)->nr)\n\t\txk_change_state(thread, XK_READY_TICK",
        "if (0)\n\t\txk_change_state(thread, XK_READY_TICK",
    );
    assert_ne!(source, changed);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rr_without_ticks.c");
    fs::write(&path, changed).unwrap();
    let output = replay(&program(&path), recording);
    let text = said(&output);
    assert!(output.status.code() == Some(1) && text.contains("in\n  tick thread"), "{text}");
    assert!(text.contains("recorded:   change thread") && text.contains("READY_TICK"), "{text}");
}
