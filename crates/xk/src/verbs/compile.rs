//! `xk compile`: policies as an object, also for machines that have no compiler.

use std::fs;
use std::path::{Path, PathBuf};

use xk_policy::{compile_with, entries, Headers, Variables, RUNNING_BTF};

use super::load::policy_failure;
use crate::context::{running, Folders};
use crate::exit::{Failure, Result};
use crate::kernel::KernelOf;
use crate::output::Paint;
use xk_policy::variables::{at_sites, header, uses, Use};

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
    kernel: KernelOf,
}

/// Compiles it.
pub fn run(args: &Args) -> Result {
    let folders = Folders::new();
    let object = match &args.btf {
        // Whose types they are is not known: they are not kept.
        Some(btf) => {
            let folder = tempfile::tempdir().map_err(|error| Failure::error(error.to_string()))?;
            let headers = Headers::new(btf, folder.path(), "given").map_err(policy_failure)?;
            compiled(&args.file, &headers, &args.kernel, &folders)?
        }
        None => compiled(&args.file, &running_headers(&folders)?, &args.kernel, &folders)?,
    };
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension("o"));
    let entries = entries(&object).map_err(policy_failure)?;
    fs::write(&output, &object).map_err(|error| Failure::error(format!("{}: {error}", output.display())))?;
    for entry in entries {
        println!("{} decides {}", entry.program, entry.constant);
    }
    println!("{}", output.display());
    Ok(())
}

fn running_headers(folders: &Folders) -> Result<Headers> {
    Headers::new(Path::new(RUNNING_BTF), &folders.cache, &running()?.build_id).map_err(policy_failure)
}

/// A source for the running kernel.
pub fn for_running(file: &Path, folders: &Folders) -> Result<Vec<u8>> {
    compiled(file, &running_headers(folders)?, &KernelOf::default(), folders)
}

/// With the variables that it reads.
fn compiled(file: &Path, headers: &Headers, kernel: &KernelOf, folders: &Folders) -> Result<Vec<u8>> {
    let text = fs::read_to_string(file).map_err(|error| Failure::error(format!("{}: {error}", file.display())))?;
    let uses = uses(&text).map_err(|error| Failure::error(format!("{}:{}: {error}", file.display(), error.line)))?;
    for line in uses.iter().flat_map(|tune| &tune.registers) {
        eprintln!(
            "warning: {}:{line}: where a value is used, registers do not hold the arguments of the function: \
             XK_VAR(name) reads them",
            file.display()
        );
    }
    let reading: Vec<&Use> = uses.iter().filter(|tune| !tune.variables.is_empty()).collect();
    let variables = match reading.is_empty() {
        true => None,
        false => Some(variables(file, &reading, kernel, folders)?),
    };
    compile_with(file, headers, variables.as_ref()).map_err(policy_failure)
}

fn variables(file: &Path, reading: &[&Use], kernel: &KernelOf, folders: &Folders) -> Result<Variables> {
    let image = kernel.image()?;
    let build_id = image.id().build_id.clone();
    let tables = folders.tables(&build_id)?;
    let say = |line: &str| eprintln!("{}", Paint::stderr().dim(line));
    let tree = kernel.tree(&image, &folders.cache, &say)?;
    let mut all = Vec::new();
    for tune in reading {
        let place = format!("{}:{}", file.display(), tune.line);
        let table = tables.find(folders, &tune.constant).map_err(|failure| failure.about(&place))?;
        all.push((*tune, at_sites(table, &tree, &folders.cache).map_err(|error| Failure::from(error).about(&place))?));
    }
    Ok(Variables { header: header(file, &all)?, build_id })
}
