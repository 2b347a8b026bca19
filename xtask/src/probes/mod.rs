//! Whether the probes of xk.ko can be believed: counts that are exact, and many probes for a long time.

mod everywhere;
mod exact;
mod soak;

use std::fs;
use std::path::Path;

use anyhow::Result;
use xk_kernel::Image;
use xk_probe::Found;

use crate::bench::Code;
use crate::inside::probes::Drawn;
use crate::lab;

/// Arguments of `probes`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    check: Check,
}

#[derive(Debug, clap::Subcommand)]
enum Check {
    /// Probe the beginning of every function, while CPUs come and go
    Everywhere(everywhere::Arguments),
    /// Compare the counts of probes at random instructions with those of the kernel's breakpoints
    Exact(exact::Arguments),
    /// Probe many random instructions for a long time, under load
    Soak(soak::Arguments),
}

/// Does it.
///
/// # Errors
/// When the check fails, or there was no guest.
pub fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.check {
        Check::Everywhere(arguments) => everywhere::run(arguments),
        Check::Exact(arguments) => exact::run(arguments),
        Check::Soak(arguments) => soak::run(arguments),
    }
}

/// Draws instructions of a kernel, and writes them to a file for the guest. Returns how many were drawn that cannot be
/// probed.
fn draw(kernel: &lab::Kernel, number: usize, seed: u64, file: &Path) -> Result<usize> {
    let code = Code::new(&Image::from_vmlinuz(&kernel.vmlinuz, None)?)?;
    let drawn = code.draw(number, seed)?;
    let all: Vec<Drawn> = drawn.found.iter().map(|found| line(&code, found)).collect();
    fs::write(file, serde_json::to_vec(&all)?)?;
    Ok(drawn.left_out)
}

/// An instruction as the guest reads it.
fn line(code: &Code, found: &Found) -> Drawn {
    let place = found.probe(0);
    let companion = code.companion(found).map(|at| code.distance(at));
    Drawn::new(found.name(), code.distance(place.address), place, !found.long_call, companion)
}
