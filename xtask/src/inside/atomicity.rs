//! Changes the constants of `kernel/atomic` as fast as the kernel lets it, while
//! its threads look whether two values meet.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_harness::{beside_hotplug, Atomic, Count, Family, Flipper, ALL_SPANS, FAMILIES, TASK_SPANS};
use xk_runtime::{Backend, Mode};

/// What is to be done.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The module whose constants are changed; it is loaded
    #[arg(long)]
    module: PathBuf,
    /// Transitions in each mode
    #[arg(long)]
    transitions: u64,
    /// Threads that look
    #[arg(long)]
    threads: u32,
    /// Switch the second CPU off and on meanwhile
    #[arg(long)]
    hotplug: bool,
    /// How control reaches the updates: kprobe, detour or patch
    #[arg(long, default_value = "kprobe")]
    backend: Backend,
    /// Options of the module, such as `inside=4`
    #[arg(long)]
    option: Vec<String>,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// By mode.
    pub modes: BTreeMap<String, Outcome>,
    /// Kernel that runs.
    pub kernel: String,
    /// How it preempts itself.
    pub preemption: String,
}

/// What came of one mode.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// That were completed.
    pub transitions: u64,
    /// Two values met, and kprobes had not missed an execution that would explain it.
    pub violations: u64,
    /// A value met the default, which was in force before and after, but never meanwhile.
    pub with_default: u64,
    /// Executions that kprobes missed, being in another probe; they use the default.
    pub missed: u64,
    /// Transitions that were given up.
    pub blocked: u64,
    /// Executions of spans during them.
    pub rounds: u64,
    /// Mean stops of the machine.
    pub stops: f64,
    /// Completed in one second of the guest.
    pub per_second: f64,
    /// Mean, by the kernel's measure.
    pub mean_ms: f64,
    /// The longest, by the kernel's measure.
    pub longest_ms: f64,
    /// How often a CPU was switched off and on.
    pub hotplugs: u64,
    /// By span: rounds, violations.
    pub spans: BTreeMap<String, [u64; 2]>,
}

/// Runs the modes, one after the other.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let mut modes = BTreeMap::new();
    let transitions = arguments.transitions;
    for (name, mode, spans, inside) in [
        ("task", Mode::Task, TASK_SPANS, 16),
        // With less, there is hardly ever a moment in which no thread is inside.
        ("global", Mode::Global, ALL_SPANS, 64),
        ("now", Mode::Now, TASK_SPANS, 16),
    ] {
        // Instructions hold one value for all threads.
        if (mode, arguments.backend) == (Mode::Task, Backend::Patch) {
            continue;
        }
        eprintln!("inside: {transitions} transitions, mode {name}");
        Atomic.tell(&format!("inside {inside}"))?;
        // Busy, but not so that the stopper has to queue for a processor.
        Atomic.tell("pause 500")?;
        for option in &arguments.option {
            Atomic.tell(&option.replace('=', " "))?;
        }
        let outcome = outcome(arguments, mode, spans, transitions).with_context(|| format!("mode {name}"))?;
        modes.insert(name.to_owned(), outcome);
    }
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    Ok(Report {
        modes,
        kernel: read("/proc/sys/kernel/osrelease")?,
        preemption: read("/sys/kernel/debug/sched/preempt").unwrap_or_default(),
    })
}

fn outcome(arguments: &Arguments, mode: Mode, spans: u32, transitions: u64) -> Result<Outcome> {
    let of_mode = |family: &&Family| spans == ALL_SPANS || family.name != "ELSEWHERE";
    let mut flipper = Flipper::load_by(&arguments.module, FAMILIES.iter().filter(of_mode), arguments.backend)?;
    // Away from the default, before anybody looks: a default that is seen later is a missed probe.
    flipper.flip(1, mode, TIMEOUT)?;
    Atomic.start(arguments.threads, spans)?;
    let before = Atomic.counts()?;
    let (mut flips, hotplugs) = if arguments.hotplug {
        beside_hotplug(|| flipper.flip(transitions, mode, TIMEOUT))?
    } else {
        (flipper.flip(transitions, mode, TIMEOUT)?, 0)
    };
    let mut seen = Atomic.counts()?.since(&before);
    // The mode that never waits may be over before a thread has run on the other processor.
    for _ in 0..MORE_OF_NOW {
        if mode != Mode::Now || seen.violations() > 0 {
            break;
        }
        flips.add(&flipper.flip(transitions, mode, TIMEOUT)?);
        seen = Atomic.counts()?.since(&before);
    }
    let missed = flipper.missed()?;
    Atomic.stop()?;
    flipper.unload(mode, TIMEOUT)?;

    for (name, count) in &seen.spans {
        // The mode that never waits may be over before everything has been.
        let done = mode != Mode::Now && Atomic::mask(&[name]) & spans != 0;
        ensure!(!done || count.rounds > 0, "no thread executed {name}");
    }
    let sum = |of: fn(&Count) -> u64| -> u64 { seen.spans.values().map(of).sum() };
    let each = flips.transitions as f64;
    let with_default = sum(|count| count.defaults);
    Ok(Outcome {
        transitions: flips.transitions,
        violations: seen.violations() - with_default.min(missed),
        with_default,
        missed,
        blocked: flips.blocked,
        rounds: sum(|count| count.rounds),
        stops: flips.stops as f64 / each,
        per_second: each / flips.seconds,
        mean_ms: flips.kernel_seconds * 1000.0 / each,
        longest_ms: flips.longest_ms,
        hotplugs,
        spans: seen.spans.iter().map(|(name, count)| (name.clone(), [count.rounds, count.violations])).collect(),
    })
}

/// How often the transitions of mode `now` are repeated until two values have met.
const MORE_OF_NOW: u32 = 50;

/// Long enough for a slow guest; a transition that needs it is a failure to look at.
const TIMEOUT: Duration = Duration::from_secs(30);
