//! What a counter of a sensor costs the thread in which an event is counted.
//!
//! In: nothing; the guest is deterministic. Out: instructions per event, for a function and for a tracepoint. It refuses a
//! guest that does not count every event. The reader's own cost is in `tuner.rs`.

use std::time::Instant;

use anyhow::{ensure, Context, Result};
use rustix::process::{getpid, getppid, kill_process, Signal};
use serde::{Deserialize, Serialize};
use xk_tuner::ebpf::Calls;

/// Events of a round.
const EVENTS: u32 = 1000;
/// Rounds; the median counts.
const ROUNDS: usize = 21;

/// Instructions per event.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Report {
    /// Of a call of a function (`calls:FUNCTION`).
    pub function: f64,
    /// Of a pass of a tracepoint (`tracepoint:NAME`).
    pub tracepoint: f64,
}

/// Measures both.
///
/// # Errors
/// When something cannot be traced, or an event was not counted.
pub fn run() -> Result<Report> {
    // Both happen once for each event. An ignored signal passes its tracepoint, too.
    let ask = || {
        let _ = getppid();
        Ok(())
    };
    let signal = || kill_process(getpid(), Signal::URG).context("kill");
    Ok(Report {
        function: cost(|| Ok(Calls::of_function("__x64_sys_getppid")?), ask)?,
        tracepoint: cost(|| Ok(Calls::of_tracepoint("signal_generate")?), signal)?,
    })
}

/// What counting adds to an event.
fn cost(counter: impl Fn() -> Result<Calls>, event: impl Fn() -> Result<()>) -> Result<f64> {
    let bare = instructions(&event)?;
    let calls = counter()?;
    let before = calls.read()?;
    let counted = instructions(&event)?;
    let seen = calls.read()? - before;
    let made = u64::from(EVENTS) * ROUNDS as u64;
    ensure!((made..made + made / 100).contains(&seen), "of {made} events, {seen} were counted");
    ensure!(counted > bare, "counting an event takes no instruction: {bare} and {counted}");
    Ok(counted - bare)
}

/// Instructions of one event. In a deterministic guest, a nanosecond is one.
fn instructions(event: impl Fn() -> Result<()>) -> Result<f64> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..EVENTS {
            event()?;
        }
        rounds.push(start.elapsed().as_nanos() as f64 / f64::from(EVENTS));
    }
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[ROUNDS / 2])
}
