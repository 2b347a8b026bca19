//! Ends of tunes under load, many times each, in one guest: nothing may be left,
//! nothing may meet, and the kernel may not complain.

use anyhow::{ensure, Context, Result};
use serde::Serialize;

use crate::inside::stress::{Memory, Report};
use crate::lab;

/// Arguments of `stress`.
#[derive(Debug, clap::Args)]
pub struct Stress {
    /// Rounds of each kind
    #[arg(long, default_value_t = 1000)]
    rounds: u32,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
}

/// What memory may grow by in all rounds together: far less than one structure of
/// a tune for each.
const SLACK_KB: u64 = 512;
const SLACK_TASKS: u64 = 20;

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
    let kernel = lab::kernel()?;
    let xk = lab::module(&kernel.release, "kernel/xk")?;
    let atomic = lab::module(&kernel.release, "kernel/atomic")?;
    let (xk, atomic) = (xk.display(), atomic.display());
    let script = format!(
        "insmod {xk} && insmod {atomic} && exec {} inside stress --xk {xk} --atomic {atomic} --rounds {}",
        std::env::current_exe()?.display(),
        arguments.rounds
    );
    let printed = lab::run_guest(&script, &["--timeout", "14400"])?;
    let last = printed.lines().last().unwrap_or_default();
    let report: Report = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    let verdict = verdict(&report, arguments.rounds);
    if arguments.json {
        println!("{}", serde_json::to_string(&Outcome { stress: "ends", kernel: kernel.release, report })?);
    } else {
        println!(
            "{} rounds of each of {}:",
            arguments.rounds,
            report.rounds.keys().cloned().collect::<Vec<_>>().join(", ")
        );
        println!("  {} executions, {} in which two values met", report.executions, report.violations);
        println!("  before {:?}\n  after  {:?}", report.before, report.after);
    }
    verdict
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
