//! `xk probe run`: runs the programs of a file.

use std::time::Duration;

use serde_json::{json, Value};
use xk_apply::parse_time;
use xk_probe::{maps, Trace};
use xk_runtime::{Device, PlaceStatus};

use crate::exit::{Failure, Result};
use crate::output::print_json;
use crate::signals;

use super::probed::{documents, wait};
use super::programs::{FileArgs, Running};

/// Arguments of `xk probe run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A program says where it runs by its section: SEC(\"xk/vfs_write+0x5b\"), several places with commas. It is a program
of type kprobe: its context are the registers before the instruction. bpf_get_attach_cookie() returns the number of
the place in the section, or of --at, from 0. With xk_probe.bpf.h, XK_VAR(name) reads a variable of the kernel's source
there. What it prints with bpf_printk() is shown; the maps are printed at the end.")]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    time: Option<Duration>,
    /// Print JSON; what programs print goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// Runs them.
pub fn run(args: &Args) -> Result {
    let mut prepared = args.file.prepare(!args.json)?;
    let trace = match prepared.prints() {
        true => Some(Trace::open().map_err(|error| Failure::error(format!("the kernel's trace: {error}")))?),
        false => None,
    };
    signals::hold_back();
    let running = prepared.attach(!args.json)?;
    if !args.json {
        eprintln!("running; ^C ends");
    }
    let print = |text: &str| if args.json { eprintln!("{text}") } else { println!("{text}") };
    wait(args.time, trace, print)?;
    let mut documents = Vec::new();
    for one in &running {
        documents.push(end(&prepared.device, one)?);
    }
    show(args, &documents, &maps::read(&prepared.programs, &prepared.object));
    Ok(())
}

/// Detaches a program, and says what it did.
fn end(device: &Device, one: &Running) -> Result<Value> {
    let status: Vec<PlaceStatus> = device.probe_places(one.attached.id)?;
    let known = device.probes()?.into_iter().find(|known| known.id == one.attached.id);
    device.detach_probes(one.attached.id)?;
    let counted = one.probed.counted(&status);
    Ok(json!({
        "program": one.probe.program,
        "jumps": one.attached.jumps,
        "hits": counted.iter().map(|(_, status)| status.hits).sum::<u64>(),
        "skipped": known.map(|known| known.skipped),
        "left_out": one.probed.left_out,
        "places": documents(&counted),
    }))
}

fn show(args: &Args, programs: &[Value], maps: &Value) {
    if args.json {
        print_json(json!({ "programs": programs, "maps": maps }));
        return;
    }
    for program in programs {
        let text = |key: &str| program[key].as_str().map_or_else(|| program[key].to_string(), str::to_owned);
        println!(
            "{}: {} executions, {} skipped (another program was running)",
            text("program"),
            text("hits"),
            text("skipped")
        );
    }
    print!("{}", maps::text(maps));
}
