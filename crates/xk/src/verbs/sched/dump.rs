//! `xk sched dump`: the threads of policies, and their states.

use serde_json::{json, Map};
use xk_sched::{Device, PolicyThread};

use crate::exit::Result;
use crate::output::{count, print_json, to_json, Columns};

/// Arguments of `xk sched dump`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this policy
    policy: Option<String>,
    /// JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints them.
pub fn run(args: &Args) -> Result {
    let device = Device::open_to_read()?;
    let names = match &args.policy {
        Some(name) => vec![name.clone()],
        None => device.policies()?.into_iter().map(|policy| policy.name).collect(),
    };
    let mut all = Map::new();
    for name in names {
        let threads = device.threads(&name)?;
        if args.json {
            all.insert(name, to_json(&threads));
        } else {
            print!("{}", text(&name, &threads));
        }
    }
    if args.json {
        print_json(json!(all));
    }
    Ok(())
}

fn text(policy: &str, threads: &[PolicyThread]) -> String {
    let mut columns = Columns::default();
    columns.row(["  pid", "name", "state", "core", "queue", "waits", "ran"].map(str::to_owned));
    for thread in threads {
        columns.row([
            format!("  {}", thread.pid),
            thread.name.clone(),
            thread.state.clone(),
            thread.core.to_string(),
            thread.queue.map_or("-".to_owned(), |queue| queue.to_string()),
            thread.queue.map_or("-".to_owned(), |_| format!("{} ms", thread.waits.as_millis())),
            format!("{} ms", thread.ran.as_millis()),
        ]);
    }
    let rows = if threads.is_empty() { String::new() } else { columns.lines("") };
    format!("{policy}: {}\n{rows}", count(threads.len(), "thread"))
}
