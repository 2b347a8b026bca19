//! `xk flex build`: writes an object in which loops can be ended.

use std::fs;
use std::path::PathBuf;

use crate::exit::Result;

/// Arguments of `xk flex build`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: super::Input,
    /// Output file
    #[arg(short, long)]
    output: PathBuf,
}

/// Writes it.
pub fn run(args: &Args) -> Result {
    let rewritten = args.input.rewritten()?;
    fs::write(&args.output, &rewritten.bytes).map_err(|error| super::failed(&args.output, &error))?;
    for found in &rewritten.loops {
        println!("{} {}: {}", found.function, found.place, super::words(found));
    }
    println!("{}", args.output.display());
    Ok(())
}
