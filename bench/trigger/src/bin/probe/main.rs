//! Measures, inside a deterministic guest, what one execution of a probe costs in instructions,
//! and how long it takes to attach many: probes of xk.ko, eBPF kprobes through perf, fentry, and
//! kprobe-multi.
//!
//! In: the objects of `bpf/`, files of places, and xk.ko, which is not loaded. Out: one JSON object
//! on the last line. Refuses to report a figure whose mechanism did not run: every probe must be of
//! the kind that it is said to be, and its program have run once per write.

mod attach;
mod cost;
mod places;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_bench_trigger::measure::{Writer, ROUNDS, WRITES};
use xk_runtime::Device;

use attach::Attached;
use cost::{Bench, Costs};
use places::Places;

#[derive(Debug, Serialize)]
struct Report {
    writes_per_round: u32,
    rounds: usize,
    /// Instructions per write: without xk.ko; with it, before and after everything else.
    baseline: [f64; 3],
    #[serde(flatten)]
    costs: Costs,
    attach: Attached,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let mut next = || arguments.next().context("usage: xk-bench-probe OBJECTS PLACES SITES KPROBES XK.KO");
    let (objects, places, sites, kprobes, module) = (next()?, next()?, next()?, next()?, next()?);
    let kprobes: usize = kprobes.to_str().unwrap_or_default().parse().context("KPROBES")?;
    let places = Places::read(&places)?;
    let sites = places::sites(&sites)?;
    let kprobes = sites.get(..kprobes).context("more kprobes than sites")?;
    let writer = Writer::new()?;
    let without = writer.median()?;
    insert(&module)?;
    let device = Device::open()?;
    let before = writer.median()?;
    let bench = Bench::new(&writer, &device, &objects, &places, before)?;
    let costs = bench.costs()?;
    let attach = attach::attach(&device, &objects, &sites, kprobes)?;
    let after = writer.median()?;
    ensure!((after - before).abs() < 1.0, "the cost of a write itself drifted from {before} to {after} instructions");
    let report = Report { writes_per_round: WRITES, rounds: ROUNDS, baseline: [without, before, after], costs, attach };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn insert(module: &Path) -> Result<()> {
    let done = Command::new("insmod").arg(module).status().context("insmod")?;
    ensure!(done.success(), "insmod {} failed", module.display());
    Ok(())
}
