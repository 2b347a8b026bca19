//! `xk probe detach`: ends attachments that outlived their process.

use serde_json::json;
use xk_probe::maps;
use xk_runtime::{Device, Error, ProbeStatus};

use crate::exit::Result;
use crate::output::print_json;

/// Arguments of `xk probe detach`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Numbers, as `xk probe list` shows them
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "ID")]
    ids: Vec<u32>,
    /// Detach everything that outlived its process
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Detaches them, and prints what their maps contain.
pub fn run(args: &Args) -> Result {
    let device = Device::open()?;
    let known = device.probes()?;
    let chosen = chosen(args, &known)?;
    let mut documents = Vec::new();
    for probe in chosen {
        // The maps are opened before the program goes, and read after it has ended, with its last executions.
        let open = probe.program.map(maps::Opened::of).transpose()?;
        let places = device.probe_places(probe.id)?;
        device.detach_probes(probe.id)?;
        let hits: u64 = places.iter().map(|place| place.hits).sum();
        let maps = open.map_or_else(|| json!({}), |open| open.read());
        if !args.json {
            println!("{}: {hits} executions, detached", probe.name);
            print!("{}", maps::text(&maps));
        }
        documents.push(json!({ "id": probe.id, "name": probe.name, "hits": hits, "maps": maps }));
    }
    if args.json {
        print_json(json!({ "detached": documents }));
    } else if documents.is_empty() {
        println!("no probes outlived their process");
    }
    Ok(())
}

/// What is to be detached. A wrong number is refused before anything is detached.
fn chosen<'a>(args: &Args, known: &'a [ProbeStatus]) -> Result<Vec<&'a ProbeStatus>> {
    if args.all {
        return Ok(known.iter().filter(|probe| probe.kept).collect());
    }
    let find = |id: &u32| known.iter().find(|probe| probe.id == *id).ok_or(Error::NoSuchProbes(*id));
    Ok(args.ids.iter().map(find).collect::<std::result::Result<_, _>>()?)
}
