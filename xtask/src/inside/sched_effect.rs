//! A latency-critical server, threads that compute, and pairs of threads that communicate. Of the server, each request is done by several workers at once, and takes until the last of
//! them has done its part. Requests come when they come, whether or not those before are done.

use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{sleep, spawn, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_harness::sched::confine;
use xk_sched::{Device, Who};

/// Of the guest.
const CPUS: usize = 4;
/// Of the server: as many as CPUs.
const WORKERS: usize = CPUS;
/// Requests begin after this time, when all threads run.
const LEAD: Duration = Duration::from_millis(1000);

/// Arguments of `inside sched-effect`.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The policies of workers, of threads that compute, and of pairs; `fair`: none
    #[arg(long)]
    server: String,
    #[arg(long)]
    batch: String,
    #[arg(long, default_value = "fair")]
    pairs: String,
    /// The nice value of the workers
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    nice: i32,
    /// Threads that compute, and of these, how many with the nice value 5
    #[arg(long, default_value_t = 16)]
    threads: usize,
    #[arg(long, default_value_t = 0)]
    nicer: usize,
    /// One after the other stays on one CPU
    #[arg(long)]
    pin: bool,
    /// Pairs of threads that send a byte to and fro
    #[arg(long, default_value_t = 0)]
    nr_pairs: usize,
    /// Requests
    #[arg(long, default_value_t = 300)]
    requests: usize,
    /// Turns of a loop in each part, and microseconds until the next request comes
    #[arg(long, default_value_t = 60_000)]
    part: u64,
    #[arg(long, default_value_t = 20_000)]
    interval: u64,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Latencies of requests, in microseconds.
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
    /// In a second: requests, units of work of threads that compute, of those with nice 5, and round trips.
    pub served: f64,
    pub batch: f64,
    pub nicer: f64,
    pub trips: f64,
}

/// What is counted until it is over.
#[derive(Debug, Default)]
struct Counts {
    batch: AtomicU64,
    nicer: AtomicU64,
    trips: AtomicU64,
    over: AtomicBool,
}

