//! Numbers that are queried at the end of a window, and, for rates, also at its beginning. Kernel functions are observed
//! during the window only, so that the cost is the same with every setting.
//!
//! In: probes. Out: a number for each. It refuses answers without the number, counters that decrease, and observation that
//! missed calls. Each endpoint has one query outstanding at a time, for all its numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use super::{named, number, AnswerError, Endpoint, Selector, TargetError, Watch};
use crate::ebpf::Latency;

/// What is measured of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantity {
    /// Its value at the end of the window.
    Number,
    /// Its growth per second of the window.
    Rate,
    /// The nanoseconds within which this percentage of the calls of a function end.
    Percentile(f64),
}

/// A number that is queried.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// Its name.
    pub name: String,
    /// What is queried.
    pub endpoint: Endpoint,
    /// The series of a Prometheus endpoint; `None`: the last line of the answer.
    pub metric: Option<Selector>,
    /// What is measured of it.
    pub quantity: Quantity,
}

/// These words are part of a search's identity (`Target::words`): a change of them would make memories useless.
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quantity {
            Quantity::Number => {}
            Quantity::Rate => f.write_str("growth per second of ")?,
            Quantity::Percentile(percent) => {
                return write!(f, "nanoseconds that {percent} % of the calls of {} take", self.endpoint)
            }
        }
        match &self.metric {
            Some(metric) => write!(f, "{metric} at {}", self.endpoint),
            None => write!(f, "what {} says", self.endpoint),
        }
    }
}

/// A number, and the time of the answer.
type Answer = (f64, Instant);

/// Numbers by name.
type Answers = BTreeMap<String, Answer>;

/// What is known from the beginning of a window.
#[derive(Debug)]
pub(super) struct Before {
    answers: Answers,
    /// The observed functions, by name. Dropping this ends the observation.
    observed: BTreeMap<String, Latency>,
}

/// Queries the numbers at the beginning of a window, and starts to observe functions.
pub(super) fn before(probes: &[Probe], deadline: Instant, watch: &dyn Watch) -> Result<Before, TargetError> {
    let (answers, _) = ask(probes.iter().filter(|probe| probe.quantity == Quantity::Rate), deadline, watch)?;
    let mut observed = BTreeMap::new();
    for probe in probes {
        let Endpoint::Function(name) = &probe.endpoint else { continue };
        if !observed.contains_key(name) {
            observed.insert(name.clone(), Latency::watch(name)?);
        }
    }
    Ok(Before { answers, observed })
}

impl Before {
    /// The percentile of a probe, if it is a latency.
    fn percentile(&self, probe: &Probe) -> Option<Result<f64, TargetError>> {
        let (Endpoint::Function(name), Quantity::Percentile(percent)) = (&probe.endpoint, probe.quantity) else {
            return None;
        };
        let observed = self.observed.get(name)?;
        Some(observed.read().map_err(TargetError::from).and_then(|histogram| {
            let problem = match (histogram.lost, histogram.percentile(percent)) {
                (0, Some(nanoseconds)) => return Ok(nanoseconds),
                (0, None) => AnswerError::NoCall,
                (calls, _) => AnswerError::LostCalls { calls },
            };
            Err(TargetError::Answer { endpoint: probe.endpoint.clone(), problem: Box::new(problem) })
        }))
    }
}

/// The numbers at the end of a window.
pub(super) fn after(
    probes: &[Probe],
    before: &Before,
    deadline: Instant,
    watch: &dyn Watch,
) -> Result<BTreeMap<String, f64>, TargetError> {
    // Before the queries, which may call these functions.
    let mut measured = BTreeMap::new();
    for probe in probes {
        if let Some(number) = before.percentile(probe) {
            measured.insert(probe.name.clone(), number?);
        }
    }
    let queried = probes.iter().filter(|probe| !measured.contains_key(&probe.name));
    let (answers, mut numbers) = ask(queried, deadline, watch)?;
    numbers.extend(measured.clone());
    for (name, (value, at)) in answers {
        let number = match before.answers.get(&name) {
            None => value,
            Some((earlier, _)) if value < *earlier => {
                return Err(TargetError::Decreased { name, earlier: *earlier, later: value });
            }
            Some((earlier, since)) => (value - earlier) / (at - *since).as_secs_f64(),
        };
        numbers.insert(name, number);
    }
    Ok(numbers)
}

/// The number of each probe, and the further numbers of the answers (`NAME = NUMBER`).
fn ask<'p>(
    probes: impl Iterator<Item = &'p Probe>,
    deadline: Instant,
    watch: &dyn Watch,
) -> Result<(Answers, BTreeMap<String, f64>), TargetError> {
    let mut answers: BTreeMap<&Endpoint, (String, Instant)> = BTreeMap::new();
    let (mut numbers, mut further) = (BTreeMap::new(), BTreeMap::new());
    for probe in probes {
        if !answers.contains_key(&probe.endpoint) {
            answers.insert(&probe.endpoint, (probe.endpoint.ask(deadline, watch)?, Instant::now()));
        }
        let (text, at) = &answers[&probe.endpoint];
        let value = match &probe.metric {
            Some(metric) => metric.find(text).map_err(AnswerError::from),
            None => {
                further.extend(named(text));
                number(text).map_err(AnswerError::from)
            }
        };
        let value = value
            .map_err(|problem| TargetError::Answer { endpoint: probe.endpoint.clone(), problem: Box::new(problem) })?;
        numbers.insert(probe.name.clone(), (value, *at));
    }
    Ok((numbers, further))
}
