//! Arms and disarms a hundred sites again and again, under load.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use xk_harness::arm::{rounds, Outcome, Rounds};
use xk_runtime::Backend;

/// What is to be done.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// kernel/atomic, which is loaded
    #[arg(long)]
    atomic: PathBuf,
    /// kernel/test, which is loaded
    #[arg(long)]
    target: PathBuf,
    /// At most so many rounds
    #[arg(long)]
    rounds: u32,
    /// At most for so many minutes
    #[arg(long)]
    minutes: u32,
}

/// Does it, by detours and by patches in turn.
pub fn run(arguments: &Arguments) -> Result<Outcome> {
    rounds(&Rounds {
        atomic: &arguments.atomic,
        target: &arguments.target,
        backends: &[Backend::Detour, Backend::Patch],
        rounds: arguments.rounds,
        time: Duration::from_secs(60 * u64::from(arguments.minutes)),
    })
}
