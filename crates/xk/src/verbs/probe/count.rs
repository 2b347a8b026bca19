//! `xk probe count`: counts executions without a program.

use std::time::Duration;

use serde_json::json;
use xk_apply::parse_time;
use xk_probe::Class;
use xk_runtime::Device;

use crate::exit::Result;
use crate::options::KernelArgs;
use crate::output::print_json;
use crate::signals;

use super::probed::{documents, reached, table, wait, Probed, Ways};
use super::{parse_class, places, running, spread};

/// Arguments of `xk probe count`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Instructions, lines of the source, or patterns of functions
    #[arg(required = true, value_name = "WHERE")]
    places: Vec<String>,
    /// Which instructions of lines, and of functions without an offset
    #[arg(long, value_name = "CLASS", value_parser = parse_class)]
    class: Option<Class>,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    time: Option<Duration>,
    /// Refuse instructions that a jump cannot reach
    #[arg(long)]
    jumps_only: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// Counts.
pub fn run(args: &Args) -> Result {
    let ways = Ways::new(args.jumps_only)?;
    let places = places(&args.places, args.class.as_ref())?;
    let probed = Probed::new(&running(&args.kernel, &places)?, &places)?;
    let device = Device::open()?;
    signals::hold_back();
    let attached = probed.attach(&device, &format!("count {}", args.places.join(" ")), None, ways)?;
    if !args.json {
        eprint!("{}", spread(&places, &probed.all));
        eprintln!("counting {}; ^C ends", reached(probed.all.len(), attached.jumps as usize));
    }
    wait(args.time, None, |_| ())?;
    let status = device.probe_places(attached.id)?;
    device.detach_probes(attached.id)?;
    let counted = probed.counted(&status);
    if args.json {
        print_json(json!({
            "places": documents(&counted),
            "left_out": probed.left_out,
            "jumps": attached.jumps,
            "stops": attached.stops,
        }));
        return Ok(());
    }
    print!("{}", table(&counted));
    if probed.left_out > 0 {
        println!("{} cannot be probed", crate::output::count(probed.left_out, "instruction"));
    }
    Ok(())
}
