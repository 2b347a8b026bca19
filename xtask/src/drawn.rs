//! Instructions of vmlinux drawn at random, for a guest that keeps probes at them (`inside hold`). They are found on the
//! host because the analysis of the image takes long where instructions are emulated.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;
use xk_kernel::Image;

use crate::bench::{compile_bpf, Code};
use crate::lab;

/// What is drawn.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many instructions
    #[arg(long, default_value_t = 20_000)]
    number: usize,
    /// Seed by which they are drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File for them, a line for each
    #[arg(long)]
    out: PathBuf,
}

#[derive(Debug, Serialize)]
struct Written {
    places: usize,
    /// Drawn, and left out because nothing can probe them.
    left_out: usize,
    /// An eBPF program for them, which counts.
    program: PathBuf,
}

/// Draws them, and prints one JSON object.
///
/// # Errors
/// When the kernel has not so many, or the program cannot be compiled.
pub fn run(arguments: &Arguments) -> Result<()> {
    let kernel = lab::kernel()?;
    let program = compile_bpf()?.join("counter.bpf.o");
    let code = Code::new(&Image::from_vmlinuz(&kernel.vmlinuz, None)?)?;
    let drawn = code.draw(arguments.number, arguments.seed)?;
    fs::write(&arguments.out, code.lines(&drawn.found)).with_context(|| arguments.out.display().to_string())?;
    let written = Written { places: drawn.found.len(), left_out: drawn.left_out, program };
    println!("{}", serde_json::to_string(&written)?);
    Ok(())
}
