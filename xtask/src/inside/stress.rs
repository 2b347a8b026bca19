//! Ends of tunes under load, again and again: SIGKILL of the owner, end of a lease,
//! removal of the module that is tuned, removal of xk.ko; and what is left then.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_harness::{family, Atomic, Flipper};
use xk_runtime::{Device, Mode};

const THREADS: u32 = 8;
/// What is tuned, and the spans that use it.
const CONSTANTS: [&str; 3] = ["BALANCE", "RECURSE", "SLEEP"];
const SPANS: [&str; 3] = ["balance", "recurse", "sleep"];
const TIMEOUT: Duration = Duration::from_secs(30);
/// Rounds of each kind before anything is counted: caches fill.
const WARM: u32 = 3;

/// What is to be done.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// xk.ko, which is loaded
    #[arg(long)]
    xk: PathBuf,
    /// kernel/atomic, which is loaded
    #[arg(long)]
    atomic: PathBuf,
    /// Rounds of each kind
    #[arg(long)]
    rounds: u32,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// By kind: rounds that ended as they should.
    pub rounds: BTreeMap<String, u32>,
    /// Two values met.
    pub violations: u64,
    /// Executions of spans.
    pub executions: u64,
    /// Memory before, and after; kilobytes, bytes of vmalloc areas, tasks.
    pub before: Memory,
    /// Likewise.
    pub after: Memory,
}

/// What a leak would be seen in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Memory {
    /// Kilobytes of unreclaimable slabs.
    pub slab_kb: u64,
    /// Kilobytes of per-CPU memory.
    pub per_cpu_kb: u64,
    /// Bytes of vmalloc areas.
    pub vmalloc: u64,
    /// Active `task_struct`s, of which a pinned one would be one too many.
    pub tasks: u64,
}

/// An owner of tunes, to be killed; never returns.
///
/// # Errors
/// When the kernel refuses.
pub fn own(arguments: &Arguments) -> Result<()> {
    let mut flipper = load(&arguments.atomic)?;
    println!("owned");
    loop {
        flipper.flip(1, Mode::Task, TIMEOUT)?;
    }
}

fn load(atomic: &Path) -> Result<Flipper> {
    let families = CONSTANTS.iter().map(|name| family(name)).collect::<Result<Vec<_>>>()?;
    let mut flipper = Flipper::load(atomic, &families)?;
    flipper.flip(1, Mode::Task, TIMEOUT)?;
    Ok(flipper)
}

/// Does it.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let mut stress = Stress { arguments: arguments.clone(), violations: 0, executions: 0 };
    let kinds: [(&str, Round); 4] = [
        ("sigkill", Stress::sigkill),
        ("lease", Stress::lease),
        ("rmmod_target", Stress::remove_target),
        ("rmmod_xk", Stress::remove_xk),
    ];
    start()?;
    for _ in 0..WARM {
        for (name, round) in kinds {
            round(&mut stress).with_context(|| name.to_owned())?;
        }
    }
    let before = memory()?;
    let mut rounds = BTreeMap::new();
    for (name, round) in kinds {
        eprintln!("inside: {} times {name}", arguments.rounds);
        for number in 1..=arguments.rounds {
            round(&mut stress).with_context(|| format!("{name}, round {number}"))?;
            rounds.insert(name.to_owned(), number);
        }
    }
    let after = memory()?;
    stress.collect()?;
    Atomic.stop()?;
    Ok(Report { rounds, violations: stress.violations, executions: stress.executions, before, after })
}

fn start() -> Result<()> {
    Atomic.tell("pause 300")?;
    Atomic.tell("inside 8")?;
    Atomic.start(THREADS, Atomic::mask(&SPANS))
}

/// One end of tunes; the next round begins with none.
type Round = fn(&mut Stress) -> Result<()>;

struct Stress {
    arguments: Arguments,
    violations: u64,
    executions: u64,
}

impl Stress {
    /// The owner is killed in the middle of its transitions.
    fn sigkill(&mut self) -> Result<()> {
        let mut owner = Command::new("/proc/self/exe")
            .args(["inside", "own", "--rounds", "0", "--xk"])
            .arg(&self.arguments.xk)
            .arg("--atomic")
            .arg(&self.arguments.atomic)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = [0; 1];
        std::io::Read::read_exact(owner.stdout.as_mut().context("no output")?, &mut said)?;
        sleep(Duration::from_millis(3));
        owner.kill()?;
        owner.wait()?;
        gone()
    }

    fn lease(&mut self) -> Result<()> {
        let device = Device::open()?;
        for tune in load(&self.arguments.atomic)?.detach()? {
            device.lease(tune, Some(Duration::from_millis(5)))?;
        }
        gone()
    }

    /// Its threads are busy with the constants until its exit stops them.
    fn remove_target(&mut self) -> Result<()> {
        let mut flipper = load(&self.arguments.atomic)?;
        self.collect()?;
        command("rmmod", "xk_atomic")?;
        // Nobody is there.
        flipper.flip(1, Mode::Global, TIMEOUT)?;
        command("insmod", &self.arguments.atomic.display().to_string())?;
        start()?;
        flipper.flip(2, Mode::Task, TIMEOUT)?;
        flipper.unload(Mode::Task, TIMEOUT)?;
        gone()
    }

    fn remove_xk(&mut self) -> Result<()> {
        load(&self.arguments.atomic)?.detach()?;
        command("rmmod", "xk")?;
        command("insmod", &self.arguments.xk.display().to_string())
    }

    /// What the module has seen so far; it forgets that when it is removed.
    fn collect(&mut self) -> Result<()> {
        let counts = Atomic.counts()?;
        self.violations += counts.spans.values().map(|count| count.violations - count.defaults).sum::<u64>();
        self.executions += counts.spans.values().map(|count| count.rounds).sum::<u64>();
        Ok(())
    }
}

fn command(program: &str, argument: &str) -> Result<()> {
    let output = Command::new(program).arg(argument).output()?;
    ensure!(output.status.success(), "{program} {argument}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Waits until no tune is left.
fn gone() -> Result<()> {
    let device = Device::open()?;
    for _ in 0..6000 {
        if device.tunes()?.is_empty() {
            return Ok(());
        }
        sleep(Duration::from_millis(5));
    }
    bail!("tunes are left: {:?}", device.tunes()?)
}

fn memory() -> Result<Memory> {
    // What was given to RCU is freed; what is cached for reuse goes.
    sleep(Duration::from_secs(2));
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let field = |name: &str| -> Result<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)).with_context(|| name.to_owned())?;
        Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
    };
    let slabs = fs::read_to_string("/proc/slabinfo")?;
    let tasks = slabs.lines().find(|line| line.starts_with("task_struct ")).context("no slab of tasks")?;
    let tasks = tasks.split_whitespace().nth(1).context("slabinfo")?.parse()?;
    let areas = fs::read_to_string("/proc/vmallocinfo")?;
    let vmalloc = areas.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum();
    Ok(Memory { slab_kb: field("SUnreclaim:")?, per_cpu_kb: field("Percpu:")?, vmalloc, tasks })
}
