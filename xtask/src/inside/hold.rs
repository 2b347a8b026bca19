//! Keeps probes attached while other programs run: says when they are attached, waits for the end of its input, and
//! reports what the kernel counted. Fails if a place was lost meanwhile.

use std::fs;
use std::io::{stdin, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use libbpf_rs::{Object, ObjectBuilder, OpenObject};
use serde::Serialize;
use xk_runtime::{Device, PlaceStatus, ProbePlace, ProbeStatus, ReachedBy};

/// What is to be held.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// File of instructions, as `cargo xtask drawn` writes it
    #[arg(long)]
    places: PathBuf,
    /// Object with one eBPF program, which runs at each; without it, executions are counted
    #[arg(long)]
    program: Option<PathBuf>,
}

/// What was held.
#[derive(Debug, Serialize)]
pub struct Held {
    places: usize,
    jumps: usize,
    by_tracer: usize,
    kprobes: usize,
    /// Places that were executed.
    executed: usize,
    hits: u64,
    /// Hits without the program, because another one ran on the CPU.
    skipped: u64,
    /// Executions that kprobes did not report.
    missed: u64,
}

/// Attaches all, waits, and detaches them.
///
/// # Errors
/// When the kernel refuses a place, or one is no longer attached at the end.
pub fn run(arguments: &Arguments) -> Result<Held> {
    let places = read(&arguments.places, anchor()?)?;
    let object = arguments.program.as_deref().map(load).transpose()?;
    let program =
        object.as_ref().map(|object| object.progs().next().context("the object has no program")).transpose()?;
    let device = Device::open()?;
    let attached = device.attach_probes("hold", program.as_ref().map(AsFd::as_fd), &places, false)?;
    println!("{} places, {} by a jump", places.len(), attached.jumps);
    stdin().read_to_end(&mut Vec::new()).context("standard input")?;
    let status = device.probes()?.into_iter().find(|status| status.id == attached.id).context("the probes are gone")?;
    let held = Held::new(&status, &device.probe_places(attached.id)?);
    ensure!(held.places == places.len(), "{} of {} places are still attached", held.places, places.len());
    ensure!(held.jumps == attached.jumps as usize, "{} of {} jumps are still there", held.jumps, attached.jumps);
    device.detach_probes(attached.id)?;
    Ok(held)
}

impl Held {
    fn new(status: &ProbeStatus, places: &[PlaceStatus]) -> Self {
        let reached = |by| places.iter().filter(|place| place.by == by).count();
        Self {
            places: places.len(),
            jumps: reached(ReachedBy::Jump),
            by_tracer: reached(ReachedBy::Tracer),
            kprobes: reached(ReachedBy::Kprobe),
            executed: places.iter().filter(|place| place.hits > 0).count(),
            hits: status.hits,
            skipped: status.skipped,
            missed: places.iter().map(|place| place.missed).sum(),
        }
    }
}

fn load(path: &Path) -> Result<Object> {
    ObjectBuilder::default()
        .open_file(path)
        .and_then(OpenObject::load)
        .with_context(|| format!("cannot load {}", path.display()))
}

/// Where the running kernel has `_printk`.
fn anchor() -> Result<u64> {
    let text = fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
    let line = text.lines().find(|line| line.ends_with(" T _printk")).context("the kernel has no _printk")?;
    let address = u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16)?;
    ensure!(address != 0, "/proc/kallsyms shows no addresses");
    Ok(address)
}

fn read(path: &Path, anchor: u64) -> Result<Vec<ProbePlace>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.lines().map(|line| place(line, anchor).with_context(|| format!("not a place: {line}"))).collect()
}

/// Reads `DISTANCE,WINDOW,LEAD,HOST,HOST_WINDOW`, the distance from `_printk`, up to the first space.
fn place(line: &str, anchor: u64) -> Result<ProbePlace> {
    let words: Vec<&str> = line.split(' ').next().unwrap_or_default().split(',').collect();
    let [distance, window, lead, host, host_window] = words[..] else { bail!("{} words", words.len()) };
    Ok(ProbePlace {
        address: anchor.wrapping_add_signed(distance.parse()?),
        cookie: 0,
        window: window.parse()?,
        window_lead: lead.parse()?,
        host: host.parse()?,
        host_window: host_window.parse()?,
        ..ProbePlace::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_place() {
        let expected =
            ProbePlace { address: 90, window: 5, window_lead: 1, host: -7, host_window: 6, ..ProbePlace::default() };
        assert_eq!(place("-10,5,1,-7,6 0", 100).unwrap(), expected);
        for line in ["", "1,2,3,4 0", "x,5,1,0,0 1", "1,500,1,0,0 0"] {
            assert!(place(line, 100).is_err(), "{line}");
        }
    }
}
