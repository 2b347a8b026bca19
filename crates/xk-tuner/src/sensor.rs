//! Sensors distinguish workloads. They are computed from counters of the kernel.
//!
//! In: sensors of a description, and two snapshots of their counters. Out: a [`Signature`]. A sensor is the growth of some
//! counters divided by the growth of others, or by the elapsed seconds. A counter has one of these forms:
//!
//! - `FILE:FIELD`. FIELD is the number of a word (`/sys/block/sda/stat:1`), the first word of the line whose second is the
//!   number (`/proc/vmstat:pgscan_direct`), or `LINE.KEY`: `KEY=NUMBER` on that line (`/proc/pressure/io:some.total`), or a
//!   column of a table with headings (`/proc/net/snmp:Tcp.RetransSegs`).
//! - `module:MODULE:METER`: a meter of a loaded module; `module:MODULE:METER/per` is its second number.
//! - `perf:EVENT`: a perf event on all processors together (`perf:instructions`, `perf:cpu-migrations`).
//! - `calls:FUNCTION`, `tracepoint:NAME`: the number of calls or passes, counted by eBPF.
//!
//! The last two are counted during one window only, and cost nothing otherwise.

mod counter;
mod gauges;
mod perf;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use counter::CounterError;
pub(crate) use counter::{check, of_module};
pub use gauges::{Gauges, Snapshot};

/// A sensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Sensor {
    /// Its name.
    pub name: String,
    /// Counters whose growth is added up.
    pub of: Vec<String>,
    /// Counters by whose growth it is divided; seconds if there is none.
    pub per: Vec<String>,
    /// Two readings are similar if they differ by no more than this share of the larger.
    pub similar: f64,
    /// Two readings are also similar if they differ by no more than this. For rare events, twice as many mean nothing.
    pub within: f64,
}

impl Sensor {
    /// Whether the kernel maintains all of its counters anyway.
    #[must_use]
    pub fn is_always_counted(&self) -> bool {
        self.of.iter().chain(&self.per).all(|name| counter::is_always_counted(name))
    }
}

/// The readings of the sensors during a workload. A sensor that cannot be read is missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signature(pub BTreeMap<String, f64>);

impl Signature {
    /// Whether both are of the same workload: they have the same sensors, and all readings are similar.
    #[must_use]
    pub fn is_like(&self, other: &Self, sensors: &[Sensor]) -> bool {
        sensors.iter().all(|sensor| match (self.0.get(&sensor.name), other.0.get(&sensor.name)) {
            (Some(a), Some(b)) => (a - b).abs() <= (sensor.similar * a.abs().max(b.abs())).max(sensor.within),
            (None, None) => true,
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sensor(similar: f64) -> Sensor {
        Sensor { name: "size".into(), of: vec![], per: vec![], similar, within: 0.0 }
    }

    fn signature(value: f64) -> Signature {
        Signature([("size".to_owned(), value)].into())
    }

    #[test]
    fn readings_are_alike_within_their_threshold() {
        assert!(signature(8.0).is_like(&signature(10.0), &[sensor(0.2)]));
        assert!(!signature(7.9).is_like(&signature(10.0), &[sensor(0.2)]));
        assert!(signature(0.0).is_like(&signature(0.0), &[sensor(0.0)]));
        let rare = [Sensor { within: 0.1, ..sensor(0.2) }];
        assert!(signature(0.0).is_like(&signature(0.1), &rare) && signature(8.0).is_like(&signature(10.0), &rare));
        assert!(!signature(0.0).is_like(&signature(0.11), &rare));
        assert!(!Signature::default().is_like(&signature(1.0), &[sensor(0.5)]), "a sensor vanished");
    }
}
