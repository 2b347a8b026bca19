//! `xk sched` on a stock kernel with sched_ext, and the page for newcomers, executed. Each has one guest.
//!
//! Effects are what the kernel reports: the class of a process in `/proc/PID/sched`, and the counters of the module.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use xk_testing::guest::{file, insmod, repository, run, wait_for, Guest};

const KERNEL: &str = "debian13-backports";
const FAULTY_KO: &str = "XK_TEST_FAULTY_POLICY";
const MODULES: [(&str, &str); 3] = [
    ("XK_TEST_MODULE", "kernel/xk_sched"),
    ("XK_TEST_FIFO", "kernel/xk_sched/policies:xk_sched_fifo"),
    (FAULTY_KO, "kernel/sched_faulty:xk_sched_faulty"),
];

static GUEST: Guest = Guest::new(600, &MODULES).on(KERNEL, 4);

xk_testing::guest_tests! {
    in GUEST:
    list_shows_policies_and_weights,
    cpus_says_where_threads_run,
    top_counts_how_long_threads_wait,
    dump_shows_threads_and_their_states,
    trace_shows_changes_of_states,
    run_and_set_change_the_class,
    changes_are_in_the_history,
    record_writes_a_file_even_if_the_command_fails,
    status_says_why_a_policy_was_ejected,
    errors_say_what_to_do,
    without_the_module_nothing_works,
}

fn prepare() {
    for module in ["xk_sched_faulty", "xk_sched_fifo", "xk_sched"] {
        assert!(!Path::new("/sys/module").join(module).exists() || run("rmmod", &[module]), "{module}");
    }
    insmod(MODULES[0].0);
    insmod(MODULES[1].0);
}

fn xk(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xk")).args(arguments).output().unwrap()
}

