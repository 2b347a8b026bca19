//! The whole command on a stock kernel. One guest boots and runs every check
//! of `inside`, one after the other; the tests out here report them one by one.
//! Tables are built on this machine and are visible in the guest.
//!
//! The effect is what `block:block_unplug` reports (cases/blk_max_request_count).

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[macro_use]
mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use support::{alter_a_byte, altered_tables, build, contains, json, xk, BLK, SHRINK};
use xk_testing::guest::{boot, info, insmod, modules, passed, repository, run, wait_for, XK_KO};

/// Acts in the module sch_pie.
const PIE: &str = "QUEUE_THRESHOLD";

xk_testing::guest_tests! {
    a_value_takes_effect_and_returns,
    a_value_outside_the_range_is_refused,
    several_change_together_or_not_at_all,
    a_lease_ends_by_itself,
    a_transition_can_be_watched,
    a_held_tune_is_nobody_elses,
    a_held_tune_ends_with_its_process,
    sigkill_of_the_holder_returns_the_default,
    an_altered_byte_is_drift,
    a_disarmed_probe_is_shown,
    a_module_comes_and_goes,
    only_root_may,
    without_the_module_nothing_is_tuned,
    the_doctor_finds_the_guest_fit,
    a_bundle_is_written,
}

/// Not in the guest, where analysing takes ten times as long.
#[test]
fn a_full_disk_leaves_nothing() {
    let root = info("root");
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=4k tmpfs '{0}' && XK_STORE='{0}' '{1}' build --root '{root}' {SHRINK}; code=$?
         find '{0}' -type f; exit $code",
        folder.path().display(),
        env!("CARGO_BIN_EXE_xk"),
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]), "{text}");
    contains(&text, &["No space left", "the disk is full", "XK_STORE"]);
}

/// What the tests in the guest printed, in one boot.
fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let store = tempfile::tempdir().unwrap();
        build(store.path(), &[BLK, SHRINK, PIE]);
        let modules = modules(&[(XK_KO, "kernel/xk")]);
        boot(1200, &format!("{modules} XK_STORE={}", store.path().display()))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

/// A fresh module for each check, whatever the one before left behind.
fn prepare() {
    fs::write("/sys/kernel/debug/kprobes/enabled", "1").unwrap();
    if Path::new("/dev/xk").exists() {
        assert!(run("rmmod", &["xk"]));
    }
    insmod(XK_KO);
}

#[track_caller]
fn get(name: &str) -> String {
    xk(0, &["get", name]).trim().to_owned()
}

/// What the kernel reports.
fn depth() -> i64 {
    let observe = repository().join("cases/blk_max_request_count/observe");
    let output = Command::new(observe).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    last["value"].as_i64().unwrap()
}

/// A process that holds SHRINK_BATCH at 512.
struct Holder {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Holder {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_xk"))
            .args(["set", &format!("{SHRINK}=512"), "--hold"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("held by process") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the holder ended");
        }
        Self { child, lines }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Ends it with a signal; what it still said.
    fn end(mut self, signal: &str) -> String {
        assert!(run("kill", &[signal, &self.pid()]));
        self.child.wait().unwrap();
        self.lines.lines().map_while(Result::ok).collect::<Vec<_>>().join("\n")
    }
}

/// The kernel takes a tune back when the last reference to the descriptor goes.
fn wait_until_nothing_is_tuned() {
    wait_for("nothing is tuned", || xk(0, &["status"]).contains("nothing is tuned"));
}

mod checks {
    use super::*;

