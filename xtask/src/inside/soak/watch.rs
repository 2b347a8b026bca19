//! What the threads of `kernel/atomic` have seen, also in its earlier lives.

use std::sync::PoisonError;

use anyhow::Result;
use xk_harness::{Atomic, Counts, ALL_SPANS};
use xk_runtime::Backend;

use super::{rmmod, Soak};

const THREADS: u32 = 4;

impl Soak<'_> {
    /// Its threads begin.
    pub(super) fn start_threads(&self) -> Result<()> {
        Atomic.tell("inside 64")?;
        Atomic.tell(&format!("pause {}", 5000 * self.arguments.slowness))?;
        Atomic.start(THREADS, ALL_SPANS)
    }

    /// Since the soak began.
    pub(super) fn counts(&self) -> Result<Counts> {
        let _present = self.presence.read().unwrap_or_else(PoisonError::into_inner);
        self.all_counts()
    }

    fn all_counts(&self) -> Result<Counts> {
        let mut counts = Atomic.counts()?;
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, count) in &mut counts.spans {
            let past = past.span(name);
            count.rounds += past.rounds;
            count.violations += past.violations;
            count.defaults += past.defaults;
        }
        Ok(counts)
    }

    /// The module goes while its threads are busy, and comes back.
    pub(super) fn reload_atomic(&self) -> Result<()> {
        let _absent = self.presence.write().unwrap_or_else(PoisonError::into_inner);
        self.forget_atomic()?;
        rmmod(&self.arguments.atomic)?;
        self.insmod(&self.arguments.atomic)?;
        self.start_threads()
    }

    /// Keeps what it has seen before it goes.
    pub(super) fn forget_atomic(&self) -> Result<()> {
        let counts = self.all_counts()?;
        *self.past.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        Ok(())
    }

    /// Notes what was seen in `spans` by this backend.
    pub(super) fn note(&self, backend: Backend, spans: &[&str], seen: &Counts, missed: u64) {
        let mut report = self.report();
        let bucket = Self::bucket(&mut report, backend);
        bucket.missed += missed;
        for span in spans {
            let count = seen.span(span);
            bucket.executions += count.rounds;
            bucket.violations += count.violations;
            bucket.with_default += count.defaults;
            if count.violations > count.defaults {
                eprintln!("soak: {backend:?}: two values met in {span}: {count:?}");
            }
        }
    }
}
