//! Whether the workload is still the one that a search began with.
//!
//! In: the sensors in each window with the default. Out: whether the workload has changed. It refuses to call noise a change:
//! [`WINDOWS`] windows in a row must differ from the signature of the search, and resemble each other. The sensors that the
//! kernel counts on demand are left out, because they would cost every window.

use crate::{Gauges, Sensor, Signature, Snapshot};

/// The number of windows in a row that show another workload.
const WINDOWS: usize = 3;

/// The workload of a search.
pub struct Workload<'s> {
    sensors: &'s [Sensor],
    gauges: Gauges<'s>,
    known: Signature,
    /// The first of the last windows that differ, and their number.
    other: Option<(Signature, usize)>,
}

impl<'s> Workload<'s> {
    /// The sensors of a description that cost nothing.
    pub fn sensors(all: &[Sensor]) -> Vec<Sensor> {
        all.iter().filter(|sensor| sensor.is_always_counted()).cloned().collect()
    }

    /// The workload with this signature.
    pub fn of(sensors: &'s [Sensor], known: Signature) -> Self {
        Self { sensors, gauges: Gauges::of(sensors), known, other: None }
    }

    /// The counters before a window.
    pub fn before(&mut self) -> Snapshot {
        self.gauges.read()
    }

    /// Adds a window. Returns whether the workload has changed.
    pub fn after(&mut self, before: &Snapshot) -> bool {
        let after = self.gauges.read();
        let found = self.gauges.between(before, &after);
        self.add(found)
    }

    fn add(&mut self, found: Signature) -> bool {
        if self.known.is_like(&found, self.sensors) {
            self.other = None;
            return false;
        }
        let number = match &self.other {
            Some((first, number)) if first.is_like(&found, self.sensors) => number + 1,
            _ => 1,
        };
        match &mut self.other {
            Some((_, known)) if number > 1 => *known = number,
            other => *other = Some((found, number)),
        }
        number >= WINDOWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_like_windows_show_another_workload_and_noise_does_not() {
        let sensors = [Sensor { name: "size".into(), of: vec![], per: vec![], similar: 0.2, within: 0.0 }];
        let changes = |windows: &[f64]| {
            let mut workload = Workload::of(&sensors, Signature([("size".to_owned(), 10.0)].into()));
            windows.iter().any(|window| workload.add(Signature([("size".to_owned(), *window)].into())))
        };
        assert!(changes(&[10.0, 20.0, 21.0, 20.0]));
        assert!(changes(&[50.0, 20.0, 20.0, 20.0]));
        assert!(!changes(&[20.0, 20.0, 10.0, 20.0, 20.0]), "it came back");
        assert!(!changes(&[20.0, 40.0, 80.0, 20.0, 3.0, 40.0]), "noise");
        assert!(!changes(&[9.0, 10.0, 11.0, 9.0, 9.0]));
    }
}
