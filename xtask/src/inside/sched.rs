//! Policies of `xk_sched.ko` in a guest: mistakes, and moves of threads.

use std::path::PathBuf;

use anyhow::{Context, Result};
use xk_harness::sched::faults::Faults;
use xk_harness::sched::rounds::{Outcome, Rounds};
use xk_harness::sched::{insmod, mistakes};

/// Arguments of `inside sched-faults`.
#[derive(Debug, clap::Args)]
pub struct FaultArguments {
    /// The folder of the modules
    #[arg(long)]
    modules: PathBuf,
    /// Rounds of each kind
    #[arg(long)]
    rounds: u32,
    /// The kinds
    kinds: Vec<String>,
}

/// Prints a line before and after each kind.
pub fn faults(arguments: &FaultArguments) -> Result<()> {
    let module = |name: &str| arguments.modules.join(format!("{name}.ko"));
    insmod(&module("xk_sched"), "timeout_ms=1500")?;
    for name in ["xk_sched_fifo", "xk_sched_rr"] {
        insmod(&module(name), "")?;
    }
    let faults = Faults::new(module("xk_sched_faulty"))?;
    for kind in &arguments.kinds {
        let mistake = mistakes().into_iter().find(|mistake| mistake.kind == kind).context("an unknown kind")?;
        println!("{kind}");
        println!("{}", serde_json::to_string(&faults.run(mistake, arguments.rounds)?)?);
    }
    faults.stop()
}

/// Arguments of `inside sched-rounds`.
#[derive(Debug, clap::Args)]
pub struct RoundArguments {
    /// The folder of the modules
    #[arg(long)]
    modules: PathBuf,
    /// How many
    #[arg(long)]
    rounds: u32,
    /// Threads that are moved
    #[arg(long)]
    threads: usize,
}

/// Does them. It prints what was done every now and then, so that this is known of a guest that does not end.
pub fn rounds(arguments: &RoundArguments) -> Result<Outcome> {
    let module = |name: &str| arguments.modules.join(format!("{name}.ko"));
    Rounds::new(module, arguments.threads)?.run(arguments.rounds, |outcome| {
        if outcome.rounds % 10 == 0 {
            println!("{}", serde_json::to_string(outcome).unwrap_or_default());
        }
    })
}
