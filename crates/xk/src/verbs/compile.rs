//! `xk compile`: compiles policies or probes to an object, for machines without a compiler.

use std::fs;
use std::path::PathBuf;

use xk_policy::{entries, Entry, SourceCompiler};
use xk_probe::{probes, Probe};
use xk_store::Folders;

use crate::exit::{Failure, Result};
use crate::options::KernelArgs;
use crate::sites::notice;

use super::probe::compile::ProbeSource;

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
    let types = args.btf.as_deref();
    let probe = ProbeSource { file: &args.file, at: &[], class: None, kernel: &args.kernel, types };
    let object = match (probe.object()?, types) {
        (Some(object), _) => object,
        (None, Some(btf)) => compiler.compile_with_types(&args.file, btf)?,
        (None, None) => compiler.compile_for_running(&args.file)?,
    };
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension("o"));
    let programs = programs(&object)?;
    fs::write(&output, &object).map_err(|error| Failure::error(format!("{}: {error}", output.display())))?;
    for line in programs {
        println!("{line}");
    }
    println!("{}", output.display());
    Ok(())
}

/// What each program does.
fn programs(object: &[u8]) -> Result<Vec<String>> {
    match (entries(object), probes(object, &[], None)) {
        (Err(_), Ok(probes)) => {
            let places = |probe: &Probe| probe.places.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            Ok(probes.iter().map(|probe| format!("{} runs at {}", probe.program, places(probe))).collect())
        }
        (policies, _) => {
            let line = |entry: &Entry| format!("{} decides {}", entry.program, entry.constant);
            Ok(policies?.iter().map(line).collect())
        }
    }
}
