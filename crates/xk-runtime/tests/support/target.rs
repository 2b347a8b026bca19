//! `kernel/test`, the module of functions that contain a constant of 32: what they return,
//! and what the probes of somebody else see there.

#![allow(dead_code)] // no test needs all of it

use std::fs;
use std::path::{Path, PathBuf};

use xk_runtime::{Backend, Device, Error, Probe, SiteStatus, Tune};
use xk_table::{Op, OpCode};

use super::{op, set_register, table, Loaded, SiteSpec, MODULE};
use xk_testing::guest::{file, insmod, run, wait_for};

/// Set in the guest only.
pub const TARGET_KO: &str = "XK_TEST_TARGET";
/// What the module prints, and is told.
const PROC: &str = "/proc/xk_target";
/// Whether kprobes are armed.
pub const ENABLED: &str = "/sys/kernel/debug/kprobes/enabled";

pub fn target_module() -> PathBuf {
    file(TARGET_KO)
}

/// As it was loaded first, whatever happened before.
pub fn fresh_target() {
    if Path::new(PROC).exists() {
        assert!(run("rmmod", &[MODULE]));
    }
    insmod(TARGET_KO);
}

/// What the function whose line starts with `name` returned.
pub fn target(name: &str) -> String {
    let text = fs::read_to_string(PROC).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect(name);
    line.trim().to_owned()
}

/// Bytes that run: `text` of `xk_target_value`, `bytes` of `xk_target_compare`, `pairtext` of
/// `xk_target_pair`.
pub fn running(name: &str) -> Vec<u8> {
    target(name).split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

pub fn write(path: &str, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{path}: {text}: {error}"));
}

/// Somebody else's probe, `enabled` or `disabled`; there is one at a time.
pub fn probe(symbol: &str, offset: u32, state: &str) {
    write(PROC, &format!("probe {symbol} {offset} {state}"));
}

/// That one, if it was disabled.
pub fn enable_probe() {
    write(PROC, "enable probe");
}

pub fn no_probe() {
    write(PROC, "no probe");
}

/// How often the probe of somebody else was hit. Reading how often counts, too.
pub fn hits() -> u64 {
    target("foreign").parse().unwrap()
}

/// Whether the kernel has made a jump of the probe there.
pub fn is_optimised(place: &str) -> bool {
    let list = fs::read_to_string("/sys/kernel/debug/kprobes/list").unwrap();
    list.lines().any(|line| line.contains(place) && line.contains("[OPTIMIZED]"))
}

/// The kernel makes a jump of this probe: its optimiser has been here.
pub fn optimised_elsewhere() -> Tune {
    let site = SiteSpec::new("xk_target_twice", 10, 2, set_register(1));
    let table = table(&target_module(), "OTHER", vec![site]);
    let tune = Device::open().unwrap().load_by(&table, &Loaded, Backend::Kprobe).unwrap();
    tune.set(64).unwrap();
    wait_for("optimisation", || only_site(&tune).probe == Probe::Jump);
    tune
}

pub fn only_site(tune: &Tune) -> SiteStatus {
    tune.status().unwrap().sites.remove(0)
}

pub fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.expect_err("the kernel should have refused").to_string()
}

/// flags = memory or register `register` compared with V
pub fn compare(register: u8, memory: bool) -> Vec<Op> {
    compare_flags(register, memory, 0x8d5)
}

/// As [`compare`], of these flags only.
pub fn compare_flags(register: u8, memory: bool, flags: i64) -> Vec<Op> {
    let mut ops = if memory {
        vec![Op { a: register, ..op(OpCode::Reg, 8) }, op(OpCode::Load, 4)]
    } else {
        vec![Op { a: register, ..op(OpCode::Reg, 4) }]
    };
    ops.push(Op { dst: 1, ..op(OpCode::Iv, 4) });
    ops.push(Op { dst: 2, b: 1, ..op(OpCode::FlagsSub, 4) });
    ops.push(Op { a: 2, imm: flags, ..op(OpCode::SetFlags, 8) });
    ops
}

/// A handler of a kprobe calls `xk_target_value`, where 128 is in force: a kprobe there does not run then, and
/// what comes instead of it is not missed.
pub fn nests(by_kprobe: Tune, other: impl FnOnce() -> Tune) {
    assert_eq!((target("value"), target("handler")), ("128".into(), "32".into()));
    assert!(only_site(&by_kprobe).missed > 0);
    by_kprobe.unload().unwrap();
    let tune = other();
    assert_eq!((target("value"), target("handler")), ("128".into(), "128".into()));
    assert_eq!(only_site(&tune).missed, 0);
}

/// `tune` holds `xk_target_value` at 128: with kprobes switched off, too.
pub fn outlives_kprobes(tune: Tune) {
    write(ENABLED, "0");
    assert_eq!(target("value"), "128");
    assert!(!tune.status().unwrap().broken);
    tune.set(9).unwrap();
    assert_eq!(target("value"), "9");
    write(ENABLED, "1");
    tune.unload().unwrap();
    assert_eq!(target("value"), "32");
}
