//! `xk tune` on a stock kernel, with a knob in sysfs and a perf-const. The target is what the kernel reports
//! (`tune_vm/target.c`). One guest boots and runs every check, one after the other.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[path = "tune_vm/service.rs"]
mod service;
#[macro_use]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{build, contains, json, BLK};
use xk_testing::guest::{boot, file, insmod, modules, output_of, passed, repository, run, XK_KO};

const STATE: &str = "/tmp/tuner";
/// The compiled target. Set in the guest only.
const COMPILED: &str = "XK_TEST_TARGET";
/// Where it is in the guest: a service has a /tmp of its own.
const TARGET: &str = "/usr/bin/target";
const AHEAD: &str = "/sys/block/nullb0/queue/read_ahead_kb";

xk_testing::guest_tests! {
    killed_again_and_again_it_finds_keeps_and_puts_back,
    a_value_that_the_kernel_refuses_is_not_chosen,
    a_lease_that_ends_costs_one_trial,
    systemd_starts_it_again_when_it_hangs,
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let store = tempfile::tempdir().unwrap();
        build(store.path(), &[BLK]);
        let modules = modules(&[(XK_KO, "kernel/xk")]);
        let target = store.path().join("target");
        let source = repository().join("crates/xk/tests/tune_vm/target.c");
        output_of(Command::new("gcc").args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&target).arg(source));
        let [store, target] = [store.path(), &target].map(Path::display);
        boot(3000, &format!("{modules} XK_STORE={store} {COMPILED}={target}"))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

/// A fresh device, module and memory for each check.
fn prepare() {
    if Path::new("/dev/xk").exists() {
        // The lease of a tuner that was killed with a failed check still runs.
        wait_until("xk.ko can be unloaded", || run("rmmod", &["xk"]));
    }
    if Path::new("/sys/block/nullb0").exists() {
        assert!(run("rmmod", &["null_blk"]));
    }
    insmod(XK_KO);
    let device = "nr_devices=1 gb=1 queue_mode=2 submit_queues=1 hw_queue_depth=1024";
    assert!(run("modprobe", &[&["null_blk"][..], &device.split(' ').collect::<Vec<_>>()].concat()));
    wait_until("the device is there", || Path::new("/dev/nullb0").exists());
    if Path::new(STATE).exists() {
        fs::remove_dir_all(STATE).unwrap();
    }
    if !Path::new(TARGET).exists() {
        fs::copy(file(COMPILED), TARGET).unwrap();
    }
}

#[track_caller]
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while Instant::now() < deadline {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never happened that {what}");
}

/// A description with these values of `read_ahead_kb`, and more. No window takes so long that it is aborted: the time that
/// one takes is the host's.
fn describe(ahead: &str, more: &str) -> PathBuf {
    let text = format!(
        "schema = 1\n[[parameter]]\nname = \"plug\"\nconst = \"{BLK}\"\nchoices = [32, 128]\nsettle = \"0s\"\n[[parameter]]\n\
         name = \"ahead\"\nfile = \"{AHEAD}\"\nchoices = [{ahead}]\nsettle = \"0s\"\n[target]\ncommand = '{TARGET}'\nmeasure = \"number\"\n\
         goal = \"maximise\"\ntimeout = \"60s\"\n[search]\nabort_after = 1000.0\n{more}"
    );
    let file = PathBuf::from("/tmp/search.toml");
    fs::write(&file, text).unwrap();
    file
}

fn tune(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
    command.arg("tune").args(arguments).env("XK_TUNER", STATE);
    command
}

