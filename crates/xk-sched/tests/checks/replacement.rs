//! A policy takes over the threads of another while they run; and the policy `latency`.

use std::process::Command;

use xk_sched::{Device, Error};
use xk_testing::guest::wait_for;

use crate::support::{
    all_progress, insmod_with, policy, rmmod, Process, FAULTY_KO, LATENCY_KO, SCHED_EXT, SCHED_NORMAL, WEIGHTED2_KO,
    WEIGHTED_KO,
};

const PING: &str = "while :; do sleep 0.002; done";
/// With pauses, in which threads that compute are sure to run.
const LOAD: &str = "while :; do hackbench -g 1 -l 5 >/dev/null; sleep 0.1; done";

fn renice(process: &Process, nice: &str) {
    let renice = Command::new("renice").args(["-n", nice, "-p", &process.pid().to_string()]).output();
    assert!(renice.unwrap().status.success());
}

/// Threads that compute, sleep, communicate and begin: all are in the new version, and go on.
pub fn a_new_version_takes_over_while_threads_run() {
    let device = Device::open().unwrap();
    insmod_with(WEIGHTED_KO, "");
    let spinning: Vec<_> = (0..6).map(|nr| Process::spinning("weighted", nr % 2)).collect();
    let others = [Process::under("weighted", PING), Process::under("weighted", LOAD)];
    let mut versions = [("weighted", WEIGHTED_KO), ("weighted2", WEIGHTED2_KO)];
    for round in 0..10 {
        let [old, new] = versions;
        if round > 0 {
            rmmod(&format!("xk_sched_{}", new.0));
        }
        insmod_with(new.1, "");
        all_progress(&spinning, 1);
        let given = device.replace(old.0, new.0).unwrap();
        assert!(given >= 8, "{given} threads in round {round}");
        assert_eq!(policy(old.0).threads, 0, "round {round}");
        for process in spinning.iter().chain(&others) {
            assert_eq!(process.class(), SCHED_EXT, "round {round}");
        }
        let switches = policy(new.0).switches;
        all_progress(&spinning, 2);
        assert!(policy(new.0).live && policy(new.0).switches > switches);
        versions.swap(0, 1);
    }
    // The module of the version that is not in use can go, and the threads stay.
    rmmod(&format!("xk_sched_{}", versions[1].0));
    all_progress(&spinning, 2);
    // Any policy without data of its threads can take over.
    assert!(device.replace(versions[0].0, "rr").unwrap() >= 8);
    all_progress(&spinning, 2);
    let given = Process::under("rr", "true");
    given.ends_well();
    assert_eq!(device.status().unwrap().ejected, 0);
}

pub fn a_policy_that_cannot_take_over_is_refused() {
    let device = Device::open().unwrap();
    insmod_with(WEIGHTED_KO, "");
    let process = Process::spinning("rr", 0);
    let said = |old: &str, new: &str| device.replace(old, new).unwrap_err().to_string();
    assert!(said("rr", "fifo").contains("fifo cannot take over threads: it has no event take_over"));
    assert!(said("rr", "weighted").contains("weighted does not take over from rr"));
    assert!(said("rr", "rr").contains("rr cannot replace itself"));
    assert!(said("rr", "nobody").contains("no policy is called nobody"));
    assert!(said("nobody", "rr").contains("no policy is called nobody"));
    let error = Device::open_to_read().unwrap().replace("fifo", "rr").unwrap_err();
    assert!(matches!(error, Error::Forbidden(_)), "{error}");
    // A command that it started may be counted until the kernel frees it.
    wait_for("one thread is in rr", || policy("rr").threads == 1);
    assert_eq!(process.class(), SCHED_EXT);
    process.progresses(2);
    // A policy that was ejected takes over nothing.
    insmod_with(FAULTY_KO, "kind=forget_new_place");
    let (ejected, _) = Process::given_to("faulty", "while :; do :; done");
    wait_for("it is ejected", || !policy("faulty").live);
    assert!(said("rr", "faulty").contains("faulty was ejected"));
    wait_for("its thread is in the fair class", || ejected.class() == SCHED_NORMAL);
    assert_eq!(policy("rr").threads, 1);
    rmmod("xk_sched_faulty");
}

/// Its first threads are placed by `unblock_place`, which forgets them. What has not moved yet stays.
pub fn a_policy_that_fails_to_take_over_is_ejected_alone() {
    let device = Device::open().unwrap();
    for kind in ["forget_unblock_place", "place_loops", "adopt_as_blocked", "adopt_loops", "adopt_reads_null"] {
        insmod_with(FAULTY_KO, &format!("kind={kind}"));
        let processes: Vec<_> = (0..4).map(|_| Process::spinning("fifo", 0)).collect();
        all_progress(&processes, 1);
        let error = device.replace("fifo", "faulty").unwrap_err().to_string();
        assert!(error.contains("was ejected when"), "{kind}: {error}");
        all_progress(&processes, 1);
        let report = device.reports().unwrap().remove(0);
        let event = if kind.starts_with("adopt") { "adopt" } else { "unblock_place" };
        assert_eq!((report.policy.as_str(), report.event.as_str()), ("faulty", event), "{report:?}");
        assert!(policy("fifo").live && !policy("faulty").live);
        drop(processes);
        rmmod("xk_sched_faulty");
    }
}

/// On one CPU: a thread that wakes often runs at once, so its time is what it needs; one that does not sleep is batch.
pub fn critical_threads_stop_batch_and_do_not_starve_it() {
    insmod_with(LATENCY_KO, "");
    let batch = Process::spinning("latency", 0);
    let critical = Process::spinning("latency", 0);
    renice(&critical, "-5");
    // It does not sleep, so both get the half after a while.
    all_progress([&batch, &critical], 50);
    let hackbench = Process::under("latency", "exec hackbench -g 1 -l 20 >/dev/null");
    renice(&hackbench, "-5");
    hackbench.ends_well();
    batch.progresses(5);
    assert!(policy("latency").live && policy("latency").overdue == 0);
}
