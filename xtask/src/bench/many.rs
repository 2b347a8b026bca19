//! What many policies at once cost an application: instructions of a deterministic guest per
//! request to Redis, with policies of xk at sites on the request's path, by detours and by
//! kprobes, beside as many eBPF kprobes through perf at the same sites that write the same
//! register.
//!
//! The measuring is done by `bench/trigger/src/bin/many` inside the guest.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{ensure, Context, Result as Fallible};
use serde::{Deserialize, Serialize};

use super::{rounded, say, trigger};
use crate::lab;

/// The server's program, under the name that Debian's tools for Redis have it by.
const SERVER: &str = "/usr/bin/redis-check-rdb";
/// Of the extra instructions of eBPF kprobes, the share that ours should not exceed.
const LIMIT: f64 = 0.5;
/// Losses of throughput that the paper reports, in per cent, by how many are active.
const PAPER: [(u32, &str); 2] = [(32, "at most 4"), (128, "7 to 14")];

/// What the guest prints of one load: instructions per request.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Served {
    load: String,
    base: [f64; 2],
    xk: BTreeMap<u32, f64>,
    xk_kprobe: BTreeMap<u32, f64>,
    perf_bpf: BTreeMap<u32, f64>,
    triggers_per_request: BTreeMap<u32, f64>,
    missed: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Report {
    connections: u32,
    requests_per_round: u32,
    rounds: u32,
    sites: Vec<String>,
    served: BTreeMap<String, Served>,
}

/// One load; instructions per request by how many are active.
#[derive(Debug, Serialize)]
struct Load {
    load: String,
    base: f64,
    /// By detours.
    xk: BTreeMap<u32, f64>,
    xk_kprobe: BTreeMap<u32, f64>,
    perf_bpf: BTreeMap<u32, f64>,
    triggers_per_request: BTreeMap<u32, f64>,
    /// Extra instructions of ours as a share of those of eBPF kprobes; the limit is for detours.
    ratio: BTreeMap<u32, f64>,
    kprobe_ratio: BTreeMap<u32, f64>,
    /// Per cent of the requests in the same instructions that ours cost.
    xk_loss_percent: BTreeMap<u32, f64>,
    perf_bpf_loss_percent: BTreeMap<u32, f64>,
    /// Extra instructions per trigger.
    xk_per_trigger: BTreeMap<u32, f64>,
    perf_bpf_per_trigger: BTreeMap<u32, f64>,
    /// Executions that kprobes did not show to xk.
    missed: u64,
}

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    ycsb: Load,
    etc: Load,
    limit: f64,
    within_limits: bool,
    paper_loss_percent: BTreeMap<u32, &'static str>,
    connections: u32,
    requests_per_round: u32,
    rounds: u32,
    sites: Vec<String>,
}

/// Builds what is needed, boots one guest and measures in it.
pub fn run() -> Fallible<Result> {
    let kernel = lab::kernel()?;
    say("building the guest's programs");
    let xk = lab::module(&kernel.release, "kernel/xk")?;
    let kfunc = lab::module(&kernel.release, "kernel/bench")?;
    let program = trigger::build_program("xk-bench-many")?;
    let objects = trigger::compile_bpf()?;
    ensure!(std::path::Path::new(SERVER).exists(), "{SERVER} is missing: run `scripts/setup bench`");
    say(&format!("measuring in a deterministic guest on {}, some minutes", kernel.release));
    let script = format!(
        "insmod {} && insmod {} && exec {} {} {SERVER}",
        xk.display(),
        kfunc.display(),
        program.display(),
        objects.display()
    );
    let printed = lab::run_guest(&script, &["--icount", "--cpus", "1", "--timeout", "3600"])?;
    let last = printed.lines().last().unwrap_or_default();
    let report = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    result(kernel.release, report)
}

fn load(served: Served) -> Load {
    let base = (served.base[0] + served.base[1]) / 2.0;
    let map = |of: &BTreeMap<u32, f64>, f: &dyn Fn(u32, f64) -> f64| -> BTreeMap<u32, f64> {
        of.iter().map(|(&count, &cost)| (count, rounded(f(count, cost)))).collect()
    };
    let loss = |_, cost: f64| 100.0 * (1.0 - base / cost);
    let triggers = |count| served.triggers_per_request.get(&count).copied().unwrap_or(f64::NAN);
    let each = |count, cost: f64| (cost - base) / triggers(count);
    let perf = |count| served.perf_bpf.get(&count).copied().unwrap_or(f64::NAN);
    let ratio = |count, cost: f64| (cost - base) / (perf(count) - base);
    let same = |_, cost| cost;
    Load {
        load: served.load.clone(),
        base: rounded(base),
        xk: map(&served.xk, &same),
        xk_kprobe: map(&served.xk_kprobe, &same),
        perf_bpf: map(&served.perf_bpf, &same),
        triggers_per_request: map(&served.triggers_per_request, &same),
        ratio: map(&served.xk, &ratio),
        kprobe_ratio: map(&served.xk_kprobe, &ratio),
        xk_loss_percent: map(&served.xk, &loss),
        perf_bpf_loss_percent: map(&served.perf_bpf, &loss),
        xk_per_trigger: map(&served.xk, &each),
        perf_bpf_per_trigger: map(&served.perf_bpf, &each),
        missed: served.missed,
    }
}

