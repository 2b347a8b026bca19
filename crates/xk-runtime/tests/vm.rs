//! xk.ko on a running kernel. One guest boots and runs every check of
//! `inside`, one after the other; the tests out here report them one by one.
//!
//! Effects are what `/proc/xk_target` prints: the return values of functions
//! that contain a constant of 32, not the counters of xk.ko.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod support;

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use support::target::{compare, fresh_target, message, only_site, target, target_module, write, TARGET_KO};
use support::{op, raw, set_register, table, Loaded, SiteSpec, MODULE, RAX, RDI, RDX, RSI};
use xk_runtime::{abi, AddressOf, Backend, Device, Error, Probe, SiteStatus, Tune};
use xk_table::{Fit, Op, OpCode, ScopeTable, When};
use xk_testing::guest::{faulty, insmod, run, wait_for, Guest, XK_KO};

static GUEST: Guest =
    Guest::new(1200, &[(XK_KO, "kernel/xk"), (TARGET_KO, "kernel/test"), (faulty::FAULTY_KO, "kernel/faulty")]);

xk_testing::guest_tests! {
    in GUEST:
    two_sites_change_together,
    flags_of_a_comparison_are_recomputed,
    memory_operand_is_compared,
    a_fault_leaves_the_default_and_is_counted,
    a_store_changes_memory,
    a_select_is_recomputed,
    an_update_can_follow_an_instruction,
    an_update_can_replace_an_instruction,
    a_site_can_be_a_jump,
    overlapping_expressions_are_busy,
    beside_what_may_be_no_probe_is_busy,
    two_tunes_share_a_function,
    a_foreign_probe_is_refused,
    another_name_of_a_function_is_accepted,
    a_wrong_place_is_refused,
    a_malformed_program_is_refused,
    garbage_is_refused,
    another_interface_version_is_refused,
    malformed_ranges_are_refused,
    malformed_scopes_are_refused,
    malformed_values_are_refused,
    values_are_listed,
    malformed_transitions_are_refused,
    many_tunes_change_together,
    all_sites_or_none,
    out_of_range_is_refused,
    kprobes_disabled_arms_nothing,
    kprobes_disabled_later_is_visible,
    opening_the_device_explains_itself,
    a_global_variable_is_read,
    a_global_variable_is_compared,
    an_array_is_read,
    per_cpu_data_are_those_of_this_cpu,
    a_field_is_read_through_a_probe,
    a_field_without_an_instruction_is_refused,
    a_reloaded_module_is_linked_again,
    every_form_of_a_value_is_computed,
    between_two_compiled_values_nothing_is_set,
    compiled_values_stand_beside_proved_ones,
    many_sites_change_together,
    a_module_with_other_code_is_left_alone,
    a_module_with_other_code_in_a_scope_is_left_alone,
    a_function_is_found_by_its_bytes,
    a_module_without_the_function_is_left_alone,
    the_same_instruction_twice_is_left_alone,
    an_object_holds_the_transformed_value,
    what_somebody_else_wrote_stays,
    an_object_with_another_default_is_left_alone,
    an_object_that_is_none_is_refused,
    constant_data_of_a_module_are_set_and_put_back,
    constant_data_wait_for_their_module,
    an_object_of_the_kernel_is_set_and_put_back,
    the_rest_is_in_force_while_a_site_waits,
    a_load_without_memory_leaves_nothing,
    a_transition_without_memory_changes_nothing,
    a_detour_that_goes_without_memory_waits_for_handlers,
    an_owner_that_dies_without_memory,
    a_module_that_comes_without_memory_is_left_alone,
}

/// Not a test: a process that opens the device.
#[test]
#[ignore = "started by another test"]
fn open() {
    if std::env::var_os("XK_TEST_OPEN").is_some() {
        Device::open().unwrap();
    }
}

/// Fresh modules for each check, whatever the one before left behind.
fn prepare() {
    fresh_target();
    faulty::rmmod_xk();
    insmod(XK_KO);
}

fn value_table() -> ScopeTable {
    table(&target_module(), "VALUE", vec![SiteSpec::new("xk_target_value", 5, 2, set_register(RAX))])
}

fn load(table: &ScopeTable, value: i64) -> Result<Tune, Error> {
    load_at(table, value, &Loaded)
}

fn load_at(table: &ScopeTable, value: i64, addresses: &dyn AddressOf) -> Result<Tune, Error> {
    let tune = Device::open().unwrap().load(table, addresses)?;
    tune.set(value)?;
    Ok(tune)
}

fn append(path: &str, text: &str) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// The module with one byte of a symbol changed; its path.
fn altered(symbol: &str, at: u64, byte: u8) -> PathBuf {
    xk_testing::guest::altered(&target_module(), symbol, at, byte)
}

mod checks {
    mod addresses;
    mod data;
    mod disabled;
    mod effects;
    mod malformed;
    mod memory;
    mod modules;
    mod refusals;

    pub use addresses::{
        a_field_is_read_through_a_probe, a_field_without_an_instruction_is_refused, a_global_variable_is_compared,
        a_global_variable_is_read, a_reloaded_module_is_linked_again, an_array_is_read,
        between_two_compiled_values_nothing_is_set, compiled_values_stand_beside_proved_ones,
        every_form_of_a_value_is_computed, many_sites_change_together, per_cpu_data_are_those_of_this_cpu,
    };
    pub use data::{
        an_object_holds_the_transformed_value, an_object_of_the_kernel_is_set_and_put_back,
        an_object_that_is_none_is_refused, an_object_with_another_default_is_left_alone,
        constant_data_of_a_module_are_set_and_put_back, constant_data_wait_for_their_module,
        the_rest_is_in_force_while_a_site_waits, what_somebody_else_wrote_stays,
    };
    pub use disabled::{
        kprobes_disabled_arms_nothing, kprobes_disabled_later_is_visible, opening_the_device_explains_itself,
    };
    pub use effects::{
        a_fault_leaves_the_default_and_is_counted, a_select_is_recomputed, a_site_can_be_a_jump,
        a_store_changes_memory, an_update_can_follow_an_instruction, an_update_can_replace_an_instruction,
        flags_of_a_comparison_are_recomputed, memory_operand_is_compared, two_sites_change_together,
    };
    pub use malformed::{
        malformed_ranges_are_refused, malformed_scopes_are_refused, malformed_transitions_are_refused,
        malformed_values_are_refused, many_tunes_change_together, values_are_listed,
    };
    pub use memory::{
        a_detour_that_goes_without_memory_waits_for_handlers, a_load_without_memory_leaves_nothing,
        a_module_that_comes_without_memory_is_left_alone, a_transition_without_memory_changes_nothing,
        an_owner_that_dies_without_memory,
    };
    pub use modules::{
        a_function_is_found_by_its_bytes, a_module_with_other_code_in_a_scope_is_left_alone,
        a_module_with_other_code_is_left_alone, a_module_without_the_function_is_left_alone,
        the_same_instruction_twice_is_left_alone,
    };
    pub use refusals::{
        a_foreign_probe_is_refused, a_malformed_program_is_refused, a_wrong_place_is_refused, all_sites_or_none,
        another_interface_version_is_refused, another_name_of_a_function_is_accepted,
        beside_what_may_be_no_probe_is_busy, garbage_is_refused, out_of_range_is_refused,
        overlapping_expressions_are_busy, two_tunes_share_a_function,
    };
}
