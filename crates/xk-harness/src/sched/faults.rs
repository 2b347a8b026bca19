//! Policies that make mistakes, beside two that make none: each must be ejected alone.

use std::path::PathBuf;
use std::thread::{sleep, yield_now};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_sched::{Device, Error, Who};

use super::threads::{confine, spin};
use super::{class, insmod, policy, rmmod, wait_for, Expected, Mistake, Thread, SCHED_EXT, SCHED_NORMAL};

const FAULTY: &str = "faulty";
/// Another policy of its module, for mistakes that are made when threads are handed over.
const REPLACED: &str = "replaced";
const HEALTHY: [&str; 2] = ["fifo", "rr"];
/// Threads of the policy that makes mistakes; each starts others.
const WORKERS: usize = 3;

/// What came of the rounds of one kind.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The kind.
    pub kind: String,
    /// Rounds.
    pub rounds: u32,
    /// Rounds in which the policy was ejected, with a report that is right, and its threads went on in the fair class.
    pub ejected_alone: u32,
    /// Rounds in which both other policies and their threads went on.
    pub healthy_survived: u32,
    /// What was wrong first.
    pub wrong: Option<String>,
}

/// Threads of policies that make no mistake, and the module of the one that does.
#[derive(Debug)]
pub struct Faults {
    module: PathBuf,
    device: Device,
    healthy: Vec<(&'static str, Thread)>,
}

impl Faults {
    /// `xk_sched.ko` and the healthy policies are loaded; `module` is `xk_sched_faulty.ko`.
    ///
    /// # Errors
    /// When something is missing.
    pub fn new(module: PathBuf) -> Result<Self> {
        let device = Device::open()?;
        let mut healthy = Vec::new();
        for name in HEALTHY {
            let thread = Thread::sleeping()?;
            device.choose(name, Who::Thread(thread.tid()))?;
            healthy.push((name, thread));
        }
        Ok(Self { module, device, healthy })
    }

    /// Rounds of one kind.
    ///
    /// # Errors
    /// When a round cannot be done.
    pub fn run(&self, mistake: Mistake, rounds: u32) -> Result<Outcome> {
        let mut outcome = Outcome { kind: mistake.kind.into(), rounds, ..Outcome::default() };
        for _ in 0..rounds {
            let wrong = self.round(mistake).with_context(|| mistake.kind)?;
            outcome.ejected_alone += u32::from(wrong.is_none());
            outcome.wrong = outcome.wrong.or(wrong);
            match self.healthy_go_on() {
                Ok(()) => outcome.healthy_survived += 1,
                Err(error) => outcome.wrong = outcome.wrong.or(Some(format!("{error:#}"))),
            }
        }
        Ok(outcome)
    }

    /// Ends the threads.
    ///
    /// # Errors
    /// When one panicked.
    pub fn stop(self) -> Result<()> {
        self.healthy.into_iter().try_for_each(|(_, thread)| thread.stop())
    }

    /// What is wrong, if anything is.
    fn round(&self, mistake: Mistake) -> Result<Option<String>> {
        let before = self.device.status()?.ejected;
        let loaded = insmod(&self.module, &format!("kind={}", mistake.kind));
        if mistake.result == Expected::Refused {
            return Ok(loaded.is_ok().then(|| "it is registered".to_owned()));
        }
        loaded?;
        let workers = (0..WORKERS).map(|_| Thread::new(work)).collect::<Result<Vec<_>>>()?;
        for worker in &workers {
            match self.device.choose(policy_of(mistake), Who::Thread(worker.tid())) {
                Ok(_) | Err(Error::Ejected(_)) => (),
                Err(error) => return Err(error.into()),
            }
        }
        if mistake.is_in_adopt() {
            self.replace(&workers)?;
        }
        wait_for("it is ejected", || Ok(!policy(&self.device, FAULTY)?.live))?;
        wait_for("no thread is in it", || Ok(policy(&self.device, FAULTY)?.threads == 0))?;
        let wrong = self.report(mistake)?;
        for worker in &workers {
            let rounds = worker.rounds();
            wait_for("its threads go on", || Ok(worker.rounds() > rounds))?;
        }
        let left = workers.iter().filter(|worker| class(worker.tid()) == SCHED_NORMAL).count();
        // The first thread that was handed over was the last.
        let (expected, others) = if mistake.is_in_adopt() { (1..=1, SCHED_EXT) } else { (WORKERS..=WORKERS, 0) };
        ensure!(expected.contains(&left), "{left} threads are in the fair class");
        ensure!(workers.iter().all(|worker| [SCHED_NORMAL, others].contains(&class(worker.tid()))), "a thread is lost");
        workers.into_iter().try_for_each(Thread::stop)?;
        rmmod("xk_sched_faulty")?;
        let ejected = self.device.status()?.ejected - before;
        Ok(wrong.or((ejected != 1).then(|| format!("{ejected} policies were ejected"))))
    }

    /// The policy takes over from one that makes no mistake, and fails when it adopts the first thread.
    fn replace(&self, workers: &[Thread]) -> Result<()> {
        for worker in workers {
            wait_for("the policy has placed each thread", || Ok(worker.rounds() > 1))?;
        }
        let said = self.device.replace(REPLACED, FAULTY).err().context("nothing was wrong")?.to_string();
        ensure!(said.contains("a policy was ejected when"), "{said}");
        let old = policy(&self.device, REPLACED)?;
        ensure!(old.live && old.threads > 0, "the old policy must go on: {old:?}");
        Ok(())
    }

    fn report(&self, mistake: Mistake) -> Result<Option<String>> {
        let report = self.device.reports()?.into_iter().next().context("no report")?;
        let (from, to) = report.thread.as_ref().map_or(("", ""), |thread| (&thread.from, &thread.to));
        let is_right = report.policy == FAULTY && mistake.is_reported_by(&report.event, from, to);
        Ok((!is_right).then(|| format!("{report:?}")))
    }

    fn healthy_go_on(&self) -> Result<()> {
        for (name, thread) in &self.healthy {
            // In this order: if this thread waits in between, the policy has chosen the other one since.
            let before = policy(&self.device, name)?;
            let rounds = thread.rounds();
            wait_for(&format!("the thread of {name} goes on"), || Ok(thread.rounds() > rounds + 1))?;
            let after = policy(&self.device, name)?;
            ensure!(after.live && after.switches > before.switches, "{name} does not choose: {after:?}");
            ensure!(class(thread.tid()) == SCHED_EXT && after.overdue == 0, "{name} has lost its thread: {after:?}");
        }
        let state = std::fs::read_to_string("/sys/kernel/sched_ext/state")?;
        ensure!(state.trim() == "enabled", "sched_ext is {state}");
        Ok(())
    }
}

fn policy_of(mistake: Mistake) -> &'static str {
    if mistake.is_in_adopt() {
        REPLACED
    } else {
        FAULTY
    }
}

/// Wakes, waits for the processor, uses it for some ticks, starts a thread, and lets it end.
fn work() {
    confine(&[0, 1]);
    let child = std::thread::spawn(|| {
        spin(Duration::from_millis(10));
        yield_now();
        sleep(Duration::from_millis(1));
    });
    spin(Duration::from_millis(10));
    yield_now();
    sleep(Duration::from_millis(1));
    let _ = child.join();
}
