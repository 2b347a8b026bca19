//! How long a change takes from the first system call until every thread uses it:
//! ours, and a livepatch of the same function, while TCP flows run; and ours by
//! number of threads, depth of calls, and rate of triggers.

use std::fmt::Write;

use anyhow::{ensure, Context, Result as Fallible};
use serde::Serialize;

use super::{rounded, say};
use crate::inside::transition::{Cell, Report};
use crate::lab;

/// What may be chosen.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// transition: TCP flows
    #[arg(long, default_value_t = 128)]
    flows: u32,
    /// transition: bits per second of each flow; 0: as many as there can be, which leaves
    /// an emulated guest no processor for anything else
    #[arg(long, default_value = "500K")]
    rate: String,
    /// transition: transitions of each kind
    #[arg(long, default_value_t = 15)]
    rounds: u32,
}

/// Share of a livepatch's time that ours may take.
const RATIO: f64 = 0.10;
/// Milliseconds that a median of the grid may have, by mode.
const LIMITS: [(&str, f64); 2] = [("task", 10.0), ("global", 144.0)];

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    function: &'static str,
    flows: u32,
    rate: String,
    rounds: u32,
    xk_median_ms: f64,
    /// ... without the load.
    xk_transition_median_ms: f64,
    xk_now_median_ms: f64,
    livepatch_median_ms: f64,
    ratio: f64,
    ratio_limit: f64,
    xk_ms: Vec<f64>,
    livepatch_ms: Vec<f64>,
    /// Updates, and calls of the replacement.
    reached: [u64; 2],
    grid: Vec<Cell>,
    missed_limits: Vec<String>,
}

/// Builds what is needed, boots one guest and measures in it.
pub fn run(options: &Options) -> Fallible<Result> {
    let kernel = lab::kernel()?;
    let [xk, atomic, livepatch] = ["kernel/xk", "kernel/atomic", "kernel/livepatch"]
        .map(|folder| lab::module(&kernel.release, folder).map(|path| path.display().to_string()));
    let (xk, atomic, livepatch) = (xk?, atomic?, livepatch?);
    say(&format!("{} flows in a guest on {}", options.flows, kernel.release));
    let script = format!(
        "insmod {xk} && insmod {atomic} && exec {} inside transition --atomic {atomic} --livepatch {livepatch} \
         --flows {} --rate {} --rounds {}",
        std::env::current_exe()?.display(),
        options.flows,
        options.rate,
        options.rounds
    );
    let printed = lab::run_guest(&script, &["--timeout", "3600"])?;
    let last = printed.lines().last().unwrap_or_default();
    let report: Report = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    Ok(result(kernel.release, options, report))
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    rounded(sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN))
}

fn result(kernel: String, options: &Options, report: Report) -> Result {
    let (ours, theirs) = (median(&report.xk), median(&report.livepatch));
    let round = |times: &[f64]| times.iter().map(|&time| rounded(time)).collect();
    let mut grid = report.grid;
    for cell in &mut grid {
        for figure in [&mut cell.per_second, &mut cell.median_ms, &mut cell.max_ms, &mut cell.stops] {
            *figure = rounded(*figure);
        }
    }
    let ratio = rounded(ours / theirs);
    let mut missed_limits = Vec::new();
    if ratio > RATIO {
        missed_limits.push(format!("{ratio} of a livepatch's time instead of {RATIO}"));
    }
    for (mode, limit) in LIMITS {
        for cell in grid.iter().filter(|cell| cell.mode == mode && cell.median_ms > limit) {
            missed_limits.push(format!(
                "mode {mode}, {} threads, depth {}: {} ms instead of {limit}",
                cell.threads, cell.depth, cell.median_ms
            ));
        }
    }
    Result {
        bench: "transition",
        kernel,
        function: "tcp_sendmsg",
        flows: report.flows,
        rate: options.rate.clone(),
        rounds: options.rounds,
        xk_median_ms: ours,
        xk_transition_median_ms: median(&report.xk_transition),
        xk_now_median_ms: median(&report.xk_now),
        livepatch_median_ms: theirs,
        ratio,
        ratio_limit: RATIO,
        xk_ms: round(&report.xk),
        livepatch_ms: round(&report.livepatch),
        reached: report.reached,
        grid,
        missed_limits,
    }
}

impl Result {
    /// An error that says which limits were missed, if any were.
    pub fn verdict(&self) -> Fallible<()> {
        ensure!(self.missed_limits.is_empty(), "beyond their limits: {}", self.missed_limits.join("; "));
        Ok(())
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} with {} flows, {}, medians of {}\n  xk, task mode      {:>10} ms, of which {} ms transition\n  \
             xk, mode now       {:>10} ms\n  livepatch          {:>10} ms\n  ratio              {:>10}\n",
            self.function,
            self.flows,
            self.kernel,
            self.rounds,
            self.xk_median_ms,
            self.xk_transition_median_ms,
            self.xk_now_median_ms,
            self.livepatch_median_ms,
            self.ratio
        );
        let _ = writeln!(
            text,
            "  {:<8}{:>8}{:>7}{:>12}{:>12}{:>12}{:>8}",
            "mode", "threads", "depth", "per second", "median ms", "max ms", "stops"
        );
        for cell in &self.grid {
            let _ = writeln!(
                text,
                "  {:<8}{:>8}{:>7}{:>12}{:>12}{:>12}{:>8}",
                cell.mode, cell.threads, cell.depth, cell.per_second, cell.median_ms, cell.max_ms, cell.stops
            );
        }
        text
    }
}
