//! What policies of `xk_sched.ko` gain, each on what it is for: a latency-critical server beside batch work under `latency`,
//! and three policies at once, each with its own work. One run in an emulated guest with four CPUs, where a nanosecond is an
//! instruction of any of them; only ratios mean anything elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{ensure, Context, Result as Fallible};
use serde::Serialize;

use super::{rounded, say};
use crate::inside::sched_effect::Outcome;
use crate::lab;
use crate::sched_faults::{modules, KERNEL};

/// How much better the server must be under `latency`, and how much less throughput may be.
const GAIN: f64 = 2.0;
const LOSS: f64 = 0.97;
/// What five levels of nice mean: 3.05. Not exactly, in so short a run.
const NICE_5: std::ops::Range<f64> = 2.3..4.0;

/// All that is measured: name, and arguments of `inside sched-effect`. In both cases, the threads are the same.
const SERVER: &str = "--requests 100 --interval 200000 --part 1200000 --threads 16";
const THREE: &str =
    "--requests 100 --interval 200000 --part 400000 --threads 8 --nicer 4 --pin --nr-pairs 2 --nice -10";
const RUNS: [(&str, &str, &str); 6] = [
    ("eevdf", SERVER, "--server fair --batch fair"),
    ("eevdf_nice_10", SERVER, "--server fair --batch fair --nice -10"),
    ("eevdf_nice_20", SERVER, "--server fair --batch fair --nice -20"),
    ("latency", SERVER, "--server latency --batch latency --nice -10"),
    ("three_eevdf", THREE, "--server fair --batch fair --pairs fair"),
    // Of the threads that compute, each CPU has one of both nice values.
    ("three_policies", THREE, "--server latency --batch weighted --pairs rr"),
];
/// Of the three policies. Pairs compute little.
const WEIGHTS: [(&str, u32); 3] = [("latency", 10_000), ("weighted", 100), ("rr", 100)];

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    /// Latencies in microseconds; the rest in a second.
    runs: BTreeMap<String, Outcome>,
    /// p99 of the server under EEVDF, divided by that under `latency`: with the same nice values for all threads, with
    /// those that the policy goes by, and with the best.
    p99_gain: f64,
    p99_gain_nice_10: f64,
    p99_gain_nice_20: f64,
    /// Requests, and batch work, under `latency`, divided by those under EEVDF.
    served: f64,
    batch: f64,
    /// Three policies against EEVDF with the same nice values.
    three_p99_gain: f64,
    three_served: f64,
    three_trips: f64,
    three_batch: f64,
    /// Under three policies: work of threads that compute, divided by that of those with nice 5.
    three_nice_5: f64,
}

/// Boots one guest, and runs everything there.
pub fn run() -> Fallible<Result> {
    let kernel = lab::kernel_named(KERNEL)?;
    let out = tempfile::tempdir()?;
    let build = modules(&kernel.release, out.path())?.display().to_string();
    let this = std::env::current_exe()?.display().to_string();
    let xk = lab::xk()?.display().to_string();
    let mut script = format!("set -e; insmod {build}/xk_sched.ko\n");
    for (name, weight) in WEIGHTS {
        let _ = writeln!(script, "insmod {build}/xk_sched_{name}.ko; {xk} sched weight {name} {weight} >/dev/null");
    }
    for (name, work, how) in RUNS {
        let _ = writeln!(script, "echo {name} $({this} inside sched-effect {work} {how})");
    }
    let _ = writeln!(script, "{xk} sched status >&2; ! {xk} sched list | grep -q ejected");
    say(&format!("a server beside other work in an emulated guest on {}", kernel.release));
    let guest = out.path().join("guest");
    fs::create_dir(&guest)?;
    // The emulator changes to the next CPU at each tick: with their ticks at different times, four times as often.
    let options =
        ["--cpus", "4", "--append", "skew_tick=1", "--qemu-opt=-icount shift=0,sleep=off", "--timeout", "1800"];
    let ended = lab::run_on(KERNEL, &script, &options, &guest)?;
    ensure!(ended.verdict == "finished" && ended.command_exit == Some(0), "the guest failed; see its output above");
    result(kernel.release, &ended.printed)
}

