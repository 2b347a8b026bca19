//! The case studies of `cases/studies`: a workload, a policy, and what the kernel
//! reports without and with it.
//!
//! In: the folders of `cases/studies`. Out: for each, what its `run` measured in a
//! guest of its own, a plot, and whether the effect that `study.toml` expects is there.
//! Refuses: a study whose effect is not the expected one, after all were run.

mod expect;
mod plot;
mod study;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, ensure, Context, Result};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::lab;
use study::Study;

/// Options of `cargo xtask cases`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The last line is one JSON object
    #[arg(long)]
    json: bool,
    /// Keep plot and result in the folder of the study, as its page shows them
    #[arg(long)]
    keep: bool,
    /// Numbers of the studies; all when none is named
    numbers: Vec<u32>,
}

/// What a study measured.
#[derive(Debug, Serialize)]
pub struct Case {
    case: u32,
    r#const: Vec<String>,
    /// `metric`, `default`, `tuned`, `ratio`, `points`, and what else the study reports.
    #[serde(flatten)]
    pub measured: Map<String, Value>,
    /// What `study.toml` expects and was not there.
    pub missed: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Cases {
    cases: Vec<Case>,
}

/// Runs the studies that were asked for, one guest at a time.
///
/// # Errors
/// The expectations that were not met; or a study that could not be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    let folder = lab::repository()?.join("cases/studies");
    let studies: Vec<Study> = Study::all(&folder)?
        .into_iter()
        .filter(|study| arguments.numbers.is_empty() || arguments.numbers.contains(&study.case))
        .collect();
    ensure!(!studies.is_empty(), "no study has such a number: {} has them", folder.display());
    let mut cases = Vec::new();
    for study in &studies {
        let case = observe(study, false)?;
        let drawn = plot::svg(study, &case.measured)?;
        let place = match arguments.keep {
            true => study.folder.clone(),
            false => lab::target()?.join("cases").join(&study.name),
        };
        fs::create_dir_all(&place)?;
        fs::write(place.join("plot.svg"), drawn)?;
        fs::write(place.join("result.json"), serde_json::to_string_pretty(&case)? + "\n")?;
        eprintln!("cases: {}: {}", study.name, place.join("plot.svg").display());
        cases.push(case);
    }
    let missed: Vec<String> =
        cases.iter().flat_map(|case| case.missed.iter().map(|what| format!("case {}: {what}", case.case))).collect();
    if arguments.json {
        println!("{}", serde_json::to_string(&Cases { cases })?);
    } else {
        cases.iter().for_each(show);
    }
    if !missed.is_empty() {
        bail!("not what was expected: {}", missed.join("; "));
    }
    Ok(())
}

fn show(case: &Case) {
    let field = |name: &str| case.measured.get(name).cloned().unwrap_or(Value::Null);
    println!("case {}: {}", case.case, case.r#const.join(", "));
    println!("  {}: {} -> {} ({})", field("metric"), field("default"), field("tuned"), field("ratio"));
    for (name, value) in &case.measured {
        if !["metric", "default", "tuned", "ratio"].contains(&name.as_str()) {
            println!("  {name}: {value}");
        }
    }
}

/// Runs one study in a guest; with `short`, the least that shows its effect.
///
/// # Errors
/// When a constant is refused, the policy does not compile, or the guest fails.
pub fn observe(study: &Study, short: bool) -> Result<Case> {
    let servers = lab::output(lab::command("scripts/unpack")?.arg("nginx"))?;
    let (programs, module) = lab::prepared()?;
    let scratch = tempfile::tempdir()?;
    let policy = scratch.path().join("policy.bpf.o");
    build(&programs.join("xk"), study, &policy)?;

    let mut guest = lab::command("lab/lab")?;
    guest.args(["run", "--kernel", lab::KERNEL, "--out"]).arg(scratch.path().join("out"));
    guest.args(study.guest.options());
    guest.args(["--", "scripts/case-guest"]).arg(study.folder.join("run"));
    if short {
        guest.arg("--short");
    }
    let path = std::env::var("PATH").unwrap_or_default();
    guest
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("XK_MODULE", module)
        .env("XK_POLICY", &policy)
        .env("XK_STUDY_SERVERS", servers.trim_end())
        .env("XK_STUDY_MODULES", study.guest.modules.join(" "));
    let printed = lab::output(&mut guest).with_context(|| format!("the guest of {}", study.name))?;
    let last = printed.lines().last().unwrap_or_default();
    let measured: Map<String, Value> =
        serde_json::from_str(last).with_context(|| format!("{} printed `{last}`", study.name))?;
    let missed = match short {
        true => study.expect.missed_ratio(&measured),
        false => study.expect.missed(&measured),
    };
    Ok(Case { case: study.case, r#const: study.constants.clone(), measured, missed })
}

/// The scope tables, and the policy as an object for the guest's kernel.
fn build(xk: &Path, study: &Study, policy: &Path) -> Result<()> {
    let kernel = lab::kernel()?;
    let mut tables = Command::new(xk);
    tables.args(["build", "--root"]).arg(&kernel.root).args(&study.constants);
    tables.args(study.values.iter().map(|value| format!("--values={value}")));
    lab::output(&mut tables).with_context(|| format!("xk build {}", study.constants.join(" ")))?;
    let types = kernel.root.join(format!("usr/src/linux-headers-{}/vmlinux", kernel.release));
    let mut compile = Command::new(xk);
    compile.arg("compile").arg(study.folder.join(&study.policy)).arg("--output").arg(policy);
    compile.arg("--btf").arg(types).arg("--root").arg(&kernel.root);
    lab::output(&mut compile).map(drop).with_context(|| format!("xk compile of {}", study.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(number: u32) -> Case {
        let folder = lab::repository().expect("it is here").join("cases/studies");
        let studies = Study::all(&folder).unwrap_or_else(|error| panic!("{error:#}"));
        let study = studies.iter().find(|study| study.case == number).expect("it has a folder");
        observe(study, true).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// A quarter of the requests reaches a slow disk, as the disk's own counters say.
    #[test]
    fn fewer_requests_reach_a_slow_disk() {
        let case = short(1);
        assert!(case.missed.is_empty(), "{case:?}");
    }

    /// Zswap writes back less than half with a smaller batch, as `/proc/vmstat` says.
    #[test]
    fn zswap_writes_back_less() {
        let case = short(3);
        assert!(case.missed.is_empty(), "{case:?}");
    }

    /// Every folder has what its page promises.
    #[test]
    fn studies_are_complete() {
        let folder = lab::repository().expect("it is here").join("cases/studies");
        let studies = Study::all(&folder).unwrap_or_else(|error| panic!("{error:#}"));
        for study in &studies {
            for file in ["run", "README.md", "plot.svg", study.policy.as_str()] {
                assert!(study.folder.join(file).is_file(), "{} has no {file}", study.name);
            }
        }
        let numbers: Vec<u32> = studies.iter().map(|study| study.case).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    }
}