    pub fn a_value_takes_effect_and_returns() {
        assert_eq!((depth(), get(BLK).as_str()), (32, "32"));
        let set = xk(0, &["set", "BLK_MAX_REQUEST_COUNT=0x80"]);
        contains(&set, &["BLK_MAX_REQUEST_COUNT = 128 (was 32)", "blk_add_rq_to_plug+", "until `xk unset"]);
        assert_eq!((depth(), get(BLK).as_str()), (128, "128"));
        let status = json(&["status", "--json"]);
        let tune = &status["tunes"][0];
        assert_eq!((&tune["value"], &tune["name"], &tune["detached"]), (&128.into(), &BLK.into(), &true.into()));
        assert_eq!(tune["warnings"], Value::Array(vec![]));
        let hits = |site: &Value| site["hits"].as_u64().unwrap();
        assert!(tune["sites"].as_array().unwrap().iter().map(hits).sum::<u64>() > 0, "{status:#}");
        contains(&xk(0, &["list"]), &["128"]);
        contains(&xk(0, &["set", "block/blk.h:335=64"]), &["= 64 (was 128)"]);
        assert_eq!((depth(), get(BLK).as_str()), (64, "64"));
        contains(&xk(0, &["unset", BLK]), &["= 32 (its default)"]);
        assert_eq!((depth(), get(BLK).as_str()), (32, "32"));
        contains(&xk(0, &["status"]), &["nothing is tuned"]);
        contains(&xk(0, &["unset", BLK]), &["not tuned"]);
    }

    /// `cargo xtask effects --compile` has the values that are compiled first: emulated, that takes long.
    pub fn a_value_outside_the_range_is_refused() {
        xk(0, &["set", "BLK_MAX_REQUEST_COUNT=64"]);
        for value in ["-1", "9223372036854775807", "9223372036854775808"] {
            contains(&xk(3, &["set", "--no-compile", &format!("{BLK}={value}")]), &["outside the proved range"]);
        }
        assert_eq!(get(BLK), "64");
        xk(0, &["unset", "--all"]);
    }

    pub fn several_change_together_or_not_at_all() {
        xk(0, &["set", "BLK_MAX_REQUEST_COUNT=64", "SHRINK_BATCH=256"]);
        assert_eq!((get(BLK).as_str(), get(SHRINK).as_str()), ("64", "256"));
        xk(0, &["unset", SHRINK]);
        let holder = Holder::start();
        let error = xk(1, &["set", "BLK_MAX_REQUEST_COUNT=100", "SHRINK_BATCH=300"]);
        contains(&error, &["SHRINK_BATCH is already tuned to 512", &holder.pid(), "nothing was changed"]);
        assert_eq!((get(BLK).as_str(), get(SHRINK).as_str()), ("64", "512"));
        xk(0, &["unset", BLK]);
        xk(1, &["set", "BLK_MAX_REQUEST_COUNT=100", "SHRINK_BATCH=300"]);
        assert_eq!((get(BLK).as_str(), depth()), ("32", 32));
        holder.end("-TERM");
        wait_until_nothing_is_tuned();
    }

    fn lease() -> Value {
        json(&["status", "--json"])["tunes"][0]["lease_s"].clone()
    }

    pub fn a_lease_ends_by_itself() {
        contains(&xk(0, &["set", "SHRINK_BATCH=300", "--for", "1h"]), &["in force for 60 min"]);
        contains(&xk(0, &["status"]), &["ends in"]);
        assert!(lease().as_f64().unwrap() > 3000.0);
        xk(0, &["set", "SHRINK_BATCH=301"]);
        assert_eq!(lease(), Value::Null);
        contains(&xk(2, &["set", "SHRINK_BATCH=302", "--for", "1 fortnight"]), &["not a time"]);
        // Longer, until asking for the value takes less time.
        let in_time = [2, 8, 32, 128].into_iter().find(|seconds| {
            xk(0, &["set", "SHRINK_BATCH=302", "--for", &format!("{seconds}s")]);
            let value = get(SHRINK);
            assert!(["302", "128"].contains(&value.as_str()), "{value}");
            wait_until_nothing_is_tuned();
            assert_eq!(get(SHRINK), "128");
            value == "302"
        });
        assert!(in_time.is_some(), "it never was in force");
    }

