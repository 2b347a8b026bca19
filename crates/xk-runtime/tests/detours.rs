//! Detours on a running kernel: jumps to stubs instead of probes. One guest boots and
//! runs every check of `inside`; the tests out here report them one by one.
//!
//! Effects are what `/proc/xk_target` prints: the return values of functions that
//! contain a constant of 32.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[allow(dead_code)] // shared with the tests of probes
mod support;

use std::process::Command;
use std::time::Duration;

use support::target::{
    compare, compare_flags, enable_probe, fresh_target, hits, is_optimised, message, nests, no_probe, only_site,
    optimised_elsewhere, outlives_kprobes, probe, running, target, target_module, write, TARGET_KO,
};
use support::{op, set_register, table, windowed, Loaded, SiteSpec, MODULE, RAX, RDI, RDX, RSI};
use xk_runtime::{Backend, Device, Error, Probe, Tune};
use xk_table::{Fit, Op, OpCode, ScopeTable, When};
use xk_testing::guest::atomic::{fresh_atomic, Stall, Stalled, ATOMIC_KO};
use xk_testing::guest::{insmod, remove_xk, run, wait_for, Guest, XK_KO};

static GUEST: Guest =
    Guest::new(1200, &[(XK_KO, "kernel/xk"), (TARGET_KO, "kernel/test"), (ATOMIC_KO, "kernel/atomic")]);

xk_testing::guest_tests! {
    in GUEST:
    every_kind_of_update_works,
    an_update_can_follow_or_replace_an_instruction,
    a_fault_leaves_the_default,
    instructions_are_relocated,
    windows_lie_where_there_is_room,
    sites_of_one_tune_change_together,
    nothing_is_missed_where_probes_nest,
    disabling_kprobes_changes_nothing,
    a_probe_on_the_jump_is_served,
    a_probe_that_is_being_registered_is_waited_for,
    an_update_has_no_access_to_user_memory_where_its_code_has,
    a_disabled_probe_in_the_window_is_not_overwritten,
    a_probe_near_a_relocated_branch_stays_a_breakpoint,
    a_probe_just_before_the_window_stays_a_breakpoint,
    a_branch_may_lead_to_just_behind_its_window,
    windows_may_lie_side_by_side,
    a_window_in_which_another_needs_a_guard_is_a_probe,
    a_branch_leads_not_to_just_behind_another_tunes_window,
    what_is_not_safe_is_refused,
    what_is_not_safe_may_be_a_probe,
    windows_do_not_overlap,
}

/// Long enough to do what is not held up.
const BRIEF: Duration = Duration::from_millis(300);

/// Fresh modules for each check, whatever the one before left behind.
fn prepare() {
    remove_xk();
    fresh_target();
    insmod(XK_KO);
}

/// Loaded by this backend, with this value in force.
fn load_by(backend: Backend, table: &ScopeTable, value: i64) -> Result<Tune, Error> {
    let tune = Device::open().unwrap().load_by(table, &Loaded, backend)?;
    tune.set(value)?;
    Ok(tune)
}

/// As detours; the windows are those of the sites, in their order.
fn detour(name: &str, sites: Vec<SiteSpec>, windows: &[u8], value: i64) -> Result<Tune, Error> {
    load_by(Backend::Detour, &windowed(table(&target_module(), name, sites), windows), value)
}

fn value_site() -> SiteSpec {
    SiteSpec::new("xk_target_value", 5, 2, set_register(RAX))
}

fn value(value: i64) -> Tune {
    detour("VALUE", vec![value_site()], &[5], value).unwrap()
}

#[path = "checks/detours.rs"]
mod checks;
