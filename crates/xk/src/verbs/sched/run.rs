//! `xk sched run`: a command under a policy.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use xk_sched::{Device, Who};

use crate::exit::{Failure, Result};

/// Arguments of `xk sched run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A policy that is loaded, or `fair`
    policy: String,
    /// The command, after `--`
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Returns only if the command cannot be run.
pub fn run(args: &Args) -> Result {
    Device::open()?.choose(&args.policy, Who::Caller)?;
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Failure::usage("xk sched run: no command: write it after --"));
    };
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::error(format!("{}: cannot be run: {error}", program.to_string_lossy())))
}
