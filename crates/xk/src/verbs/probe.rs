//! `xk probe`: eBPF programs at any instruction of the running kernel, and counts of executions.
//!
//! xk-probe finds the instructions and loads programs, xk.ko reaches them; the files of this folder are the subcommands.

mod attach;
mod count;
mod detach;
mod explain;
pub(super) mod list;
mod maps;
mod probed;
mod programs;
mod run;
mod sites;

use serde_json::{json, Value};
use xk_kernel::{Image, KernelChoice, KernelId};
use xk_probe::{Class, Error, Found, Live, Place, PlaceError, Reach, Resolver};

use crate::exit::{Exit, Failure, Result};
use crate::options::KernelArgs;

/// Arguments of `xk probe`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
WHERE is [MODULE:]FUNCTION[+OFFSET], 0xADDRESS, or [MODULE:]PATTERN@CLASS. A function without an offset is its first
byte. * and ? match characters of names. Classes: entry, body (the first instruction after the entry code), return,
call, indirect-call, any.

A jump of xk.ko reaches an instruction without a trap, where that is safe; else a kprobe does. See docs/probes.md.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Run the programs of a file until ^C, then print their maps
    Run(run::Args),
    /// Attach the programs of a file, and exit
    Attach(attach::Args),
    /// Detach what was attached, and print its maps
    Detach(detach::Args),
    /// Print the maps of a program that is attached
    Maps(maps::Args),
    /// Count executions of instructions until ^C
    Count(count::Args),
    /// List what is probed
    List(list::Args),
    /// Show an instruction, and how a probe would reach it
    Explain(explain::Args),
    /// List instructions of functions
    Sites(sites::Args),
}

impl Args {
    /// Whether JSON was asked for.
    pub fn json(&self) -> bool {
        match &self.action {
            Action::Run(args) => args.json,
            Action::Attach(args) => args.json,
            Action::Detach(args) => args.json,
            Action::Maps(args) => args.json,
            Action::Count(args) => args.json,
            Action::List(args) => args.json,
            Action::Explain(args) => args.json,
            Action::Sites(args) => args.json,
        }
    }
}

/// Does it.
pub fn run(args: &Args) -> Result {
    match &args.action {
        Action::Run(args) => run::run(args),
        Action::Attach(args) => attach::run(args),
        Action::Detach(args) => detach::run(args),
        Action::Maps(args) => maps::run(args),
        Action::Count(args) => count::run(args),
        Action::List(args) => list::run(args),
        Action::Explain(args) => explain::run(args),
        Action::Sites(args) => sites::run(args),
    }
}

/// A class on the command line.
fn parse_class(text: &str) -> std::result::Result<Class, PlaceError> {
    text.parse()
}

/// Places on the command line.
fn places(texts: &[String], class: Option<Class>) -> Result<Vec<Place>> {
    Ok(texts.iter().map(|text| Place::parse(text, class)).collect::<std::result::Result<_, _>>()?)
}

/// The image of a kernel, and whether it runs here. Of the running kernel, the boot image is preferred: it contains the
/// lists of code that the kernel changes.
fn image(kernel: &KernelArgs) -> Result<(Image, bool)> {
    let image = match kernel.is_given() {
        true => kernel.choice().image()?,
        false => KernelChoice::booted()?,
    };
    let runs = KernelId::live().is_ok_and(|live| live.build_id == image.id().build_id);
    Ok((image, runs))
}

/// Finds places in the running kernel.
fn running(kernel: &KernelArgs, places: &[Place]) -> Result<Resolver> {
    let (image, runs) = image(kernel)?;
    if !runs {
        let message = format!("kernel {} does not run here: its instructions cannot be probed", image.id());
        return Err(Failure::new(Exit::Drift, message));
    }
    Ok(Resolver::new(&image, places, Some(Live::read()?))?)
}

/// Finds places in a kernel, to look only. The second value is why addresses are those of the image.
fn known(kernel: &KernelArgs, places: &[Place]) -> Result<(Resolver, Option<String>)> {
    let (image, runs) = image(kernel)?;
    let in_image = |reason: String| Ok((Resolver::new(&image, places, None)?, Some(reason)));
    if !runs {
        return in_image("this kernel does not run here".into());
    }
    let live = match Live::read() {
        Ok(live) => live,
        Err(error) => return in_image(error.to_string()),
    };
    match Resolver::new(&image, places, Some(live)) {
        Ok(resolver) => Ok((resolver, None)),
        Err(error @ Error::NotLoaded { .. }) => in_image(error.to_string()),
        Err(error) => Err(error.into()),
    }
}

/// An instruction as JSON.
fn document(found: &Found) -> Value {
    let window = match &found.reach {
        Reach::Jump(window) => json!({
            "lead": window.lead, "length": window.len, "instructions": window.insns, "padding": window.padding
        }),
        Reach::Short(window, hosts) => json!({
            "lead": window.lead, "length": window.len, "instructions": window.insns, "padding": window.padding,
            "host": hosts.first().map(|host| json!({ "distance": host.distance, "length": host.len })),
        }),
        _ => Value::Null,
    };
    json!({
        "place": found.name(),
        "module": found.module,
        "function": found.function,
        "offset": found.offset,
        "address": format!("{:#x}", found.address),
        "instruction": found.text,
        "length": found.length,
        "by": found.reach.word(),
        "window": window,
        "no_jump": found.no_jump(),
    })
}
