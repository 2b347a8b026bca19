//! A scheduling policy in user space, on made-up machines with random threads. In: how long. Out: how much was tried. It is
//! an error if a thread is lost, queued twice, or placed where it may not run; the seed repeats the run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{bail, ensure, Context, Result};
use serde::Serialize;

use crate::lab;

/// Arguments of `sched-fuzz`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// One of kernel/xk_sched/policies, or a C file
    #[arg(long, default_value = "rr")]
    policy: String,
    /// A parameter of its module: NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE")]
    parameter: Vec<String>,
    /// How long
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Only the machine of this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Steps of each machine
    #[arg(long, default_value_t = 20_000)]
    steps: u64,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    policy: String,
    first_seed: u64,
    machines: u64,
    steps: u64,
    switches: u64,
    /// What the program said about the first machine on which the policy failed.
    violation: Option<String>,
}

/// Builds the program, and runs it on one machine after the other.
///
/// # Errors
/// When the program cannot be built, or the policy fails.
pub fn run(arguments: &Arguments) -> Result<()> {
    let out = tempfile::tempdir()?;
    let program = build(&source(&arguments.policy)?, out.path())?;
    let now = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    let first_seed = arguments.seed.unwrap_or(now);
    let mut summary = Summary { policy: arguments.policy.clone(), first_seed, ..Summary::default() };
    let end = Instant::now() + Duration::from_secs_f64(60.0 * arguments.minutes);
    while summary.violation.is_none() {
        machine(&program, arguments, first_seed.wrapping_add(summary.machines), &mut summary)?;
        if arguments.seed.is_some() || Instant::now() >= end {
            break;
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        println!("{summary:#?}");
    }
    ensure!(summary.violation.is_none(), "{}", summary.violation.unwrap_or_default());
    Ok(())
}

fn source(policy: &str) -> Result<PathBuf> {
    let path = match Path::new(policy).extension() {
        Some(_) => PathBuf::from(policy),
        None => lab::repository()?.join(format!("kernel/xk_sched/policies/{policy}.c")),
    };
    path.canonicalize().with_context(|| path.display().to_string())
}

/// The program that runs this policy in user space.
fn build(policy: &Path, out: &Path) -> Result<PathBuf> {
    let mut make = lab::command("make")?;
    make.args(["-s", "-C", "kernel/xk_sched/user"]);
    make.arg(format!("POLICY={}", policy.display())).arg(format!("OUT={}", out.display()));
    lab::output(&mut make)?;
    Ok(out.join(policy.file_stem().context("a name")?))
}

fn machine(program: &Path, arguments: &Arguments, seed: u64, summary: &mut Summary) -> Result<()> {
    let mut command = Command::new(program);
    command.args(["fuzz", &seed.to_string(), &arguments.steps.to_string()]).args(&arguments.parameter);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    summary.machines += 1;
    if output.status.success() {
        summary.steps += arguments.steps;
        summary.switches += switches(&said).with_context(|| format!("the program said: {said}"))?;
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        bail!("{}", errors.trim());
    }
    // A sanitizer does not know the seed.
    summary.violation = Some(if said.is_empty() { format!("seed {seed}: {errors}") } else { said });
    Ok(())
}

/// `seed 1: 20000 steps, 300 switches of 4 threads on 2 cores`.
fn switches(said: &str) -> Option<u64> {
    said.split(", ").nth(1)?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_found() {
        assert_eq!(switches("seed 1: 20000 steps, 300 switches of 4 threads on 2 cores"), Some(300));
        assert_eq!(switches("seed 1, step 5: the policy is ejected"), None);
    }
}
