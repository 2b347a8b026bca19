//! Stale threads that end, are killed, or have children.

use std::io::{BufRead, BufReader, Read, Write};

use xk_harness::Running;

use super::blocking::beside;
use crate::*;

pub fn a_stale_process_may_be_killed() {
    for mode in [Mode::Task, Mode::Global] {
        let mut holder = Holder::new();
        let transition = beside(load("HOLD"), mode, LONG);
        wait_for("it is waited for", || only_tune().is_some_and(|tune| tune.blocking == 1));
        holder.0.kill().unwrap();
        holder.0.wait().unwrap();
        let (_tune, result) = transition.join().unwrap();
        result.unwrap();
        assert_eq!(held(), [DEFAULT; 2]);
        assert_eq!(outside(), TUNED);
    }
}

/// The stacks of the threads in a folder whose names start so.
fn stacks(folder: &str, name: &str) -> String {
    let threads = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.starts_with(name));
    threads.filter(named).filter_map(|path| fs::read_to_string(path.join("stack")).ok()).collect()
}

/// It never leaves its span: its stack goes with it.
pub fn a_stale_thread_may_end_inside() {
    for mode in [Mode::Task, Mode::Global] {
        let tune = load("HOLD");
        Atomic.tell("exit").unwrap();
        wait_for("it is inside", || stacks("/proc", "xk_atomic_exit").contains("xk_atomic_exit_inside+"));
        let transition = beside(tune, mode, LONG);
        wait_for("it is waited for", || only_tune().is_some_and(|tune| tune.blocking == 1));
        let report = only_tune().unwrap().blockers;
        assert!(report.contains("(xk_atomic_exit)") && report.contains("xk_atomic_exit_inside+"), "{report}");
        Atomic.tell("release").unwrap();
        let (_tune, result) = transition.join().unwrap();
        result.unwrap();
        assert_eq!(outside(), TUNED);
    }
}

/// The process that [`a_child_of_a_stale_thread_is_not_stale`] starts: waits in
/// the kernel for its child to end, as after vfork(). The child waits for a byte,
/// prints what the constant is for it, and waits for another.
pub fn parent() {
    let (path, mut byte, mut text) = (c"/proc/xk_atomic", [0u8; 1], [0u8; 4096]);
    // SAFETY: without CLONE_VM the child has memory of its own; it only makes system
    // calls, with buffers that are there.
    unsafe {
        let flags = (libc::CLONE_VFORK | libc::SIGCHLD) as libc::c_ulong;
        if libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) == 0 {
            libc::read(0, byte.as_mut_ptr().cast(), 1);
            let file = libc::open(path.as_ptr(), libc::O_RDONLY);
            let len = libc::read(file, text.as_mut_ptr().cast(), text.len());
            libc::write(1, text.as_ptr().cast(), len.max(0) as usize);
            libc::read(0, byte.as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
}

pub fn a_child_of_a_stale_thread_is_not_stale() {
    let clone = Running::find("kernel_clone").unwrap();
    let mut table = table(&file(ATOMIC_KO), &family("HOLD").unwrap()).unwrap();
    clone.confine(&mut table);
    let tune = Device::open().unwrap().load(&table, &clone).unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "parent", "--nocapture"])
        .env("XK_TEST_PARENT", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = process.stdin.take().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let threads = format!("/proc/{}/task", process.id());
    wait_for("the parent waits for its child", || stacks(&threads, "").contains("kernel_clone+"));
    let transition = beside(tune, Mode::Task, LONG);
    wait_for("everybody else goes over", || outside() == TUNED);
    input.write_all(b"x").unwrap();
    let line = output.by_ref().lines().map_while(Result::ok).find(|line| line.starts_with("value ")).unwrap();
    assert_eq!(line, format!("value {TUNED}"));
    assert!(!transition.is_finished());
    assert_eq!(state(), Some(State::Changing));
    drop(input);
    let (_tune, done) = transition.join().unwrap();
    assert!(done.unwrap().stops > 1);
    process.wait().unwrap();
}

/// Inside a span, behind `exit_notify()`: `for_each_process_thread()` does not find it any more.
fn detained() {
    std::thread::Builder::new().name("xk_detained".into()).spawn(|| {}).unwrap().join().unwrap();
    wait_for("it is inside", || Atomic.counts().unwrap().detained == 1);
    assert_eq!(stacks("/proc/self/task", "xk_detained"), "", "it is on no list");
}

pub fn a_thread_that_exits_and_is_on_no_list_blocks() {
    Atomic.tell("detain 1").unwrap();
    for mode in [Mode::Global, Mode::Task] {
        let tune = load("HOLD");
        detained();
        let (_, reason, report) = blocked(tune.go(Destination::Value(TUNED), mode, BRIEF));
        assert!(reason.contains("(xk_detained)"), "{reason}");
        assert!(report.contains("xk_atomic_hold+") && report.contains("do_exit+"), "{report}");
        Atomic.tell("release").unwrap();
        wait_for("it has ended", || Atomic.counts().unwrap().detained == 0);
        assert_eq!(held(), [DEFAULT; 2]);
        // It is known as long as it may be inside, and no longer.
        tune.go(Destination::Value(TUNED), mode, LONG).unwrap();
        assert_eq!(outside(), TUNED);
    }
    Atomic.tell("detain 0").unwrap();
}
