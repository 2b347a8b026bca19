//! What checking every indirect call of vmlinux costs (`cases/cfi`), as the guest measures it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result as Fallible};
use serde::{Deserialize, Serialize};
use xk_policy::{compile, Headers};

use super::places::Code;
use crate::bench::rounded;
use crate::lab;

/// The case's program.
const PROGRAM: &str = "cases/cfi/count.bpf.c";
/// Share of the overhead of kprobes that ours may have, on average over the rows.
pub const LIMIT: f64 = 1.0 / 3.0;

/// An overhead of kprobes has a share if it is so many times the noise.
const NOISE: f64 = 4.0;

/// What the guest prints.
#[derive(Debug, Clone, Deserialize)]
pub struct Measured {
    sites: usize,
    jumps: u32,
    functions: usize,
    attach_seconds_guest: f64,
    detach_seconds_guest: f64,
    checked: u64,
    skipped: u64,
    executed_sites: usize,
    kprobes_refused: usize,
    kprobes_harmful: usize,
    kprobes_attach_seconds_guest: f64,
    unknown: BTreeMap<String, u64>,
    rounds: usize,
    cycles: usize,
    rows: Vec<Cycles>,
}

/// Guest instructions per operation, in each cycle of the measurement.
#[derive(Debug, Clone, Deserialize)]
struct Cycles {
    op: String,
    xk_all: f64,
    /// Before each cycle, and after the last one.
    base: Vec<f64>,
    xk: Vec<f64>,
    kprobe: Vec<f64>,
}

/// Guest instructions per operation: medians over the cycles.
#[derive(Debug, Serialize)]
struct Row {
    op: String,
    base: f64,
    /// Of xk.ko at all calls.
    xk_all: f64,
    /// In addition to the base before and after it: of xk.ko at the calls only at which kprobes are, too, and of these.
    xk: f64,
    kprobe: f64,
    /// What the base changes by itself, from one to the next, or what an overhead changes from cycle to cycle.
    noise: f64,
    /// Of the overhead of kprobes; nothing if that does not stand out of the noise.
    share: Option<f64>,
}

impl Row {
    fn new(cycles: &Cycles) -> Self {
        // The overhead, and what it differs from that in a cycle.
        let around = |all: &[f64]| {
            let bases = cycles.base.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
            let added: Vec<f64> = all.iter().zip(bases).map(|(one, base)| one - base).collect();
            let middle = median(added.iter().copied());
            (middle, median(added.iter().map(|one| (one - middle).abs())))
        };
        let drift = median(cycles.base.windows(2).map(|pair| (pair[1] - pair[0]).abs()));
        let ((xk, of_xk), (kprobe, of_kprobe)) = (around(&cycles.xk), around(&cycles.kprobe));
        let noise = drift.max(of_xk).max(of_kprobe);
        // Less than an instruction is nothing.
        let share = (kprobe >= (NOISE * noise).max(1.0)).then(|| rounded(xk / kprobe));
        Self {
            op: cycles.op.clone(),
            base: rounded(median(cycles.base.iter().copied())),
            xk_all: rounded(cycles.xk_all),
            xk: rounded(xk),
            kprobe: rounded(kprobe),
            noise: rounded(noise),
            share,
        }
    }
}

/// A part of the result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Cfi {
    sites: usize,
    jumps: u32,
    /// Indirect calls that nothing can probe.
    left_out: usize,
    /// Functions whose address is taken.
    functions: usize,
    attach_seconds_guest: f64,
    detach_seconds_guest: f64,
    /// Calls that were checked, and calls inside of another eBPF program.
    checked: u64,
    skipped: u64,
    /// Kprobes are only at the sites that the benchmarks execute, as counted by xk.
    kprobes_sites: usize,
    kprobes_refused: usize,
    /// Calls with a prefix, after which kprobes of Linux 6.12 return into the middle of an instruction: left out.
    kprobes_harmful: usize,
    kprobes_attach_seconds_guest: f64,
    /// Calls of functions that nothing refers to.
    unknown: BTreeMap<String, u64>,
    rounds: usize,
    cycles: usize,
    rows: Vec<Row>,
    /// Mean over the rows of the share that our overhead has of that of kprobes at the same calls.
    overhead_ratio: f64,
    /// Rows whose overhead of kprobes does not stand out of the noise.
    without_ratio: Vec<String>,
    limit: f64,
}

/// Files for the guest: the program, the calls, the functions whose address is taken. And how many calls are left out.
///
/// # Errors
/// When the program does not compile.
pub fn prepare(code: &Code, kernel: &lab::Kernel, folder: &Path) -> Fallible<([PathBuf; 3], usize)> {
    let types = kernel.root.join(format!("usr/src/linux-headers-{}/vmlinux", kernel.release));
    let headers = Headers::new(&types, folder, "cfi")?;
    let files = ["cfi.bpf.o", "calls", "functions"].map(|name| folder.join(name));
    let object = compile(&lab::repository()?.join(PROGRAM), &headers).context(PROGRAM)?;
    fs::write(&files[0], object)?;
    let (calls, left_out) = code.calls()?;
    fs::write(&files[1], calls)?;
    fs::write(&files[2], code.taken()?)?;
    Ok((files, left_out))
}