#[track_caller]
fn well(arguments: &[&str]) -> String {
    let output = xk(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn fails(arguments: &[&str], code: i32, said: &str) {
    let output = xk(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(code) && text.contains(said), "{arguments:?}: {:?}: {text}", output.status);
}

/// A process that is killed when this is dropped.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap())
    }

    fn class(&self) -> String {
        class(&format!("/proc/{}/sched", self.0.id()))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn class(file: &str) -> String {
    class_in(&fs::read_to_string(file).unwrap())
}

fn class_in(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("policy ")).expect("the class");
    line.rsplit(' ').next().unwrap().to_owned()
}

mod checks {
    use super::*;

    pub fn list_shows_policies_and_weights() {
        let text = well(&["sched", "list"]);
        let (head, row) = text.split_once('\n').unwrap();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            words(head),
            ["policy", "threads", "ready", "switches", "overdue", "slice", "weight", "cpus", "state"]
        );
        assert_eq!(words(row), ["fifo", "0", "0", "0", "0", "20000", "us", "100", "all", "live"]);
        assert_eq!(well(&["sched", "weight", "fifo", "250"]), "fifo: weight 250\n");
        let json: Value = serde_json::from_str(&well(&["sched", "list", "--json"])).unwrap();
        assert_eq!((&json["policies"][0]["name"], &json["policies"][0]["weight"]), (&"fifo".into(), &250.into()));
    }

    pub fn cpus_says_where_threads_run() {
        assert_eq!(well(&["sched", "cpus", "fifo", "0"]), "fifo: CPUs 0\n");
        let shown = well(&["sched", "run", "fifo", "--", "sh", "-c", "sleep 0.1; cat /proc/self/stat"]);
        let (_, fields) = shown.rsplit_once(')').unwrap();
        assert_eq!(fields.split_whitespace().nth(36), Some("0"), "the CPU of the thread: {shown}");
        let json: Value = serde_json::from_str(&well(&["sched", "list", "--json"])).unwrap();
        assert_eq!((&json["policies"][0]["cpus"], &json["policies"][0]["stranded"]), (&"0".into(), &false.into()));
        well(&["sched", "cpus", "fifo", "all"]);
        fails(&["sched", "cpus", "fifo", "4096"], 3, "is no list of CPUs of this machine");
    }

    /// Two threads that compute on one CPU wait for each other's slices, which are 20 ms.
    pub fn top_counts_how_long_threads_wait() {
        let script = "taskset -pc 0 $$ >/dev/null; (while :; do :; done) & while :; do :; done";
        let spin = format!("setsid timeout 60 xk sched run fifo -- sh -c '{script}' >/dev/null 2>&1 & echo $!");
        let directory = Path::new(env!("CARGO_BIN_EXE_xk")).parent().unwrap();
        let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
        let started = Command::new("sh").args(["-c", &spin]).env("PATH", path).output().unwrap();
        let pid = String::from_utf8(started.stdout).unwrap();
        wait_for("both run", || well(&["sched", "dump", "fifo"]).starts_with("fifo: 2 threads"));
        let text = well(&["sched", "top", "--batch", "-n", "1", "-d", "2s"]);
        let row: Vec<_> = text.lines().find(|line| line.starts_with("fifo ")).unwrap().split_whitespace().collect();
        assert_eq!(row[1], "2", "threads: {text}");
        assert!(row[3].parse::<u64>().unwrap() > 2 && row[4] == "0" && row[5].ends_with("ms"), "{text}");
        let waits = text.lines().find(|line| line.starts_with("fifo: ")).unwrap();
        assert!(waits.contains("16ms: ") && text.contains("; CPUs idle "), "{text}");
        assert!(run("kill", &["--", &format!("-{}", pid.trim())]));
        wait_for("both have ended", || well(&["sched", "dump", "fifo"]).starts_with("fifo: 0 threads"));
    }

    pub fn dump_shows_threads_and_their_states() {
        let sleeper = Sleeper::new();
        let pid = sleeper.0.id().to_string();
        assert_eq!(well(&["sched", "dump"]), "fifo: 0 threads\n");
        well(&["sched", "set", "fifo", "--pid", &pid]);
        let text = well(&["sched", "dump", "fifo"]);
        let row: Vec<_> = text.lines().nth(2).unwrap().split_whitespace().map(str::to_owned).collect();
        assert_eq!((row[0].as_str(), row[1].as_str(), row[4].as_str()), (pid.as_str(), "sleep", "-"), "{text}");
        let json: Value = serde_json::from_str(&well(&["sched", "dump", "--json"])).unwrap();
        assert_eq!((&json["fifo"][0]["name"], &json["fifo"][0]["queue"]), (&"sleep".into(), &Value::Null));
        fails(&["sched", "dump", "nobody"], 1, "no policy is called nobody");
    }

    pub fn trace_shows_changes_of_states() {
        let command =
            ["sched", "trace", "--policy", "fifo", "--", env!("CARGO_BIN_EXE_xk"), "sched", "run", "fifo", "--"];
        let text = well(&[&command[..], &["sleep", "0.1"]].concat());
        for (event, change) in [("block", "RUNNING -> BLOCKED"), ("schedule", "READY -> RUNNING")] {
            let is = |line: &str| line.contains(&format!(" event={event} core=")) && line.ends_with(change);
            assert!(text.lines().any(is), "{event}: {text}");
        }
        assert!(text.contains("BLOCKED -> READY"), "{text}");
        assert!(text.contains("xk_sched_change: policy=fifo comm=sleep pid="), "{text}");
        let other = well(&[
            "sched",
            "trace",
            "--policy",
            "rr",
            "--",
            env!("CARGO_BIN_EXE_xk"),
            "sched",
            "run",
            "fifo",
            "--",
            "true",
        ]);
        assert!(!other.contains("xk_sched_change"), "{other}");
        fails(&["sched", "trace", "--policy", "a\"b", "--", "true"], 2, "is no name of a policy");
        let left = fs::read_dir("/sys/kernel/tracing/instances").unwrap().count();
        assert_eq!(left, 0, "the instance is removed");
    }

    pub fn run_and_set_change_the_class() {
        assert_eq!(class_in(&well(&["sched", "run", "fifo", "--", "cat", "/proc/self/sched"])), "7");
        assert_eq!(class_in(&well(&["sched", "run", "fair", "--", "cat", "/proc/self/sched"])), "0");
        let sleeper = Sleeper::new();
        let pid = sleeper.0.id().to_string();
        assert_eq!(well(&["sched", "set", "fifo", "--pid", &pid]), format!("fifo: 1 thread of process {pid}\n"));
        assert_eq!(sleeper.class(), "7");
        assert!(well(&["sched", "status"]).starts_with("active; 1 thread in 1 policy; 0 ejected so far"));
        well(&["sched", "set", "fair", "--pid", &pid]);
        assert_eq!(sleeper.class(), "0");
    }

    /// In the order in which the kernel has made them; what it refused changes nothing.
    pub fn changes_are_in_the_history() {
        let _ = fs::remove_dir_all("/var/lib/xk/history");
        let sleeper = Sleeper::new();
        let pid = sleeper.0.id().to_string();
        well(&["sched", "set", "fifo", "--pid", &pid]);
        well(&["sched", "weight", "fifo", "300"]);
        well(&["sched", "cpus", "fifo", "0"]);
        fails(&["sched", "weight", "fifo", "0"], 3, "weights are 1 to 10000");
        well(&["sched", "set", "fair", "--pid", &pid]);
        let json: Value = serde_json::from_str(&well(&["history", "--json"])).unwrap();
        let told = json["entries"].as_array().unwrap().iter();
        let told = told
            .map(|entry| ["kind", "name", "action", "to"].map(|word| entry[word].as_str().unwrap_or("-").to_owned()));
        let line = |name: &str, action: &str, to: &str| ["scheduler", name, action, to].map(str::to_owned);
        let process = format!("process {pid}: 1 thread");
        let refused = told.clone().filter(|entry| entry[2] == "refused").count();
        let changes: Vec<_> = told.filter(|entry| entry[2] != "refused").collect();
        assert_eq!(
            changes,
            [
                line("fifo", "choose", &process),
                line("fifo", "adjust", "weight 300"),
                line("fifo", "adjust", "CPUs 0"),
                line("fair", "choose", &process),
            ]
        );
        assert_eq!(refused, 1);
    }

    pub fn record_writes_a_file_even_if_the_command_fails() {
        let file = "/tmp/recording";
        fails(&["sched", "record", "fifo", "/nowhere/recording", "--", "true"], 1, "/nowhere/recording: ");
        fails(&["sched", "record", "fifo", file, "--", "sh", "-c", "exit 7"], 1, "the command failed: exit status: 7");
        let bytes = fs::read(file).unwrap();
        assert!(bytes.starts_with(b"xksched1") && bytes.len() > 500, "{} bytes", bytes.len());
        fails(&["sched", "record", "fifo", file, "--", "true"], 3, "has had threads");
    }

    pub fn status_says_why_a_policy_was_ejected() {
        assert!(run("insmod", &[file(FAULTY_KO).to_str().unwrap(), "kind=forget_block"]));
        well(&["sched", "run", "faulty", "--", "sleep", "0.1"]);
        let text = well(&["sched", "status"]);
        assert!(text.contains("ejected: faulty: block of ") && text.contains("must be BLOCKED at the end"), "{text}");
        let json: Value = serde_json::from_str(&well(&["sched", "status", "--json"])).unwrap();
        assert_eq!(json["ejected"][0]["event"], "block");
        assert!(well(&["sched", "list"]).contains("ejected: see `xk sched status`"));
        fails(&["sched", "run", "faulty", "--", "true"], 3, "was ejected");
    }

    pub fn errors_say_what_to_do() {
        fails(&["sched", "run", "nobody", "--", "true"], 1, "no policy is called nobody: load its module");
        fails(&["sched", "run", "fifo", "--", "/nowhere"], 1, "/nowhere: cannot be run");
        fails(&["sched", "run", "fifo"], 2, "--");
        fails(&["sched", "set", "fifo", "--pid", "4194303"], 1, "there is no process");
        fails(&["sched", "set", "fifo", "--pid", "0"], 2, "--pid");
        fails(&["sched", "weight", "fifo", "0"], 3, "weights are 1 to 10000");
        fails(&["sched", "weight", "nobody", "5"], 1, "no policy is called nobody");
        fails(&["sched", "replace", "fifo", "nobody"], 1, "no policy is called nobody");
        fails(&["sched", "replace", "fifo", "fifo"], 3, "policy fifo cannot replace itself");
        fails(&["sched", "record", "nobody", "/tmp/recording", "--", "true"], 1, "no policy is called nobody");
        fails(&["sched", "record", "fifo", "/tmp/recording", "--limit", "0", "--", "true"], 2, "--limit");
    }

    pub fn without_the_module_nothing_works() {
        assert!(run("rmmod", &["xk_sched_fifo"]));
        assert!(well(&["sched", "list"]).contains("no policy is loaded"));
        assert!(run("rmmod", &["xk_sched"]));
        fails(&["sched", "list"], 5, "the kernel module xk_sched is not loaded");
        fails(&["sched", "run", "fifo", "--", "true"], 5, "the kernel module xk_sched is not loaded");
    }
}

