//! `xk sched top`: what policies do. While it runs, the kernel counts how long threads wait.
//!
//! In: two samples of the kernel, and the time between them. Out: text, once for each sample.

use std::fs;
use std::time::Instant;

use xk_sched::{Device, Policy, Stats};

use super::super::top::Sampling;
use crate::exit::Result;
use crate::output::Columns;

/// Arguments of `xk sched top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
q quits. READY threads wait for a CPU now. MOVES are threads that were chosen for another CPU than before. WAITS is the mean
time from ready to running. The line below each policy counts these times since the last sample: `8us: 3` are three of 8 to
16 us.")]
pub struct Args {
    #[command(flatten)]
    sampling: Sampling,
}

struct Look {
    at: Instant,
    policies: Vec<Policy>,
    stats: Vec<Stats>,
    /// Ticks of all CPUs that were idle, and all ticks.
    idle: (u64, u64),
}

/// Shows samples until the user quits.
pub fn run(args: &Args) -> Result {
    let device = Device::open_to_read()?;
    let take = || {
        let (stats, policies) = (device.stats()?, device.policies()?);
        Ok(Look { at: Instant::now(), policies, stats, idle: idle() })
    };
    args.sampling.show(take, text)
}

fn idle() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).map(|word| word.parse().unwrap_or(0)).collect();
    (ticks.iter().skip(3).take(2).sum(), ticks.iter().sum())
}

fn text(before: &Look, now: &Look) -> String {
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    let (idle, all) = (now.idle.0.saturating_sub(before.idle.0), now.idle.1.saturating_sub(before.idle.1));
    let share = (idle * 100).checked_div(all).unwrap_or(0);
    let mut text = format!("{seconds:.2} s since the last sample; CPUs idle {share} %\n");
    let mut columns = Columns::default();
    columns.row(["POLICY", "THREADS", "READY", "SWITCHES/S", "MOVES/S", "WAITS"].map(str::to_owned));
    let mut times = Vec::new();
    for policy in &now.policies {
        let of = |look: &Look| look.stats.iter().find(|stats| stats.name == policy.name).cloned();
        let switched = before.policies.iter().find(|earlier| earlier.name == policy.name);
        let (Some(earlier), Some(stats), Some(switched)) = (of(before), of(now), switched) else { continue };
        let rate = |now: u64, before: u64| format!("{:.0}", now.saturating_sub(before) as f64 / seconds);
        let waits: Vec<u64> =
            stats.waits.iter().zip(&earlier.waits).map(|(now, before)| now.saturating_sub(*before)).collect();
        let number: u64 = waits.iter().sum();
        let waited = stats.waited.saturating_sub(earlier.waited).as_nanos();
        columns.row([
            policy.name.clone(),
            policy.threads.to_string(),
            policy.ready.to_string(),
            rate(policy.switches, switched.switches),
            rate(stats.moves, earlier.moves),
            if number == 0 { "-".to_owned() } else { time((waited / u128::from(number)) as u64) },
        ]);
        times.push(format!("{}: {}\n", policy.name, histogram(&waits)));
    }
    text += &columns.lines("");
    text + &times.concat()
}

/// `8us: 3, 16us: 1`
fn histogram(waits: &[u64]) -> String {
    let used = waits.iter().enumerate().filter(|(_, &times)| times > 0);
    let bucket = |(n, times): (usize, &u64)| format!("{}: {times}", time(if n == 0 { 0 } else { 1 << (n - 1) }));
    let all = used.map(bucket).collect::<Vec<_>>().join(", ");
    if all.is_empty() {
        "no thread waited".to_owned()
    } else {
        all
    }
}

/// In a unit that has few digits.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ => format!("{}s", ns / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_names_the_shortest_time_of_each_bucket() {
        let mut waits = vec![0; 40];
        (waits[0], waits[3], waits[14], waits[25]) = (1, 2, 3, 4);
        assert_eq!(histogram(&waits), "0ns: 1, 4ns: 2, 8us: 3, 16ms: 4");
        assert_eq!(histogram(&[0; 40]), "no thread waited");
    }
}
