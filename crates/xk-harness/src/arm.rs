//! Arms and disarms a hundred sites repeatedly while the kernel executes them under load, and checks that every byte of
//! its code is afterwards as before.
//!
//! In: a guest with `kernel/atomic` and `kernel/test` loaded. Out: what was done, and where
//! code differs. Refuses a round in which a site does not get its expected state.

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
const TIMEOUT: Duration = Duration::from_secs(300);

/// The result.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Rounds in which all sites were armed, changed and disarmed.
    pub rounds: u32,
    /// Sites that were armed at the same time.
    pub sites: usize,
    /// Bytes that were compared: all text of vmlinux, and the functions of the sites.
    pub compared: usize,
    /// Where bytes differ, by symbol.
    pub different: Vec<String>,
    /// Executions of spans during the rounds, by threads, softirqs, interrupts and NMIs.
    pub executions: u64,
    /// Executions in which two values met.
    pub violations: u64,
    /// The load during the rounds, and how often each part ran.
    #[serde(flatten)]
    pub done: Done,
    /// Time from the first round to the last, by the guest's clock.
    pub seconds: f64,
    /// The part of it until all sites were armed, were changed, and were disarmed.
    pub stages: Stages,
}

/// Seconds by the guest's clock.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub struct Stages {
    /// Verifying and arming.
    pub arm: f64,
    /// The transition to another value.
    pub change: f64,
    /// The transition to the default, and disarming.
    pub disarm: f64,
}

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Rounds<'a> {
    /// The file of `xk_atomic.ko`, which is loaded.
    pub atomic: &'a Path,
    /// The file of `xk_target.ko`, which is loaded.
    pub target: &'a Path,
    /// The backends, which are used in turn.
    pub backends: &'a [Backend],
    /// The largest number of rounds.
    pub rounds: u32,
    /// The longest time.
    pub time: Duration,
}

/// One constant with a hundred sites: those of `kernel/atomic`, and some of the functions `xk_target_several_0` and so
/// on. One constant, so that a round needs a few stops altogether, instead of a few for each constant.
fn hundred(atomic: &Path, target: &Path) -> Result<ScopeTable> {
    let mut all = empty_table("HUNDRED", several::DEFAULT, Needed::Global);
    for family in &FAMILIES {
        add(&mut all, table(atomic, family)?);
    }
    several::fill(&mut all, target, SITES)?;
    Ok(all)
}

/// Appends the sites and functions of `table`.
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

/// Runs the rounds under load, with each of the backends in turn.
///
/// # Errors
/// When the kernel refuses, or a site does not get its expected state.
pub fn rounds(what: &Rounds<'_>) -> Result<Outcome> {
    let table = hundred(what.atomic, what.target)?;
    let functions: Vec<&Function> = table.functions.iter().collect();
    // Code that the kernel patches for good at its first use is patched then.
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
        // On a slow host, a few rounds may be over before every part of the load has run.
        while start.elapsed() < what.time && (made < what.rounds || !done.has_run()) {
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

/// Arms all sites, changes their value, and disarms them.
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