    pub fn a_transition_can_be_watched() {
        let tracing = |file: &str| format!("/sys/kernel/tracing/{file}");
        fs::write(tracing("events/xk/enable"), "1").unwrap();
        for mode in ["now", "task", "global"] {
            fs::write(tracing("trace"), "").unwrap();
            contains(&xk(0, &["set", "SHRINK_BATCH=200", "--mode", mode]), &[&format!("mode {mode}")]);
            assert_eq!(json(&["status", "--json"])["tunes"][0]["mode"], *mode);
            xk(0, &["unset", SHRINK, "--mode", mode]);
            let trace = fs::read_to_string(tracing("trace")).unwrap();
            for event in ["xk_load", "xk_transition_start", "xk_flip", "xk_transition_finish", "xk_unload"] {
                assert!(trace.contains(&format!("{event}: ")), "no {event} in {trace}");
            }
            contains(&trace, &[&format!("mode={mode} in_force=128 value=200"), "in_force=128 value=128"]);
        }
        fs::write(tracing("events/xk/enable"), "0").unwrap();
    }

    pub fn a_held_tune_is_nobody_elses() {
        let holder = Holder::start();
        let pid = holder.pid();
        contains(&xk(1, &["set", "SHRINK_BATCH=64"]), &["already tuned to 512", &pid]);
        contains(&xk(1, &["set", "SHRINK_BATCH=64", "--hold"]), &["already tuned to 512", &pid]);
        contains(&xk(1, &["unset", SHRINK]), &["held by process", &pid]);
        contains(&xk(1, &["unset", "--all"]), &["held by process", &pid]);
        contains(&xk(0, &["status"]), &["held by process", &pid, "(xk)"]);
        assert_eq!(get(SHRINK), "512");
        holder.end("-TERM");
        xk(0, &["set", "SHRINK_BATCH=64"]);
        contains(&xk(1, &["set", "SHRINK_BATCH=65", "--hold"]), &["already tuned to 64", "`xk unset SHRINK_BATCH`"]);
        assert_eq!(get(SHRINK), "64");
    }

    pub fn a_held_tune_ends_with_its_process() {
        for signal in ["-INT", "-TERM", "-HUP"] {
            contains(&Holder::start().end(signal), &["SHRINK_BATCH = 128 (its default)"]);
            contains(&xk(0, &["status"]), &["nothing is tuned"]);
        }
    }

    pub fn sigkill_of_the_holder_returns_the_default() {
        let holder = Holder::start();
        assert_eq!(get(SHRINK), "512");
        holder.end("-KILL");
        wait_until_nothing_is_tuned();
        assert_eq!(get(SHRINK), "128");
    }

    pub fn an_altered_byte_is_drift() {
        let set = |store: &Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
            let output = command.args(["set", "SHRINK_BATCH=64"]).env("XK_STORE", store).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(4), "{text}");
            text
        };
        let text = set(altered_tables(alter_a_byte).path());
        contains(&text, &["drift: SHRINK_BATCH", "expected 9", "running", "nothing was changed", "`xk build`"]);
        contains(&xk(0, &["status"]), &["nothing is tuned"]);
        let moved = altered_tables(|table| table["functions"][0]["text_offset"] = 64.into());
        contains(&set(moved.path()), &["_stext+0x40", "another build"]);
        contains(&xk(0, &["status"]), &["nothing is tuned"]);
    }

    pub fn a_disarmed_probe_is_shown() {
        xk(0, &["set", "SHRINK_BATCH=64"]);
        fs::write("/sys/kernel/debug/kprobes/enabled", "0").unwrap();
        contains(&xk(0, &["status"]), &["WARNING", "DISARMED", "the default 128 is in force", "kprobes/enabled"]);
        contains(&xk(0, &["get", SHRINK]), &["warning", "not in force"]);
        contains(&xk(1, &["set", "SHRINK_BATCH=65"]), &["disarmed", "kprobes/enabled"]);
        fs::write("/sys/kernel/debug/kprobes/enabled", "1").unwrap();
        contains(&xk(0, &["set", "SHRINK_BATCH=65"]), &["= 65 (was 64)"]);
        assert!(!xk(0, &["status"]).contains("WARNING"));
    }

