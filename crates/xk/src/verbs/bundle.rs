//! `xk bundle`: the running kernel in one file, to be analysed elsewhere.

use std::path::PathBuf;

use xk_kernel::Bundle;

use crate::exit::{Failure, Result};

/// Arguments of `xk bundle`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to write it
    file: PathBuf,
}

/// Writes it.
pub fn run(args: &Args) -> Result {
    Bundle::save_live(&args.file)?;
    let bundle = Bundle::open(&args.file)?;
    let size = std::fs::metadata(&args.file)
        .map_err(|error| Failure::error(format!("{}: {error}", args.file.display())))?
        .len();
    println!("{}: kernel {}, {} MiB", args.file.display(), bundle.id(), size.div_ceil(1 << 20));
    Ok(())
}
