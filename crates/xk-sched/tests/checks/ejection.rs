//! Policies that make mistakes, beside others that do not.

use xk_sched::{Device, Error, Report, Who};
use xk_testing::guest::{file, run, wait_for};

use crate::support::{insmod_with, load, policy, rmmod, state, Process, FAULTY_KO, SCHED_EXT, SCHED_NORMAL};

/// A mistake, the event that makes it, and the states before and after. `*`: any.
const MISTAKES: [(&str, &str, &str, &str); 29] = [
    ("core_999", "unblock_prepare", "*", "*"),
    ("core_negative", "unblock_prepare", "*", "*"),
    ("core_forbidden", "unblock_prepare", "*", "*"),
    ("change_in_prepare", "unblock_prepare", "BLOCKED", "READY"),
    ("place_as_running", "new_place", "NOT_QUEUED", "RUNNING"),
    ("place_as_blocked", "new_place", "NOT_QUEUED", "BLOCKED"),
    ("place_nowhere", "new_place", "NOT_QUEUED", "READY"),
    ("place_on_other_core", "new_place", "NOT_QUEUED", "READY"),
    ("queue_of_other_core", "new_place", "NOT_QUEUED", "READY"),
    ("queue_not_initialised", "new_place", "NOT_QUEUED", "READY"),
    ("queue_twice", "new_place", "READY", "READY"),
    ("forget_new_place", "new_place", "NOT_QUEUED", "NOT_QUEUED"),
    ("forget_unblock_place", "unblock_place", "BLOCKED", "BLOCKED"),
    ("change_in_end", "unblock_end", "READY", "RUNNING"),
    ("tick_without_queue", "tick", "RUNNING", "READY_TICK"),
    ("block_in_tick", "tick", "RUNNING", "BLOCKED"),
    ("ready_in_tick", "tick", "RUNNING", "READY"),
    ("forget_yield", "yield", "RUNNING", "RUNNING"),
    ("yield_as_blocked", "yield", "RUNNING", "BLOCKED"),
    ("forget_block", "block", "RUNNING", "RUNNING"),
    ("block_as_ready", "block", "RUNNING", "READY"),
    ("block_other_thread", "block", "*", "BLOCKED"),
    ("forget_terminate", "terminate", "*", "*"),
    ("terminate_as_ready", "terminate", "*", "READY"),
    ("schedule_as_blocked", "schedule", "READY", "BLOCKED"),
    ("schedule_two", "schedule", "READY", "RUNNING"),
    ("steal_from_itself", "newly_idle", "", ""),
    ("steal_for_other_core", "newly_idle", "", ""),
    ("change_outside", "no event", "*", "READY"),
];

/// Threads that wake, wait for each other, use their time up, and end.
const LOAD: &str = "taskset -pc 0,1 $$ >/dev/null; while :; do for i in 1 2 3; do \
    (sleep 0.01; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.01) & done; wait; done";

fn reports() -> Vec<Report> {
    Device::open_to_read().unwrap().reports().unwrap()
}

/// Returns when the policy with this mistake is ejected. Its threads are in the fair class then, and go on.
fn eject(mistake: &str) -> Report {
    insmod_with(FAULTY_KO, &format!("kind={mistake}"));
    let (process, given) = Process::given_to("faulty", LOAD);
    assert!(matches!(given, Ok(1) | Err(Error::Ejected(_))), "{mistake}: {given:?}");
    wait_for(&format!("{mistake}: it is ejected"), || !policy("faulty").live);
    wait_for(&format!("{mistake}: its threads are in the fair class"), || policy("faulty").threads == 0);
    assert_eq!(process.class(), SCHED_NORMAL, "{mistake}");
    process.progresses(1);
    let error = Device::open().unwrap().choose("faulty", Who::Process(process.pid())).unwrap_err();
    assert!(matches!(&error, Error::Ejected(said) if said.contains("was ejected")), "{mistake}: {error}");
    let report = reports().remove(0);
    assert_eq!(report.policy, "faulty");
    rmmod("xk_sched_faulty");
    report
}

fn is(pattern: &str, state: &str) -> bool {
    pattern == "*" || pattern == state
}

pub fn each_mistake_ejects_its_policy_alone() {
    let healthy = ["fifo", "rr"].map(|policy| Process::under(policy, "while :; do sleep 0.01; done"));
    for (nr, (mistake, event, from, to)) in MISTAKES.into_iter().enumerate() {
        let before = ["fifo", "rr"].map(|name| policy(name).switches);
        let report = eject(mistake);
        // A thread that is created may come to the event before one that wakes.
        let new = report.event.replace("new_", "unblock_") == event;
        assert!(report.event == event || new, "{mistake}: {report:?}");
        let states = report.thread.as_ref().map_or(["", ""], |thread| [&thread.from, &thread.to]);
        assert!(new || (is(from, states[0]) && is(to, states[1])), "{mistake}: {report:?}");
        for (name, before) in ["fifo", "rr"].into_iter().zip(before) {
            wait_for(&format!("{mistake}: {name} goes on"), || policy(name).switches > before);
            assert!(policy(name).live, "{mistake}: {name}");
        }
        assert_eq!(Device::open().unwrap().status().unwrap().ejected, nr as u64 + 1, "{mistake}");
    }
    assert_eq!(healthy.each_ref().map(Process::class), [SCHED_EXT; 2]);
    assert_eq!(state(), "enabled", "sched_ext saw no mistake");
}

pub fn a_policy_that_loses_a_thread_is_ejected_alone() {
    load("timeout_ms=1000");
    let healthy = Process::under("fifo", "while :; do sleep 0.01; done");
    let report = eject("lose");
    assert_eq!(report.event, "schedule");
    assert!(report.reason.contains("was asked and chose nobody"), "{report:?}");
    assert_eq!((healthy.class(), policy("fifo").live, state().as_str()), (SCHED_EXT, true, "enabled"));
}

/// More work than time: threads wait for longer than they should, which is not the fault of their policy.
pub fn an_overloaded_policy_is_not_ejected() {
    load("timeout_ms=100");
    let processes: Vec<_> = (0..12).map(|_| Process::spinning("fifo", 0)).collect();
    wait_for("a thread is overdue", || policy("fifo").overdue > 0);
    wait_for("it is in the fair class", || processes.iter().any(|process| process.class() == SCHED_NORMAL));
    assert!(policy("fifo").live);
    assert_eq!(Device::open().unwrap().status().unwrap().ejected, 0);
}

pub fn a_policy_that_is_incomplete_is_not_registered() {
    assert!(!run("insmod", &[file(FAULTY_KO).to_str().unwrap(), "kind=init"]), "init failed");
    assert_eq!(Device::open().unwrap().policies().unwrap().len(), 2);
}
