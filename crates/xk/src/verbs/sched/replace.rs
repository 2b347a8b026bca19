//! `xk sched replace`: a policy takes over the threads of another.

use xk_sched::Device;

use crate::exit::Result;
use crate::output::count;

/// Arguments of `xk sched replace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A policy that is loaded
    old: String,
    /// Another one, which can take over from it
    new: String,
}

/// Replaces it.
pub fn run(args: &Args) -> Result {
    let threads = Device::open()?.replace(&args.old, &args.new)?;
    println!("{}: {} of {}", args.new, count(threads as usize, "thread"), args.old);
    Ok(())
}
