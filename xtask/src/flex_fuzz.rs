//! Random operations on the data structures of `bpf/flex` in three worlds: an extension, a module and a process. What is
//! done in the guest is `inside::fuzz`.

use std::fs;
use std::time::UNIX_EPOCH;

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_flex::{rewrite, Choice};
use xk_policy::{compile, Headers};

use crate::flex::variable;
use crate::inside::fuzz::Report;
use crate::lab;

/// The extension. The tests of xk-flex have the same one.
const EXTENSION: &str = "crates/xk-flex/tests/bpf/structures.bpf.c";

/// Arguments of `flex-fuzz`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How long
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Seed of the operations; by default another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
    /// Plant a wrong answer in the process, to see that the comparison fails
    #[arg(long)]
    broken: bool,
}

#[derive(Debug, Serialize)]
struct Outcome {
    #[serde(flatten)]
    report: Report,
    seed: u64,
    kernel: String,
    ok: bool,
}

/// Builds what is needed, and compares in a guest.
///
/// # Errors
/// When there is a divergence, or there was no guest.
pub fn run(arguments: &Arguments) -> Result<()> {
    let kernel = lab::kernel()?;
    let module = lab::module(&kernel.release, "kernel/flexbench")?;
    let types = kernel.root.join(format!("usr/src/linux-headers-{}/vmlinux", kernel.release));
    let headers = Headers::new(&types, &lab::cache()?, &kernel.release)?;
    let compiled = compile(&lab::repository()?.join(EXTENSION), &headers)?;
    let folder = tempfile::tempdir()?;
    let write = |name: &str, unroll: usize| -> Result<String> {
        let path = folder.path().join(name);
        fs::write(&path, rewrite(&compiled, &Choice { unroll, ..Choice::default() })?.bytes)?;
        Ok(path.display().to_string())
    };
    let objects = [write("rolled.bpf.o", 1)?, write("unrolled.bpf.o", Choice::UNROLL)?];
    let user = folder.path().join("user");
    let mut build = lab::command("gcc-12")?;
    build.args(["-O2", "-Wall", "-Werror", "-Ibpf", "bench/flex/structures_user.c", "-o"]).arg(&user);
    build.args(arguments.broken.then_some("-DXK_STRUCTURES_BROKEN"));
    lab::output(&mut build)?;
    let now = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    let (seed, seconds) = (arguments.seed.unwrap_or(now), 60.0 * arguments.minutes);
    let script = format!(
        "insmod {} && {} inside fuzz --objects {} --structures {} --exchange {} --user {} --seconds {seconds} --seed {seed} \
         && rmmod xk_flexbench",
        module.display(),
        std::env::current_exe()?.display(),
        objects.join(" "),
        variable(&compiled, "structures")?,
        variable(&compiled, "exchange")?,
        user.display(),
    );
    eprintln!("flex-fuzz: seed {seed}, in a guest of {}", kernel.release);
    let timeout = (seconds + 1200.0).ceil().to_string();
    let printed = lab::run_guest(&script, &["--timeout", &timeout])?;
    let last = printed.lines().last().unwrap_or_default();
    let report: Report = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    judge(arguments, Outcome { ok: report.divergences == 0, report, seed, kernel: kernel.release })
}

fn judge(arguments: &Arguments, outcome: Outcome) -> Result<()> {
    let report = &outcome.report;
    for (structure, done) in &report.operations {
        eprintln!(
            "{structure:<10} {:>9} in the extension, {:>9} in the module, {:>9} in the process, {:>7} ended",
            done.extension, done.module, done.process, done.ended
        );
    }
    let (divergences, seed) = (report.divergences, outcome.seed);
    let described = report.described.join("\n");
    if arguments.json {
        println!("{}", serde_json::to_string(&outcome)?);
    }
    ensure!(divergences == 0, "seed {seed}: {divergences} divergences, for example\n{described}");
    Ok(())
}
