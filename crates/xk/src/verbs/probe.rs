//! `xk probe`: eBPF programs at any instruction of the running kernel, and counts of executions.
//!
//! xk-probe finds the instructions and loads programs, xk.ko reaches them; the files of this folder are the subcommands.

mod attach;
pub(super) mod compile;
mod count;
mod detach;
mod explain;
pub(super) mod list;
mod maps;
mod probed;
mod programs;
mod run;
mod sites;

use std::collections::BTreeSet;

use serde_json::{json, Value};
use xk_kernel::{Image, KernelChoice, KernelId};
use xk_probe::{Class, Error, Found, Lines, Live, Place, PlaceError, Reach, Resolver, Source};
use xk_store::Folders;

use crate::exit::{Exit, Failure, Result};
use crate::options::KernelArgs;
use crate::output::{count, Paint};

/// Arguments of `xk probe`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
WHERE is [MODULE:]FUNCTION[+OFFSET], 0xADDRESS, [MODULE:]FILE.c:LINE[@CLASS], or [MODULE:]PATTERN@CLASS. A function
without an offset is its first byte. * and ? match characters of names. Classes: entry, body (the first instruction
after the entry code), return, call, indirect-call, any.

FILE.c:LINE is where a line of the kernel's source begins, in all functions that contain or inline it. It needs the
kernel's source package and compiler. FILE.c:HEADER.h:LINE is a line of a file that FILE.c includes.

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
    /// List instructions of functions, or of a line of the source
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
fn places(texts: &[String], class: Option<&Class>) -> Result<Vec<Place>> {
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
    let lines = lines(kernel, &image, places)?;
    Ok(Resolver::with_lines(&image, places, Some(Live::read()?), lines)?)
}

/// The code of the lines among places. Without lines, no source is needed.
fn lines(kernel: &KernelArgs, image: &Image, places: &[Place]) -> Result<Lines> {
    if !places.iter().any(|place| matches!(place, Place::Line { .. })) {
        return Ok(Lines::default());
    }
    let folders = Folders::from_environment();
    let say = |line: &str| eprintln!("{}", Paint::stderr().dim(line));
    let tree = kernel.choice().tree(image, &folders.cache, &say)?;
    Ok(Source::new(image, &tree, &folders.cache)?.lines(places)?)
}

/// Where lines of the source are: `fs/read_write.c:680: 2 instructions in 1 function: vfs_write+0x12, vfs_write+0x40`.
fn spread(places: &[Place], found: &[(Found, usize)]) -> String {
    let mut text = String::new();
    for (number, place) in places.iter().enumerate() {
        if !matches!(place, Place::Line { .. }) {
            continue;
        }
        let own: Vec<&Found> = found.iter().filter(|(_, of)| *of == number).map(|(found, _)| found).collect();
        let functions: BTreeSet<(&Option<String>, &str)> =
            own.iter().map(|found| (&found.module, found.function.as_str())).collect();
        let names: Vec<String> = own.iter().map(|found| found.name()).collect();
        text += &format!(
            "{place}: {} in {}: {}\n",
            count(own.len(), "instruction"),
            count(functions.len(), "function"),
            names.join(", ")
        );
    }
    text
}

/// Finds places in a kernel, to look only. The second value is why addresses are those of the image.
fn known(kernel: &KernelArgs, places: &[Place]) -> Result<(Resolver, Option<String>)> {
    let (image, runs) = image(kernel)?;
    let lines = lines(kernel, &image, places)?;
    let in_image = |reason: String| Ok((Resolver::with_lines(&image, places, None, lines.clone())?, Some(reason)));
    if !runs {
        return in_image("this kernel does not run here".into());
    }
    let live = match Live::read() {
        Ok(live) => live,
        Err(error) => return in_image(error.to_string()),
    };
    match Resolver::with_lines(&image, places, Some(live), lines.clone()) {
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
