//! Threads under policies.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use xk_harness::sched::confine_thread;
use xk_harness::sched::rounds::Rounds;
use xk_sched::{Device, Error, Who, FAIR};
use xk_testing::guest::{file, run, wait_for};

use crate::support::{
    all_progress, class, in_the_class, insmod_with, policy, rmmod, state, unload, Process, FIFO_KO, MANY_KO, RR_KO,
    SCHED_EXT, SCHED_KO, SCHED_NORMAL, WEIGHTED2_KO, WEIGHTED_KO,
};

pub fn a_thread_runs_under_its_policy_and_children_inherit_it() {
    assert_eq!(state(), "enabled");
    assert_eq!(fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap().trim(), "xk_sched");
    assert_eq!(in_the_class(), [""; 0], "nobody chose a policy");
    let before = policy("fifo");
    assert_eq!((before.threads, before.switches, before.live), (0, 0, true));

    let parent = Process::under("fifo", "sh -c 'while :; do sleep 0.01; done' & while :; do sleep 0.01; done");
    assert_eq!(parent.class(), SCHED_EXT);
    let children = format!("/proc/{0}/task/{0}/children", parent.pid());
    wait_for("the child", || fs::read_to_string(&children).unwrap().split_whitespace().count() >= 1);
    let child = fs::read_to_string(&children).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(class(child), SCHED_EXT, "it inherits");
    wait_for("fifo chooses", || policy("fifo").switches > 50);
    assert!(policy("fifo").threads >= 2);
    assert_eq!(policy("rr").switches, 0, "the other policy has no thread");
    assert_eq!(class(std::process::id().try_into().unwrap()), SCHED_NORMAL, "who did not choose is in no policy");
}

pub fn hackbench_runs_under_two_policies_at_once() {
    let both = ["fifo", "rr"].map(|policy| Process::under(policy, "hackbench -g 2 -l 50 >/dev/null"));
    for process in both {
        process.ends_well();
    }
    for name in ["fifo", "rr"] {
        let policy = policy(name);
        assert!(policy.live && policy.switches > 300, "{policy:?}");
        assert_eq!((policy.ready, policy.overdue), (0, 0), "{policy:?}");
        wait_for("all threads have ended", || crate::support::policy(name).threads == 0);
    }
    assert_eq!(Device::open().unwrap().status().unwrap().ejected, 0);
}

pub fn two_policies_share_a_core() {
    let (one, other) = (Process::spinning("fifo", 1), Process::spinning("rr", 1));
    all_progress([&one, &other], 30);
    let (before_one, before_other) = (one.ticks(), other.ticks());
    one.progresses(100);
    let (one, other) = (one.ticks() - before_one, other.ticks() - before_other);
    assert!(other * 4 > one && one * 4 > other, "{one} and {other} ticks");
}

