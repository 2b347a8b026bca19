//! Probes on a running kernel. One guest boots and runs every check of `inside`, one after the other; the tests out here
//! report them one by one. The programs in `tests/bpf` are compiled on this machine, and places in vmlinux are found on it.
//!
//! Effects are what the programs record, what the kernel's own kprobes count, and what `/proc/xk_target` prints.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use xk_kernel::Image;
use xk_policy::{compile, Headers};
use xk_probe::{Class, Found, Place, Reach, Resolver};
use xk_testing::guest::{boot, file, info, insmod, modules, passed, repository, run, XK_KO};
use xk_testing::Random;

const TARGET_KO: &str = "XK_TEST_TARGET";
const OBJECTS: &str = "XK_TEST_OBJECTS";
/// A file with places: distance from `_printk`, window, lead, host, its window, name. Set in the guest only.
const PLACES: &str = "XK_TEST_PLACES";
/// A file with places for kprobes: `branch` or `other`, function and offset. Set in the guest only.
const COVERED: &str = "XK_TEST_COVERED";
/// Functions that nothing in the guest executes but the loads of the tests: System V message queues, and the others of the
/// same kind, and events.
const QUEUES: [&str; 17] = [
    "do_msg*",
    "*que",
    "*load_msg",
    "*store_msg",
    "ksys_msg*",
    "ksys_sem*",
    "ksys_shm*",
    "*do_semtimedop*",
    "semctl_*",
    "newary",
    "freeary",
    "perform_atomic_semop*",
    "do_shmat",
    "newseg",
    "shm_*",
    "eventfd_*",
    "ipc*",
];

xk_testing::guest_tests! {
    a_program_sees_the_registers_of_the_instruction,
    nothing_changes_at_the_instruction,
    a_program_that_reads_little_sees_what_it_reads,
    rarely_read_registers_are_stored_for_who_reads_them,
    programs_run_in_the_order_of_their_attachment,
    each_place_runs_the_program_that_it_names,
    a_program_that_is_not_there_is_refused,
    instructions_side_by_side_share_a_jump,
    what_ran_inside_of_another_program_is_counted,
    every_instruction_is_executed_as_often_as_kprobes_count,
    short_jumps_count_what_kprobes_count,
    short_jumps_come_and_go_around_their_host,
    a_relay_is_redirected_to_other_slots,
    a_kprobe_on_a_relay_is_served_and_outlives_it,
    hosts_are_checked,
    entries_are_served_by_the_function_tracer,
    the_function_tracer_serves_probed_entries_only,
    an_entry_inside_of_a_program_is_counted,
    what_the_function_tracer_cannot_serve_is_refused,
    a_kprobe_on_the_jump_is_served_and_outlives_it,
    a_kprobe_near_a_relocated_branch_stays_a_breakpoint,
    no_kprobe_becomes_a_jump_over_a_relative_branch,
    a_shield_respects_kprobes_before_the_padding,
    an_attachment_belongs_to_its_descriptor,
    what_is_kept_outlives_its_descriptor,
    a_lease_ends_an_attachment,
    tracepoints_tell_of_attachments,
    what_is_kept_ends_with_the_module,
    what_cannot_be_probed_is_refused,
    a_module_stays_while_it_is_probed,
    places_in_a_module_wait_for_it,
    places_wait_while_a_module_has_other_code,
    a_module_goes_with_a_jump_that_someone_else_probes,
}

/// The sources in `tests/bpf`, compiled for the lab's kernel.
fn compile_all(folder: &Path, root: &str, release: &str) {
    let types = PathBuf::from(format!("{root}/usr/src/linux-headers-{release}/vmlinux"));
    let headers = Headers::new(&types, folder, release).unwrap();
    for entry in fs::read_dir(repository().join("crates/xk-probe/tests/bpf")).unwrap() {
        let source = entry.unwrap().path();
        let name = source.file_name().unwrap().to_str().unwrap().replace(".bpf.c", ".bpf.o");
        fs::write(folder.join(name), compile(&source, &headers).unwrap_or_else(|error| panic!("{error}"))).unwrap();
    }
}

