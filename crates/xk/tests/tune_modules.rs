//! `xk tune` over what a module describes, on a stock kernel. One guest boots and runs every check, one after the
//! other.
//!
//! Effects are what `/proc/xk_tunable_test` prints: the variables of the module itself.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use xk_testing::guest::{boot, insmod, modules, passed, run, wait_for};
use xk_tuner::ebpf::Latency;
use xk_tuner::{Gauges, Sensor};

xk_testing::guest_tests! {
    a_search_finds_what_is_best_for_the_module_and_leaves_it,
    a_tuner_that_is_killed_leaves_nothing,
    a_tuner_that_stops_loses_its_lease,
    the_subsystem_that_holds_the_work_up_is_searched,
    a_module_may_go_in_the_middle,
    what_cannot_be_searched_is_said,
    calls_of_a_function_are_measured,
    a_search_lowers_the_latency_of_a_function,
    what_the_kernel_counts_on_demand_is_a_sensor,
}

/// xk_tunable.ko. xk.ko is not there: a search over what modules describe does without it.
const TUNABLE_KO: &str = "XK_TEST_MODULE";
const TEST_KO: &str = "XK_TEST_TUNABLE";
const PROC: &str = "/proc/xk_tunable_test";
const STATE: &str = "/tmp/tuner";
/// What the module has when it is loaded.
const UNTOUCHED: [i64; 5] = [4, 0, 8, 2, 1];

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folders = [(TUNABLE_KO, "kernel/tunable"), (TEST_KO, "kernel/tunable_test:xk_tunable_test")];
        boot(1200, &modules(&folders))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

fn rmmod(module: &str) {
    assert!(!Path::new(&format!("/sys/module/{module}")).exists() || run("rmmod", &[module]), "{module}");
}

/// Fresh modules and memory for each check.
fn prepare() {
    rmmod("xk_tunable");
    rmmod("xk_tunable_test");
    insmod(TEST_KO);
    insmod(TUNABLE_KO);
    if Path::new(STATE).exists() {
        fs::remove_dir_all(STATE).unwrap();
    }
}

/// What the module says of a variable.
fn variable(name: &str) -> i64 {
    let text = fs::read_to_string(PROC).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    value.parse().unwrap()
}

/// The variables of the module: depth, policy, batch, width, size.
fn variables() -> [i64; 5] {
    ["depth", "policy", "batch", "width", "size"].map(variable)
}

/// A search over what is named, with windows of so long.
fn describe(what: &str, target: &str, window: &str) -> PathBuf {
    let text = format!(
        "schema = 1\n{what}\n[target]\nmodule = \"xk_tunable_test:{target}\"\nwindow = \"{window}\"\ntimeout = \"3s\"\n\
         [search]\nabort_after = 1000.0\ntrials = 200\n"
    );
    let file = PathBuf::from("/tmp/search.toml");
    fs::write(&file, text).unwrap();
    file
}

fn queue(window: &str) -> PathBuf {
    describe("subsystem = \"module:xk_tunable_test:queue\"", "queue", window)
}

fn tune(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
    command.arg("tune").args(arguments).env("XK_TUNER", STATE);
    command
}

#[track_caller]
fn said(code: i32, arguments: &[&str]) -> String {
    let output = tune(arguments).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

#[track_caller]
fn contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}

