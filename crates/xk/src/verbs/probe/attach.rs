//! `xk probe attach`: attaches the programs of a file, which go on without this process.

use std::time::Duration;

use serde_json::{json, Value};
use xk_apply::parse_time;

use crate::exit::Result;
use crate::output::print_json;
use crate::sites::lease;

use super::programs::{FileArgs, Running};

/// Arguments of `xk probe attach`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The programs run until `xk probe detach`, until their time is over, until xk.ko is removed, or until the next boot.
`xk probe list` shows their numbers, `xk probe maps` what their maps contain. See `xk probe run --help` for places.")]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Detach them after this time, including time in suspend
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    time: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Attaches them, all or none.
pub fn run(args: &Args) -> Result {
    let mut prepared = args.file.prepare(!args.json)?;
    let running = prepared.attach(!args.json)?;
    // Until all of them are there, they belong to this process.
    for (done, one) in running.iter().enumerate() {
        if let Err(error) = prepared.device.keep_probes(one.attached.id, args.time) {
            for kept in running.iter().take(done) {
                prepared.device.detach_probes(kept.attached.id)?;
            }
            return Err(error.into());
        }
    }
    if args.json {
        let all: Vec<Value> = running.iter().map(document).collect();
        print_json(json!({ "attached": all, "lease_s": args.time.map(|time| time.as_secs_f64()) }));
        return Ok(());
    }
    let ids: Vec<String> = running.iter().map(|one| one.attached.id.to_string()).collect();
    println!(
        "attached {}until `xk probe detach {}`, until xk.ko is removed, or until the next boot",
        lease(args.time),
        ids.join(" ")
    );
    if prepared.prints() {
        println!("a program prints: read /sys/kernel/tracing/trace_pipe");
    }
    Ok(())
}

fn document(one: &Running) -> Value {
    json!({
        "id": one.attached.id,
        "program": one.probe.program,
        "places": one.probed.all.len(),
        "jumps": one.attached.jumps,
        "left_out": one.probed.left_out,
    })
}
