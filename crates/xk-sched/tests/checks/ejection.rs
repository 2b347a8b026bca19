//! Policies that make mistakes, beside others that do not.

use xk_harness::sched::faults::Faults;
use xk_harness::sched::{mistakes, Expected};
use xk_sched::{Device, Error, Report, Who};
use xk_testing::guest::{file, run, wait_for};

use crate::support::{insmod_with, load, policy, rmmod, state, Process, FAULTY_KO, SCHED_EXT, SCHED_NORMAL};

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

/// One round of each mistake; `cargo xtask sched-faults` does more.
pub fn each_mistake_ejects_its_policy_alone() {
    load("timeout_ms=1500");
    let faults = Faults::new(file(FAULTY_KO)).unwrap();
    let mut wrong = Vec::new();
    for mistake in mistakes().into_iter().filter(|mistake| mistake.result != Expected::Fatal) {
        let outcome = faults.run(mistake, 1).unwrap();
        if (outcome.ejected_alone, outcome.healthy_survived) != (1, 1) {
            wrong.push(outcome);
        }
    }
    faults.stop().unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
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