#[track_caller]
fn said(code: i32, command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// What the kernel has: read ahead, and the tunes of xk.ko.
fn knobs() -> (String, Vec<i64>) {
    let status = json(&["status", "--json"]);
    let tunes = status["tunes"].as_array().unwrap().iter().map(|tune| tune["value"].as_i64().unwrap());
    (fs::read_to_string(AHEAD).unwrap().trim().to_owned(), tunes.collect())
}

fn untouched() -> (String, Vec<i64>) {
    ("128".into(), vec![])
}

/// The target as it stands: what the kernel reports, not what the tuner says.
fn reported(name: &str) -> i64 {
    let output = said(0, &mut Command::new(TARGET));
    let line = output.lines().find_map(|line| line.strip_prefix(&format!("{name} = "))).unwrap();
    line.parse().unwrap()
}

/// A tuner that runs on its own. It does not outlive the check that started it.
struct Tuner(Child);

impl Tuner {
    fn start(file: &Path) -> Self {
        let mut command = tune(&[file.to_str().unwrap()]);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn ended(&self) -> bool {
        !Path::new(&format!("/proc/{}/fd/0", self.0.id())).exists()
    }

    /// Fails, with the history, when the tuner has ended before it was told to.
    fn goes_on(&self) -> bool {
        assert!(!self.ended(), "{}", said(0, &mut tune(&["history"])));
        true
    }

    /// Whether a knob is changed where the tuner now stands; if none is, it goes on.
    fn stands_still(&self) -> bool {
        self.stands_where(|| knobs() != untouched())
    }

    /// Whether this is so where the tuner now stands; if not, it goes on. It stands before anybody looks: a look takes
    /// as long as a window.
    fn stands_where(&self, is_so: impl Fn() -> bool) -> bool {
        self.signal(libc::SIGSTOP);
        wait_until("all of its threads stand", || self.goes_on() && self.stands());
        let still = is_so();
        if !still {
            self.signal(libc::SIGCONT);
        }
        still
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: it has no pointers. The process is a child that nobody has waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as libc::pid_t, signal) }, 0);
    }

    fn stands(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap().flatten();
        let stands = |stat: String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'));
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok()).all(stands)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Tuner {
    fn drop(&mut self) {
        // Fails if the check has killed it already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

mod checks {
    pub use super::service::systemd_starts_it_again_when_it_hangs;
    use super::*;

    /// A knob is away from its default when it is killed, in every round.
    pub fn killed_again_and_again_it_finds_keeps_and_puts_back() {
        assert_eq!((knobs(), reported("plug")), (untouched(), 32));
        let requests = reported("requests");
        let file = describe("128, 1024", "");
        let plan = said(0, &mut tune(&[file.to_str().unwrap(), "--plan"]));
        contains(&plan, &[BLK, "the kernel (lease)", AHEAD, "the guardian process", "nothing has been changed"]);
        assert_eq!(knobs(), untouched());
        let next = kill_again_and_again(&file);
        assert_eq!(reported("plug"), 32);

        let killed = begun();
        let mut tuner = Tuner::start(&file);
        wait_until("it goes on", || tuner.goes_on() && begun().len() > killed.len());
        assert_ne!(next, Value::Null, "it was killed in a trial");
        assert_eq!(begun()[killed.len()], killed[killed.len() - 1], "that trial is next");
        tuner.kill();
        wait_until("everything is put back", || knobs() == untouched());
        let text = said(0, &mut tune(&[file.to_str().unwrap()]));
        contains(&text, &["resuming search 1", "is better than the default"]);
        contains(&text, &["plug = 128 (was 32)", "ahead = 1024 (was 128)"]);
        let kept = || knobs() == ("1024".into(), vec![128]);
        assert!(kept());
        assert_eq!(reported("plug"), 128);
        assert!(reported("requests") < requests, "with more read ahead, fewer requests");
        let text = said(0, &mut as_a_service(&file));
        contains(&text, &["is compared with the default", "better than the default again"]);
        assert!(kept());
        kill_in_a_comparison(&file, kept);
        contains(&said(0, &mut tune(&["revert"])), &["plug = 32 (restored)", "ahead = 128 (restored)"]);
        assert_eq!((knobs(), reported("plug")), (untouched(), 32));
    }

    /// It is killed while the default is in force. The guardian puts back what is kept, the perf-const too, which the kernel
    /// does not. Without the guardian, the next start does.
    fn kill_in_a_comparison(file: &Path, kept: impl Fn() -> bool) {
        let is_default = || knobs() == untouched();
        let mut tuner = Tuner::start(file);
        wait_until("the default is in force", || tuner.goes_on() && tuner.stands_where(is_default));
        tuner.kill();
        wait_until("the guardian has put back what is kept", &kept);
        assert_eq!(reported("plug"), 128);

        let mut tuner = Tuner::start(file);
        wait_until("the default is in force again", || tuner.goes_on() && tuner.stands_where(is_default));
        assert!(run("pkill", &["-KILL", "-P", &tuner.0.id().to_string(), "-f", "tune guard"]));
        tuner.kill();
        std::thread::sleep(Duration::from_secs(2));
        assert!(is_default(), "nobody was left to put it back");
        let text = said(0, &mut tune(&[file.to_str().unwrap()]));
        contains(&text, &["plug = 128 (restored)", "ahead = 1024 (restored)", "better than the default again"]);
        assert!(kept());
    }

    /// What the last one was killed in. It is killed in a state that was seen: the time that a round takes does not matter.
    fn kill_again_and_again(file: &Path) -> Value {
        // So many trials end before the kill.
        for more in [0, 0, 1, 0, 1, 0] {
            while !kill_in_a_trial(file, more) {}
        }
        status()["unfinished"].clone()
    }

    /// False if the end of the trial was being written when it was killed. What SQLite has written to its log, but not to
    /// the log's index, is seen only after the next start.
    fn kill_in_a_trial(file: &Path, more: u64) -> bool {
        let mut tuner = Tuner::start(file);
        wait_until("a trial has begun", || status()["unfinished"] != Value::Null);
        let wanted = ended() + more;
        wait_until("trials have ended", || tuner.goes_on() && ended() >= wanted);
        wait_until("the tuner stands still while a knob is changed", || tuner.goes_on() && tuner.stands_still());
        let before = status();
        tuner.kill();
        wait_until("everything is put back", || knobs() == untouched());
        let after = status();
        assert_eq!(after["search"]["id"], 1);
        let state = |status: &Value| (status["trials"].as_u64().unwrap(), status["unfinished"].clone());
        let (ended, unfinished) = state(&before);
        let is_written = state(&after) == (ended + 1, Value::Null);
        assert!(is_written || state(&after) == (ended, unfinished), "a trial is lost: {before} {after}");
        !is_written
    }

    /// How many trials have ended.
    fn ended() -> u64 {
        status()["trials"].as_u64().unwrap()
    }

    /// The trials that began, in their order: what was to be changed, and to what.
    fn begun() -> Vec<Value> {
        let entries = entries();
        entries.iter().map(|entry| &entry["what"]).filter(|what| what["event"] == "trial").cloned().collect()
    }

    /// With no more capabilities than the service has.
    fn as_a_service(file: &Path) -> Command {
        let unit = fs::read_to_string(repository().join("packaging/xk-tune@.service")).unwrap();
        let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
        let set: String = line.split(' ').map(|name| name.replace("CAP_", ",+").to_lowercase()).collect();
        let mut command = Command::new("setpriv");
        command.args(["--no-new-privs", &format!("--bounding-set=-all{set}"), env!("CARGO_BIN_EXE_xk"), "tune"]);
        command.arg(file).env("XK_TUNER", STATE);
        command
    }

    fn status() -> Value {
        serde_json::from_str(&said(0, &mut tune(&["status", "--json"]))).unwrap()
    }

    /// The kernel rounds what is no whole number of pages, and refuses what is no number.
    pub fn a_value_that_the_kernel_refuses_is_not_chosen() {
        let file = describe("128, \"plenty\", 1023", "trials = 24\n");
        let text = said(0, &mut tune(&[file.to_str().unwrap()]));
        contains(&text, &["does not take plenty: Invalid argument", "plug = 128 (was 32)"]);
        contains(&text, &["was set to 1023, but reads back differently: 1020"]);
        assert_eq!(knobs(), ("128".into(), vec![128]));
        said(0, &mut tune(&["revert"]));
        assert_eq!(knobs(), untouched());
    }

    /// SIGSTOP: nobody is left to put anything back, and nobody died. The lease ends all the same; the window that it
    /// ended in is worth nothing, and the search goes on.
    pub fn a_lease_that_ends_costs_one_trial() {
        let file = describe("128, 1024", "");
        let text = fs::read_to_string(&file).unwrap();
        let target = text.lines().find_map(|line| line.strip_prefix("command = ")).unwrap();
        // The target itself stops the tuner, once, so that it happens inside a window with the candidate.
        let script = Path::new("/tmp/stopper");
        let stop = "test -e /tmp/stopped || { touch /tmp/stopped; kill -STOP $(cat /tmp/pid); }";
        let target = target.trim_matches('\'');
        fs::write(script, format!("#!/bin/sh\n{target} | grep -q '^plug = 128$' && {{ {stop}; }}\nsleep 1; echo 5\n"))
            .unwrap();
        fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&file, text.replace(target, "/tmp/stopper").replace("60s", "15s")).unwrap();
        let mut tuner = Tuner::start(&file);
        let pid = tuner.0.id().to_string();
        fs::write("/tmp/pid", &pid).unwrap();
        wait_until("the target stops the tuner", || {
            assert!(!tuner.ended(), "{}", said(0, &mut tune(&["history"])));
            Path::new("/tmp/stopped").exists()
        });
        wait_until("the constant is tuned", || knobs().1 == [128]);
        // As long as a window may take, and a little more; not the minute that it has before the first.
        let left = json(&["status", "--json"])["tunes"][0]["lease_s"].as_f64();
        assert!(left.is_some_and(|seconds| seconds < 30.0), "{left:?}");
        wait_until("the lease has ended", || knobs().1.is_empty());
        assert_eq!(reported("plug"), 32);
        assert!(run("kill", &["-CONT", &pid]));
        wait_until("the next trial begins", || {
            assert!(!tuner.ended(), "{}", said(0, &mut tune(&["history"])));
            trials().len() > 1
        });
        let first = &trials()[0]["what"]["evidence"];
        assert_eq!(first["end"], "failed", "{first}");
        contains(first["reason"].as_str().unwrap(), &["plug: ", "its lease ended", "default again"]);
        tuner.kill();
        wait_until("everything is put back", || knobs() == untouched());
    }

    /// The journal.
    fn entries() -> Vec<Value> {
        let journal: Value = serde_json::from_str(&said(0, &mut tune(&["history", "--json"]))).unwrap();
        journal["entries"].as_array().unwrap().clone()
    }

    /// The ends of trials, and the beginning of the one that has not ended.
    fn trials() -> Vec<Value> {
        let entries = entries();
        let number = |entry: &Value| entry["what"]["number"].as_u64();
        let ended: Vec<Value> = entries.iter().filter(|entry| entry["what"]["event"] == "ended").cloned().collect();
        let open = entries.iter().rev().find(|entry| entry["what"]["event"] == "trial").cloned();
        let open = open.filter(|open| ended.iter().all(|end| number(end) != number(open)));
        ended.into_iter().chain(open).collect()
    }
}