fn result(kernel: String, printed: &str) -> Fallible<Result> {
    let mut runs = BTreeMap::new();
    for (name, json) in printed.lines().filter_map(|line| line.split_once(' ')) {
        runs.insert(name.to_owned(), serde_json::from_str::<Outcome>(json).with_context(|| json.to_owned())?);
    }
    let of = |name: &str| runs.get(name).copied().with_context(|| format!("{name} was not measured: {printed}"));
    let (eevdf, latency) = (of("eevdf")?, of("latency")?);
    let (three, policies) = (of("three_eevdf")?, of("three_policies")?);
    let gain = |slow: Outcome, fast: Outcome| rounded(slow.p99 as f64 / fast.p99 as f64);
    let all = |outcome: Outcome| outcome.batch + outcome.nicer;
    Ok(Result {
        bench: "sched-effect",
        kernel,
        p99_gain: gain(eevdf, latency),
        p99_gain_nice_10: gain(of("eevdf_nice_10")?, latency),
        p99_gain_nice_20: gain(of("eevdf_nice_20")?, latency),
        served: rounded(latency.served / eevdf.served),
        batch: rounded(latency.batch / eevdf.batch),
        three_p99_gain: gain(three, policies),
        three_served: rounded(policies.served / three.served),
        three_trips: rounded(policies.trips / three.trips),
        three_batch: rounded(all(policies) / all(three)),
        three_nice_5: rounded(policies.batch / policies.nicer),
        runs,
    })
}

impl Result {
    /// An error when a policy is not better on what it is for, or work beside it suffers.
    pub fn verdict(&self) -> Fallible<()> {
        ensure!(self.p99_gain >= GAIN, "the server's p99 is better by {} only, not by {GAIN}", self.p99_gain);
        ensure!(self.served >= LOSS && self.batch >= LOSS, "throughput is {} and {}", self.served, self.batch);
        ensure!(
            NICE_5.contains(&self.three_nice_5),
            "five levels of nice are a factor of {} under weighted",
            self.three_nice_5
        );
        ensure!(self.three_trips > 0.0 && self.three_served >= LOSS, "work of one policy keeps another from its own");
        Ok(())
    }

    /// For people.
    pub fn table(&self) -> String {
        let head = ["run", "p50 us", "p99 us", "served/s", "batch/s", "nice 5/s", "trips/s"];
        let mut text = format!(
            "{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
            head[0], head[1], head[2], head[3], head[4], head[5], head[6]
        );
        for (name, _, _) in RUNS {
            let run = &self.runs[name];
            let _ = writeln!(
                text,
                "{name:<16}{:>10}{:>10}{:>10.2}{:>10.0}{:>10.0}{:>10.0}",
                run.p50, run.p99, run.served, run.batch, run.nicer, run.trips
            );
        }
        let _ = writeln!(
            text,
            "p99 of EEVDF / latency: {} (nice -10: {}, nice -20: {}); served {}, batch {}",
            self.p99_gain, self.p99_gain_nice_10, self.p99_gain_nice_20, self.served, self.batch
        );
        let _ = writeln!(
            text,
            "three policies: p99 of EEVDF / latency {}, served {}, trips {}, batch {}, nice 0 / nice 5 {}",
            self.three_p99_gain, self.three_served, self.three_trips, self.three_batch, self.three_nice_5
        );
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use super::*;

    fn printed(p99: u64, batch: f64, nicer: f64) -> String {
        let line = |name: &str, p99, batch, nicer| {
            let run = Outcome { p50: 1, p99, max: p99, served: 5.0, batch, nicer, trips: 10.0 };
            format!("{name} {}\n", serde_json::to_string(&run).expect("JSON"))
        };
        let fair: String = RUNS.iter().map(|(name, _, _)| line(name, 100, 30.0, 10.0)).collect();
        fair + &line("latency", p99, batch, 0.0) + &line("three_policies", 50, 30.0, nicer)
    }

    #[test]
    fn limits() {
        let verdict = |p99, batch, nicer| result("k".into(), &printed(p99, batch, nicer)).expect("all").verdict();
        assert!(verdict(50, 30.0, 10.0).is_ok());
        assert!(verdict(51, 30.0, 10.0).is_err(), "not better enough");
        assert!(verdict(10, 29.0, 10.0).is_err(), "batch pays for it");
        assert!(verdict(10, 30.0, 30.0).is_err(), "nice values mean nothing");
    }

    #[test]
    fn what_was_not_measured_is_an_error() {
        assert!(result("k".into(), "").is_err());
        assert!(result("k".into(), "eevdf failed\n").is_err());
    }
}