/// Threads that use all the time that they get, on one CPU. The kernel says what each had.
pub fn weights_divide_a_core() {
    let device = Device::open().unwrap();
    insmod_with(WEIGHTED_KO, "");
    for (weights, expected) in [([100, 100, 100], [1.0, 1.0]), ([300, 100, 50], [3.0, 0.5])] {
        let names = ["fifo", "rr", "weighted"];
        for (name, weight) in names.into_iter().zip(weights) {
            device.set_weight(name, weight).unwrap();
            assert_eq!(policy(name).weight, weight);
        }
        // The first has more threads, and gets no more for it.
        let threads = [names[0], names[0], names[1], names[2]].map(|name| Process::spinning(name, 1));
        all_progress(&threads, 10);
        let before: Vec<_> = threads.iter().map(Process::ran).collect();
        threads[2].progresses(100);
        let ran: Vec<_> = threads.iter().zip(before).map(|(thread, before)| (thread.ran() - before) as f64).collect();
        let ratios = [(ran[0] + ran[1]) / ran[2], ran[3] / ran[2]];
        for (ratio, expected) in ratios.into_iter().zip(expected) {
            assert!((0.8..1.25).contains(&(ratio / expected)), "{weights:?}: {ratios:?} of {ran:?}");
        }
        eprintln!("{weights:?}: {ratios:?}");
    }
    for (name, weight, said) in
        [("rr", 0, "1 to 10000"), ("rr", 10_001, "1 to 10000"), ("nobody", 5, "no policy is called")]
    {
        let error = device.set_weight(name, weight).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(device.status().unwrap().ejected, 0);
}

const FAIR_THREAD: &str = "taskset -pc 0 $$ >/dev/null; while :; do :; done";
/// The time that the kernel's deadline server gives the class; Linux 6.12 has no such server.
const SERVER: &str = "/sys/kernel/debug/sched/ext_server/cpu0/runtime";

fn has_server() -> bool {
    // It may be mounted already.
    run("mount", &["-t", "debugfs", "none", "/sys/kernel/debug"]);
    assert!(Path::new("/sys/kernel/debug/sched").exists());
    Path::new(SERVER).exists()
}

/// Fair threads rank above, but the kernel's deadline server gives the class a share.
pub fn a_busy_fair_thread_ejects_nobody() {
    if !has_server() {
        return;
    }
    crate::support::load("timeout_ms=3000");
    let fair = Process::given_to(FAIR, FAIR_THREAD).0;
    let ours = Process::spinning("rr", 0);
    // Longer than a thread may wait.
    fair.progresses(600);
    ours.progresses(5);
    assert_eq!((ours.class(), policy("rr").live, policy("rr").overdue), (SCHED_EXT, true, 0));
    assert_eq!(Device::open().unwrap().status().unwrap().ejected, 0);
}

/// While it exists, the kernel has no deadline server for the class on the first CPU.
struct NoServer(Option<String>);

impl NoServer {
    fn new() -> Self {
        let before = has_server().then(|| fs::read_to_string(SERVER).unwrap());
        if before.is_some() {
            fs::write(SERVER, "0").unwrap();
        }
        Self(before)
    }
}

impl Drop for NoServer {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = fs::write(SERVER, before.trim());
        }
    }
}

/// Threads that get no time go to the fair class: one that ran when the fair thread began, and one that has not run yet.
pub fn without_a_deadline_server_a_busy_fair_thread_ejects_nobody() {
    crate::support::load("timeout_ms=1500");
    let chosen = Process::spinning("rr", 0);
    chosen.progresses(5);
    let no_server = NoServer::new();
    let fair = Process::start(FAIR, "while :; do :; done", Some(0)).0;
    wait_for("it is in the fair class", || chosen.class() == SCHED_NORMAL);
    let ours = [chosen, Process::spinning("rr", 0)];
    wait_for("the other is in the fair class", || ours[1].class() == SCHED_NORMAL);
    fair.progresses(5);
    drop(no_server);
    all_progress(&ours, 5);
    assert!(policy("rr").live && policy("rr").overdue >= 2, "{:?}", policy("rr"));
    assert_eq!((state().as_str(), Device::open().unwrap().status().unwrap().ejected), ("enabled", 0));
}

/// An eager policy chooses a thread when it wakes. It is in no queue then, and has its whole time left.
pub fn a_thread_that_was_chosen_and_gets_no_time_ejects_nobody() {
    crate::support::load("timeout_ms=1500");
    let no_server = NoServer::new();
    let fair = Process::start(FAIR, "while :; do :; done", Some(0)).0;
    fair.progresses(5);
    let chosen = Process::spinning("fifo", 0);
    wait_for("it is in the fair class", || chosen.class() == SCHED_NORMAL);
    let after = policy("fifo");
    assert_eq!((after.live, after.overdue, after.switches), (true, 1, 1), "{after:?}");
    assert_eq!((state().as_str(), Device::open().unwrap().status().unwrap().ejected), ("enabled", 0));
    drop(no_server);
    all_progress([&chosen, &fair], 5);
}

