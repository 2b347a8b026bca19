//! Policies with maps of every type, which come, decide and go, while a process changes the maps.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use xk_harness::{family, table, Flipper};
use xk_policy::Programs;
use xk_runtime::{Backend, Destination, Error, Mode, Policy};
use xk_table::ScopeTable;

use super::Soak;

/// Where the other process finds the maps.
pub(super) const MAPS: &str = "/sys/fs/bpf/xk_soak";
const SPANS: [&str; 3] = ["recurse", "agree", "sleep"];
/// In force where no policy decides; neither the default nor a value that a policy sets.
const BENEATH: i64 = 50;
const DEFAULT: i64 = 32;
const CASES: [(Backend, Mode); 4] = [
    (Backend::Kprobe, Mode::Task),
    (Backend::Detour, Mode::Global),
    (Backend::Kprobe, Mode::Global),
    (Backend::Detour, Mode::Task),
];
/// The process beside sees all maps in less.
const SHORTEST: Duration = Duration::from_secs(5);
/// Within which each policy must have decided.
const PATIENCE: Duration = Duration::from_secs(60);

/// One load after the other until the epoch is over.
pub(super) fn run(soak: &Soak<'_>) -> Result<()> {
    let object = fs::read(&soak.arguments.policies)?;
    while !soak.over() {
        let turn = soak.turns[1].fetch_add(1, Ordering::Relaxed);
        let (backend, mode) = CASES[turn % CASES.len()];
        once(soak, &object, backend, mode).with_context(|| format!("policies by {backend:?} in mode {mode}"))?;
        soak.report().policies.loads += 1;
    }
    Ok(())
}

fn once(soak: &Soak<'_>, object: &[u8], backend: Backend, mode: Mode) -> Result<()> {
    let mut programs = Programs::load(object)?;
    fs::create_dir_all(MAPS)?;
    programs.pin(Path::new(MAPS))?;
    let done = in_force(soak, &programs, backend, mode);
    fs::remove_dir_all(MAPS).context(MAPS)?;
    done
}

fn in_force(soak: &Soak<'_>, programs: &Programs, backend: Backend, mode: Mode) -> Result<()> {
    let start = Instant::now();
    let described = |entry: &xk_policy::Entry| table(&soak.arguments.atomic, &family(&entry.constant)?);
    let tables: Vec<ScopeTable> = programs.entries().iter().map(described).collect::<Result<_>>()?;
    let flipper = {
        let _present = soak.presence.read().unwrap_or_else(PoisonError::into_inner);
        soak.faults.attempt(|| Flipper::load_tables(&tables, backend), || Ok(())).context("load")?
    };
    // A module that is about to go can have no probe.
    let present = soak.presence.read().unwrap_or_else(PoisonError::into_inner);
    for ((entry, table), tune) in programs.entries().iter().zip(&tables).zip(flipper.tunes()) {
        let program = programs.program(entry).context("there is no such program")?;
        let give = || Ok(flipper.device().give_policy(tune.id(), &Policy::new(program, table))?);
        soak.faults.attempt(give, || Ok(())).with_context(|| entry.program.clone())?;
    }
    drop(present);
    let armed = start.elapsed().as_secs_f64();
    let before = soak.counts()?;
    go(soak, &flipper, Destination::Policy(BENEATH), mode)?;
    let runs = decide(soak, &flipper)?;
    go(soak, &flipper, Destination::Value(DEFAULT), mode)?;
    let seen = soak.counts()?.since(&before);
    let missed = soak.faults.attempt(|| flipper.missed(), || Ok(()))?;
    soak.note(backend, &SPANS, &seen, missed);
    soak.report().policies.runs += runs;
    eprintln!("soak: policies by {backend:?} {mode}: {armed:.1} s, {:.1} s", start.elapsed().as_secs_f64() - armed);
    soak.unload(&flipper, mode).context("unload")
}

/// Waits until every policy has decided, and for as long as phases last; how often they have.
fn decide(soak: &Soak<'_>, flipper: &Flipper) -> Result<u64> {
    let start = Instant::now();
    loop {
        soak.sleep(soak.dwell().max(SHORTEST));
        let mut runs = Vec::new();
        for tune in flipper.tunes() {
            let ask = || Ok(flipper.device().policy_status(tune.id())?);
            let status = soak.faults.attempt(ask, || Ok(()))?.context("it has no policy")?;
            runs.push(status.sites.iter().map(|site| site.runs).sum::<u64>());
        }
        if runs.iter().all(|&runs| runs > 0) {
            return Ok(runs.iter().sum());
        }
        ensure!(start.elapsed() < PATIENCE * soak.arguments.slowness, "a policy was not asked: {runs:?}");
        std::thread::sleep(super::PAUSE);
    }
}

fn go(soak: &Soak<'_>, flipper: &Flipper, to: Destination, mode: Mode) -> Result<()> {
    let go = || match flipper.go(to, mode, soak.timeout()) {
        Err(Error::Blocked { reason, .. }) if !reason.contains("memory") => {
            eprintln!("soak: given up: {reason}");
            Ok(false)
        }
        result => Ok(result.map(|_| true)?),
    };
    while !soak.faults.attempt(go, || Ok(())).with_context(|| format!("{to:?}"))? {
        soak.report().blocked += 1;
    }
    Ok(())
}
