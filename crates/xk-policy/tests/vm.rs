//! Policies on a running kernel. One guest boots and runs every check of `inside`,
//! one after the other; the tests out here report them one by one. The policies in
//! `tests/bpf` are compiled on this machine.
//!
//! Effects are what `/proc/xk_atomic` prints: values that functions saw, and how
//! often two of them met.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use xk_harness::{family, table, Atomic, Loaded};
use xk_policy::{compile, Attached, Error, Headers, Programs};
use xk_runtime::{Backend, Change, Destination, Device, Mode, Policy, SitePolicy, State, Tune};
use xk_table::ScopeTable;
use xk_testing::guest::atomic::{fresh_atomic, outside, ATOMIC_KO};
use xk_testing::guest::{boot, file, info, insmod, modules, passed, repository, run, wait_for, PATIENCE, XK_KO};

const BENCH_KO: &str = "XK_TEST_BENCH";
const OBJECTS: &str = "XK_TEST_OBJECTS";
const DEFAULT: i64 = 32;
/// Where the host stretches a stop of the machine, the next one may have to wait for minutes.
const LONG: Duration = PATIENCE;

xk_testing::guest_tests! {
    each_execution_has_the_value_that_is_chosen_for_it,
    what_is_not_accepted_is_refused_and_counted,
    between_two_compiled_values_nothing_is_chosen,
    a_policy_chooses_compiled_values_beside_proved_ones,
    a_value_is_in_force_beneath,
    the_kernel_knows_that_a_policy_is_at_work,
    a_policy_knows_when_everybody_has_gone_over,
    a_thread_that_is_inside_keeps_the_value_without_the_policy,
    two_decisions_never_meet_in_one_activation,
    a_decision_holds_while_another_program_is_at_work,
    a_new_policy_replaces_the_old_in_one_flip,
    companions_run_as_long_as_the_policy,
    sigkill_of_the_owner_ends_policy_and_companions,
    an_outsider_cannot_set_a_value,
    nothing_is_written_by_any_route,
    what_is_no_policy_is_refused,
    user_memory_that_does_not_come_holds_nobody_up,
    an_instruction_asks_no_policy,
    all_of_it_holds_by_detours,
    a_detour_changes_between_value_and_policy,
    an_interrupt_above_a_policy_uses_the_value_beneath,
    several_policies_change_together,
    a_policy_survives_its_loader_and_a_reloaded_module,
}

/// Not a test: a process that holds a policy until it is killed.
#[test]
#[ignore = "started by other tests"]
fn own() {
    if std::env::var_os("XK_TEST_OWN").is_some() {
        let _all = checks::companions();
        std::thread::sleep(Duration::from_secs(600));
    }
}

/// The sources in `tests/bpf`, compiled for the lab's kernel.
fn compile_all(folder: &Path, root: &str, release: &str) {
    let btf = PathBuf::from(format!("{root}/usr/src/linux-headers-{release}/vmlinux"));
    let headers = Headers::new(&btf, folder, release).unwrap();
    for entry in fs::read_dir(repository().join("crates/xk-policy/tests/bpf")).unwrap() {
        let source = entry.unwrap().path();
        let name = source.file_name().unwrap().to_str().unwrap().replace(".bpf.c", ".bpf.o");
        fs::write(folder.join(name), compile(&source, &headers).unwrap()).unwrap();
    }
}

/// What the tests in the guest printed, in one boot.
fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let objects = tempfile::tempdir().unwrap();
        compile_all(objects.path(), &info("root"), &info("release"));
        let modules = modules(&[(XK_KO, "kernel/xk"), (ATOMIC_KO, "kernel/atomic"), (BENCH_KO, "kernel/bench")]);
        boot(1200, &format!("{modules} {OBJECTS}={}", objects.path().display()))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

/// Fresh modules for each check, whatever the one before left behind.
fn prepare() {
    fresh_atomic();
    if Path::new("/dev/xk").exists() {
        // A policy that nobody owns keeps it.
        if let Ok(device) = Device::open() {
            for tune in device.tunes().unwrap() {
                let _ = device.unload(tune.id);
            }
        }
        wait_for("xk.ko can be removed", || run("rmmod", &["xk"]));
    }
    insmod(XK_KO);
}

fn object(name: &str) -> Vec<u8> {
    fs::read(file(OBJECTS).join(format!("{name}.bpf.o"))).unwrap()
}

fn programs(name: &str) -> Programs {
    Programs::load(&object(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[path = "checks/policies.rs"]
mod checks;
