//! Perf events on all processors together: those of the hardware, if the kernel may use it, and those of the kernel
//! (perf_event_open(2)).
//!
//! In: the name of an event. Out: its count since the counter was opened. It refuses names that are not in the list below,
//! and events that this machine does not count.

use std::fs;
use std::io;

use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter};

/// The list of processors that are online.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// A perf event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event(&'static str, Is);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    Hardware(Hardware),
    Software(Software),
}

/// The events, by the names that perf(1) uses.
const EVENTS: [Event; 11] = [
    Event("cycles", Is::Hardware(Hardware::CPU_CYCLES)),
    Event("instructions", Is::Hardware(Hardware::INSTRUCTIONS)),
    Event("cache-references", Is::Hardware(Hardware::CACHE_REFERENCES)),
    Event("cache-misses", Is::Hardware(Hardware::CACHE_MISSES)),
    Event("branches", Is::Hardware(Hardware::BRANCH_INSTRUCTIONS)),
    Event("branch-misses", Is::Hardware(Hardware::BRANCH_MISSES)),
    Event("page-faults", Is::Software(Software::PAGE_FAULTS)),
    Event("minor-faults", Is::Software(Software::PAGE_FAULTS_MIN)),
    Event("major-faults", Is::Software(Software::PAGE_FAULTS_MAJ)),
    Event("context-switches", Is::Software(Software::CONTEXT_SWITCHES)),
    Event("cpu-migrations", Is::Software(Software::CPU_MIGRATIONS)),
];

fn names() -> String {
    EVENTS.map(|event| event.0).join(", ")
}

/// A name that is not in the list of events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a known perf event; known are: {}", names())]
pub struct UnknownEvent {
    /// The name.
    pub name: String,
}

impl Event {
    /// The event of this name.
    ///
    /// # Errors
    /// [`UnknownEvent`].
    pub fn parse(name: &str) -> Result<Self, UnknownEvent> {
        EVENTS.into_iter().find(|event| event.0 == name).ok_or_else(|| UnknownEvent { name: name.to_owned() })
    }
}

/// A counter of an event on each processor.
#[derive(Debug)]
pub struct Perf(Vec<Counter>);

impl Perf {
    /// Starts to count on each processor.
    ///
    /// # Errors
    /// Those of perf_event_open(2): ENOENT, ENODEV or EOPNOTSUPP where the hardware has no such counter.
    pub fn open(event: Event) -> io::Result<Self> {
        let one = |processor: usize| {
            let mut builder = match event.1 {
                Is::Hardware(event) => Builder::new(event),
                Is::Software(event) => Builder::new(event),
            };
            builder.any_pid().one_cpu(processor).exclude_kernel(false).enabled(true).build()
        };
        processors(&fs::read_to_string(ONLINE)?).into_iter().map(one).collect::<io::Result<_>>().map(Self)
    }

    /// The count so far. If a counter shared the hardware with others, its count is scaled to the whole time.
    ///
    /// # Errors
    /// Those of read(2), or a counter that never had the hardware.
    pub fn read(&mut self) -> io::Result<f64> {
        let one = |counter: &mut Counter| {
            let data = counter.read_full()?;
            let seconds = |time: Option<std::time::Duration>| time.unwrap_or_default().as_secs_f64();
            match (seconds(data.time_enabled()), seconds(data.time_running())) {
                (enabled, 0.0) if enabled > 0.0 => Err(io::ErrorKind::ResourceBusy.into()),
                (_, 0.0) => Ok(0.0),
                (enabled, running) => Ok(data.count() as f64 * (enabled / running)),
            }
        };
        self.0.iter_mut().map(one).sum()
    }
}

/// The processors of a list like `0-3,8`.
fn processors(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_processors_is_read() {
        assert_eq!(processors("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(processors("0\n"), [0]);
        assert_eq!(processors("\n"), [0; 0]);
    }
}
