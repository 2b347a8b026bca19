//! The process that serves an extension.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use libbpf_rs::MapHandle;

use super::record::Serving;
use super::{Kept, Record, Seen};
use crate::control::{take_from, unreported_in};
use crate::elf::{ENDED, UNREPORTED};
use crate::{Error, Heap};

/// How long it waits between two looks.
const STEP: Duration = Duration::from_millis(200);

/// What an extension says of runs that were ended.
struct Reports {
    ended: Option<MapHandle>,
    unreported: Option<MapHandle>,
}

impl Reports {
    fn take(&self, seen: &mut Seen) -> Result<(), Error> {
        if let Some(map) = &self.ended {
            take_from(map)?.iter().for_each(|ended| seen.add(ended));
        }
        if let Some(map) = &self.unreported {
            seen.unreported = unreported_in(map)?;
        }
        Ok(())
    }
}

impl Kept {
    /// Serves the extension until it is unloaded, or until `wait` returns true, which waits at most as long as it is told.
    /// `ready` is called as soon as it serves; the heap has pages then.
    ///
    /// # Errors
    /// [`Error::Kept`]: another process serves it. Or the heap cannot be mapped, or what was seen cannot be written.
    pub fn serve(&self, ready: impl FnOnce(), wait: impl Fn(Duration) -> bool) -> Result<(), Error> {
        self.serve_heap(self.heap()?.as_ref(), ready, wait)
    }

    /// As [`Self::serve`], for who has mapped its heap already.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn serve_heap(
        &self,
        heap: Option<&Heap<'_>>,
        ready: impl FnOnce(),
        wait: impl Fn(Duration) -> bool,
    ) -> Result<(), Error> {
        let reason = |reason: &str| Error::Kept { path: self.name.clone().into(), reason: reason.into() };
        let serving = self.files.lock()?.ok_or_else(|| reason("another process serves it"))?;
        let record = self.files.record().ok_or_else(|| reason("loading it was interrupted: unload it"))?;
        let reports = Reports { ended: self.pins.map(ENDED)?, unreported: self.pins.map(UNREPORTED)? };
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let pages = heap.map(|heap| scope.spawn(|| heap.serve(&stop)));
            ready();
            let noted = self.note(&record, &serving, heap, &reports, wait);
            stop.store(true, Ordering::Relaxed);
            let given = pages.map_or(Ok(Ok(())), thread::ScopedJoinHandle::join);
            given.map_err(|_| reason("the thread that gives the heap its pages panicked"))??;
            noted
        })
    }

    /// Notes what happens.
    fn note(
        &self,
        record: &Record,
        serving: &Serving,
        heap: Option<&Heap<'_>>,
        reports: &Reports,
        wait: impl Fn(Duration) -> bool,
    ) -> Result<(), Error> {
        let mut seen = self.files.seen();
        while serving.goes_on() {
            let before = seen.clone();
            reports.take(&mut seen)?;
            seen.broken_locks += heap.map_or(0, |heap| heap.break_locks_of_dead().len() as u64);
            self.detach_after(record, &mut seen)?;
            // Not into the folder of another one, or of none.
            if seen != before && serving.goes_on() {
                self.files.write_seen(&seen)?;
            }
            if wait(STEP) {
                break;
            }
        }
        Ok(())
    }

    fn detach_after(&self, record: &Record, seen: &mut Seen) -> Result<(), Error> {
        let runs = seen.runs();
        // Programs that are being attached are detached by the next look.
        if record.most_ended.is_none_or(|most| runs < most) || self.pins.attached().is_empty() {
            return Ok(());
        }
        self.pins.detach()?;
        seen.detached = Some(format!("{runs} runs were ended"));
        Ok(())
    }
}