impl Cfi {
    /// With the share of kprobes' overhead.
    pub fn new(measured: Measured, left_out: usize) -> Self {
        let rows: Vec<Row> = measured.rows.iter().map(Row::new).collect();
        let shares: Vec<f64> = rows.iter().filter_map(|row| row.share).collect();
        let overhead_ratio = rounded(shares.iter().sum::<f64>() / shares.len() as f64);
        let without_ratio = rows.iter().filter(|row| row.share.is_none()).map(|row| row.op.clone()).collect();
        Self {
            sites: measured.sites,
            jumps: measured.jumps,
            left_out,
            functions: measured.functions,
            attach_seconds_guest: rounded(measured.attach_seconds_guest),
            detach_seconds_guest: rounded(measured.detach_seconds_guest),
            checked: measured.checked,
            skipped: measured.skipped,
            kprobes_sites: measured.executed_sites - measured.kprobes_refused - measured.kprobes_harmful,
            kprobes_refused: measured.kprobes_refused,
            kprobes_harmful: measured.kprobes_harmful,
            kprobes_attach_seconds_guest: rounded(measured.kprobes_attach_seconds_guest),
            unknown: measured.unknown,
            rounds: measured.rounds,
            cycles: measured.cycles,
            rows,
            overhead_ratio,
            without_ratio,
            limit: LIMIT,
        }
    }

    /// The limits that are exceeded, in words.
    pub fn missed_limits(&self) -> Vec<String> {
        let mut missed = Vec::new();
        // Without any row it is not a number.
        if self.overhead_ratio.is_nan() || self.overhead_ratio > LIMIT {
            missed.push(format!("cfi: {} of the overhead of kprobes instead of {LIMIT:.3}", self.overhead_ratio));
        }
        if !self.unknown.is_empty() {
            missed.push(format!("cfi: {} kinds of calls of unknown functions", self.unknown.len()));
        }
        missed
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "Every indirect call of vmlinux is checked: {} sites, {} by a jump; kprobes at {} that are executed, and xk there\n",
            self.sites, self.jumps, self.kprobes_sites
        );
        for row in &self.rows {
            _ = writeln!(
                text,
                "  {:<20}{:>12.0}{:>+12.0} xk{:>+12.0} kprobes{:>8}",
                row.op,
                row.base,
                row.xk,
                row.kprobe,
                row.share.map_or("-".into(), |share| share.to_string())
            );
        }
        _ = writeln!(text, "  {} of the overhead of kprobes, on average", self.overhead_ratio);
        text
    }
}

fn median(all: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn measured(xk: f64) -> Measured {
        // What xk costs at calls without a kprobe is not compared. The base drifts, and once jumps.
        let row = |op: &str, kprobe: f64| Cycles {
            op: op.into(),
            xk_all: xk + 500.0,
            base: vec![100.0, 102.0, 104.0, 150.0],
            xk: [101.0, 103.0, 127.0].map(|base| base + xk).to_vec(),
            kprobe: [101.0, 103.0, 127.0].map(|base| base + kprobe).to_vec(),
        };
        // In one cycle of three, less is done than without anything; in another one, as much.
        let unsteady = Cycles { xk: vec![51.0, 103.0, 177.0], ..row("d", 100.0) };
        Measured {
            sites: 9,
            jumps: 9,
            functions: 9,
            attach_seconds_guest: 1.0,
            detach_seconds_guest: 1.0,
            checked: 1,
            skipped: 0,
            executed_sites: 9,
            kprobes_refused: 1,
            kprobes_harmful: 0,
            kprobes_attach_seconds_guest: 1.0,
            unknown: BTreeMap::new(),
            rounds: 1,
            cycles: 3,
            rows: vec![row("a", 100.0), row("b", 200.0), row("c", 7.0), unsteady],
        }
    }

    #[test]
    fn shares_are_means_of_rows_whose_overhead_stands_out() {
        let cfi = Cfi::new(measured(30.0), 3);
        assert_eq!((cfi.overhead_ratio, cfi.kprobes_sites), (0.225, 8));
        assert_eq!((cfi.rows[0].base, cfi.rows[0].noise), (104.0, 2.0));
        assert_eq!(cfi.without_ratio, ["c", "d"], "less than four times the noise");
        assert!(cfi.missed_limits().is_empty());
        assert_eq!(
            Cfi::new(measured(60.0), 3).missed_limits(),
            ["cfi: 0.45 of the overhead of kprobes instead of 0.333"]
        );
        let unknown = Measured { unknown: BTreeMap::from([("a calls b".into(), 1)]), ..measured(30.0) };
        assert_eq!(Cfi::new(unknown, 3).missed_limits(), ["cfi: 1 kinds of calls of unknown functions"]);
    }
}
