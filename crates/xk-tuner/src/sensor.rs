//! Sensors: what tells one workload from another, read from the kernel's own counters.
//!
//! A counter is `FILE:FIELD`. FIELD is the number of a word (`/sys/block/sda/stat:1`), the first word of the
//! line whose second is the number (`/proc/vmstat:pgscan_direct`), or `LINE.KEY`: `KEY=NUMBER` on that line
//! (`/proc/pressure/io:some.total`), or a column of a table with headings (`/proc/net/snmp:Tcp.RetransSegs`).
//! Or it is one that a loaded module describes: `module:MODULE:METER`, and `module:MODULE:METER/per` its second number.
//! A sensor is what some counters grew by, divided by what others grew by, or by the seconds that passed.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::modules::{self, Described, Kernel, Modules};

/// What counters of modules begin with.
const MODULE: &str = "module:";
/// What the second number of a meter ends in.
const PER: &str = "/per";

/// The counters of the meter `MODULE:NAME`: its number, and what that is divided by.
pub(crate) fn of_module(place: &str) -> (String, String) {
    (format!("{MODULE}{place}"), format!("{MODULE}{place}{PER}"))
}

/// What a meter reads, if it can be read.
fn read(described: &Described, place: &str) -> Option<f64> {
    let (name, per) = place.strip_suffix(PER).map_or((place, false), |name| (name, true));
    let (of, by) = described.meter(name).ok()?.reading.ok()?;
    Some(if per { by } else { of } as f64)
}

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
            (Some(a), Some(b)) => (a - b).abs() <= sensor.similar * a.abs().max(b.abs()),
            (None, None) => true,
            _ => false,
        })
    }
}

/// Counters at one moment.
#[derive(Debug)]
pub struct Snapshot {
    counters: BTreeMap<String, f64>,
    at: Instant,
}

impl Snapshot {
    /// The counters of these sensors, now.
    #[must_use]
    pub fn take(sensors: &[Sensor]) -> Self {
        let mut files: BTreeMap<&str, Option<String>> = BTreeMap::new();
        let mut counters = BTreeMap::new();
        let mut described: Option<Described> = None;
        for counter in sensors.iter().flat_map(|sensor| sensor.of.iter().chain(&sensor.per)) {
            if let Some(place) = counter.strip_prefix(MODULE) {
                let described = described.get_or_insert_with(|| Kernel.look().unwrap_or_default());
                counters.extend(read(described, place).map(|value| (counter.clone(), value)));
                continue;
            }
            let Some((path, field)) = counter.rsplit_once(':') else { continue };
            let text = files.entry(path).or_insert_with(|| fs::read_to_string(path).ok());
            if let Some(value) = text.as_deref().and_then(|text| find(text, field)) {
                counters.insert(counter.clone(), value);
            }
        }
        Self { counters, at: Instant::now() }
    }

    /// How many counters could be read.
    #[must_use]
    pub fn readable(&self) -> usize {
        self.counters.len()
    }

    /// What the sensors say of the time between `self` and `later`.
    #[must_use]
    pub fn until(&self, later: &Self, sensors: &[Sensor]) -> Signature {
        let seconds = (later.at - self.at).as_secs_f64();
        let readings = sensors.iter().filter_map(|sensor| {
            let per = if sensor.per.is_empty() { seconds } else { self.growth(later, &sensor.per)? };
            let of = self.growth(later, &sensor.of)?;
            Some((sensor.name.clone(), if per > 0.0 { of / per } else { 0.0 }))
        });
        Signature(readings.collect())
    }

    fn growth(&self, later: &Self, counters: &[String]) -> Option<f64> {
        // A counter that goes backwards was reset: its device went and came.
        let grown = |counter| Some((later.counters.get(counter)? - self.counters.get(counter)?).max(0.0));
        counters.iter().map(grown).sum()
    }
}

/// Whether a counter is written as one.
///
/// # Errors
/// A sentence.
pub(crate) fn check(counter: &str) -> Result<(), String> {
    if let Some(place) = counter.strip_prefix(MODULE) {
        return modules::split(place.strip_suffix(PER).unwrap_or(place)).map(drop);
    }
    match counter.rsplit_once(':') {
        Some((path, field)) if path.starts_with('/') && !field.is_empty() => Ok(()),
        _ => Err(format!("`{counter}` is no counter: write /path/of/a/file:FIELD")),
    }
}

fn find(text: &str, field: &str) -> Option<f64> {
    if let Ok(position) = field.parse::<usize>() {
        return text.split_whitespace().nth(position.checked_sub(1)?)?.parse().ok();
    }
    if let Some((row, key)) = field.split_once('.') {
        let label = |line: &&str| line.split_whitespace().next().is_some_and(|word| word.trim_end_matches(':') == row);
        let lines: Vec<&str> = text.lines().filter(label).collect();
        return match lines[..] {
            [line] => line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok()),
            [headings, numbers, ..] => {
                let column = headings.split_whitespace().position(|word| word == key)?;
                numbers.split_whitespace().nth(column)?.parse().ok()
            }
            [] => None,
        };
    }
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_the_kernels_formats() {
        assert_eq!(find("  10 20 30\n", "3"), Some(30.0));
        assert_eq!(find("nr_free 5\npgscan_direct 17\n", "pgscan_direct"), Some(17.0));
        assert_eq!(find("some avg10=0.00 total=123\nfull avg10=0.00 total=45\n", "full.total"), Some(45.0));
        assert_eq!(find("Tcp: A RetransSegs\nTcp: 1 99\nUdp: A\nUdp: 7\n", "Tcp.RetransSegs"), Some(99.0));
        for field in ["9", "0", "absent", "Tcp.Absent", "none.total"] {
            assert_eq!(find("Tcp: A\nTcp: 1\n", field), None, "{field}");
        }
    }

    fn sensor(similar: f64) -> Sensor {
        Sensor { name: "size".into(), of: vec![], per: vec![], similar }
    }

    fn signature(value: f64) -> Signature {
        Signature([("size".to_owned(), value)].into())
    }

    #[test]
    fn readings_are_alike_within_their_threshold() {
        assert!(signature(8.0).is_like(&signature(10.0), &[sensor(0.2)]));
        assert!(!signature(7.9).is_like(&signature(10.0), &[sensor(0.2)]));
        assert!(signature(0.0).is_like(&signature(0.0), &[sensor(0.0)]));
        assert!(!Signature::default().is_like(&signature(1.0), &[sensor(0.5)]), "a sensor vanished");
    }

    #[test]
    fn sensors_are_ratios_of_growth_and_may_vanish() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stat");
        let counter = |field| format!("{}:{field}", path.display());
        let ratio = Sensor { of: vec![counter(1)], per: vec![counter(2)], ..sensor(0.1) };
        std::fs::write(&path, "10 1\n").unwrap();
        let before = Snapshot::take(std::slice::from_ref(&ratio));
        std::fs::write(&path, "40 11\n").unwrap();
        let after = Snapshot::take(std::slice::from_ref(&ratio));
        assert_eq!(before.until(&after, std::slice::from_ref(&ratio)), signature(3.0));
        std::fs::remove_file(&path).unwrap();
        let gone = Snapshot::take(std::slice::from_ref(&ratio));
        assert_eq!(before.until(&gone, std::slice::from_ref(&ratio)), Signature::default());
    }
}
