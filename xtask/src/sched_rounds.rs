//! Live threads that change their policies and affinities under load, while CPUs and modules come and go. In: how often.
//! Out: what was done. It is an error if a thread is lost, or the kernel complains.

use std::fs;

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_harness::sched::rounds::Outcome;

use crate::lab;
use crate::sched_faults::{modules, KERNEL};

/// Arguments of `sched-rounds`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many
    #[arg(long, default_value_t = 1000)]
    rounds: u32,
    /// Threads that are moved
    #[arg(long, default_value_t = 400)]
    threads: u32,
    /// A kernel of the lab with sched_ext
    #[arg(long, default_value = KERNEL)]
    kernel: String,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Summary {
    kernel: String,
    threads: u32,
    #[serde(flatten)]
    outcome: Outcome,
    splats: usize,
}

/// Boots a guest, and does it there.
///
/// # Errors
/// When a thread is lost, a policy is ejected, or the kernel complains.
pub fn run(arguments: &Arguments) -> Result<()> {
    let kernel = lab::kernel_named(&arguments.kernel)?;
    let out = tempfile::tempdir()?;
    let script = format!(
        "exec {} inside sched-rounds --modules {} --rounds {} --threads {}",
        std::env::current_exe()?.display(),
        modules(&kernel.release, out.path())?.display(),
        arguments.rounds,
        arguments.threads
    );
    let folder = out.path().join("guest");
    fs::create_dir(&folder)?;
    let timeout = (600 + arguments.rounds * 30).to_string();
    let ended = lab::run_on(&arguments.kernel, &script, &["--cpus", "4", "--timeout", &timeout], &folder)?;
    let last = ended.printed.lines().last().unwrap_or_default();
    let outcome = serde_json::from_str(last).with_context(|| format!("{}: {}", ended.verdict, ended.printed))?;
    let splats = ended.splats.len();
    let summary = Summary { kernel: kernel.release, threads: arguments.threads, outcome, splats };
    if arguments.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        println!("{summary:#?}");
    }
    ensure!(splats == 0 && ended.command_exit == Some(0), "the kernel complained: see the lab's output");
    Ok(())
}
