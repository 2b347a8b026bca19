//! `xk sched cpus`: where threads of a policy run.

use xk_sched::Device;

use crate::exit::Result;

/// Arguments of `xk sched cpus`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A policy that is loaded
    policy: String,
    /// CPUs, for example 0-3,8; or `all`
    cpus: String,
}

/// Sets them.
pub fn run(args: &Args) -> Result {
    Device::open()?.set_cpus(&args.policy, &args.cpus)?;
    println!("{}: CPUs {}", args.policy, args.cpus);
    Ok(())
}