/// Finds the instructions of the message queues, and some places that are named, in the image.
fn find_places(folder: &Path) -> PathBuf {
    let image = Image::from_vmlinuz(Path::new(&info("vmlinuz")), None).unwrap();
    let anchor = image.symbols("_printk").first().unwrap().address;
    let mut places = QUEUES.map(|queue| Place::parse(queue, Some(&Class::Any)).unwrap()).to_vec();
    places.extend(["htab_map_update_elem", "vfs_write"].map(|name| Place::parse(name, Some(&Class::Body)).unwrap()));
    let resolver = Resolver::new(&image, &places, None).unwrap();
    // Kernels inline some of them.
    places.retain(|place| resolver.resolve(place).is_ok());
    let mut text = String::new();
    for (found, _) in resolver.all(&places).unwrap().0 {
        let probe = found.probe(0);
        let distance = probe.address.wrapping_sub(anchor) as i64;
        text += &format!(
            "{distance} {} {} {} {} {}\n",
            probe.window,
            probe.window_lead,
            probe.host,
            probe.host_window,
            found.name()
        );
    }
    let file = folder.join("places");
    fs::write(&file, text).unwrap();
    file
}

/// Instructions at random: the five bytes of a jump at them hold a relative branch or call, or none. And returns.
fn find_covered(folder: &Path) -> PathBuf {
    let image = Image::from_vmlinuz(Path::new(&info("vmlinuz")), None).unwrap();
    let places = ["vfs_*", "tcp_*", "pci_*"].map(|pattern| Place::parse(pattern, Some(&Class::Any)).unwrap());
    let resolver = Resolver::new(&image, &places, None).unwrap();
    let found: Vec<_> = resolver.all(&places).unwrap().0.into_iter().map(|(found, _)| found).collect();
    let (mut branches, mut others) = (Vec::new(), Vec::new());
    for (at, first) in found.iter().enumerate().filter(|(_, found)| matches!(found.reach, Reach::Jump(_))) {
        let covers = |next: &&Found| next.function == first.function && next.offset < first.offset + 5;
        let texts: Vec<_> = found[at..].iter().take_while(covers).map(|found| found.text.as_str()).collect();
        // The kernel may have patched these when it booted.
        if texts.iter().any(|text| ["__x86_", "__SCT__", "__fentry__"].iter().any(|name| text.contains(name))) {
            continue;
        }
        let is_relative = |text: &&str| (text.starts_with('j') || text.starts_with("call")) && !text.contains('*');
        let kind = if texts.iter().any(is_relative) { &mut branches } else { &mut others };
        kind.push(format!("{}+{:#x}", first.function, first.offset));
    }
    let returns = found.iter().filter(|found| found.text == "jmp __x86_return_thunk");
    let returns = returns.map(|found| format!("{}+{:#x}", found.function, found.offset)).collect();
    let mut random = Random(0x2026_1127);
    let mut text = String::new();
    for (kind, mut all) in [("branch", branches), ("other", others), ("return", returns)] {
        assert!(all.len() > 1000, "{kind}: {}", all.len());
        for _ in 0..150 {
            let place = all.swap_remove(random.below(all.len()));
            text += &format!("{kind} {place}\n");
        }
    }
    let file = folder.join("covered");
    fs::write(&file, text).unwrap();
    file
}

/// What the tests in the guest printed, in one boot.
fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        compile_all(folder.path(), &info("root"), &info("release"));
        let (places, covered) = (find_places(folder.path()), find_covered(folder.path()));
        let modules = modules(&[(XK_KO, "kernel/xk"), (TARGET_KO, "kernel/test")]);
        let [folder, places, covered] = [folder.path(), &places, &covered].map(Path::display);
        boot(1200, &format!("{modules} {OBJECTS}={folder} {PLACES}={places} {COVERED}={covered}"))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

/// Fresh modules for each check, whatever the one before left behind.
fn prepare() {
    if Path::new("/dev/xk").exists() {
        assert!(run("rmmod", &["xk"]));
    }
    if Path::new("/proc/xk_target").exists() {
        assert!(run("rmmod", &["xk_target"]));
    }
    insmod(TARGET_KO);
    insmod(XK_KO);
}

fn object(name: &str) -> Vec<u8> {
    fs::read(file(OBJECTS).join(format!("{name}.bpf.o"))).unwrap()
}

#[path = "checks/ends.rs"]
mod ends;
#[path = "checks/entries.rs"]
mod entries;
#[path = "checks/kprobes.rs"]
mod kprobes;
#[path = "checks/modules.rs"]
mod modules;
#[path = "checks/probes.rs"]
mod probes;
#[path = "checks/several.rs"]
mod several;
#[path = "checks/short.rs"]
mod short;

mod checks {
    pub use super::ends::*;
    pub use super::entries::*;
    pub use super::kprobes::*;
    pub use super::modules::*;
    pub use super::probes::*;
    pub use super::several::*;
    pub use super::short::*;
}