fn result(kernel: String, mut report: Report) -> Fallible<Result> {
    let mut of = |name: &str| report.served.remove(name).map(load).with_context(|| format!("no load {name}"));
    let (ycsb, etc) = (of("ycsb")?, of("etc")?);
    let within = |load: &Load| !load.ratio.is_empty() && load.ratio.values().all(|&ratio| ratio <= LIMIT);
    Ok(Result {
        bench: "many",
        kernel,
        within_limits: within(&ycsb) && within(&etc),
        ycsb,
        etc,
        limit: LIMIT,
        paper_loss_percent: BTreeMap::from(PAPER),
        connections: report.connections,
        requests_per_round: report.requests_per_round,
        rounds: report.rounds,
        sites: report.sites,
    })
}

impl Result {
    /// An error that says which shares are beyond the limit, if any are.
    pub fn verdict(&self) -> Fallible<()> {
        let shares = |load: &Load| load.ratio.iter().map(|(count, ratio)| format!("{ratio} at {count}")).collect();
        let [ycsb, etc]: [Vec<String>; 2] = [shares(&self.ycsb), shares(&self.etc)];
        ensure!(
            self.within_limits,
            "of the extra instructions of as many eBPF kprobes, policies take more than {}: ycsb {}; etc {}",
            self.limit,
            ycsb.join(", "),
            etc.join(", ")
        );
        Ok(())
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!("Instructions per request to Redis, {}\n", self.kernel);
        for (name, load) in [("ycsb", &self.ycsb), ("etc", &self.etc)] {
            let _ = writeln!(text, "  {name}: {}; {:.0} by itself", load.load, load.base);
            let _ = writeln!(
                text,
                "  {:>8}{:>12}{:>10}{:>8}{:>10}{:>8}{:>8}{:>12}",
                "active", "triggers", "xk", "loss", "perf", "loss", "share", "by kprobes"
            );
            for count in load.xk.keys() {
                let of = |map: &BTreeMap<u32, f64>| map.get(count).copied().unwrap_or(f64::NAN);
                let _ = writeln!(
                    text,
                    "  {count:>8}{:>12.1}{:>10.0}{:>7.1}%{:>10.0}{:>7.1}%{:>8.2}{:>12.2}",
                    of(&load.triggers_per_request),
                    of(&load.xk),
                    of(&load.xk_loss_percent),
                    of(&load.perf_bpf),
                    of(&load.perf_bpf_loss_percent),
                    of(&load.ratio),
                    of(&load.kprobe_ratio)
                );
            }
        }
        let paper = self.paper_loss_percent.iter().map(|(count, loss)| format!("{loss} % at {count}"));
        let _ = writeln!(text, "  the paper's losses: {}", paper.collect::<Vec<_>>().join(", "));
        let _ = writeln!(text, "  {}within the share of {}", if self.within_limits { "" } else { "NOT " }, self.limit);
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use super::*;

    fn report(xk: f64) -> Report {
        let served = Served {
            load: "some".into(),
            base: [990.0, 1010.0],
            xk: BTreeMap::from([(8, xk)]),
            xk_kprobe: BTreeMap::from([(8, 1600.0)]),
            perf_bpf: BTreeMap::from([(8, 2000.0)]),
            triggers_per_request: BTreeMap::from([(8, 4.0)]),
            missed: 0,
        };
        let served = BTreeMap::from([("ycsb".to_owned(), served.clone()), ("etc".to_owned(), served)]);
        Report { connections: 1, requests_per_round: 1, rounds: 1, sites: Vec::new(), served }
    }

    #[test]
    fn shares_and_losses() {
        let result = result("k".into(), report(1250.0)).expect("two loads");
        let load = &result.etc;
        assert_eq!((load.base, load.ratio[&8], load.xk_per_trigger[&8]), (1000.0, 0.25, 62.5));
        assert_eq!(load.kprobe_ratio[&8], 0.6);
        assert_eq!((load.xk_loss_percent[&8], load.perf_bpf_loss_percent[&8]), (20.0, 50.0));
        assert!(result.within_limits && result.verdict().is_ok());
    }

    #[test]
    fn a_share_that_is_too_large_is_said() {
        let result = result("k".into(), report(1600.0)).expect("two loads");
        let verdict = result.verdict().expect_err("0.6 of it").to_string();
        assert!(verdict.contains("ycsb 0.6 at 8"), "{verdict}");
        assert!(result.table().contains("NOT within"));
    }

    #[test]
    fn a_load_that_is_missing() {
        let mut one = report(1250.0);
        one.served.remove("etc");
        assert!(super::result("k".into(), one).is_err());
    }
}
