//! Threads that count what they do.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{sleep, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{anyhow, Result};

/// The number of sched_ext's class.
pub const SCHED_EXT: i32 = 7;
/// ... and of the fair class.
pub const SCHED_NORMAL: i32 = 0;

/// The class of a thread of this process. -1: it has ended.
#[must_use]
pub fn class(tid: i32) -> i32 {
    // SAFETY: takes and returns numbers.
    unsafe { libc::sched_getscheduler(tid) }
}

/// A thread that works until it is told to stop.
#[derive(Debug)]
pub struct Thread {
    tid: Arc<AtomicI32>,
    rounds: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

impl Thread {
    /// Runs `work` again and again.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn new(work: impl Fn() + Send + 'static) -> Result<Self> {
        let (tid, rounds, over) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicU64::new(0)), Arc::default());
        let own = (tid.clone(), rounds.clone(), Arc::clone(&over));
        let handle = std::thread::Builder::new().spawn(move || {
            let (tid, rounds, over): (_, _, Arc<AtomicBool>) = own;
            // SAFETY: returns a number.
            tid.store(unsafe { libc::gettid() }, Ordering::Release);
            while !over.load(Ordering::Relaxed) {
                work();
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        while tid.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        Ok(Self { tid, rounds, over, handle })
    }

    /// One that sleeps and wakes.
    ///
    /// # Errors
    /// As [`Thread::new`].
    pub fn sleeping() -> Result<Self> {
        Self::new(|| sleep(Duration::from_millis(3)))
    }

    /// Its number.
    #[must_use]
    pub fn tid(&self) -> i32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// How often it has done its work.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Returns when it has ended.
    ///
    /// # Errors
    /// When it panicked.
    pub fn stop(self) -> Result<()> {
        self.over.store(true, Ordering::Relaxed);
        self.handle.join().map_err(|_| anyhow!("a thread panicked"))
    }
}

/// Uses the processor for so long.
pub fn spin(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        spin_loop();
    }
}

/// Confines the calling thread, and what it starts, to these CPUs.
pub fn confine(cpus: &[usize]) {
    confine_thread(0, cpus);
}

/// Confines a thread to these CPUs.
pub fn confine_thread(tid: i32, cpus: &[usize]) {
    // SAFETY: the set is initialised by zero, and lives until the call returns.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
