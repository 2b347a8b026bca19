//! `xk sched set`: the policy of a running process.

use xk_sched::{Device, Who};

use crate::exit::Result;
use crate::output::count;

/// Arguments of `xk sched set`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A policy that is loaded, or `fair`
    policy: String,
    /// All threads of this process
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
}

/// Sets it.
pub fn run(args: &Args) -> Result {
    let threads = Device::open()?.choose(&args.policy, Who::Process(args.pid))?;
    println!("{}: {} of process {}", args.policy, count(threads as usize, "thread"), args.pid);
    Ok(())
}
