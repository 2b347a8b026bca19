//! Sensors: what tells one workload from another, read from the kernel's own counters.
//!
//! A sensor is what some counters grew by, divided by what others grew by, or by the seconds that passed. A counter is one
//! of these:
//!
//! - `FILE:FIELD`. FIELD is the number of a word (`/sys/block/sda/stat:1`), the first word of the line whose second is the
//!   number (`/proc/vmstat:pgscan_direct`), or `LINE.KEY`: `KEY=NUMBER` on that line (`/proc/pressure/io:some.total`), or a
//!   column of a table with headings (`/proc/net/snmp:Tcp.RetransSegs`).
//! - `module:MODULE:METER`: one that a loaded module describes, and `module:MODULE:METER/per` its second number.
//! - `perf:EVENT`: of all processors together, where they have it (`perf:instructions`, `perf:cpu-migrations`).
//! - `calls:FUNCTION`, `tracepoint:NAME`: how often the kernel calls it, or passes it, by eBPF.
//!
//! The last two are counted only while a window is watched, and cost nothing else.

mod counter;
mod gauges;
mod perf;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use counter::{check, of_module, CounterError};
pub use gauges::{Gauges, Snapshot};

/// A sensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Sensor {
    /// Its name.
    pub name: String,
    /// Counters whose growth is added up.
    pub of: Vec<String>,
    /// Counters whose growth it is divided by; seconds if there is none.
    pub per: Vec<String>,
    /// Two readings that differ by no more than this share of the larger are alike.
    pub similar: f64,
    /// And two that differ by no more than this: of what hardly ever happens, twice as much is nothing.
    pub within: f64,
}

/// What the sensors said of a workload. A sensor that vanished is not in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signature(pub BTreeMap<String, f64>);

impl Signature {
    /// Whether this is the workload that `other` was read of: every sensor agrees, and both have the same.
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
