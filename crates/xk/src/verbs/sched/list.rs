//! `xk sched list`: the policies that are loaded.

use serde_json::json;
use xk_sched::Device;

use crate::exit::Result;
use crate::output::{print_json, to_json, Columns};

/// Arguments of `xk sched list`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// JSON
    #[arg(long)]
    pub json: bool,
}

/// Lists them.
pub fn run(args: &Args) -> Result {
    let policies = Device::open_to_read()?.policies()?;
    if args.json {
        print_json(json!({ "policies": to_json(&policies) }));
        return Ok(());
    }
    if policies.is_empty() {
        println!("no policy is loaded: insert its module, for example xk_sched_fifo.ko");
        return Ok(());
    }
    let mut columns = Columns::default();
    columns.row(
        ["policy", "threads", "ready", "switches", "overdue", "slice", "weight", "cpus", "state"].map(str::to_owned),
    );
    for policy in policies {
        columns.row([
            policy.name,
            policy.threads.to_string(),
            policy.ready.to_string(),
            policy.switches.to_string(),
            policy.overdue.to_string(),
            format!("{} us", policy.slice.as_micros()),
            policy.weight.to_string(),
            policy.cpus,
            if policy.live { "live" } else { "ejected: see `xk sched status`" }.to_owned(),
        ]);
    }
    print!("{}", columns.lines(""));
    Ok(())
}
