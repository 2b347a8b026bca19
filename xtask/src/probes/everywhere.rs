//! Probes at the beginning of the body of every function of vmlinux, some thousand functions in each guest. What is done
//! there is `inside::probes::everywhere`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_kernel::Image;
use xk_probe::{Place, Reach};

use super::line;
use crate::bench::Code;
use crate::inside::probes::everywhere::Report;
use crate::inside::probes::Drawn;
use crate::lab;

/// Of the places, the share that must be attached, in percent.
const ATTACHED: usize = 95;

/// Arguments of `probes everywhere`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Functions that are probed in one guest
    #[arg(long, default_value_t = 7000)]
    each: usize,
    /// Only the first of them, by address: the code of the architecture
    #[arg(long)]
    first: Option<usize>,
    /// Only functions whose names match; `*` and `?` match characters
    #[arg(long = "function", value_name = "PATTERN", default_value = "*")]
    functions: Vec<String>,
    /// By kprobes, where the kernel accepts them
    #[arg(long)]
    kprobes: bool,
    /// Trace all functions, and what the kernel does on the way to the handlers of breakpoints
    #[arg(long)]
    traced: bool,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Outcome {
    probes: &'static str,
    kernel: String,
    guests: Vec<Report>,
    failures: Vec<String>,
}

/// Probes all of them, in one guest after the other.
///
/// # Errors
/// When a guest does not survive it, or too few places are attached.
pub fn run(arguments: &Arguments) -> Result<()> {
    let kernel = lab::kernel()?;
    let xk = lab::module(&kernel.release, "kernel/xk")?;
    let code = Code::new(&Image::from_vmlinuz(&kernel.vmlinuz, None)?)?;
    let mut all: BTreeMap<u64, Drawn> = BTreeMap::new();
    for pattern in &arguments.functions {
        let found = code.find(&Place::parse(&format!("{pattern}@body"), None)?)?;
        // By address, boot code comes last: nothing can be probed there.
        let found = found.iter().filter(|found| !matches!(found.reach, Reach::Nothing(_)));
        all.extend(found.map(|found| (found.address, line(&code, found))));
    }
    let all: Vec<Drawn> = all.into_values().collect();
    let all = all.get(..arguments.first.unwrap_or(usize::MAX).min(all.len())).unwrap_or_default();
    let (mut guests, mut failures) = (Vec::new(), Vec::new());
    for (number, some) in all.chunks(arguments.each.max(1)).enumerate() {
        eprintln!("probes: functions from {} of {}", number * arguments.each, all.len());
        match guest(&xk, some, arguments) {
            Ok(report) => {
                if report.attached * 100 < report.places * ATTACHED || report.hits == 0 || report.hotplugs == 0 {
                    failures.push(format!("functions from {}: {report:?}", number * arguments.each));
                }
                guests.push(report);
            }
            Err(error) => failures.push(format!("functions from {}: {error:#}", number * arguments.each)),
        }
    }
    let outcome = Outcome { probes: "everywhere", kernel: kernel.release, guests, failures };
    if arguments.json {
        println!("{}", serde_json::to_string(&outcome)?);
    }
    ensure!(outcome.failures.is_empty(), "{}", outcome.failures.join("\n"));
    Ok(())
}

fn guest(xk: &Path, some: &[Drawn], arguments: &Arguments) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("drawn");
    fs::write(&file, serde_json::to_vec(some)?)?;
    let script = format!(
        "exec {} inside probes everywhere --xk {} --drawn {}{}{}",
        std::env::current_exe()?.display(),
        xk.display(),
        file.display(),
        if arguments.kprobes { " --kprobes" } else { "" },
        if arguments.traced { " --traced" } else { "" }
    );
    let printed = lab::run_guest(&script, &["--memory", "2G", "--timeout", "3600", "--append", "tsc=reliable"])?;
    let last = printed.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))
}