/// Queues that are ordered by the time that threads had.
pub fn nice_values_count_in_a_tree_and_in_a_list() {
    for list in ["sorted_list=0", "sorted_list=1"] {
        insmod_with(WEIGHTED_KO, list);
        // A level of nice is a factor of 1.25: five are 3.05.
        let (normal, nicer) = (Process::spinning("weighted", 1), Process::spinning("weighted", 1));
        assert!(run("renice", &["-n", "5", "-p", &nicer.pid().to_string()]));
        normal.progresses(30);
        let (before_normal, before_nicer) = (normal.ticks(), nicer.ticks());
        nicer.progresses(100);
        let (normal, nicer) = (normal.ticks() - before_normal, nicer.ticks() - before_nicer);
        let ratio = normal as f64 / nicer as f64;
        assert!((2.3..4.0).contains(&ratio), "{list}: {normal} ticks to {nicer}");
        assert!(policy("weighted").live);
        Process::under("weighted", "hackbench -g 1 -l 20 >/dev/null").ends_well();
        assert!(policy("weighted").live);
        rmmod("xk_sched_weighted");
    }
}

pub fn eight_policies_at_once() {
    insmod_with(MANY_KO, "number=8");
    let names: Vec<String> = (1..=8).map(|n| format!("fifo{n}")).collect();
    let processes: Vec<Process> = names.iter().map(|name| Process::spinning(name, 2)).collect();
    all_progress(&processes, 10);
    for name in &names {
        assert_eq!((policy(name).threads, policy(name).live), (1, true), "{name}");
    }
}

pub fn a_live_process_moves_between_policies() {
    let device = Device::open().unwrap();
    let process = Process::spinning("fifo", 2);
    // A thread that has ended counts until the kernel frees it: the command that this one started first, and those of other
    // tests.
    wait_for("there is no other thread", || policy("fifo").threads == 1 && policy("rr").threads == 0);
    for round in 0..50 {
        for name in ["rr", "fifo"] {
            assert_eq!(device.choose(name, Who::Process(process.pid())).unwrap(), 1, "round {round}");
            assert_eq!(policy(name).threads, 1);
        }
    }
    assert_eq!(policy("rr").threads, 0);
    process.progresses(5);
    assert!(device.choose(FAIR, Who::Process(process.pid())).is_ok());
    assert_eq!((process.class(), policy("fifo").threads), (SCHED_NORMAL, 0));
    process.progresses(5);
    assert_eq!(device.status().unwrap().ejected, 0);
}

/// Those that wait are taken out of their queues, and placed again.
pub fn affinity_changes_while_threads_wait() {
    let processes: Vec<_> = (0..6).map(|n| Process::spinning(["fifo", "rr"][n % 2], 0)).collect();
    for round in 0..40 {
        for process in &processes {
            confine_thread(process.pid(), &[round % 4]);
        }
    }
    for process in &processes {
        assert_eq!(process.class(), SCHED_EXT);
    }
    all_progress(&processes, 2);
    assert_eq!(Device::open().unwrap().status().unwrap().ejected, 0);
}

pub fn a_core_goes_offline_under_load() {
    let processes: Vec<_> =
        (0..4).map(|n| Process::under(["fifo", "rr"][n % 2], "while :; do for i in 1 2 3; do :; done; done")).collect();
    for _ in 0..5 {
        for online in ["0", "1"] {
            fs::write("/sys/devices/system/cpu/cpu3/online", online).unwrap();
            all_progress(&processes, 1);
        }
    }
    assert_eq!(state(), "enabled");
    assert_eq!(Device::open().unwrap().status().unwrap().ejected, 0);
}

