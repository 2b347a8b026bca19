//! Counts are exact: at instructions drawn at random, probes of xk.ko count what the kernel's own kprobes count, which are
//! breakpoints, in the same executions. What is done in the guest is `inside::probes::exact`.

use anyhow::{ensure, Context, Result};
use clap::ValueEnum;
use serde::Serialize;

use super::draw;
use crate::inside::probes::exact::{Broken, Report};
use crate::lab;

/// Instructions to choose from, for each that is compared: the load executes one in twenty.
const CANDIDATES: usize = 25;
/// At least, and at most: xk.ko takes no more at once.
const FEW: usize = 10_000;
const MANY: usize = 65_000;

/// Arguments of `probes exact`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Instructions to compare
    #[arg(long, default_value_t = 2000)]
    places: usize,
    /// Seed by which they are drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
    /// Break something, to see that the check fails
    #[arg(long)]
    broken: Option<Broken>,
}

#[derive(Debug, Serialize)]
struct Outcome {
    probes: &'static str,
    kernel: String,
    seed: u64,
    #[serde(flatten)]
    report: Report,
}

/// Draws instructions, and compares in a guest.
///
/// # Errors
/// When counts differ, or too little was executed.
pub fn run(arguments: &Arguments) -> Result<()> {
    let kernel = lab::kernel()?;
    let xk = lab::module(&kernel.release, "kernel/xk")?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("drawn");
    eprintln!("probes: drawing instructions");
    draw(&kernel, (CANDIDATES * arguments.places).clamp(FEW, MANY), arguments.seed, &file)?;
    let mut script = format!(
        "exec {} inside probes exact --xk {} --drawn {} --places {} --seed {}",
        std::env::current_exe()?.display(),
        xk.display(),
        file.display(),
        arguments.places,
        arguments.seed
    );
    if let Some(broken) = arguments.broken.and_then(|broken| broken.to_possible_value()) {
        script += &format!(" --broken {}", broken.get_name());
    }
    eprintln!("probes: comparing in a guest of {}", kernel.release);
    let printed = lab::run_guest(&script, &["--memory", "2G", "--timeout", "7200", "--append", "tsc=reliable"])?;
    let last = printed.lines().last().unwrap_or_default();
    let report: Report = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    eprint!("{}", report.table());
    let wrong = report.wrong();
    if arguments.json {
        let outcome = Outcome { probes: "exact", kernel: kernel.release, seed: arguments.seed, report };
        println!("{}", serde_json::to_string(&outcome)?);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