    pub fn a_module_comes_and_goes() {
        let probes = || {
            let status = json(&["status", "--json"]);
            let sites = status["tunes"][0]["sites"].as_array().unwrap().clone();
            sites.iter().map(|site| site["probe"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let waiting = || probes().iter().all(|probe| probe == "waiting");
        let armed = || probes().iter().all(|probe| probe == "jump" || probe == "int3");
        let set = xk(0, &["set", "QUEUE_THRESHOLD=8192"]);
        contains(&set, &["= 8192 (was 16384)", "waiting", "module sch_pie is not loaded"]);
        contains(&xk(0, &["status"]), &["waiting for a module that is not loaded: sch_pie"]);
        assert_eq!(json(&["get", PIE, "--json"])["in_force_everywhere"], true);
        for value in ["8000", "4000"] {
            assert!(waiting());
            assert!(run("modprobe", &["sch_pie"]));
            assert!(armed());
            contains(&xk(0, &["set", &format!("QUEUE_THRESHOLD={value}")]), &[&format!("= {value} (was")]);
            assert!(run("rmmod", &["sch_pie"]));
        }
        assert!(waiting());
        assert!(run("modprobe", &["sch_pie"]));
        assert!(armed() && get(PIE) == "4000");
        assert!(!xk(0, &["status"]).contains("WARNING"));
        xk(0, &["unset", PIE]);
        assert!(run("rmmod", &["sch_pie"]));
    }

    pub fn only_root_may() {
        let folder = Path::new("/tmp/for-nobody");
        fs::create_dir_all(folder).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_xk"), folder.join("xk")).unwrap();
        assert!(run("cp", &["-r", &std::env::var("XK_STORE").unwrap(), "/tmp/for-nobody/store"]));
        assert!(run("chmod", &["-R", "a+rX", "/tmp/for-nobody"]));
        let nobody = |arguments: &[&str]| {
            let output = Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups", "/tmp/for-nobody/xk"])
                .args(arguments)
                .env("XK_STORE", "/tmp/for-nobody/store")
                .output()
                .unwrap();
            (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
        };
        for arguments in [&["set", "SHRINK_BATCH=64"][..], &["status"], &["unset", SHRINK], &["get", SHRINK]] {
            let (code, text) = nobody(arguments);
            assert_eq!(code, Some(1), "{text}");
            contains(&text, &["root"]);
        }
        let (code, text) = nobody(&["list"]);
        assert_eq!(code, Some(0), "{text}");
        contains(&text, &[SHRINK, "not known", "root"]);
        assert_eq!(nobody(&["explain", SHRINK]).0, Some(0));
        contains(&xk(0, &["status"]), &["nothing is tuned"]);
    }

    pub fn without_the_module_nothing_is_tuned() {
        xk(0, &["set", "SHRINK_BATCH=64"]);
        assert!(run("rmmod", &["xk"]));
        contains(&xk(5, &["set", "SHRINK_BATCH=64"]), &["not loaded", "insmod"]);
        contains(&xk(0, &["status"]), &["not loaded", "default"]);
        assert_eq!(get(SHRINK), "128");
    }

    pub fn the_doctor_finds_the_guest_fit() {
        let output = Command::new(env!("CARGO_BIN_EXE_xk")).args(["doctor", "--json"]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        for name in ["kernel", "root", "build-id", "btf", "kallsyms", "kcore", "kprobes", "xk.ko"] {
            let checks = document["checks"].as_array().unwrap();
            let check = checks.iter().find(|check| check["name"] == name).unwrap();
            assert_eq!(check["status"], "ok", "{document:#}");
        }
    }

    pub fn a_bundle_is_written() {
        contains(&xk(0, &["bundle", "/tmp/kernel.bundle"]), &["6.12", "build-id", "MiB"]);
        assert!(fs::metadata("/tmp/kernel.bundle").unwrap().len() > 1 << 20);
        contains(&xk(1, &["bundle", "/nonexistent/kernel.bundle"]), &["/nonexistent"]);
    }
}
