//! `xk probe maps`: what the maps of an attached program contain.

use xk_probe::maps::{text, Opened};
use xk_runtime::{Device, Error};

use crate::exit::{Failure, Result};
use crate::output::print_json;

/// Arguments of `xk probe maps`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The kernel keeps 15 bytes of the name of a map.")]
pub struct Args {
    /// Number, as `xk probe list` shows it
    id: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints them.
pub fn run(args: &Args) -> Result {
    let probes = Device::open_to_read()?.probes()?;
    let probe = probes.iter().find(|probe| probe.id == args.id).ok_or(Error::NoSuchProbes(args.id))?;
    let none =
        || Failure::error(format!("probes {} only count: `xk probe list --places` shows their counts", probe.id));
    let maps = Opened::of(probe.program.ok_or_else(none)?)?.read();
    if args.json {
        print_json(maps);
    } else {
        print!("{}", text(&maps));
    }
    Ok(())
}
