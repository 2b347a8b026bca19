//! Live threads that change their policies and their affinity, while CPUs come and go, processes communicate, and modules
//! are removed and loaded: no thread may be lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_sched::{Device, Who};

use super::threads::{confine_thread, spin};
use super::{class, insmod, policy, rmmod, wait_for, Thread, SCHED_EXT, SCHED_NORMAL};

const POLICIES: [&str; 3] = ["fifo", "rr", "weighted"];
/// A CPU that goes and comes.
const HOTPLUG: &str = "/sys/devices/system/cpu/cpu3/online";
/// Rounds between two that also move whole processes and a CPU, and between two that remove modules.
const HOTPLUG_EVERY: u32 = 5;
const UNLOAD_EVERY: u32 = 10;

/// What was done.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Rounds.
    pub rounds: u32,
    /// Threads that changed their policy.
    pub moves: u64,
    /// Changes of affinities.
    pub affinities: u64,
    /// How often a CPU went and came.
    pub hotplugs: u32,
    /// How often the module of a policy was removed while its threads ran.
    pub policies_removed: u32,
    /// How often a policy took over the threads of another, and how many those were.
    pub replacements: u32,
    /// See above.
    pub replaced: u64,
    /// How often all modules were removed.
    pub unloads: u32,
    /// Runs of hackbench under policies.
    pub hackbench: u32,
    /// Threads that waited too long. It is no mistake of a policy.
    pub overdue: u64,
}

/// The modules, and threads that are moved.
#[derive(Debug)]
pub struct Rounds {
    modules: BTreeMap<&'static str, PathBuf>,
    threads: Vec<Thread>,
    load: Option<Child>,
    outcome: Outcome,
}

impl Rounds {
    /// Starts threads. `module` says where a module is; none is loaded.
    ///
    /// # Errors
    /// When a module cannot be loaded, or a thread not be started.
    pub fn new(module: impl Fn(&str) -> PathBuf, threads: usize) -> Result<Self> {
        let names = ["xk_sched", "xk_sched_fifo", "xk_sched_rr", "xk_sched_weighted", "xk_sched_weighted2"];
        let modules = names.into_iter().map(|name| (name, module(name))).collect();
        let work = Arc::new(|nr: usize| {
            if nr % 8 == 0 {
                spin(Duration::from_millis(1));
            }
            sleep(Duration::from_millis(5 + nr as u64 % 20));
        });
        let thread = |nr| {
            let work = Arc::clone(&work);
            Thread::new(move || work(nr))
        };
        let threads = (0..threads).map(thread).collect::<Result<Vec<_>>>()?;
        let rounds = Self { modules, threads, load: None, outcome: Outcome::default() };
        rounds.load_modules()?;
        Ok(rounds)
    }

    /// Does so many rounds; says what was done. `after` learns it after each round.
    ///
    /// # Errors
    /// When a thread is lost, a policy ejected, or the kernel refuses what it may not.
    pub fn run(mut self, rounds: u32, mut after: impl FnMut(&Outcome)) -> Result<Outcome> {
        for nr in 0..rounds {
            self.round(nr).with_context(|| format!("round {nr}"))?;
            self.outcome.rounds += 1;
            after(&self.outcome);
        }
        self.end_load()?;
        self.unload()?;
        self.everybody_goes_on()?;
        self.threads.into_iter().try_for_each(Thread::stop)?;
        Ok(self.outcome)
    }

    fn round(&mut self, nr: u32) -> Result<()> {
        let device = Device::open()?;
        self.keep_load(nr)?;
        for (index, thread) in self.threads.iter().enumerate() {
            let to = (index + nr as usize) % POLICIES.len();
            device.choose(POLICIES[to], Who::Thread(thread.tid()))?;
            self.outcome.moves += 1;
            if index % 3 == nr as usize % 3 {
                // Never CPU 3 alone, which may be away.
                confine_thread(thread.tid(), [&[0, 1, 2, 3][..], &[1], &[0, 2, 3]][(index + nr as usize) % 3]);
                self.outcome.affinities += 1;
            }
            ensure!(class(thread.tid()) == SCHED_EXT, "thread {} is in class {}", thread.tid(), class(thread.tid()));
        }
        if nr % HOTPLUG_EVERY == 0 {
            fs::write(HOTPLUG, "0")?;
            self.everybody_goes_on()?;
            fs::write(HOTPLUG, "1")?;
            self.outcome.hotplugs += 1;
        }
        if nr % HOTPLUG_EVERY == 1 {
            self.remove_policy(&device, POLICIES[nr as usize % POLICIES.len()])?;
        }
        if nr % HOTPLUG_EVERY == 2 {
            self.replace_policy(&device)?;
        }
        self.everybody_goes_on()?;
        nobody_is_ejected(&device)?;
        if nr % UNLOAD_EVERY == UNLOAD_EVERY - 1 {
            drop(device);
            self.unload()?;
            self.load_modules()?;
        }
        Ok(())
    }

