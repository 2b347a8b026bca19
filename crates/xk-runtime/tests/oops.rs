//! What an oops and a panic say about constants that were changed: the kernel's log of guests that stop in
//! one. Each check boots its own.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[allow(unused_macros)] // each check stops its guest
#[allow(dead_code)] // shared with the tests of probes
mod support;

use std::fs;
use std::process::Command;

use support::target::{fresh_target, target_module, write, TARGET_KO};
use support::{set_register, table, Loaded, SiteSpec, RAX};
use xk_runtime::Device;
use xk_testing::guest::{insmod, kernel, modules, repository, run, XK_KO};

/// The kernel's log of a guest that runs what is `inside`, and dies of it.
fn log_of(name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "export {}; exec {} --ignored --exact inside::{name} 2>&1",
        modules(&[(XK_KO, "kernel/xk"), (TARGET_KO, "kernel/test")]),
        std::env::current_exe().unwrap().display()
    );
    let output = Command::new("lab/lab")
        .args(["run", "--kernel", &kernel(), "--timeout", "600", "--out", folder.path().to_str().unwrap(), &script])
        .current_dir(repository())
        .output()
        .unwrap();
    // It died, and was meant to.
    assert_eq!(output.status.code(), Some(92), "{}", String::from_utf8_lossy(&output.stdout));
    fs::read_to_string(folder.path().join("dmesg")).unwrap()
}

/// From the first line that contains `start`.
fn from<'a>(log: &'a str, start: &str) -> &'a str {
    &log[log.find(start).unwrap_or_else(|| panic!("no {start}: {log}"))..]
}

#[test]
fn an_oops_names_what_was_changed() {
    let log = log_of("dies_of_an_oops");
    let said = from(&log, "BUG: unable to handle page fault");
    assert!(said.contains(":VALUE:0 is 99, 32 by default"), "{log}");
    assert!(!said.contains(":TWICE:0"), "it was put back: {log}");
    assert!(said.contains("Tainted: [U]=USER"), "{log}");
}

#[test]
fn a_panic_names_what_was_changed() {
    let log = log_of("dies_of_a_panic");
    let said = from(&log, "Kernel panic - not syncing: sysrq triggered crash");
    assert!(said.contains(":TWICE:0 is 64, 32 by default"), "{log}");
    assert!(said.contains(":VALUE:0 is 99, 32 by default"), "{log}");
}

#[test]
fn an_oops_after_xk_was_removed_says_nothing() {
    let log = log_of("dies_without_xk");
    let said = from(&log, "BUG: unable to handle page fault");
    assert!(!said.contains(":VALUE:0"), "{log}");
    assert_eq!(log.matches("BUG: unable to handle page fault").count(), 1, "{log}");
    assert!(said.contains("Tainted: [U]=USER"), "it was changed once: {log}");
}

mod inside {
    use super::*;

    /// VALUE at 99 and TWICE at 64, without an owner; the number of TWICE.
    fn change() -> u32 {
        fresh_target();
        insmod(XK_KO);
        let device = Device::open().unwrap();
        let load = |name: &str, site, value| {
            let tune = device.load(&table(&target_module(), name, vec![site]), &Loaded).unwrap();
            tune.set(value).unwrap();
            tune.detach().unwrap()
        };
        load("VALUE", SiteSpec::new("xk_target_value", 5, 2, set_register(RAX)), 99);
        load("TWICE", SiteSpec::new("xk_target_twice", 10, 2, set_register(1)), 64)
    }

    #[test]
    #[ignore = "runs in a guest, and stops it"]
    fn dies_of_an_oops() {
        let twice = change();
        Device::open().unwrap().unload(twice).unwrap();
        write("/proc/xk_target", "oops");
    }

    #[test]
    #[ignore = "runs in a guest, and stops it"]
    fn dies_of_a_panic() {
        change();
        write("/proc/sysrq-trigger", "c");
    }

    #[test]
    #[ignore = "runs in a guest, and stops it"]
    fn dies_without_xk() {
        change();
        assert!(run("rmmod", &["xk"]));
        write("/proc/xk_target", "oops");
    }
}