/// To count begins and ends with each descriptor. Both need the kernel's lock of CPUs that come and go.
pub fn counters_are_read_while_a_core_goes_and_comes() {
    let reads = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicBool::new(false));
    let reader = {
        let (reads, ended) = (Arc::clone(&reads), Arc::clone(&ended));
        std::thread::spawn(move || {
            while !ended.load(Relaxed) {
                assert_eq!(Device::open_to_read().unwrap().stats().unwrap().len(), 2);
                reads.fetch_add(1, Relaxed);
            }
        })
    };
    let hotplug = std::thread::spawn(|| {
        for online in ["0", "1"].repeat(5) {
            fs::write("/sys/devices/system/cpu/cpu3/online", online).unwrap();
        }
    });
    wait_for("the core went and came", || hotplug.is_finished());
    let before = reads.load(Relaxed);
    wait_for("counters are read", || reads.load(Relaxed) > before + 2);
    ended.store(true, Relaxed);
    reader.join().unwrap();
    hotplug.join().unwrap();
}

pub fn a_policy_is_removed_while_its_threads_run() {
    let (goes, stays) = (Process::spinning("rr", 0), Process::spinning("fifo", 0));
    let waits = Process::under("rr", "while :; do sleep 0.01; done");
    rmmod("xk_sched_rr");
    assert_eq!([&goes, &waits, &stays].map(Process::class), [SCHED_NORMAL, SCHED_NORMAL, SCHED_EXT]);
    all_progress([&goes, &stays], 5);
    let error = Device::open().unwrap().choose("rr", Who::Process(goes.pid())).unwrap_err();
    assert!(matches!(&error, Error::NoSuchPolicy(said) if said.contains("no policy is called rr")), "{error}");
}

pub fn nothing_is_left_after_unloading() {
    for _ in 0..5 {
        let process = Process::under("rr", "hackbench -g 1 -l 50 >/dev/null");
        unload();
        assert_eq!(state(), "disabled");
        assert_eq!(in_the_class(), [""; 0]);
        assert!(!Path::new(xk_sched::DEVICE_PATH).exists());
        assert!(matches!(Device::open().unwrap_err(), Error::NotLoaded));
        process.ends_well();
        crate::support::prepare();
    }
}

pub fn requests_that_cannot_be_met_say_why() {
    let device = Device::open().unwrap();
    let said = |policy: &str, who: Who| device.choose(policy, who).unwrap_err();
    let error = said("nobody", Who::Caller);
    assert!(matches!(&error, Error::NoSuchPolicy(text) if text.contains("xk sched list")), "{error}");
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let error = said("fifo", Who::Process(ended.id().try_into().unwrap()));
    assert!(matches!(&error, Error::NoSuchThread(text) if text.contains("there is no process")), "{error}");
    assert!(matches!(said(&"a".repeat(32), Who::Caller), Error::Name(_)));
    assert!(matches!(said("", Who::Caller), Error::Name(_)));
    let reader = Device::open_to_read().unwrap();
    let error = reader.choose("fifo", Who::Caller).unwrap_err();
    assert!(matches!(&error, Error::Forbidden(text) if text.contains("reading only")), "{error}");
    assert_eq!(in_the_class(), [""; 0]);
}

/// A short run of `cargo xtask sched-rounds`.
pub fn no_thread_is_lost_while_threads_move_and_modules_go() {
    crate::support::unload();
    let module = |name: &str| {
        let variables = [SCHED_KO, FIFO_KO, RR_KO, WEIGHTED_KO, WEIGHTED2_KO];
        let found = variables.into_iter().map(file).find(|path| path.file_stem().is_some_and(|stem| stem == name));
        found.unwrap()
    };
    let outcome = Rounds::new(module, 60).unwrap().run(12, |_| ()).unwrap();
    eprintln!("{outcome:?}");
    assert_eq!((outcome.rounds, outcome.moves, outcome.unloads), (12, 12 * 60, 2));
    assert!(outcome.replacements == 4 && outcome.replaced >= 4 * 20, "{outcome:?}");
    assert!(outcome.hotplugs >= 3 && outcome.policies_removed >= 2 && outcome.hackbench >= 1, "{outcome:?}");
}