fn start(file: &Path) -> Child {
    tune(&[file.to_str().unwrap()]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

mod checks {
    use super::*;

    pub fn a_search_finds_what_is_best_for_the_module_and_leaves_it() {
        let file = queue("20ms");
        let file = file.to_str().unwrap();
        let plan = said(0, &[file, "--plan"]);
        contains(&plan, &["module xk_tunable_test:depth", "the kernel (lease)", "fifo batch adaptive"]);
        contains(&plan, &["(only if policy = batch)", "4 8 12 16 20 24 28 32", "1 2 4 8 16 32 64", "is reverted"]);
        let list = said(0, &["parameters"]);
        contains(&list, &["xk_tunable_test:batch", "only if policy = batch", "1..64, times 2", "target, maximise"]);
        assert_eq!(variables(), UNTOUCHED);

        let text = said(0, &[file]);
        contains(&text, &["its setter rejects 20 (error 22)", "is better than the default"]);
        contains(&text, &["depth = 16 (was 4)", "policy = batch (was fifo)", "batch = 24 (was 8)"]);
        // The width is best at 4, and its developer wants it back.
        assert_eq!(variables(), [16, 1, 24, 2, 1]);
        let list: Value = serde_json::from_str(&said(0, &["parameters", "--json"])).unwrap();
        let free = |one: &Value| one["held"].is_null();
        assert!(list["parameters"].as_array().unwrap().iter().all(free), "what is kept is nobody's: {list}");

        let text = said(0, &["revert"]);
        contains(&text, &["depth = 4 (restored)", "policy = fifo (restored)", "batch = 8 (restored)"]);
        assert_eq!(variables(), UNTOUCHED);
    }

    pub fn a_tuner_that_is_killed_leaves_nothing() {
        let file = queue("300ms");
        for _ in 0..3 {
            let mut tuner = start(&file);
            wait_for("something is changed", || variables() != UNTOUCHED);
            tuner.kill().unwrap();
            tuner.wait().unwrap();
            wait_for("everything is put back", || variables() == UNTOUCHED);
        }
        // Nobody but the kernel was there to do it.
        let held: Value = serde_json::from_str(&said(0, &["status", "--json"])).unwrap();
        assert_eq!(held["changed"], serde_json::json!([]));
    }

    pub fn a_tuner_that_stops_loses_its_lease() {
        let mut tuner = start(&queue("1s"));
        wait_for("something is changed", || variables() != UNTOUCHED);
        assert!(run("kill", &["-STOP", &tuner.id().to_string()]));
        wait_for("the lease has ended", || variables() == UNTOUCHED);
        tuner.kill().unwrap();
        tuner.wait().unwrap();
    }

    pub fn the_subsystem_that_holds_the_work_up_is_searched() {
        let both = "subsystems = [\"module:xk_tunable_test:queue\", \"module:xk_tunable_test:cache\"]";
        let file = describe(both, "cache", "400ms");
        let text = said(0, &[file.to_str().unwrap()]);
        contains(&text, &["search/module:xk_tunable_test:cache limits the target", "size = 4 (was 1)"]);
        contains(&text, &["no subsystem that can be tuned limits the target any more"]);
        assert_eq!(variables(), [4, 0, 8, 2, 4], "the queue was not searched");
    }

    pub fn a_module_may_go_in_the_middle() {
        let file = queue("500ms");
        let tuner = tune(&[file.to_str().unwrap()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for("something is changed", || variables() != UNTOUCHED);
        rmmod("xk_tunable_test");
        let output = tuner.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success());
        // Who notices it first: the knob, which cannot be reached any more, or a window of the default, which has no meter.
        let knob = ["xk_tunable_test:", "is not there", "its module is not loaded any more"];
        let meter = ["module xk_tunable_test:score does not answer", "no loaded module describes a meter"];
        let says = |all: &[&str]| all.iter().all(|one| text.contains(one));
        assert!(says(&knob) || says(&meter), "neither {knob:?} nor {meter:?} in: {text}");
        insmod(TEST_KO);
        assert_eq!(variables(), UNTOUCHED);
        let left: Value = serde_json::from_str(&said(0, &["status", "--json"])).unwrap();
        assert_eq!(left["changed"], serde_json::json!([]), "{left}");
    }

    pub fn what_cannot_be_searched_is_said() {
        let search = |what: &str| describe(what, "queue", "20ms").to_str().unwrap().to_owned();
        let text = said(2, &[&search("subsystem = \"module:xk_tunable_test:cash\""), "--plan"]);
        contains(&text, &["search.toml:2", "there are: xk_tunable_test:cache, xk_tunable_test:queue"]);
        let depth = "[[parameter]]\nname = \"d\"\nmodule = \"xk_tunable_test:depth\"\nchoices = [4, 1000]\n";
        let text = said(0, &[&search(depth), "--plan"]);
        assert!(!text.contains("1000"), "what the module does not have is not tried: {text}");

        let device = xk_runtime::ParameterDevice::open().unwrap();
        let depth = device.parameters().unwrap().into_iter().find(|one| one.name == "depth").unwrap();
        device.set_parameter(depth.id, 8, None).unwrap();
        let text = said(1, &[queue("20ms").to_str().unwrap()]);
        contains(&text, &["xk_tunable_test:depth", &format!("is held by process {}", std::process::id()), "back to 4"]);
        assert_eq!(variables()[0], 8);
        drop(device);
        rmmod("xk_tunable");
        let text = said(2, &[&search("subsystem = \"module:xk_tunable_test:queue\""), "--plan"]);
        contains(&text, &["the kernel module xk_tunable is not loaded", "modprobe xk_tunable"]);
    }

    const SERVE: &str = "xk_tunable_test_serve";

    fn serve(calls: u32, microseconds: u32) {
        fs::write(PROC, format!("pause {microseconds}")).unwrap();
        fs::write(PROC, format!("serve {calls}")).unwrap();
    }

    pub fn calls_of_a_function_are_measured() {
        serve(5, 0);
        let latency = Latency::watch(SERVE).unwrap();
        serve(90, 0);
        serve(10, 2000);
        let histogram = latency.read().unwrap();
        assert_eq!((histogram.calls(), histogram.lost), (100, 0));
        let [half, most, all] = [50.0, 95.0, 100.0].map(|percent| histogram.percentile(percent).unwrap());
        // Never less than the function waits, but for the width of a bucket.
        let waited = 2_000_000.0 * 31.0 / 32.0;
        assert!(most >= waited && all >= most && half < waited, "{half} {most} {all}");
        // And never more than the module itself has seen.
        let longest = variable("longest") as f64;
        assert!(all <= longest * 33.0 / 32.0, "{all} {longest}");
        serve(7, 0);
        assert_eq!(latency.read().unwrap().calls(), 107);
        drop(latency);
        serve(7, 0);
        let again = Latency::watch(SERVE).unwrap();
        assert_eq!(again.read().unwrap().calls(), 0, "nothing is left of the one before");
        let refused = Latency::watch("no_such_function_anywhere").unwrap_err().to_string();
        contains(&refused, &["the latency of no_such_function_anywhere", "cannot be traced"]);
    }

    pub fn a_search_lowers_the_latency_of_a_function() {
        let search = |function: &str| {
            let text = format!(
                "schema = 1\nsubsystem = \"module:xk_tunable_test:cache\"\n[target]\n\
                 latency = {{ function = \"{function}\", percentile = 50 }}\n\
                 command = \"echo pause 40000 > {PROC}; echo serve 5 > {PROC}\"\ntimeout = \"20s\"\n\
                 [search]\nabort_after = 1000.0\ntrials = 200\n"
            );
            fs::write("/tmp/search.toml", text).unwrap();
        };
        search("no_such_function_anywhere");
        let text = said(1, &["/tmp/search.toml"]);
        contains(&text, &["the running kernel has no function `no_such_function_anywhere`"]);
        assert_eq!(variables(), UNTOUCHED);
        // Waits from 40 ms down to 10 ms: longer than a busy host keeps a guest from its processor.
        search(SERVE);
        let plan = said(0, &["/tmp/search.toml", "--plan"]);
        contains(&plan, &["nanoseconds that 50 % of the calls of xk_tunable_test_serve() take"]);
        contains(&said(0, &["/tmp/search.toml"]), &["is better than the default", "size = 4 (was 1)"]);
        assert_eq!(variables(), [4, 0, 8, 2, 4]);
    }

    pub fn what_the_kernel_counts_on_demand_is_a_sensor() {
        const TEN: &str = "/tmp/ten";
        let sensor = |of: &str, per: &str| Sensor {
            name: of.to_owned(),
            of: vec![of.to_owned()],
            per: vec![per.to_owned()],
            similar: 0.2,
            within: 0.0,
        };
        let calls = format!("calls:{SERVE}");
        let sensors = [
            sensor(&calls, "/tmp/ten:1"),
            sensor("tracepoint:sched_switch", "/proc/stat:ctxt"),
            sensor("perf:context-switches", "/proc/stat:ctxt"),
            sensor("calls:no_such_function_anywhere", "/tmp/ten:1"),
            sensor("tracepoint:no_such_tracepoint_anywhere", "/tmp/ten:1"),
        ];
        let traced = || fs::read_to_string("/sys/kernel/tracing/enabled_functions").unwrap().contains(SERVE);
        assert!(
            Path::new("/sys/kernel/tracing/trace").exists()
                || run("mount", &["-t", "tracefs", "t", "/sys/kernel/tracing"])
        );
        fs::write(TEN, "0").unwrap();
        serve(3, 0);
        assert!(!traced());
        let mut gauges = Gauges::of(&sensors);
        serve(4, 0);
        let before = gauges.read();
        assert!(traced());
        serve(90, 0);
        // Each of these is a switch away and one back; many more than there may be while the counts are read.
        (0..2000).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        fs::write(TEN, "10").unwrap();
        let after = gauges.read();
        let signature = gauges.between(&before, &after).0;
        drop(gauges);
        assert!(!traced(), "nothing is left");
        assert_eq!(signature[&calls], 9.0);
        // The kernel's own count of switches is read a moment before and after.
        for same in ["tracepoint:sched_switch", "perf:context-switches"] {
            assert!((0.9..1.1).contains(&signature[same]), "{signature:?}");
        }
        assert_eq!(signature.len(), 3, "what cannot be counted says nothing: {signature:?}");
    }
}
