//! Scheduling policies on a stock kernel with sched_ext, or on the one that `XK_TEST_KERNEL` names. One guest boots and
//! runs every check of `inside`; the tests out here report them one by one.
//!
//! Effects are what the kernel reports: the class of a thread in `/proc/PID/sched`, its time in `/proc/PID/stat`,
//! sched_ext's state, and the counters of the module.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use xk_testing::guest::Guest;

#[path = "checks/ejection.rs"]
mod ejection;
#[path = "checks/partitions.rs"]
mod partitions;
#[path = "checks/replacement.rs"]
mod replacement;
#[path = "checks/running.rs"]
mod running;
#[path = "checks/support.rs"]
mod support;

use support::{prepare, FAULTY_KO, FIFO_KO, LATENCY_KO, MANY_KO, RR_KO, SCHED_KO, WEIGHTED2_KO, WEIGHTED_KO};

/// A kernel of the lab with `CONFIG_SCHED_CLASS_EXT`.
const KERNEL: &str = "debian13-backports";

static GUEST: Guest = Guest::new(
    2400,
    &[
        (SCHED_KO, "kernel/xk_sched"),
        (FIFO_KO, "kernel/xk_sched/policies:xk_sched_fifo"),
        (RR_KO, "kernel/xk_sched/policies:xk_sched_rr"),
        (WEIGHTED_KO, "kernel/xk_sched/policies:xk_sched_weighted"),
        (LATENCY_KO, "kernel/xk_sched/policies:xk_sched_latency"),
        (WEIGHTED2_KO, "kernel/sched_faulty:xk_sched_weighted2"),
        (FAULTY_KO, "kernel/sched_faulty:xk_sched_faulty"),
        (MANY_KO, "kernel/sched_faulty:xk_sched_many"),
    ],
)
.on_chosen_or(KERNEL, 4);

xk_testing::guest_tests! {
    in GUEST:
    a_thread_runs_under_its_policy_and_children_inherit_it,
    hackbench_runs_under_two_policies_at_once,
    two_policies_share_a_core,
    weights_divide_a_core,
    a_busy_fair_thread_ejects_nobody,
    without_a_deadline_server_a_busy_fair_thread_ejects_nobody,
    a_thread_that_was_chosen_and_gets_no_time_ejects_nobody,
    nice_values_count_in_a_tree_and_in_a_list,
    eight_policies_at_once,
    a_live_process_moves_between_policies,
    affinity_changes_while_threads_wait,
    a_core_goes_offline_under_load,
    counters_are_read_while_a_core_goes_and_comes,
    threads_run_on_the_cpus_of_their_policy,
    a_thread_that_runs_alone_leaves_a_core_that_its_policy_has_no_more,
    cpus_of_a_policy_go_offline,
    lists_of_cpus_that_are_wrong_are_refused,
    a_policy_is_removed_while_its_threads_run,
    a_new_version_takes_over_while_threads_run,
    a_policy_that_cannot_take_over_is_refused,
    a_policy_that_fails_to_take_over_is_ejected_alone,
    critical_threads_stop_batch_and_do_not_starve_it,
    nothing_is_left_after_unloading,
    no_thread_is_lost_while_threads_move_and_modules_go,
    requests_that_cannot_be_met_say_why,
    each_mistake_ejects_its_policy_alone,
    a_policy_that_loses_a_thread_is_ejected_alone,
    an_overloaded_policy_is_not_ejected,
    a_policy_that_is_incomplete_is_not_registered,
}

mod checks {
    pub use super::ejection::*;
    pub use super::partitions::*;
    pub use super::replacement::*;
    pub use super::running::*;
}
