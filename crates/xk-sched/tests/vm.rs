//! Scheduling policies on a stock kernel with sched_ext. One guest boots and runs every check of `inside`; the tests out
//! here report them one by one.
//!
//! Effects are what the kernel reports: the class of a thread in `/proc/PID/sched`, its time in `/proc/PID/stat`,
//! sched_ext's state, and the counters of the module.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use xk_testing::guest::Guest;

#[path = "checks/ejection.rs"]
mod ejection;
#[path = "checks/running.rs"]
mod running;
#[path = "checks/support.rs"]
mod support;

use support::{prepare, FAULTY_KO, FIFO_KO, MANY_KO, RR_KO, SCHED_KO, WEIGHTED_KO};

/// A kernel of the lab with `CONFIG_SCHED_CLASS_EXT`.
const KERNEL: &str = "debian13-backports";

static GUEST: Guest = Guest::new(
    2400,
    &[
        (SCHED_KO, "kernel/xk_sched"),
        (FIFO_KO, "kernel/xk_sched/policies:xk_sched_fifo"),
        (RR_KO, "kernel/xk_sched/policies:xk_sched_rr"),
        (WEIGHTED_KO, "kernel/xk_sched/policies:xk_sched_weighted"),
        (FAULTY_KO, "kernel/sched_faulty:xk_sched_faulty"),
        (MANY_KO, "kernel/sched_faulty:xk_sched_many"),
    ],
)
.on(KERNEL, 4);

xk_testing::guest_tests! {
    in GUEST:
    a_thread_runs_under_its_policy_and_children_inherit_it,
    hackbench_runs_under_two_policies_at_once,
    two_policies_share_a_core,
    nice_values_count_in_a_tree_and_in_a_list,
    eight_policies_at_once,
    a_live_process_moves_between_policies,
    affinity_changes_while_threads_wait,
    a_core_goes_offline_under_load,
    a_policy_is_removed_while_its_threads_run,
    nothing_is_left_after_unloading,
    requests_that_cannot_be_met_say_why,
    each_mistake_ejects_its_policy_alone,
    a_policy_that_loses_a_thread_is_ejected_alone,
    an_overloaded_policy_is_not_ejected,
    a_policy_that_is_incomplete_is_not_registered,
}

mod checks {
    pub use super::ejection::*;
    pub use super::running::*;
}
