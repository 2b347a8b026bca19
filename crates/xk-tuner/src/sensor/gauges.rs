//! Reads counters.
//!
//! In: sensors. Out: their readings for the time between two snapshots. A counter that cannot be read is missing, and so are
//! the sensors that use it: a disk may be unplugged, and not every processor counts cache misses.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use super::counter::{find, Counter};
use super::perf::Perf;
use super::{Sensor, Signature};
use crate::ebpf::{is_one_function, Calls};
use crate::modules::{Described, Kernel, Modules};

/// A counter that the kernel maintains only on demand.
#[derive(Debug)]
enum OnDemand {
    Perf(Perf),
    Calls(Calls),
}

impl OnDemand {
    fn start(counter: Counter<'_>) -> Option<Self> {
        match counter {
            Counter::File { .. } | Counter::Module { .. } => None,
            Counter::Perf(event) => Perf::open(event).ok().map(Self::Perf),
            // If several functions have the name, it is not known which would be counted.
            Counter::Calls(name) => {
                is_one_function(name).ok().and_then(|()| Calls::of_function(name).ok()).map(Self::Calls)
            }
            Counter::Tracepoint(name) => Calls::of_tracepoint(name).ok().map(Self::Calls),
        }
    }

    fn read(&mut self) -> Option<f64> {
        match self {
            Self::Perf(perf) => perf.read().ok(),
            Self::Calls(calls) => calls.read().ok().map(|calls| calls as f64),
        }
    }
}

/// The counters of some sensors. Those that the kernel maintains on demand are active until this is dropped.
#[derive(Debug)]
pub struct Gauges<'s> {
    sensors: &'s [Sensor],
    on_demand: BTreeMap<&'s str, OnDemand>,
}

impl<'s> Gauges<'s> {
    /// Starts the counters that the kernel maintains on demand.
    #[must_use]
    pub fn of(sensors: &'s [Sensor]) -> Self {
        let start = |(counter, name)| Some((name, OnDemand::start(counter)?));
        Self { sensors, on_demand: counters(sensors).filter_map(start).collect() }
    }

    /// Reads all counters.
    #[must_use]
    pub fn read(&mut self) -> Snapshot {
        let mut files: BTreeMap<&str, Option<String>> = BTreeMap::new();
        let mut described: Option<Described> = None;
        let mut read = BTreeMap::new();
        for (counter, name) in counters(self.sensors) {
            let value = match counter {
                Counter::File { path, field } => {
                    let text = files.entry(path).or_insert_with(|| fs::read_to_string(path).ok());
                    text.as_deref().and_then(|text| find(text, field))
                }
                Counter::Module { meter, per } => {
                    let described = described.get_or_insert_with(|| Kernel.look().unwrap_or_default());
                    let reading = described.meter(meter).ok().and_then(|meter| meter.reading.ok());
                    reading.map(|(of, by)| if per { by } else { of } as f64)
                }
                Counter::Perf(_) | Counter::Calls(_) | Counter::Tracepoint(_) => {
                    self.on_demand.get_mut(name).and_then(OnDemand::read)
                }
            };
            read.extend(value.map(|value| (name.to_owned(), value)));
        }
        Snapshot { counters: read, at: Instant::now() }
    }

    /// The readings of the sensors for the time between two snapshots.
    #[must_use]
    pub fn between(&self, earlier: &Snapshot, later: &Snapshot) -> Signature {
        let seconds = (later.at - earlier.at).as_secs_f64();
        let readings = self.sensors.iter().filter_map(|sensor| {
            let per = if sensor.per.is_empty() { seconds } else { earlier.growth(later, &sensor.per)? };
            let of = earlier.growth(later, &sensor.of)?;
            Some((sensor.name.clone(), if per > 0.0 { of / per } else { 0.0 }))
        });
        Signature(readings.collect())
    }
}

/// Every counter of these sensors, with its text. The description has checked the texts.
fn counters(sensors: &[Sensor]) -> impl Iterator<Item = (Counter<'_>, &str)> {
    let all = sensors.iter().flat_map(|sensor| sensor.of.iter().chain(&sensor.per));
    all.filter_map(|name| Some((Counter::parse(name).ok()?, name.as_str())))
}

/// The counters at one moment.
#[derive(Debug)]
pub struct Snapshot {
    counters: BTreeMap<String, f64>,
    at: Instant,
}

impl Snapshot {
    /// The number of counters that could be read.
    #[must_use]
    pub fn readable(&self) -> usize {
        self.counters.len()
    }

    fn growth(&self, later: &Self, counters: &[String]) -> Option<f64> {
        // A counter that decreased was reset, because its device was removed and added again.
        let grown = |counter| Some((later.counters.get(counter)? - self.counters.get(counter)?).max(0.0));
        counters.iter().map(grown).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensors_are_ratios_of_growth_and_may_vanish() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stat");
        let counter = |field| format!("{}:{field}", path.display());
        let ratio =
            [Sensor { name: "size".into(), of: vec![counter(1)], per: vec![counter(2)], similar: 0.1, within: 0.0 }];
        let mut gauges = Gauges::of(&ratio);
        std::fs::write(&path, "10 1\n").unwrap();
        let before = gauges.read();
        std::fs::write(&path, "40 11\n").unwrap();
        let after = gauges.read();
        assert_eq!(gauges.between(&before, &after), Signature([("size".to_owned(), 3.0)].into()));
        std::fs::remove_file(&path).unwrap();
        let gone = gauges.read();
        assert_eq!(gauges.between(&before, &gone), Signature::default());
    }
}
