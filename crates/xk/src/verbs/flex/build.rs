//! `xk flex build`: writes an object in which loops can be ended.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::exit::Result;

/// Arguments of `xk flex build`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: super::Input,
    /// Only compile a source: xk-redis and xk-memcached rewrite it when they load it
    #[arg(long)]
    only_compile: bool,
    /// Output file
    #[arg(short, long)]
    output: PathBuf,
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

/// Writes the object, whole or not at all.
pub fn run(args: &Args) -> Result {
    if args.only_compile {
        write(&args.output, &args.input.object()?).map_err(|error| super::failed(&args.output, &error))?;
        println!("{}", args.output.display());
        return Ok(());
    }
    let rewritten = args.input.rewritten()?;
    write(&args.output, &rewritten.bytes).map_err(|error| super::failed(&args.output, &error))?;
    for found in &rewritten.loops {
        println!("{} {}: {}", found.function, found.place, super::words(found));
    }
    println!("{}", args.output.display());
    Ok(())
}
