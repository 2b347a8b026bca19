//! Transitions of every mode by every backend, under threads that notice when two values meet.

use std::sync::atomic::Ordering;
use std::sync::PoisonError;
use std::time::Instant;

use anyhow::{Context, Result};
use xk_harness::{family, Counts, Flipper};
use xk_runtime::{Backend, Error, Mode};

use super::{Broken, Soak};

/// Patches have no mode task.
pub(super) const CASES: [(Backend, Mode); 8] = [
    (Backend::Kprobe, Mode::Task),
    (Backend::Detour, Mode::Task),
    (Backend::Patch, Mode::Global),
    (Backend::Detour, Mode::Global),
    (Backend::Kprobe, Mode::Now),
    (Backend::Patch, Mode::Now),
    (Backend::Kprobe, Mode::Global),
    (Backend::Detour, Mode::Now),
];
/// The other constants are for policies.
const CONSTANTS: [&str; 7] = ["BALANCE", "OBJECT", "SOFTIRQ", "HARDIRQ", "NMI", "DESCEND", "ELSEWHERE"];
const SPANS: [&str; 8] = ["balance", "object", "later", "softirq", "hardirq", "nmi", "descend", "elsewhere"];
const DEFAULT: i64 = 32;
/// None of them is the default, and no value follows itself.
const VALUES: [i64; 5] = [100, 333, 7, 500, 64];
/// In one phase of so many, the module goes and comes back.
const RELOAD: usize = 5;

/// How a kind of transition is called.
pub(super) fn name(backend: Backend, mode: Mode) -> String {
    format!("{backend:?} {mode}").to_lowercase()
}

/// One kind after the other until the epoch is over.
pub(super) fn run(soak: &Soak<'_>) -> Result<()> {
    while !soak.over() {
        let turn = soak.turns[0].fetch_add(1, Ordering::Relaxed);
        let (backend, mode) = CASES[turn % CASES.len()];
        let done = Phase { soak, backend, mode, reload: turn % RELOAD == 1 }.run();
        done.with_context(|| format!("transitions: {}", name(backend, mode)))?;
    }
    Ok(())
}

struct Phase<'a> {
    soak: &'a Soak<'a>,
    backend: Backend,
    mode: Mode,
    reload: bool,
}

impl Phase<'_> {
    fn run(&self) -> Result<()> {
        let began = Instant::now();
        let flipper = self.load()?;
        let before = self.soak.counts()?;
        let start = Instant::now();
        let (mut value, mut next, mut transitions) = (DEFAULT, 0, 0);
        while transitions == 0 || (!self.soak.over() && start.elapsed() < self.soak.dwell()) {
            next = (next + 1) % VALUES.len();
            if self.to(&flipper, &mut value, VALUES[next], self.mode)? {
                transitions += 1;
            }
        }
        if self.reload {
            self.soak.faults.quietly(|| self.soak.reload_atomic())??;
        }
        // Who has met two values is outside when this has succeeded.
        while !self.to(&flipper, &mut value, DEFAULT, self.settling())? {}
        self.note(&flipper, &before, transitions)?;
        let armed = start.duration_since(began).as_secs_f64();
        let changed = start.elapsed().as_secs_f64();
        let case = name(self.backend, self.mode);
        eprintln!("soak: {case}: armed in {armed:.1} s, {transitions} transitions in {changed:.1} s");
        self.soak.unload(&flipper, self.settling()).context("unload")
    }

    /// The mode that promises nothing leaves threads inside.
    fn settling(&self) -> Mode {
        if self.mode == Mode::Now {
            Mode::Global
        } else {
            self.mode
        }
    }

    fn load(&self) -> Result<Flipper> {
        let families = CONSTANTS.iter().map(|name| family(name)).collect::<Result<Vec<_>>>()?;
        let wanted = families.iter().filter(|family| self.mode != Mode::Task || family.mode != Mode::Global);
        let _present = self.soak.presence.read().unwrap_or_else(PoisonError::into_inner);
        let load = || Flipper::load_by(&self.soak.arguments.atomic, wanted.clone(), self.backend);
        self.soak.faults.attempt(load, || Ok(())).context("load")
    }

    /// Whether the value is another one now.
    fn to(&self, flipper: &Flipper, from: &mut i64, value: i64, mode: Mode) -> Result<bool> {
        let go = || match flipper.to(value, mode, self.soak.timeout()) {
            Ok(_) => Ok(true),
            Err(Error::Blocked { reason, .. }) if !reason.contains("memory") => {
                eprintln!("soak: given up: {reason}");
                Ok(false)
            }
            Err(error) => Err(error.into()),
        };
        let unchanged = || {
            for tune in flipper.tunes() {
                let status = tune.status()?;
                anyhow::ensure!(status.value == *from, "{} is {} instead of {from}", status.name, status.value);
            }
            Ok(())
        };
        let done = self.soak.faults.attempt(go, unchanged)?;
        if done {
            *from = value;
        } else {
            self.soak.report().blocked += 1;
        }
        Ok(done)
    }

    fn note(&self, flipper: &Flipper, before: &Counts, transitions: u64) -> Result<()> {
        // Before what was missed, which explains it.
        let seen = self.soak.counts()?.since(before);
        let missed = self.soak.faults.attempt(|| flipper.missed(), || Ok(()))?;
        *self.soak.report().transitions.entry(name(self.backend, self.mode)).or_default() += transitions;
        if self.mode == Mode::Now && self.soak.arguments.broken != Some(Broken::Now) {
            let met: u64 = SPANS.iter().map(|span| seen.span(span).violations).sum();
            self.soak.report().now_violations += met;
        } else {
            self.soak.note(self.backend, &SPANS, &seen, missed);
        }
        Ok(())
    }
}