impl Counts {
    fn read(&self) -> [u64; 3] {
        [&self.batch, &self.nicer, &self.trips].map(|count| count.load(Ordering::Relaxed))
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// So many turns of a loop.
fn compute(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

fn choose(policy: &str) -> Result<()> {
    if policy != xk_sched::FAIR {
        Device::open()?.choose(policy, Who::Caller)?;
    }
    Ok(())
}

fn set_nice(nice: i32) -> Result<()> {
    // SAFETY: takes and returns numbers; 0 is the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    ensure!(result == 0, "nice {nice}: {}", std::io::Error::last_os_error());
    Ok(())
}

/// When requests come: 0.5 to 1.5 intervals after each other, the same each time.
fn arrivals(arguments: &Arguments) -> Vec<Duration> {
    let mut at = LEAD;
    (0..arguments.requests as u64)
        .map(|nr| {
            let part = nr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
            at += Duration::from_micros(arguments.interval / 2 + arguments.interval * part / 1024);
            at
        })
        .collect()
}

/// Says when it has done its part of each request, after `begin`.
fn worker(arguments: &Arguments, begin: Instant, arrivals: &[Duration]) -> Result<Vec<Duration>> {
    set_nice(arguments.nice)?;
    choose(&arguments.server)?;
    let mut done = Vec::with_capacity(arrivals.len());
    for &at in arrivals {
        sleep(at.saturating_sub(begin.elapsed()));
        compute(arguments.part);
        done.push(begin.elapsed());
    }
    Ok(done)
}

/// Computes until it is over.
fn compute_on(arguments: &Arguments, counts: &Counts, nr: usize) -> Result<()> {
    let nicer = nr < arguments.nicer;
    if arguments.pin {
        confine(&[nr % CPUS]);
    }
    if nicer {
        set_nice(5)?;
    }
    choose(&arguments.batch)?;
    while !counts.is_over() {
        compute(10_000);
        if nicer { &counts.nicer } else { &counts.batch }.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Sends a byte, and waits for its return, until it is over.
fn ask(arguments: &Arguments, counts: &Counts, mut other: UnixStream) -> Result<()> {
    choose(&arguments.pairs)?;
    let mut byte = [0];
    while !counts.is_over() {
        other.write_all(&byte)?;
        other.read_exact(&mut byte)?;
        counts.trips.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn answer(arguments: &Arguments, mut other: UnixStream) -> Result<()> {
    choose(&arguments.pairs)?;
    let mut byte = [0];
    while other.read(&mut byte)? == 1 {
        other.write_all(&byte)?;
    }
    Ok(())
}

type Handle<T> = JoinHandle<Result<T>>;

fn joined<T>(handle: Handle<T>) -> Result<T> {
    handle.join().map_err(|_| anyhow!("a thread panicked"))?
}

/// The threads beside the server.
fn others(arguments: &Arc<Arguments>, counts: &Arc<Counts>) -> Result<Vec<Handle<()>>> {
    let mut threads = Vec::new();
    for nr in 0..arguments.threads {
        let (arguments, counts) = (Arc::clone(arguments), Arc::clone(counts));
        threads.push(spawn(move || compute_on(&arguments, &counts, nr)));
    }
    for _ in 0..arguments.nr_pairs {
        let (one, other) = UnixStream::pair()?;
        let (own, counts) = (Arc::clone(arguments), Arc::clone(counts));
        threads.push(spawn(move || ask(&own, &counts, one)));
        let own = Arc::clone(arguments);
        threads.push(spawn(move || answer(&own, other)));
    }
    Ok(threads)
}

/// Runs all of them, and says what came of it.
pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let (arguments, counts) = (Arc::new(arguments.clone()), Arc::new(Counts::default()));
    let arrivals = Arc::new(arrivals(&arguments));
    let threads = others(&arguments, &counts)?;
    let begin = Instant::now();
    let worker = |_| {
        let (arguments, arrivals) = (Arc::clone(&arguments), Arc::clone(&arrivals));
        spawn(move || worker(&arguments, begin, &arrivals))
    };
    let workers: Vec<_> = (0..WORKERS).map(worker).collect();
    sleep(LEAD.saturating_sub(begin.elapsed()));
    let (before, from) = (counts.read(), begin.elapsed());
    let done = workers.into_iter().map(joined).collect::<Result<Vec<_>>>()?;
    let (after, to) = (counts.read(), begin.elapsed());
    counts.over.store(true, Ordering::Relaxed);
    threads.into_iter().try_for_each(joined)?;
    let seconds = (to - from).as_secs_f64();
    let rate = |index: usize| (after[index] - before[index]) as f64 / seconds;
    let [p50, p99, max] = latencies(&arrivals, &done)?;
    let served = arrivals.len() as f64 / seconds;
    Ok(Outcome { p50, p99, max, served, batch: rate(0), nicer: rate(1), trips: rate(2) })
}

/// In microseconds: the median, that of 99 of 100, and the longest, from when a request came until its last part was done.
fn latencies(arrivals: &[Duration], done: &[Vec<Duration>]) -> Result<[u64; 3]> {
    let last = |request: usize| done.iter().filter_map(|times| times.get(request)).max();
    let of = |(request, at): (usize, &Duration)| Some(last(request)?.saturating_sub(*at).as_micros() as u64);
    let mut sorted: Vec<u64> = arrivals.iter().enumerate().filter_map(of).collect();
    sorted.sort_unstable();
    let at = |share: f64| sorted.get((sorted.len().saturating_sub(1) as f64 * share).round() as usize).copied();
    let of = |share| at(share).context("no request");
    Ok([of(0.5)?, of(0.99)?, of(1.0)?])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use super::*;

    #[test]
    fn a_request_takes_until_its_last_part_is_done() {
        let ms = Duration::from_millis;
        let arrivals = [ms(10), ms(20), ms(30)];
        let done = [vec![ms(11), ms(22), ms(31)], vec![ms(12), ms(21), ms(39)]];
        assert_eq!(latencies(&arrivals, &done).expect("requests"), [2000, 9000, 9000]);
        assert!(latencies(&[], &[]).is_err());
    }
}
