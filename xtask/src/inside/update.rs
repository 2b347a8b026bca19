//! How long the stages of `xk load` take, and a change of a value that is loaded.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_runtime::{Change, Destination, Device};

/// What is to be measured.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The command
    #[arg(long)]
    xk: PathBuf,
    /// Policies in C, each followed by the critical spans that its constants have
    #[arg(long, value_name = "FILE=SPANS")]
    policies: Vec<String>,
    /// A constant, and two of its values
    #[arg(long)]
    constant: String,
    /// One of them
    #[arg(long)]
    first: i64,
    /// The other
    #[arg(long)]
    second: i64,
    /// Loads of each object, and changes
    #[arg(long)]
    rounds: usize,
}

/// Milliseconds of the guest by stage.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Stages {
    /// From C to an object.
    pub compile_ms: f64,
    /// Reading tables, finding addresses, and the kernel's verifier.
    pub verify_ms: f64,
    /// Probes at every site, and return probes.
    pub register_ms: f64,
    /// Until every thread uses it.
    pub transition_ms: f64,
}

/// What was measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Of each file, in their order, and for each the loads.
    pub loads: Vec<Vec<Stages>>,
    /// Changes of a value, by system call.
    pub change_ms: Vec<f64>,
    /// ... and by `xk set`.
    pub command_ms: Vec<f64>,
}

/// Measures.
///
/// # Errors
/// When something does not work.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let mut loads = Vec::new();
    for policies in &arguments.policies {
        let (file, spans) = policies.rsplit_once('=').context("FILE=SPANS")?;
        loads.push(stages(arguments, Path::new(file), spans.parse()?)?);
    }
    let (change_ms, command_ms) = changes(arguments)?;
    Ok(Report { loads, change_ms, command_ms })
}

/// Runs `xk`; what it printed.
fn xk(arguments: &Arguments, words: &[&str]) -> Result<String> {
    let output = Command::new(&arguments.xk).args(words).output().context("xk")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "xk {words:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// Compiles once, and loads the object again and again.
fn stages(arguments: &Arguments, file: &Path, spans: usize) -> Result<Vec<Stages>> {
    let file = file.to_str().context("a name that is no text")?;
    let object = "/tmp/update.bpf.o";
    // The first compiler's run writes the kernel's types down, for all that follow.
    xk(arguments, &["compile", "-o", object, file])?;
    let load = |file: &str| -> Result<Stages> {
        let loaded = told(&xk(arguments, &["load", "--name", "update", file])?)?;
        let tunes = Device::open()?.tunes()?;
        let sites: usize = tunes.iter().map(|tune| tune.sites.len()).sum();
        ensure!(sites == spans && tunes.iter().all(|tune| tune.policy.is_some()), "{sites} sites: {tunes:?}");
        xk(arguments, &["unload", "update"])?;
        Ok(loaded)
    };
    let compiled = load(file)?.compile_ms;
    let again = (0..arguments.rounds).map(|_| load(object)).collect::<Result<Vec<_>>>()?;
    Ok(again.into_iter().map(|stages| Stages { compile_ms: compiled, ..stages }).collect())
}

/// `compile 1.2 ms, verify 3.4 ms, …`: the last but one line of `xk load`.
fn told(text: &str) -> Result<Stages> {
    let line = text.lines().find(|line| line.starts_with("compile ")).with_context(|| format!("no stages: {text}"))?;
    let stage = |name: &str| -> Result<f64> {
        let part = line.split(", ").find_map(|part| part.strip_prefix(name));
        let number = part.and_then(|rest| rest.trim().strip_suffix(" ms"));
        Ok(number.with_context(|| format!("no {name}: {line}"))?.parse()?)
    };
    Ok(Stages {
        compile_ms: stage("compile")?,
        verify_ms: stage("verify")?,
        register_ms: stage("register")?,
        transition_ms: stage("transition")?,
    })
}

fn changes(arguments: &Arguments) -> Result<(Vec<f64>, Vec<f64>)> {
    let Arguments { constant, first, second, rounds, .. } = arguments;
    xk(arguments, &["set", &format!("{constant}={first}")])?;
    let device = Device::open()?;
    let [tune] = &device.tunes()?[..] else { anyhow::bail!("there are other tunes") };
    // Kprobes become jumps some time after they were placed.
    std::thread::sleep(Duration::from_secs(2));
    let (mut changes, mut commands) = (Vec::new(), Vec::new());
    for round in 0..*rounds {
        let value = if round % 2 == 0 { *second } else { *first };
        let start = Instant::now();
        device.transition(
            &[Change { id: tune.id, to: Destination::Value(value) }],
            tune.mode,
            Duration::from_secs(5),
        )?;
        changes.push(milliseconds(start.elapsed()));
        ensure!(device.tunes()?[0].value == value, "it is not in force");
    }
    for round in 0..*rounds {
        let value = if round % 2 == 0 { *second } else { *first };
        let start = Instant::now();
        xk(arguments, &["set", &format!("{constant}={value}")])?;
        commands.push(milliseconds(start.elapsed()));
    }
    xk(arguments, &["unset", constant])?;
    Ok((changes, commands))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
