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
    rows: Vec<Row>,
}

/// Guest instructions per operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    op: String,
    base: f64,
    xk: f64,
    /// Of xk.ko at the calls only at which kprobes are, too.
    xk_same: f64,
    kprobe: f64,
    base_after: f64,
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
    rows: Vec<Row>,
    /// Mean over the rows of the share that our overhead has of that of kprobes at the same calls.
    overhead_ratio: f64,
    /// Rows without overhead of kprobes, which have no share.
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
        let base = |row: &Row| (row.base + row.base_after) / 2.0;
        // Less than an instruction is none.
        let (with, without): (Vec<&Row>, Vec<&Row>) =
            measured.rows.iter().partition(|row| row.kprobe - base(row) >= 1.0);
        let shares = with.iter().map(|row| (row.xk_same - base(row)) / (row.kprobe - base(row)));
        let overhead_ratio = rounded(shares.sum::<f64>() / with.len() as f64);
        let without_ratio = without.iter().map(|row| row.op.clone()).collect();
        let row = |row: &Row| Row {
            op: row.op.clone(),
            base: rounded(base(row)),
            xk: rounded(row.xk),
            xk_same: rounded(row.xk_same),
            kprobe: rounded(row.kprobe),
            base_after: rounded(row.base_after),
        };
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
            rows: measured.rows.iter().map(row).collect(),
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
                "  {:<20}{:>12.0}{:>12.0} xk{:>12.0} there{:>12.0} kprobes",
                row.op, row.base, row.xk, row.xk_same, row.kprobe
            );
        }
        _ = writeln!(text, "  {} of the overhead of kprobes, on average", self.overhead_ratio);
        text
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn measured(xk: f64) -> Measured {
        // What xk costs at calls without a kprobe is not compared.
        let row = |op: &str, kprobe: f64| Row {
            op: op.into(),
            base: 100.0,
            xk: xk + 500.0,
            xk_same: xk,
            kprobe,
            base_after: 100.0,
        };
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
            rows: vec![row("a", 200.0), row("b", 300.0), row("c", 100.0)],
        }
    }

    #[test]
    fn shares_are_means_of_rows_with_an_overhead() {
        let cfi = Cfi::new(measured(130.0), 3);
        assert_eq!((cfi.overhead_ratio, cfi.kprobes_sites), (0.225, 8));
        assert_eq!(cfi.without_ratio, ["c"]);
        assert!(cfi.missed_limits().is_empty());
        assert_eq!(
            Cfi::new(measured(160.0), 3).missed_limits(),
            ["cfi: 0.45 of the overhead of kprobes instead of 0.333"]
        );
        let unknown = Measured { unknown: BTreeMap::from([("a calls b".into(), 1)]), ..measured(130.0) };
        assert_eq!(Cfi::new(unknown, 3).missed_limits(), ["cfi: 1 kinds of calls of unknown functions"]);
    }
}
