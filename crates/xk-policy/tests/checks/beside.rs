//! Sites that are reached while another program, or a change of a map, is at work on the processor.
//!
//! A look through a large, empty map keeps `bpf_prog_active` raised for as long as it takes, and can be preempted. What
//! then runs in its place on the processor finds it raised. All of it runs on one processor: while a thread of the
//! real-time class does not sleep, the look gets no further.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver};

use libbpf_rs::{MapHandle, MapType};

use super::*;

/// Buckets of the map: as long as a look may take.
const BUCKETS: u32 = 4 << 20;
const POLICY: i64 = 77;
const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";

/// Makes the kernel preempt itself everywhere, until it is dropped. `None`: it cannot.
struct Preempting(Option<String>);

impl Preempting {
    fn new() -> Option<Self> {
        let Ok(models) = fs::read_to_string(PREEMPT) else {
            let version = fs::read_to_string("/proc/version").unwrap();
            return version.contains("PREEMPT").then_some(Self(None));
        };
        let before = models.split(['(', ')']).nth(1).unwrap().to_owned();
        fs::write(PREEMPT, "full").unwrap();
        Some(Self(Some(before)))
    }
}

impl Drop for Preempting {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            fs::write(PREEMPT, before).unwrap();
        }
    }
}

/// This thread, on the first processor; with a priority, of the real-time class.
fn bind(priority: i32) {
    // SAFETY: both structures are zero but for what is set, and outlive the calls.
    unsafe {
        let mut first: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut first);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&first), &first), 0);
        let class = if priority > 0 { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
        let parameter = libc::sched_param { sched_priority: priority };
        assert_eq!(libc::sched_setscheduler(0, class, &parameter), 0);
    }
}

/// Looks through the map until it is told to stop.
fn look(stop: &AtomicBool) {
    bind(0);
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        map_flags: libbpf_sys::BPF_F_NO_PREALLOC,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::Hash, Some("empty"), 4, 4, BUCKETS, &options).unwrap();
    while !stop.load(Ordering::Relaxed) {
        assert_eq!(map.lookup_batch(1, MapFlags::ANY, MapFlags::ANY).unwrap().count(), 0);
    }
}

/// The policy is not asked on this processor now, since a look is under way.
fn is_beside() -> bool {
    outside() == DEFAULT
}

/// Returns at a moment at which it is, or is not.
fn until(beside: bool) {
    let begin = Instant::now();
    while is_beside() != beside {
        assert!(begin.elapsed() < PATIENCE, "a look was always {}under way", if beside { "not " } else { "" });
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A thread that enters `HOLD` when it is told to, before anybody else runs on this processor.
fn hold(begin: &Receiver<()>) {
    bind(2);
    begin.recv().unwrap();
    Atomic.tell("hold 60000").unwrap();
}

/// Enters, and leaves, while a look is under way, or while none is; what it saw.
fn held_beside(entered: bool, left: bool) -> [i64; 2] {
    let (begin, begun) = channel();
    let rounds = || Atomic.counts().unwrap().span("hold").rounds;
    let before = rounds();
    std::thread::scope(|scope| {
        let holder = scope.spawn(move || hold(&begun));
        // It waits now.
        std::thread::sleep(Duration::from_millis(50));
        until(entered);
        begin.send(()).unwrap();
        assert_eq!(is_beside(), entered, "nothing else has run since");
        until(left);
        Atomic.tell("release").unwrap();
        assert_eq!(is_beside(), left, "nothing else has run since");
        holder.join().unwrap();
    });
    assert_eq!(rounds(), before + 1);
    held()
}

/// What an activation decides at its first site holds at the others.
pub fn a_decision_holds_while_another_program_is_at_work() {
    let Some(_preempting) = Preempting::new() else { return };
    let decided = Decided::new("done", DEFAULT, Mode::Global);
    assert_eq!(outside(), POLICY);
    let stop = AtomicBool::new(false);
    let counts = || (decided.sum(|site| site.reused), decided.sum(|site| site.skipped));
    std::thread::scope(|scope| {
        scope.spawn(|| look(&stop));
        let check = scope.spawn(|| {
            bind(1);
            // Decided before: the value of the policy twice.
            let before = counts().0;
            assert_eq!(held_beside(false, true), [POLICY; 2]);
            assert_eq!(counts().0, before + 1);
            // The first site could not ask: the value beneath twice.
            let before = counts().0;
            assert_eq!(held_beside(true, false), [DEFAULT; 2]);
            assert_eq!(counts().0, before + 1, "that nothing was set is the decision");
        });
        let outcome = check.join();
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
}
