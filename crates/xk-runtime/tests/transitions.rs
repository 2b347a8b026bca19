//! Transitions on a running kernel. One guest boots and runs every check of
//! `inside`, one after the other; the tests out here report them one by one.
//!
//! Effects are what `/proc/xk_atomic` prints: values that functions saw, and how
//! often two of them met.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use xk_harness::{family, table, Atomic, Loaded};
use xk_runtime::{Backend, Destination, Device, Error, Mode, Probe, State, Tune, TuneStatus};
use xk_table::ScopeTable;
use xk_testing::guest::atomic::{blocked, fresh_atomic, held, outside, Holder, ATOMIC_KO};
use xk_testing::guest::{faulty, file, insmod, run, wait_for, Guest, PATIENCE, XK_KO};

const REDIRECT_KO: &str = "XK_TEST_REDIRECT";
/// What `HOLD` is in the source, and what it is set to.
const DEFAULT: i64 = 32;
const TUNED: i64 = 77;
/// A bound that is waited out.
const BRIEF: Duration = Duration::from_millis(300);
/// One that is not. Where the host stretches a stop of the machine, the next one may have to wait for minutes.
const LONG: Duration = PATIENCE;

static GUEST: Guest = Guest::new(
    1200,
    &[
        (XK_KO, "kernel/xk"),
        (ATOMIC_KO, "kernel/atomic"),
        (REDIRECT_KO, "kernel/redirect"),
        (faulty::FAULTY_KO, "kernel/faulty"),
    ],
);

xk_testing::guest_tests! {
    in GUEST:
    a_sleeping_thread_blocks_a_global_transition,
    nobody_sees_a_global_value_before_all_have_left,
    a_stale_thread_keeps_its_value_and_goes_over,
    a_blocked_task_transition_turns_around,
    who_came_with_the_new_value_keeps_it_when_it_turns_around,
    an_interrupted_transition_leaves_the_old_value,
    a_transition_waits_for_nobody_in_mode_now,
    a_transition_to_the_value_in_force_waits_for_nobody,
    a_transition_goes_on_when_there_is_memory_again,
    it_turns_round_when_there_is_memory_again,
    a_caller_is_inside_by_the_call_that_has_not_returned,
    a_scope_in_an_idle_function_is_refused,
    two_values_never_meet_in_task_mode,
    two_values_never_meet_in_global_mode,
    two_values_meet_without_waiting,
    an_nmi_during_the_stop_sees_one_value,
    several_tunes_change_together,
    a_processor_may_come_and_go,
    an_unload_waits_for_who_is_inside,
    sigkill_of_the_owner_while_a_thread_is_inside,
    a_lease_ends,
    a_renewed_lease_lasts,
    a_lease_ends_after_its_process,
    a_lease_that_ends_while_a_thread_is_inside,
    a_busy_module_can_be_removed,
    xk_is_removed_when_threads_have_left,
    a_stale_process_may_be_killed,
    a_stale_thread_may_end_inside,
    a_child_of_a_stale_thread_is_not_stale,
    a_thread_that_exits_and_is_on_no_list_blocks,
    ten_thousand_threads_are_not_stopped_for_one_that_is_inside,
    a_thread_whose_stack_cannot_be_read_blocks_until_it_is_named,
    it_may_be_named_while_it_is_waited_for,
    no_other_thread_can_be_left_out,
    the_function_tracer_is_a_bystander,
    another_kprobe_is_a_bystander,
    probes_that_are_not_optimised_change_as_well,
    kprobes_disabled_during_a_transition,
    a_livepatch_takes_the_function_away,
}

/// Not a test: a process that holds a tune until it is killed.
#[test]
#[ignore = "started by other tests"]
fn own() {
    if std::env::var_os("XK_TEST_OWN").is_some() {
        let tune = load("HOLD");
        tune.go(Destination::Value(TUNED), Mode::Task, LONG).unwrap();
        std::thread::sleep(Duration::from_secs(600));
    }
}

/// Not a test: a process that waits for its child.
#[test]
#[ignore = "started by other tests"]
fn parent() {
    if std::env::var_os("XK_TEST_PARENT").is_some() {
        checks::parent();
    }
}

/// Fresh modules for each check, whatever the one before left behind.
fn prepare() {
    fresh_atomic();
    faulty::rmmod_xk();
    insmod(XK_KO);
}

fn load(name: &str) -> Tune {
    let table = table(&file(ATOMIC_KO), &family(name).unwrap()).unwrap();
    Device::open().unwrap().load(&table, &Loaded).unwrap()
}

fn tuned(name: &str) -> Tune {
    let tune = load(name);
    tune.go(Destination::Value(TUNED), Mode::Global, LONG).unwrap();
    tune
}

/// Whether a report has this process, by number, name and where it is.
fn names(report: &str, pid: u32) {
    assert!(report.contains(&format!("{pid} (sh)")), "{report}");
    assert!(report.contains("xk_atomic_hold+"), "{report}");
}

/// What the kernel has said.
fn klog() -> String {
    String::from_utf8_lossy(&Command::new("dmesg").output().unwrap().stdout).into_owned()
}

fn only_tune() -> Option<TuneStatus> {
    Device::open().unwrap().tunes().unwrap().into_iter().next()
}

fn state() -> Option<State> {
    only_tune().map(|tune| tune.state)
}

mod checks {
    mod blocking;
    mod ends;
    mod interference;
    mod meeting;
    mod processes;
    mod scopes;
    mod unreadable;

    pub use blocking::{
        a_blocked_task_transition_turns_around, a_sleeping_thread_blocks_a_global_transition,
        a_stale_thread_keeps_its_value_and_goes_over, a_transition_goes_on_when_there_is_memory_again,
        a_transition_to_the_value_in_force_waits_for_nobody, a_transition_waits_for_nobody_in_mode_now,
        an_interrupted_transition_leaves_the_old_value, it_turns_round_when_there_is_memory_again,
        nobody_sees_a_global_value_before_all_have_left, ten_thousand_threads_are_not_stopped_for_one_that_is_inside,
        who_came_with_the_new_value_keeps_it_when_it_turns_around,
    };
    pub use ends::{
        a_busy_module_can_be_removed, a_lease_ends, a_lease_ends_after_its_process,
        a_lease_that_ends_while_a_thread_is_inside, a_renewed_lease_lasts, an_unload_waits_for_who_is_inside,
        sigkill_of_the_owner_while_a_thread_is_inside, xk_is_removed_when_threads_have_left,
    };
    pub use interference::{
        a_livepatch_takes_the_function_away, another_kprobe_is_a_bystander, kprobes_disabled_during_a_transition,
        probes_that_are_not_optimised_change_as_well, the_function_tracer_is_a_bystander,
    };
    pub use meeting::{
        a_processor_may_come_and_go, an_nmi_during_the_stop_sees_one_value, several_tunes_change_together,
        two_values_meet_without_waiting, two_values_never_meet_in_global_mode, two_values_never_meet_in_task_mode,
    };
    pub use processes::{
        a_child_of_a_stale_thread_is_not_stale, a_stale_process_may_be_killed, a_stale_thread_may_end_inside,
        a_thread_that_exits_and_is_on_no_list_blocks, parent,
    };
    pub use scopes::{a_caller_is_inside_by_the_call_that_has_not_returned, a_scope_in_an_idle_function_is_refused};
    pub use unreadable::{
        a_thread_whose_stack_cannot_be_read_blocks_until_it_is_named, it_may_be_named_while_it_is_waited_for,
        no_other_thread_can_be_left_out,
    };
}