/// The blocks of the page in this language.
fn block(page: &str, language: &str) -> String {
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect(language);
    rest.split_once("```").unwrap().0.to_owned()
}

/// A copy of what the page needs of the repository, with its policy, and a store for what is built of it.
fn tree(page: &str) -> (PathBuf, String) {
    let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first-policy");
    let _ = fs::remove_dir_all(&top);
    fs::create_dir_all(top.join("bench")).unwrap();
    fs::create_dir_all(top.join("cache/kernels")).unwrap();
    let info = |field: &str| {
        let output = Command::new("lab/lab").args(["info", KERNEL, field]).current_dir(repository()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let copy = |option: &str, from: &Path, to: &Path| {
        assert!(Command::new("cp").args([option]).args([from, to]).status().unwrap().success(), "{}", from.display());
    };
    for folder in ["scripts", "kernel", "bpf", "lab", "bench/flex"] {
        copy("-a", &repository().join(folder), &top.join(folder));
    }
    let root = PathBuf::from(info("root"));
    copy("-al", &root, &top.join("cache/kernels"));
    let toolchains = root.join("../../toolchains").canonicalize().unwrap();
    std::os::unix::fs::symlink(toolchains, top.join("cache/toolchains")).unwrap();
    fs::create_dir(top.join("kernel/first")).unwrap();
    fs::write(top.join("kernel/first/first.c"), block(page, "c")).unwrap();
    fs::write(top.join("kernel/first/Kbuild"), block(page, "make")).unwrap();
    (top, info("release"))
}

#[test]
fn the_page_for_newcomers_is_right() {
    let page = fs::read_to_string(repository().join("docs/first-policy.md")).unwrap();
    let (source, commands) = (block(&page, "c"), block(&page, "sh"));
    assert!(source.lines().filter(|line| !line.trim().is_empty()).count() <= 30 && commands.lines().count() == 3);
    let (top, release) = tree(&page);
    let cache = top.join("cache");
    let build = |folder: &str| {
        let mut command = Command::new("scripts/build-module");
        command.args([&release, folder]).current_dir(&top).env("XK_CACHE", &cache);
        assert!(command.stdout(Stdio::null()).status().unwrap().success(), "{folder}");
    };
    // The guest has no compiler: there, the commands of the page find what is built already.
    build("kernel/xk_sched");
    build("kernel/first");
    let programs = Path::new(env!("CARGO_BIN_EXE_xk")).parent().unwrap();
    let script = format!(
        "set -e; cd {}; export XK_CACHE={} PATH={}:$PATH\n{commands}echo listed; xk sched list; xk sched status",
        top.display(),
        cache.display(),
        programs.display(),
    );
    let mut lab = Command::new("lab/lab");
    lab.args(["run", "--kernel", KERNEL, "--cpus", "4", "--timeout", "300", &script]).current_dir(repository());
    let output = lab.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let (_, listed) = text.split_once("listed\n").expect("the list");
    let row: Vec<_> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    let switches: u64 = row[3].parse().unwrap();
    assert!(row[0] == "first" && switches > 300 && listed.contains("0 ejected so far"), "{listed}");
    fs::remove_dir_all(top).unwrap();
}
