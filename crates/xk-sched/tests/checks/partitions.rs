//! CPUs of policies. Threads ask the kernel all the time on which CPU they run.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use xk_harness::sched::{class, confine, Thread, SCHED_EXT};
use xk_sched::{Device, Who};
use xk_testing::guest::wait_for;

use crate::support::{insmod_with, policy, Process, LATENCY_KO, WEIGHTED_KO};

/// A thread, and the CPUs on which it was.
struct Seen {
    thread: Thread,
    cpus: Arc<AtomicU64>,
}

impl Seen {
    /// It is in the policy, uses the processor, and sleeps for so long from time to time.
    fn under(policy: &str, pause: u64, affinity: &'static [usize]) -> Self {
        let cpus = Arc::new(AtomicU64::new(0));
        let own = Arc::clone(&cpus);
        let thread = Thread::new(move || {
            if !affinity.is_empty() {
                confine(affinity);
            }
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(3) {
                // SAFETY: returns a number.
                own.fetch_or(1 << unsafe { libc::sched_getcpu() }, Ordering::Relaxed);
            }
            if pause > 0 {
                sleep(Duration::from_micros(pause));
            }
        });
        let thread = thread.unwrap();
        assert_eq!(Device::open().unwrap().choose(policy, Who::Thread(thread.tid())).unwrap(), 1);
        Self { thread, cpus }
    }
}

/// Returns when each of them has done this many more rounds.
#[track_caller]
fn all_do(threads: &[Seen], rounds: u64) {
    let goals: Vec<_> = threads.iter().map(|one| (&one.thread, one.thread.rounds() + rounds)).collect();
    for (thread, goal) in goals {
        wait_for(&format!("thread {} goes on", thread.tid()), || thread.rounds() >= goal);
        assert_eq!(class(thread.tid()), SCHED_EXT);
    }
}

/// The CPUs on which any of them is, after all have got there.
#[track_caller]
fn cpus_of(threads: &[Seen]) -> u64 {
    all_do(threads, 12);
    threads.iter().for_each(|thread| thread.cpus.store(0, Ordering::Relaxed));
    all_do(threads, 25);
    threads.iter().fold(0, |all, thread| all | thread.cpus.load(Ordering::Relaxed))
}

fn stop(threads: Vec<Seen>) {
    threads.into_iter().for_each(|thread| thread.thread.stop().unwrap());
}

fn set_online(cpu: usize, online: bool) {
    fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), u8::from(online).to_string()).unwrap();
}

/// Threads that compute and threads that sleep, more than CPUs, beside hackbench, while the CPUs change.
pub fn threads_run_on_the_cpus_of_their_policy() {
    insmod_with(WEIGHTED_KO, "");
    insmod_with(LATENCY_KO, "");
    let device = Device::open().unwrap();
    for name in ["fifo", "rr", "weighted", "latency"] {
        device.set_cpus(name, "2-3").unwrap();
        let hackbench = Process::under(name, "while :; do hackbench -g 1 -l 5 >/dev/null; done");
        let threads: Vec<_> = [0, 0, 0, 200, 900].into_iter().map(|pause| Seen::under(name, pause, &[])).collect();
        for (list, cpus) in [("2-3", 0b1100), ("0", 0b0001), ("1,3", 0b1010), ("2-3", 0b1100)] {
            device.set_cpus(name, list).unwrap();
            assert_eq!((policy(name).cpus.as_str(), policy(name).stranded), (list, false));
            let seen = cpus_of(&threads);
            assert_eq!(seen & !cpus, 0, "{name} on {list}: CPUs {seen:#b}");
        }
        // Another policy keeps all CPUs.
        let other = vec![Seen::under(if name == "rr" { "fifo" } else { "rr" }, 0, &[0])];
        assert_eq!(cpus_of(&other), 1);
        stop(other);
        device.set_cpus(name, "all").unwrap();
        assert_eq!(policy(name).cpus, "all");
        assert!(cpus_of(&threads).count_ones() > 1);
        drop(hackbench);
        stop(threads);
        assert_eq!((policy(name).live, policy(name).overdue), (true, 0));
    }
    assert_eq!(device.status().unwrap().ejected, 0);
}

/// Nobody else wants its CPU, so sched_ext would let it run there.
pub fn a_thread_that_runs_alone_leaves_a_core_that_its_policy_has_no_more() {
    let device = Device::open().unwrap();
    for name in ["fifo", "rr"] {
        let threads = vec![Seen::under(name, 0, &[])];
        for (cpu, list) in ["0", "1", "2", "3", "1"].into_iter().enumerate() {
            device.set_cpus(name, list).unwrap();
            let seen = cpus_of(&threads);
            assert_eq!(seen, 1 << list.parse::<u64>().unwrap(), "change {cpu} of {name}: CPUs {seen:#b}");
        }
        // It also leaves a core on which it joins.
        device.choose("fair", Who::Thread(threads[0].thread.tid())).unwrap();
        device.choose(name, Who::Thread(threads[0].thread.tid())).unwrap();
        assert_eq!(cpus_of(&threads), 0b10);
        // Affinity comes first, if both have no CPU in common.
        let elsewhere = vec![Seen::under(name, 0, &[3])];
        assert_eq!((cpus_of(&elsewhere), cpus_of(&threads)), (0b1000, 0b10));
        stop(elsewhere);
        stop(threads);
    }
    assert_eq!(device.status().unwrap().ejected, 0);
}

pub fn cpus_of_a_policy_go_offline() {
    let device = Device::open().unwrap();
    for name in ["rr", "fifo"] {
        device.set_cpus(name, "2-3").unwrap();
        let threads: Vec<_> = [0, 0, 300].into_iter().map(|pause| Seen::under(name, pause, &[])).collect();
        assert_eq!(cpus_of(&threads) & !0b1100, 0);
        set_online(3, false);
        assert_eq!(cpus_of(&threads), 0b100);
        assert!(!policy(name).stranded);
        set_online(2, false);
        assert!(policy(name).stranded, "{:?}", policy(name));
        assert_eq!(cpus_of(&threads) & !0b11, 0, "it has all that are online");
        set_online(3, true);
        assert!(!policy(name).stranded);
        assert_eq!(cpus_of(&threads), 0b1000);
        set_online(2, true);
        assert_eq!(cpus_of(&threads) & !0b1100, 0);
        stop(threads);
        assert_eq!((policy(name).live, policy(name).overdue), (true, 0));
    }
    assert_eq!(device.status().unwrap().ejected, 0);
}

pub fn lists_of_cpus_that_are_wrong_are_refused() {
    let device = Device::open().unwrap();
    let said = |name: &str, list: &str| device.set_cpus(name, list).unwrap_err().to_string();
    assert!(said("rr", "2-").contains("'2-' is no list of CPUs"));
    assert!(said("rr", "2-99").contains("'2-99' is no list of CPUs"));
    assert!(said("nobody", "0").contains("no policy is called nobody"));
    set_online(3, false);
    assert!(said("rr", "3").contains("no CPU of 3 is online"));
    set_online(3, true);
    assert_eq!((policy("rr").cpus.as_str(), policy("rr").stranded), ("all", false));
    let reader = Device::open_to_read().unwrap();
    assert!(reader.set_cpus("rr", "0").unwrap_err().to_string().contains("reading only"));
}
