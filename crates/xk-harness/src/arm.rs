//! A hundred places of code that change and change back, again and again, while the kernel
//! is busy there and elsewhere; and whether every byte of it is then what it was.
//!
//! In: a guest with `kernel/atomic` and `kernel/test` loaded. Out: what was done, and where
//! code differs. Refuses a round in which a site is not what it was to become.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_runtime::{Backend, Mode, Probe};
use xk_table::{CriticalSpan, Function, Mode as Needed, Scope, ScopeTable};

use crate::family::{empty_table, table, FAMILIES};
use crate::load::{beside_load, Done};
use crate::text::{lasting_differences, Snapshot};
use crate::{several, Atomic, Flipper};

/// Sites altogether.
pub const SITES: usize = 100;
const TIMEOUT: Duration = Duration::from_secs(120);

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// In which all sites were armed, had another value, and were disarmed.
    pub rounds: u32,
    /// Armed at once.
    pub sites: usize,
    /// Bytes that were compared: all text of vmlinux, and the functions of the sites.
    pub compared: usize,
    /// Where one differs, by symbol.
    pub different: Vec<String>,
    /// Executions of spans meanwhile, by threads, softirqs, interrupts and NMIs.
    pub executions: u64,
    /// Two values met.
    pub violations: u64,
    /// What was done beside the rounds, and how often.
    #[serde(flatten)]
    pub done: Done,
    /// From the first round to the last, in the guest's time.
    pub seconds: f64,
    /// Of these: until all sites were armed, had the other value, were disarmed.
    pub stages: Stages,
}

/// Seconds of the guest's time.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub struct Stages {
    /// Verified and armed.
    pub arm: f64,
    /// One transition.
    pub change: f64,
    /// Another, to the default, and disarmed.
    pub disarm: f64,
}

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Rounds<'a> {
    /// `xk_atomic.ko`, which is loaded.
    pub atomic: &'a Path,
    /// `xk_target.ko`, likewise.
    pub target: &'a Path,
    /// One after the other.
    pub backends: &'a [Backend],
    /// At most so many.
    pub rounds: u32,
    /// At most for so long.
    pub time: Duration,
}

/// One constant: those of `kernel/atomic`, and as many of `xk_target_several_0` and so on as make a hundred
/// sites. As one, since then a round is a few stops, and not a few for each.
fn hundred(atomic: &Path, target: &Path) -> Result<ScopeTable> {
    let mut all = empty_table("HUNDRED", several::DEFAULT, Needed::Global);
    for family in &FAMILIES {
        add(&mut all, table(atomic, family)?);
    }
    several::fill(&mut all, target, SITES)?;
    Ok(all)
}

/// What `table` has, behind what is there.
fn add(all: &mut ScopeTable, table: ScopeTable) {
    let (functions, spans) = (all.functions.len(), all.spans.len());
    all.functions.extend(table.functions);
    all.spans.extend(table.spans.into_iter().map(|span| CriticalSpan { function: functions + span.function, ..span }));
    all.scopes.extend(table.scopes.into_iter().map(|scope| Scope {
        function: functions + scope.function,
        spans: scope.spans.iter().map(|span| spans + span).collect(),
        ..scope
    }));
}

/// Does it: with the load, so many rounds by each of the backends in turn.
///
/// # Errors
/// When the kernel refuses, or a site is not what it was to become.
pub fn rounds(what: &Rounds<'_>) -> Result<Outcome> {
    let table = hundred(what.atomic, what.target)?;
    let functions: Vec<&Function> = table.functions.iter().collect();
    // What the kernel switches for good when it is first used is switched then.
    beside_load(&Done::default(), || {
        what.backends.iter().try_for_each(|&backend| round(&table, backend, 7, &mut Stages::default()))?;
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    })?;
    let before = Snapshot::of(&functions)?;
    let executed = Atomic.counts()?;
    let mut done = Done::default();
    let start = Instant::now();
    let mut made = 0;
    let mut stages = Stages::default();
    done.hotplugs = beside_load(&done, || {
        while made < what.rounds && start.elapsed() < what.time {
            let backend = what.backends[made as usize % what.backends.len()];
            round(&table, backend, 40 + i64::from(made % 50), &mut stages).with_context(|| format!("round {made}"))?;
            made += 1;
            if made % 100 == 0 {
                eprintln!("inside: {made} rounds after {:.0} s", start.elapsed().as_secs_f64());
            }
        }
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let seen = Atomic.counts()?.since(&executed);
    done.over.store(false, Ordering::Relaxed);
    Ok(Outcome {
        rounds: made,
        sites: table.spans.len(),
        compared: before.size(),
        different: lasting_differences(&before, &functions)?,
        executions: seen.spans.values().map(|span| span.rounds).sum(),
        violations: seen.violations(),
        done,
        seconds,
        stages,
    })
}

/// All sites armed, with another value, and disarmed.
fn round(table: &ScopeTable, backend: Backend, value: i64, stages: &mut Stages) -> Result<()> {
    let start = Instant::now();
    let flipper = Flipper::load_tables(std::slice::from_ref(table), backend)?;
    stages.arm += start.elapsed().as_secs_f64();
    let start = Instant::now();
    flipper.to(value, Mode::Global, TIMEOUT)?;
    stages.change += start.elapsed().as_secs_f64();
    let wanted = if backend == Backend::Patch { Probe::Patch } else { Probe::Detour };
    for tune in flipper.tunes() {
        let status = tune.status()?;
        let other = status.sites.iter().find(|site| site.probe != wanted);
        ensure!(other.is_none(), "{}: a site by {backend:?} is {other:?}", status.name);
    }
    several::check(table, value)?;
    let start = Instant::now();
    flipper.unload(Mode::Global, TIMEOUT)?;
    stages.disarm += start.elapsed().as_secs_f64();
    several::check(table, several::DEFAULT)
}
