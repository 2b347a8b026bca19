//! Policies of `xk_sched.ko` that make mistakes, each beside two that make none. In: how often. Out: how many kinds were
//! ejected alone each time, and what the others and the kernel did. A guest that dies ends the kind that was being tried;
//! the next guest goes on with the others.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_harness::sched::faults::Outcome;
use xk_harness::sched::{mistakes, Expected};

use crate::lab;

pub const KERNEL: &str = "debian13-backports";

/// Arguments of `sched-faults`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Rounds of each kind of mistake
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Only these kinds; kernel/sched_faulty/mistakes.txt lists all
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A kernel of the lab with sched_ext
    #[arg(long, default_value = KERNEL)]
    kernel: String,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
}

/// Numbers of kinds for which it holds in every round.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Summary {
    kernel: String,
    rounds: u32,
    kinds: usize,
    ejected_alone: usize,
    healthy_survived: usize,
    kernel_survived: usize,
    /// Kinds that are known to be fatal; not tried.
    fatal: Vec<&'static str>,
}

/// Tries every kind.
///
/// # Errors
/// When a kind is not ejected alone, or the kernel does not survive or complains.
pub fn run(arguments: &Arguments) -> Result<()> {
    let kernel = lab::kernel_named(&arguments.kernel)?;
    let out = tempfile::tempdir()?;
    let modules = modules(&kernel.release, out.path())?;
    let wanted = |kind: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == kind);
    let all: Vec<_> = mistakes().into_iter().filter(|mistake| wanted(mistake.kind)).collect();
    let (fatal, tried): (Vec<_>, Vec<_>) = all.into_iter().partition(|mistake| mistake.result == Expected::Fatal);
    let kinds: Vec<_> = tried.iter().map(|mistake| mistake.kind).collect();
    ensure!(!kinds.is_empty(), "no such kind: see kernel/sched_faulty/mistakes.txt");
    let (outcomes, splats) = every(arguments, &kinds, &modules, out.path())?;
    for outcome in outcomes.iter().filter(|outcome| outcome.wrong.is_some()) {
        println!("{}: {}", outcome.kind, outcome.wrong.as_deref().unwrap_or_default());
    }
    let mut summary = summary(&kinds, arguments.rounds, &outcomes);
    summary.kernel = kernel.release;
    summary.fatal = fatal.iter().map(|mistake| mistake.kind).collect();
    if arguments.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        println!("{summary:#?}");
    }
    ensure!(splats.is_empty(), "the kernel complained: {}", splats.join("; "));
    let all = summary.kinds;
    ensure!(
        [summary.ejected_alone, summary.healthy_survived, summary.kernel_survived] == [all; 3],
        "not every kind was ejected alone"
    );
    Ok(())
}

/// Copies of `xk_sched.ko` and policies, which later builds do not change under the guest.
pub fn modules(release: &str, out: &Path) -> Result<PathBuf> {
    let to = out.join("modules");
    fs::create_dir(&to)?;
    for folder in ["kernel/xk_sched", "kernel/xk_sched/policies", "kernel/sched_faulty"] {
        let from = lab::module(release, folder)?;
        for entry in fs::read_dir(from.parent().context("no folder")?)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("xk_sched") && name.ends_with(".ko") {
                fs::copy(&path, to.join(name))?;
            }
        }
    }
    Ok(to)
}

/// What guests say about these kinds, and what their kernels complained about.
fn every(arguments: &Arguments, kinds: &[&str], modules: &Path, out: &Path) -> Result<(Vec<Outcome>, Vec<String>)> {
    let rounds = arguments.rounds;
    let (mut outcomes, mut splats) = (Vec::new(), Vec::new());
    let mut left: VecDeque<_> = kinds.iter().copied().collect();
    let this = std::env::current_exe()?.display().to_string();
    for boot in 0.. {
        if left.is_empty() {
            break;
        }
        let folder = out.join(format!("guest{boot}"));
        fs::create_dir(&folder)?;
        let names = left.iter().copied().collect::<Vec<_>>().join(" ");
        let script =
            format!("exec {this} inside sched-faults --modules {} --rounds {rounds} {names}", modules.display());
        // A lost thread is noticed after 1.5 s; others take a fraction of that.
        let timeout = (600 + left.len() as u32 * rounds * 2).to_string();
        let ended = lab::run_on(&arguments.kernel, &script, &["--cpus", "4", "--timeout", &timeout], &folder)?;
        let done: Vec<Outcome> = ended.printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        ensure!(ended.printed.lines().next().is_some(), "nothing was tried ({}): see the lab's output", ended.verdict);
        left.drain(..(done.len() + usize::from(ended.command_exit != Some(0))).min(left.len()));
        outcomes.extend(done);
        splats.extend(ended.splats.into_iter().map(|splat| splat.line));
    }
    Ok((outcomes, splats))
}

fn summary(kinds: &[&str], rounds: u32, outcomes: &[Outcome]) -> Summary {
    let count =
        |of: fn(&Outcome) -> u32| outcomes.iter().filter(|one| one.rounds == rounds && of(one) == rounds).count();
    Summary {
        rounds,
        kinds: kinds.len(),
        ejected_alone: count(|one| one.ejected_alone),
        healthy_survived: count(|one| one.healthy_survived),
        kernel_survived: count(|one| one.rounds),
        ..Summary::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_counts_if_every_round_was_well() {
        let outcome =
            |ejected_alone| Outcome { kind: "a".into(), rounds: 3, ejected_alone, healthy_survived: 3, wrong: None };
        let both = summary(&["a", "b"], 3, &[outcome(3), outcome(2)]);
        assert_eq!((both.kinds, both.ejected_alone, both.healthy_survived, both.kernel_survived), (2, 1, 2, 2));
        let died = summary(&["a", "b"], 3, &[outcome(3)]);
        assert_eq!((died.kinds, died.ejected_alone, died.healthy_survived, died.kernel_survived), (2, 1, 1, 1));
    }
}
