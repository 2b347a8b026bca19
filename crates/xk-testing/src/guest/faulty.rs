//! `kernel/faulty`: xk.ko with allocations that can be made to fail.

#![allow(clippy::unwrap_used)]

use std::fs;

use super::{insmod, run, wait_for};

/// Set in the guest only.
pub const FAULTY_KO: &str = "XK_TEST_FAULTY";
const PARAMETERS: &str = "/sys/module/xk_faulty/parameters";

/// Removes xk.ko, or its variant with faults.
pub fn rmmod_xk() {
    for (module, folder) in [("xk", "/sys/module/xk"), ("xk_faulty", "/sys/module/xk_faulty")] {
        assert!(fs::metadata(folder).is_err() || run("rmmod", &[module]));
    }
}

/// Replaces xk.ko by the variant with faults.
pub fn insmod_faulty() {
    rmmod_xk();
    insmod(FAULTY_KO);
}

fn parameter(name: &str) -> i64 {
    fs::read_to_string(format!("{PARAMETERS}/{name}")).unwrap().trim().parse().unwrap()
}

fn set(name: &str, value: u32) {
    fs::write(format!("{PARAMETERS}/{name}"), value.to_string()).unwrap();
}

/// Makes the `nth` allocation from now on fail, and, if `lasting`, every one after it.
pub fn starve(nth: u32, lasting: bool) {
    set("after", 0);
    set("failed", 0);
    set("lasting", lasting.into());
    set("after", nth);
}

/// How many failed.
pub fn failed() -> i64 {
    parameter("failed")
}

/// Makes allocations succeed again. Returns how many failed.
pub fn feed() -> i64 {
    set("after", 0);
    failed()
}

/// How often the module waited for handlers because a stop had no memory.
pub fn waited() -> i64 {
    parameter("waited")
}

/// Pieces of memory, and threads, that the module holds.
pub fn held() -> i64 {
    parameter("taken")
}

/// Waits until it holds this number. What handlers may use is freed a little later.
pub fn holds(pieces: i64) {
    wait_for(&format!("{pieces} pieces are held, now {}", held()), || held() == pieces);
}
