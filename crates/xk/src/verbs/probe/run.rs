//! `xk probe run`: runs the programs of a file.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{json, Value};
use xk_apply::parse_time;
use xk_kernel::{KernelChoice, KernelId};
use xk_policy::SourceCompiler;
use xk_probe::{
    maps, prints, probes, wants_taken, Class, Given, Place, Places, Probe, Programs, Resolver, Taken, Trace,
};
use xk_runtime::{Attached, Device, PlaceStatus};
use xk_store::Folders;

use crate::exit::{Failure, Result};
use crate::options::KernelArgs;
use crate::output::print_json;
use crate::signals;
use crate::sites::notice;

use super::attach::{documents, reached, wait, Probed, Ways};
use super::compile::ProbeSource;
use super::{parse_class, places, running, spread};

/// Arguments of `xk probe run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A program says where it runs by its section: SEC(\"xk/vfs_write+0x5b\"), several places with commas. It is a program
of type kprobe: its context are the registers before the instruction. bpf_get_attach_cookie() returns the number of
the place in the section, or of --at, from 0. With xk_probe.bpf.h, XK_VAR(name) reads a variable of the kernel's source
there. What it prints with bpf_printk() is shown; the maps are printed at the end.")]
pub struct Args {
    /// FILE.bpf.c or FILE.bpf.o
    file: PathBuf,
    /// Run the only program of the file here, wherever its section says
    #[arg(long, value_name = "WHERE", num_args = 1..)]
    at: Vec<String>,
    /// Which instructions of lines, and of functions without an offset
    #[arg(long, value_name = "CLASS", value_parser = parse_class)]
    class: Option<Class>,
    /// Programs that ask which functions' addresses are taken are told that those of these are not
    #[arg(long, value_name = "FUNCTION", num_args = 1..)]
    distrust: Vec<String>,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    time: Option<Duration>,
    /// Refuse instructions that a jump cannot reach
    #[arg(long)]
    jumps_only: bool,
    /// Print JSON; what programs print goes to standard error
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// A program that runs.
struct Running<'a> {
    probe: &'a Probe,
    probed: Probed,
    attached: Attached,
}

/// The programs of a file, and where they are to run.
struct Prepared {
    object: Vec<u8>,
    probes: Vec<Probe>,
    probed: Vec<Probed>,
    taken: Option<Taken>,
    /// Where variables are read.
    places: Option<Places>,
}

/// Runs them.
pub fn run(args: &Args) -> Result {
    let ways = Ways::new(args.jumps_only)?;
    let Prepared { object, probes, probed, taken, places } = prepare(args)?;
    let device = Device::open()?;
    let given = Given { taken: taken.as_ref(), places: places.as_ref() };
    let programs = Programs::load_with(&object, &probes, given)?;
    let trace = match prints(&object) {
        true => Some(Trace::open().map_err(|error| Failure::error(format!("the kernel's trace: {error}")))?),
        false => None,
    };
    signals::hold_back();
    let mut running = Vec::new();
    for (probe, probed) in probes.iter().zip(probed) {
        let program = programs.program(probe);
        let missing = || Failure::error(format!("{}: there is no program {}", args.file.display(), probe.program));
        let program = program.ok_or_else(missing)?;
        let attached = probed.attach(&device, &name(args, probe), Some(program), ways)?;
        if !args.json {
            eprint!("{}", spread(&probe.places, &probed.all));
            eprintln!("{}: {}", probe.program, reached(probed.all.len(), attached.jumps as usize));
        }
        running.push(Running { probe, probed, attached });
    }
    if !args.json {
        eprintln!("running; ^C ends");
    }
    let print = |text: &str| if args.json { eprintln!("{text}") } else { println!("{text}") };
    wait(args.time, trace, print)?;
    let mut documents = Vec::new();
    for one in &running {
        documents.push(end(&device, one)?);
    }
    show(args, &documents, &maps::read(&programs, &object));
    Ok(())
}

/// Compiles them, and finds their places.
fn prepare(args: &Args) -> Result<Prepared> {
    let at = places(&args.at, args.class)?;
    let about = |failure: Failure| failure.about(&args.file.display().to_string());
    let source = ProbeSource { file: &args.file, at: &at, class: args.class, kernel: &args.kernel, types: None };
    let object = match source.object()? {
        Some(object) => object,
        None => object(&args.file)?,
    };
    let probes = probes(&object, &at, args.class).map_err(|error| about(error.into()))?;
    let mut read = Places::of(&object).map_err(|error| about(error.into()))?;
    let mut all: Vec<Place> = probes.iter().flat_map(|probe| probe.places.clone()).collect();
    all.extend(read.iter().flat_map(|read| read.names().to_vec()));
    let resolver = running(&args.kernel, &all)?;
    if !resolver.unread().is_empty() && !args.json {
        eprintln!("left out, since their files are not known: {}", resolver.unread().join(", "));
    }
    let probed = probes.iter().map(|probe| Probed::new(&resolver, &probe.places)).collect::<Result<Vec<_>>>()?;
    if let Some(read) = &mut read {
        read.find(&resolver, &KernelId::live()?.build_id).map_err(|error| about(error.into()))?;
        for (probe, probed) in probes.iter().zip(&probed) {
            let found = probed.all.iter().map(|(found, _)| found);
            read.check(&object, &probe.program, found).map_err(|error| about(error.into()))?;
        }
    }
    let taken = match wants_taken(&object) {
        true => Some(taken(args, &resolver)?),
        false => None,
    };
    Ok(Prepared { object, probes, probed, taken, places: read })
}

/// The functions whose address is taken.
fn taken(args: &Args, resolver: &Resolver) -> Result<Taken> {
    let mut all = resolver.taken()?;
    for place in places(&args.distrust, None)? {
        let found = resolver.resolve(&place)?.found;
        let start = found.first().map(|found| found.address - found.offset);
        let known = all.len();
        all.retain(|address| Some(*address) != start);
        if all.len() == known {
            return Err(Failure::error(format!("--distrust {place}: nothing takes the address of this function")));
        }
    }
    let taken = Taken::new(&all);
    if !args.json {
        eprintln!("the addresses of {} functions are taken", taken.len());
    }
    Ok(taken)
}

fn object(file: &std::path::Path) -> Result<Vec<u8>> {
    let folders = Folders::from_environment();
    Ok(SourceCompiler { folders: &folders, kernel: &KernelChoice::default(), say: &notice }.object(file)?)
}

/// `program of FILE`
fn name(args: &Args, probe: &Probe) -> String {
    let file = args.file.file_name().unwrap_or(args.file.as_os_str());
    format!("{} of {}", probe.program, file.to_string_lossy())
}

/// Detaches a program, and says what it did.
fn end(device: &Device, one: &Running<'_>) -> Result<Value> {
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
