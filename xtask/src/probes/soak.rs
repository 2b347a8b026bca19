//! Many probes at random instructions for a long time, under load. What is done in the guest is `inside::probes::soak`.

use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use xk_policy::{compile, Headers};

use super::draw;
use crate::inside::probes::soak::{Broken, Report};
use crate::lab;

const PROGRAM: &str = "xtask/bpf/probes.bpf.c";
/// Drawn beside those that stay: they come and go.
const VISITORS: usize = 4000;
/// Beside what is asked for: booting, attaching, comparing.
const EXTRA_MINUTES: f64 = 40.0;

/// Arguments of `probes soak`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Kernel of lab/kernels.toml
    #[arg(long, default_value = lab::KERNEL)]
    kernel: String,
    /// Instructions that are probed all the time
    #[arg(long, default_value_t = 20_000)]
    places: usize,
    /// For this time
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Seed by which they are drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
    /// Break something, to see that the soak fails
    #[arg(long)]
    broken: Option<Broken>,
}

#[derive(Debug, Serialize)]
struct Outcome {
    probes: &'static str,
    kernel: String,
    seed: u64,
    splats: usize,
    text_differs: usize,
    #[serde(flatten)]
    report: Option<Report>,
    failures: Vec<String>,
}

/// Probes in a guest.
///
/// # Errors
/// When something is wrong, or was not done.
pub fn run(arguments: &Arguments) -> Result<()> {
    let kernel = lab::kernel_named(&arguments.kernel)?;
    // Kept until the next time. One that must fail may run beside one that must not.
    let broken = arguments.broken.and_then(|broken| broken.to_possible_value());
    let name = broken.map_or("sound".to_owned(), |broken| broken.get_name().to_owned());
    let out = lab::target()?.join("probes-soak").join(format!("{}-{name}", arguments.kernel));
    fs::create_dir_all(&out)?;
    eprintln!("probes: drawing instructions");
    draw(&kernel, arguments.places + VISITORS, arguments.seed, &out.join("drawn"))?;
    let script = script(&kernel, arguments, &out)?;
    let timeout = ((arguments.minutes + EXTRA_MINUTES) * 60.0).to_string();
    // A guest whose processor gives up says nothing itself.
    let resets = format!("--qemu-opt=-d cpu_reset -D {}", out.join("resets").display());
    let options = ["--memory", "2G", "--timeout", &timeout, "--append", "tsc=reliable", &resets];
    eprintln!("probes: {} ({}) for {} minutes", arguments.kernel, kernel.release, arguments.minutes);
    let ended = lab::run_on(&arguments.kernel, &script, &options, &out.join("guest"))?;
    let report: Option<Report> = ended.printed.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let mut failures: Vec<String> = ended.splats.iter().map(|splat| format!("splat: {}", splat.line)).collect();
    if ended.verdict != "finished" || ended.command_exit != Some(0) {
        failures.push(format!("the guest ended with {} ({:?})", ended.verdict, ended.command_exit));
    }
    match &report {
        Some(report) => failures.extend(report.wrong()),
        None => failures.push("the guest did not say what it had done".into()),
    }
    eprintln!("{report:#?}");
    let outcome = Outcome {
        probes: "soak",
        kernel: kernel.release,
        seed: arguments.seed,
        splats: ended.splats.len(),
        text_differs: report.as_ref().map_or(0, |report| report.different.len()),
        report,
        failures,
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&outcome)?);
    }
    ensure!(outcome.failures.is_empty(), "{}", outcome.failures.join("\n"));
    Ok(())
}

/// What the guest runs.
fn script(kernel: &lab::Kernel, arguments: &Arguments, folder: &Path) -> Result<String> {
    let release = &kernel.release;
    let types = kernel.root.join(format!("usr/src/linux-headers-{release}/vmlinux"));
    let headers = Headers::new(&types, &lab::cache()?, release)?;
    let program = folder.join("probes.bpf.o");
    fs::write(&program, compile(&lab::repository()?.join(PROGRAM), &headers)?).context("probes.bpf.o")?;
    let mut script = format!(
        "exec {} inside probes soak --xk {} --drawn {} --program {} --places {} --seconds {} --seed {}",
        std::env::current_exe()?.display(),
        lab::module(release, "kernel/xk")?.display(),
        folder.join("drawn").display(),
        program.display(),
        arguments.places,
        (arguments.minutes * 60.0).max(1.0) as u64,
        arguments.seed
    );
    if let Some(broken) = arguments.broken.and_then(|broken| broken.to_possible_value()) {
        script += &format!(" --broken {}", broken.get_name());
    }
    Ok(script)
}