    /// hackbench runs most of the time, in one policy after the other.
    fn keep_load(&mut self, nr: u32) -> Result<()> {
        if let Some(load) = &mut self.load {
            let Some(status) = load.try_wait()? else { return Ok(()) };
            ensure!(status.success(), "hackbench failed: {status}");
        }
        let script = "read go; exec hackbench -g 2 -l 40 >/dev/null";
        let mut load = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn()?;
        let name = POLICIES[nr as usize % POLICIES.len()];
        Device::open()?.choose(name, Who::Process(i32::try_from(load.id())?))?;
        drop(load.stdin.take());
        self.load = Some(load);
        self.outcome.hackbench += 1;
        Ok(())
    }

    fn end_load(&mut self) -> Result<()> {
        if let Some(mut load) = self.load.take() {
            let status = load.wait()?;
            ensure!(status.success(), "hackbench failed: {status}");
        }
        Ok(())
    }

    /// A new version takes over, and the old one comes back, in place of it. All threads stay in the class.
    fn replace_policy(&mut self, device: &Device) -> Result<()> {
        insmod(self.path("xk_sched_weighted2")?, "")?;
        for (old, new) in [("weighted", "weighted2"), ("weighted2", "weighted")] {
            let threads = device.replace(old, new)?;
            ensure!(threads as usize >= self.threads.len() / POLICIES.len(), "{threads} threads of {old} moved");
            ensure!(policy(device, old)?.threads == 0, "threads are left in {old}");
            self.outcome.overdue += policy(device, old)?.overdue;
            let left = self.threads.iter().find(|thread| class(thread.tid()) != SCHED_EXT);
            ensure!(left.is_none(), "thread {} has left the class", left.map_or(0, Thread::tid));
            self.outcome.replacements += 1;
            self.outcome.replaced += u64::from(threads);
            if old == "weighted" {
                // It is there again before the second turn.
                remove("xk_sched_weighted")?;
                self.everybody_goes_on()?;
                insmod(self.path("xk_sched_weighted")?, "")?;
            }
        }
        remove("xk_sched_weighted2")
    }

    /// Its threads go to the fair class, and others have not moved.
    fn remove_policy(&mut self, device: &Device, name: &str) -> Result<()> {
        let module = format!("xk_sched_{name}");
        self.outcome.overdue += policy(device, name)?.overdue;
        remove(&module)?;
        let threads = &self.threads;
        ensure!(policy(device, name).is_err(), "{name} is still there");
        let fair = threads.iter().filter(|thread| class(thread.tid()) == SCHED_NORMAL).count();
        ensure!(fair > 0 && fair < threads.len(), "{fair} of {} threads are in the fair class", threads.len());
        insmod(self.path(&module)?, "")?;
        self.outcome.policies_removed += 1;
        Ok(())
    }

    fn everybody_goes_on(&self) -> Result<()> {
        let before: Vec<_> = self.threads.iter().map(Thread::rounds).collect();
        for (thread, before) in self.threads.iter().zip(before) {
            wait_for(&format!("thread {} goes on", thread.tid()), || Ok(thread.rounds() > before))?;
        }
        Ok(())
    }

    fn path(&self, module: &str) -> Result<&Path> {
        self.modules.get(module).map(PathBuf::as_path).with_context(|| module.to_owned())
    }

    fn load_modules(&self) -> Result<()> {
        // On a busy host, threads of a guest wait long.
        insmod(self.path("xk_sched")?, "timeout_ms=25000")?;
        POLICIES.iter().try_for_each(|name| Ok(insmod(self.path(&format!("xk_sched_{name}"))?, "")?))
    }

    fn unload(&mut self) -> Result<()> {
        let device = Device::open()?;
        for name in POLICIES {
            self.outcome.overdue += policy(&device, name)?.overdue;
            remove(&format!("xk_sched_{name}"))?;
        }
        drop(device);
        remove("xk_sched")?;
        for thread in &self.threads {
            ensure!(class(thread.tid()) == SCHED_NORMAL, "thread {} is in class {}", thread.tid(), class(thread.tid()));
        }
        self.outcome.unloads += 1;
        Ok(())
    }
}

fn remove(module: &str) -> Result<()> {
    rmmod(module).with_context(|| format!("rmmod {module}"))
}

fn nobody_is_ejected(device: &Device) -> Result<()> {
    let status = device.status()?;
    ensure!(status.ejected == 0, "ejected: {:?}", device.reports()?);
    ensure!(status.ended.is_none(), "{status:?}");
    Ok(())
}
