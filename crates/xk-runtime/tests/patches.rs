//! Patches on a running kernel: the instructions hold the value themselves. One guest
//! boots and runs every check of `inside`; the tests out here report them one by one.
//!
//! Effects are what `/proc/xk_target` prints, the return values of functions that
//! contain a constant of 32, and what threads of `/proc/xk_atomic` saw.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[allow(dead_code)] // shared with the tests of probes
mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::target::{
    compare, compare_flags, fresh_target, hits, is_optimised, message, nests, no_probe, only_site, optimised_elsewhere,
    outlives_kprobes, probe, running, target, target_module, write, TARGET_KO,
};
use support::{held, set_register, table, windowed, Loaded, SiteSpec, MODULE, RAX, RDI, RSI};
use xk_harness::{family, Atomic, Flipper};
use xk_runtime::{Backend, Destination, Device, Error, Mode, Outcome, Policy, Probe, State, Tune};
use xk_table::{Patch, ScopeTable};
use xk_testing::guest::atomic::{blocked, fresh_atomic, outside, Holder, Stall, Stalled, ATOMIC_KO};
use xk_testing::guest::{file as module, insmod, remove_xk, run, wait_for, Guest, PATIENCE, XK_KO};

/// A bound that is waited out.
const BRIEF: Duration = Duration::from_millis(300);
/// One that is not. Where the host stretches a stop of the machine, the next one may have to wait for minutes.
const LONG: Duration = PATIENCE;

static GUEST: Guest =
    Guest::new(1200, &[(XK_KO, "kernel/xk"), (TARGET_KO, "kernel/test"), (ATOMIC_KO, "kernel/atomic")]);

xk_testing::guest_tests! {
    in GUEST:
    a_value_changes_and_returns,
    every_kind_of_number_is_changed,
    numbers_of_one_site_change_together,
    what_has_no_room_is_refused,
    the_mode_of_threads_is_refused,
    a_policy_is_refused,
    nothing_is_missed_where_probes_nest,
    disabling_kprobes_changes_nothing,
    a_probe_that_comes_later_keeps_the_value,
    a_probe_that_is_being_registered_is_waited_for,
    a_probe_that_was_there_is_in_the_way,
    a_probe_before_it_never_becomes_a_jump,
    a_probe_at_one_number_keeps_the_next_of_another_tune,
    another_tune_sees_the_original_code,
    what_is_not_what_was_analysed_is_refused,
    what_cannot_be_a_patch_may_be_a_detour,
    a_window_before_a_number_is_a_probe,
    a_patch_or_one_other_is_taken,
    somebody_elses_change_is_not_overwritten,
    what_could_not_be_written_into_a_module_is_not_there,
    a_thread_inside_blocks,
    a_thread_between_two_instructions_blocks_even_mode_now,
    an_owner_that_is_killed_leaves_when_the_thread_does,
    two_values_never_meet,
    an_nmi_during_the_stop_sees_one_value,
    an_nmi_between_two_steps_sees_one_value,
    code_is_what_it_was_after_rounds_under_load,
}

/// Not a test: a process that holds a tune until it is killed.
#[test]
#[ignore = "started by other tests"]
fn own() {
    if std::env::var_os("XK_TEST_OWN").is_some() {
        let _tune = checks::hold(77);
        std::thread::sleep(Duration::from_secs(600));
    }
}

/// Fresh modules for each check, whatever the one before left behind.
fn prepare() {
    remove_xk();
    fresh_target();
    fresh_atomic();
    insmod(XK_KO);
}

/// Loaded by this backend, with this value in force.
fn load_by(backend: Backend, table: &ScopeTable, value: i64) -> Result<Tune, Error> {
    let tune = Device::open().unwrap().load_by(table, &Loaded, backend)?;
    tune.go(Destination::Value(value), Mode::Global, LONG)?;
    Ok(tune)
}

/// A number of this size at `field` of the instruction at `offset`.
fn number(offset: u32, insn_len: u8, field: u8, size: u8) -> Patch {
    Patch { offset, insn_len, field, size, width: 4, iv: 0 }
}

/// `mov $32,%eax` at the start of a function, before the site at +5.
const MOVE: Patch = Patch { offset: 0, insn_len: 5, field: 1, size: 4, width: 4, iv: 0 };

fn value_table() -> ScopeTable {
    let site = SiteSpec::new("xk_target_value", 5, 2, set_register(RAX));
    held(table(&target_module(), "VALUE", vec![site]), &[&[MOVE]])
}

fn value(value: i64) -> Tune {
    load_by(Backend::Patch, &value_table(), value).unwrap()
}

#[path = "checks/patches.rs"]
mod checks;
