//! `kernel/atomic`, the module whose functions report which values they saw, and processes
//! that are inside them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use xk_harness::Atomic;
use xk_runtime::{Error, Outcome};

use super::{insmod, run, wait_for};

/// Set in the guest only.
pub const ATOMIC_KO: &str = "XK_TEST_ATOMIC";

/// Loads the module afresh.
pub fn fresh_atomic() {
    if Atomic.is_loaded() {
        Atomic.tell("release").unwrap();
        wait_for("the module is idle", || run("rmmod", &["xk_atomic"]));
    }
    insmod(ATOMIC_KO);
}

/// The value of `HOLD` for code that is not inside.
pub fn outside() -> i64 {
    Atomic.counts().unwrap().value
}

/// The values that the last thread to leave the span had seen: on entry, on leaving.
pub fn held() -> [i64; 2] {
    let hold = Atomic.counts().unwrap().span("hold");
    assert_eq!(hold.violations, 0, "two values met: {hold:?}");
    hold.last
}

/// Where `kernel/atomic` holds a thread.
#[derive(Debug, Clone, Copy)]
pub enum Stall {
    /// In `register_kprobe()`: the instruction is copied, and the kprobe cannot be found yet.
    Registers = 1,
    /// Where xk.ko arms the module that the thread loads, before the machine is stopped.
    Arms = 2,
}

/// A thread that is held. It is released when this is dropped, so that a failed assertion does not hang the guest.
pub struct Stalled(Option<JoinHandle<()>>);

impl Stalled {
    /// Returns when the thread that does `work` is held.
    pub fn new(stall: Stall, work: impl FnOnce() + Send + 'static) -> Self {
        Atomic.tell(&format!("stall {}", stall as u32)).unwrap();
        let thread = std::thread::Builder::new().name("xk_stalled".into()).spawn(work).unwrap();
        let stalled = Self(Some(thread));
        wait_for("it is held", || Atomic.counts().unwrap().stalled == 1);
        stalled
    }

    /// Releases the thread. Returns when it has ended.
    pub fn release(mut self) {
        Atomic.tell("stall 0").unwrap();
        self.0.take().unwrap().join().unwrap();
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        if self.0.is_some() {
            drop(Atomic.tell("stall 0"));
        }
    }
}

/// A process that is inside.
pub struct Holder(pub Child);

impl Holder {
    /// Returns when it is inside.
    #[allow(clippy::new_without_default)] // it starts a process
    pub fn new() -> Self {
        Self::running("echo hold 600000 >/proc/xk_atomic", "xk_atomic_hold")
    }

    /// A shell that runs `script`, when `function` is on its stack.
    pub fn running(script: &str, function: &str) -> Self {
        let child = Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap();
        let stack = format!("/proc/{}/stack", child.id());
        wait_for("a process is inside", || fs::read_to_string(&stack).unwrap().contains(function));
        Self(child)
    }

    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Releases all processes that are inside. Returns what this one saw on entry and on leaving, which must be one
    /// value.
    pub fn release(self) -> [i64; 2] {
        self.leave();
        held()
    }

    /// As [`release`](Self::release), whether or not two values met.
    pub fn leave(mut self) -> [i64; 2] {
        Atomic.tell("release").unwrap();
        assert!(self.0.wait().unwrap().success());
        Atomic.counts().unwrap().span("hold").last
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // A test failed before it released the process.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The error of a transition that timed out: outcome, message, report.
pub fn blocked<T: std::fmt::Debug>(result: Result<T, Error>) -> (Outcome, String, String) {
    match result {
        Err(Error::Blocked { outcome, reason, report }) => (outcome, reason, report),
        other => panic!("not blocked: {other:?}"),
    }
}
