//! `xk sched record`: what a policy was told and decided while a command ran.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use xk_sched::Device;

use crate::exit::{Failure, Result};
use crate::output::count;

/// Arguments of `xk sched record`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A policy that is loaded, and has had no thread yet
    policy: String,
    /// The file; the program of kernel/xk_sched/user replays it
    file: PathBuf,
    /// Memory for the recording; what follows is not recorded
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    limit: u64,
    /// The command, after `--`
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command to its end. The file is written even if the command fails.
pub fn run(args: &Args) -> Result {
    let failed = |error| Failure::error(format!("{}: {error}", args.file.display()));
    let device = Device::open()?;
    device.record(&args.policy, args.limit << 20)?;
    let mut file = File::create(&args.file).map_err(failed)?;
    let this = std::env::current_exe().map_err(|error| Failure::error(format!("this program: {error}")))?;
    let status = Command::new(this).args(["sched", "run", &args.policy, "--"]).args(&args.command).status();
    let (bytes, missed) = device.end_recording()?;
    file.write_all(&bytes).map_err(failed)?;
    println!("{}: {} bytes of policy {}", args.file.display(), bytes.len(), args.policy);
    if missed > 0 {
        println!("{} had no place: --limit gives more memory", count(missed as usize, "record"));
    }
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::error(format!("the command failed: {status}"))),
        Err(error) => Err(Failure::error(format!("the command: {error}"))),
    }
}
