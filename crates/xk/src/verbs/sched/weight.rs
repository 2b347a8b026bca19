//! `xk sched weight`: the share of a policy.

use xk_sched::Device;

use crate::exit::Result;

/// Arguments of `xk sched weight`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A policy that is loaded
    policy: String,
    /// 1 to 10000; policies begin with 100 unless their modules say otherwise
    weight: u32,
}

/// Sets it.
pub fn run(args: &Args) -> Result {
    Device::open()?.set_weight(&args.policy, args.weight)?;
    println!("{}: weight {}", args.policy, args.weight);
    Ok(())
}
