//! Ends of tunes under load, many times each, in one guest: nothing may be left,
//! nothing may meet, and the kernel may not complain. And code that changes and changes
//! back under load (`--arm`): no byte of it may differ afterwards.

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_harness::arm::Outcome as Armed;

use crate::inside::stress::{Memory, Report};
use crate::lab;

/// Arguments of `stress`.
#[derive(Debug, clap::Args)]
pub struct Stress {
    /// Rounds of each kind (default: 1,000; with --arm 10,000)
    #[arg(long)]
    rounds: Option<u32>,
    /// Not ends of tunes, but a hundred sites armed and disarmed, by detours and patches in turn,
    /// beside CPU hotplug, the profiler and the function tracer
    #[arg(long)]
    arm: bool,
    /// With --arm: no round begins after so many minutes
    #[arg(long, default_value_t = 720, requires = "arm")]
    minutes: u32,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
}

/// What memory may grow by in all rounds together: far less than one structure of
/// a tune for each.
const SLACK_KB: u64 = 512;
const SLACK_TASKS: u64 = 20;

/// Rounds unless it is said otherwise.
const ENDS: u32 = 1000;
const ARMED: u32 = 10_000;

#[derive(Debug, Serialize)]
struct Outcome {
    stress: &'static str,
    kernel: String,
    #[serde(flatten)]
    report: Report,
}

/// Boots one guest and does it.
///
/// # Errors
/// When something is left, meets, or is complained about.
pub fn run(arguments: &Stress) -> Result<()> {
    if arguments.arm {
        return arm(arguments);
    }
    let rounds = arguments.rounds.unwrap_or(ENDS);
    let kernel = lab::kernel()?;
    let xk = lab::module(&kernel.release, "kernel/xk")?;
    let atomic = lab::module(&kernel.release, "kernel/atomic")?;
    let (xk, atomic) = (xk.display(), atomic.display());
    let script = format!(
        "insmod {xk} && insmod {atomic} && exec {} inside stress --xk {xk} --atomic {atomic} --rounds {}",
        std::env::current_exe()?.display(),
        rounds
    );
    let printed = lab::run_guest(&script, &["--timeout", "14400"])?;
    let last = printed.lines().last().unwrap_or_default();
    let report: Report = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    let verdict = verdict(&report, rounds);
    if arguments.json {
        println!("{}", serde_json::to_string(&Outcome { stress: "ends", kernel: kernel.release, report })?);
    } else {
        println!("{} rounds of each of {}:", rounds, report.rounds.keys().cloned().collect::<Vec<_>>().join(", "));
        println!("  {} executions, {} in which two values met", report.executions, report.violations);
        println!("  before {:?}\n  after  {:?}", report.before, report.after);
    }
    verdict
}

#[derive(Debug, Serialize)]
struct ArmOutcome {
    stress: &'static str,
    kernel: String,
    #[serde(flatten)]
    outcome: Armed,
}

/// Boots one guest and arms and disarms there.
fn arm(arguments: &Stress) -> Result<()> {
    let kernel = lab::kernel()?;
    let rounds = arguments.rounds.unwrap_or(ARMED);
    let module = |folder| lab::module(&kernel.release, folder);
    let (xk, atomic, target) = (module("kernel/xk")?, module("kernel/atomic")?, module("kernel/test")?);
    let (xk, atomic, target) = (xk.display(), atomic.display(), target.display());
    let script = format!(
        "insmod {xk} && insmod {atomic} && insmod {target} && exec {} inside arm --atomic {atomic} --target {target} \
         --rounds {rounds} --minutes {}",
        std::env::current_exe()?.display(),
        arguments.minutes,
    );
    // The guest may be slower than its own clock says.
    let timeout = (60 * (arguments.minutes + 30)).to_string();
    let printed = lab::run_guest(&script, &["--timeout", &timeout, "--disk", "64M"])?;
    let last = printed.lines().last().unwrap_or_default();
    let outcome: Armed = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    let verdict = arm_verdict(&outcome);
    if arguments.json {
        println!("{}", serde_json::to_string(&ArmOutcome { stress: "arm", kernel: kernel.release, outcome })?);
    } else {
        println!("{} rounds of {} sites on {}: {outcome:#?}", outcome.rounds, outcome.sites, kernel.release);
    }
    verdict
}

fn arm_verdict(outcome: &Armed) -> Result<()> {
    let different = &outcome.different;
    ensure!(different.is_empty(), "{} bytes of code differ: {}", different.len(), different.join("; "));
    ensure!(outcome.violations == 0, "two values met {} times", outcome.violations);
    ensure!(outcome.rounds > 0 && outcome.executions > 0, "nothing was armed, or nothing was executed: {outcome:?}");
    let missing = outcome.done.missing();
    ensure!(missing.is_empty(), "not done beside it: {}", missing.join(", "));
    Ok(())
}

fn verdict(report: &Report, rounds: u32) -> Result<()> {
    let Memory { slab_kb, per_cpu_kb, vmalloc, tasks } = &report.before;
    ensure!(report.rounds.values().all(|&done| done == rounds), "not all rounds were done");
    ensure!(report.violations == 0 && report.executions > 0, "two values met {} times", report.violations);
    let grown = |what: &str, before: u64, after: u64, slack: u64| {
        let grown = after.saturating_sub(before);
        ensure!(grown <= slack, "{what} grew by {grown}: something is not freed");
        Ok(())
    };
    grown("slabs (KiB)", *slab_kb, report.after.slab_kb, SLACK_KB + u64::from(rounds) / 2)?;
    grown("per-CPU memory (KiB)", *per_cpu_kb, report.after.per_cpu_kb, SLACK_KB)?;
    grown("vmalloc (bytes)", *vmalloc, report.after.vmalloc, SLACK_KB * 1024)?;
    grown("tasks", *tasks, report.after.tasks, SLACK_TASKS)
}
