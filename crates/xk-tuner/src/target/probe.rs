//! What is asked for a number at the end of a window, and, for a rate, at its beginning too. Functions of the kernel are
//! watched meanwhile, and not before or after: what that costs is the same with every setting.
//!
//! In: probes. Out: a number of each. Each endpoint is asked once at a time, whatever is wanted of it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use super::{named, number, Endpoint, Selector, TargetError, Watch};
use crate::ebpf::Latency;

/// What of the number counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// The number itself, at the end of the window.
    Number,
    /// How much it grows per second of the window.
    Rate,
    /// Of the calls of a function: the nanoseconds that so many percent of them took no longer than.
    Percentile(f64),
}

/// A number that a running program says.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// What the number is called.
    pub name: String,
    /// Who is asked.
    pub endpoint: Endpoint,
    /// Of what it exposes, for Prometheus endpoints; the last line, if there is none.
    pub metric: Option<Selector>,
    /// What of it counts.
    pub kind: Kind,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Number => {}
            Kind::Rate => f.write_str("growth per second of ")?,
            Kind::Percentile(percent) => {
                return write!(f, "nanoseconds that {percent} % of the calls of {} take", self.endpoint)
            }
        }
        match &self.metric {
            Some(metric) => write!(f, "{metric} at {}", self.endpoint),
            None => write!(f, "what {} says", self.endpoint),
        }
    }
}

/// A number, and when it was said.
type Said = (f64, Instant);

/// Numbers by name.
type Answers = BTreeMap<String, Said>;

/// What must be known from the beginning of a window.
#[derive(Debug)]
pub(super) struct Before {
    answers: Answers,
    /// By function; until this is dropped.
    watched: BTreeMap<String, Latency>,
}

/// Asks for what must be known from the beginning of a window, and starts to watch.
pub(super) fn before(probes: &[Probe], deadline: Instant, watch: &dyn Watch) -> Result<Before, TargetError> {
    let (answers, _) = ask(probes.iter().filter(|probe| probe.kind == Kind::Rate), deadline, watch)?;
    let mut watched = BTreeMap::new();
    for probe in probes {
        let Endpoint::Function(name) = &probe.endpoint else { continue };
        if !watched.contains_key(name) {
            let latency = Latency::watch(name).map_err(|error| TargetError::Endpoint(error.to_string()))?;
            watched.insert(name.clone(), latency);
        }
    }
    Ok(Before { answers, watched })
}

impl Before {
    /// The percentile that a probe wants, if it wants one.
    fn percentile(&self, probe: &Probe) -> Option<Result<f64, TargetError>> {
        let (Endpoint::Function(name), Kind::Percentile(percent)) = (&probe.endpoint, probe.kind) else { return None };
        let wrong = |why: String| TargetError::Endpoint(format!("{}: {why}", probe.endpoint));
        let histogram = self.watched.get(name)?.read().map_err(|error| wrong(error.to_string()));
        Some(histogram.and_then(|histogram| match (histogram.lost, histogram.percentile(percent)) {
            (0, Some(nanoseconds)) => Ok(nanoseconds),
            (0, None) => Err(wrong("no call of it has begun and ended in the window".into())),
            (lost, _) => Err(wrong(format!("{lost} calls could not be measured, with too many threads inside"))),
        }))
    }
}

/// The numbers of a window, at its end.
pub(super) fn after(
    probes: &[Probe],
    before: &Before,
    deadline: Instant,
    watch: &dyn Watch,
) -> Result<BTreeMap<String, f64>, TargetError> {
    // First of all: what is asked may call these functions.
    let mut measured = BTreeMap::new();
    for probe in probes {
        if let Some(number) = before.percentile(probe) {
            measured.insert(probe.name.clone(), number?);
        }
    }
    let asked = probes.iter().filter(|probe| !measured.contains_key(&probe.name));
    let (said, mut numbers) = ask(asked, deadline, watch)?;
    numbers.extend(measured.clone());
    for (name, (value, at)) in said {
        let number = match before.answers.get(&name) {
            None => value,
            Some((earlier, _)) if value < *earlier => {
                let why = format!(
                    "{name} went back from {earlier} to {value}: its program was restarted, or it is no counter"
                );
                return Err(TargetError::Endpoint(why));
            }
            Some((earlier, since)) => (value - earlier) / (at - *since).as_secs_f64(),
        };
        numbers.insert(name, number);
    }
    Ok(numbers)
}

/// The number of each, and what programs have said beside them as `NAME = NUMBER`.
fn ask<'p>(
    probes: impl Iterator<Item = &'p Probe>,
    deadline: Instant,
    watch: &dyn Watch,
) -> Result<(Answers, BTreeMap<String, f64>), TargetError> {
    let mut answers: BTreeMap<&Endpoint, (String, Instant)> = BTreeMap::new();
    let (mut said, mut beside) = (BTreeMap::new(), BTreeMap::new());
    for probe in probes {
        if !answers.contains_key(&probe.endpoint) {
            answers.insert(&probe.endpoint, (probe.endpoint.ask(deadline, watch)?, Instant::now()));
        }
        let (text, at) = &answers[&probe.endpoint];
        let value = match &probe.metric {
            Some(metric) => metric.find(text).map_err(|error| error.to_string()),
            None => {
                beside.extend(named(text));
                number(text).map_err(|error| error.to_string())
            }
        };
        let value = value.map_err(|why| TargetError::Endpoint(format!("{}: {why}", probe.endpoint)))?;
        said.insert(probe.name.clone(), (value, *at));
    }
    Ok((said, beside))
}
