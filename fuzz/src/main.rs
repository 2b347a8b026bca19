//! Feeds damaged bytes to everything that parses bytes.
//!
//! In: the names of targets, a time. Out: one line for each target; for one
//! that panics, aborts, hangs or takes too much memory, a file that repeats it
//! and exit 1. Needs nothing but stable Rust: a process of its own runs each
//! target ([`child`]), another watches it ([`watch`]).

mod child;
mod mutate;
mod seeds;
mod targets;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about, version)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Fuzzes targets, one after the other.
    Run(Run),
    /// Runs one input, as a failure names it.
    Once {
        /// See `list`.
        target: String,
        /// The input.
        file: PathBuf,
    },
    /// Lists the targets.
    List,
    /// What `run` starts.
    #[command(hide = true)]
    Child(child::Options),
}

#[derive(Debug, Args)]
struct Run {
    /// All, if none is named.
    targets: Vec<String>,
    /// For each target.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// The same seed and corpus give the same inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Holds the corpus and what failed.
    #[arg(long)]
    folder: PathBuf,
    /// Seconds after which an input hangs.
    #[arg(long, default_value_t = 20.0)]
    patience: f64,
}

fn main() -> Result<ExitCode> {
    match Command::parse().verb {
        Verb::Run(run) => fuzz(&run),
        Verb::Once { target, file } => {
            let target = targets::find(&target)?;
            println!("{}", child::once(target, &file)?);
            Ok(ExitCode::SUCCESS)
        }
        Verb::List => {
            targets::ALL.iter().for_each(|target| println!("{:10} {}", target.name, target.what));
            Ok(ExitCode::SUCCESS)
        }
        Verb::Child(options) => child::main(&options).map(|()| ExitCode::SUCCESS),
    }
}

fn fuzz(run: &Run) -> Result<ExitCode> {
    let targets = match &run.targets[..] {
        [] => targets::ALL.iter().collect(),
        names => names.iter().map(|name| targets::find(name)).collect::<Result<Vec<_>>>()?,
    };
    let patience = Duration::try_from_secs_f64(run.patience).context("--patience")?;
    let mut failed = false;
    for target in targets {
        let options = child::Options {
            target: target.name.into(),
            seconds: run.seconds,
            seed: run.seed,
            corpus: run.folder.join("corpus").join(target.name),
            current: PathBuf::new(),
        };
        let verdict = watch::watch(&options, &run.folder.join("failures"), patience)?;
        println!("{:10} {}", target.name, verdict.text);
        failed |= verdict.failed;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
