//! `xk compile`: compiles policies to an object, for machines without a compiler.

use std::fs;
use std::path::PathBuf;

use xk_policy::{entries, SourceCompiler};
use xk_store::Folders;

use crate::exit::{Failure, Result};
use crate::options::KernelArgs;
use crate::sites::notice;

/// Arguments of `xk compile`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// FILE.bpf.c
    file: PathBuf,
    /// Output file (default: FILE.bpf.o)
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Types of another kernel: its vmlinux or its /sys/kernel/btf/vmlinux
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// Compiles it.
pub fn run(args: &Args) -> Result {
    let (folders, kernel) = (Folders::from_environment(), args.kernel.choice());
    let compiler = SourceCompiler { folders: &folders, kernel: &kernel, say: &notice };
    let object = match &args.btf {
        Some(btf) => compiler.compile_with_types(&args.file, btf)?,
        None => compiler.compile_for_running(&args.file)?,
    };
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension("o"));
    let entries = entries(&object)?;
    fs::write(&output, &object).map_err(|error| Failure::error(format!("{}: {error}", output.display())))?;
    for entry in entries {
        println!("{} decides {}", entry.program, entry.constant);
    }
    println!("{}", output.display());
    Ok(())
}
