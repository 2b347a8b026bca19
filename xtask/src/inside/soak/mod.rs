//! Everything at once, for a long time: transitions, arming, policies, modules, processors, tracers, foreign probes,
//! processes, memory that is short, and faults.
//!
//! In: the modules, a compiled policy file, and a time. Out: what was done and how often, values that met, and bytes of
//! code that differ. The time is divided into epochs; between two of them `xk.ko` goes and comes back, and the code is
//! compared. What fails without an injected fault ends the soak.

mod arms;
mod bystanders;
pub mod companion;
mod epoch;
mod faults;
mod policies;
mod pressure;
mod report;
mod transitions;
mod watch;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use xk_harness::{Counts, Flipper};
use xk_runtime::{Backend, Error, Mode};

use faults::Faults;
pub use pressure::{hog, Hog};
pub use report::{Bucket, Report};

/// What is to be done.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// xk.ko
    #[arg(long)]
    xk: PathBuf,
    /// kernel/faulty, for kernels that inject no faults themselves
    #[arg(long)]
    faulty: PathBuf,
    /// kernel/atomic
    #[arg(long)]
    atomic: PathBuf,
    /// kernel/test
    #[arg(long)]
    target: PathBuf,
    /// A module that nothing here uses
    #[arg(long)]
    stranger: PathBuf,
    /// The compiled policies
    #[arg(long)]
    policies: PathBuf,
    /// For this time
    #[arg(long)]
    seconds: u64,
    /// That are armed at once
    #[arg(long)]
    sites: usize,
    /// How much longer everything takes on this kernel
    #[arg(long)]
    slowness: u32,
    /// What is to be wrong
    #[arg(long)]
    broken: Option<Broken>,
}

/// What is wrong on purpose, to see that the soak fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// Mode now is counted as if it promised something
    Now,
    /// A byte of code is left changed
    Byte,
}

/// One bound of a transition; it is multiplied by the kernel's slowness. One that needs it is given up, and counted.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Nothing begins after this file is there.
const STOP: &str = "/run/xk/soak-over";
/// A wait between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// What the workers share.
struct Soak<'a> {
    arguments: &'a Arguments,
    over: AtomicBool,
    report: Mutex<Report>,
    faults: Faults,
    /// Written by who removes `kernel/atomic`, read by who relies on it.
    presence: RwLock<()>,
    /// What earlier lives of `kernel/atomic` have seen.
    past: Mutex<Counts>,
    /// Where the transitions go on in the next epoch, and the policies.
    turns: [AtomicUsize; 2],
    started: Instant,
}

impl Soak<'_> {
    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timeout(&self) -> Duration {
        TIMEOUT * self.arguments.slowness
    }

    /// Between two rounds of what is beside: who observes needs the processors, too.
    fn pause(&self) -> Duration {
        PAUSE * self.arguments.slowness
    }

    /// How long one thing is done before another one is.
    fn dwell(&self) -> Duration {
        Duration::from_millis((self.arguments.seconds * 1000 / 60).clamp(500, 10_000))
    }

    /// Sleeps as long as what began then took, and a pause: on a slow host, who only disturbs does not take the time of
    /// who works.
    fn rest(&self, began: Instant) {
        self.sleep(self.pause().max(began.elapsed()));
    }

    /// Sleeps, but not beyond the end of the epoch.
    fn sleep(&self, time: Duration) {
        let start = Instant::now();
        while !self.over() && start.elapsed() < time {
            std::thread::sleep(PAUSE.min(time));
        }
    }

    /// Whether kprobes may have missed what is explained by it.
    fn bucket(report: &mut Report, backend: Backend) -> &mut Bucket {
        if backend == Backend::Kprobe {
            &mut report.kprobes
        } else {
            &mut report.others
        }
    }

    /// Ends tunes, also if there is no memory, or threads are inside for long.
    fn unload(&self, flipper: &Flipper, mode: Mode) -> Result<()> {
        let end = || match flipper.end(mode, self.timeout()) {
            // A fault came after the end.
            Err(Error::NoSuchTune(_)) => Ok(true),
            Err(Error::Blocked { reason, .. }) if !reason.contains("memory") => {
                eprintln!("soak: given up: {reason}");
                Ok(false)
            }
            result => Ok(result.map(|()| true)?),
        };
        while !self.faults.attempt(end, || Ok(()))? {
            self.report().blocked += 1;
        }
        Ok(())
    }

    /// A module comes.
    fn insmod(&self, module: &Path) -> Result<()> {
        command("insmod", &[&module.display().to_string()])?;
        let name = name_of(module);
        *self.report().modules.entry(name).or_default() += 1;
        Ok(())
    }
}

/// Removes a module when it is not used any longer.
fn rmmod(module: &Path) -> Result<()> {
    let name = name_of(module);
    retry(Duration::from_secs(60), || command("rmmod", &[&name]))
}

fn name_of(module: &Path) -> String {
    module.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn command(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    ensure!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// What `work` returns as soon as it succeeds, or its last error.
fn retry<T>(time: Duration, mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match work() {
            Err(_) if start.elapsed() < time => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
}

/// Does it.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let faults = Faults::of_this_kernel()?;
    let soak = Soak {
        arguments,
        over: AtomicBool::new(false),
        report: Mutex::default(),
        faults,
        presence: RwLock::default(),
        past: Mutex::default(),
        turns: Default::default(),
        started: Instant::now(),
    };
    let done = epoch::all(&soak);
    let mut report = soak.report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.failure = done.err().map(|error| format!("{error:#}"));
    soak.faults.describe(&mut report.faults);
    report.seconds = soak.started.elapsed().as_secs_f64();
    let preemption = std::fs::read_to_string("/sys/kernel/debug/sched/preempt").unwrap_or_default();
    report.preemption = preemption.trim().to_owned();
    Ok(report)
}
