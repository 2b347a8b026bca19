//! The source of the locks, as a program: threads that take turns at the worst places.

#![allow(clippy::unwrap_used)] // a test

use std::process::Command;

use xk_testing::guest::repository;

const ROUNDS: u32 = 2000;

/// Nobody is inside with somebody else, the order is that of the tickets, everybody comes to the end, and the locks are
/// free then: also of threads that give up, and of those that die between any two accesses.
#[test]
fn threads_take_turns_in_every_order_and_may_die_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("lock");
    let root = repository();
    let mut clang = Command::new("clang-19");
    clang.args(["-O2", "-Wall", "-Werror", "-Wno-unused-function", "-I"]).arg(root.join("bpf"));
    clang.arg(root.join("crates/xk-flex/tests/native/lock.c")).arg("-o").arg(&program);
    assert!(clang.status().unwrap().success());
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let ran = Command::new(&program).args([seed.to_string(), ROUNDS.to_string()]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "seed {seed}: {said}");
    let numbers: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [changes, taken, tried, given_up, died, reads, most] = numbers[..] else { panic!("{said}") };
    assert!(changes > 100 * u64::from(ROUNDS) && taken > 10 * u64::from(ROUNDS) && tried > 100, "{said}");
    assert!(given_up > u64::from(ROUNDS) && died > 500 && reads > u64::from(ROUNDS) && most > 2, "{said}");
}
