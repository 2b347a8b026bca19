//! What is asked for a number at the end of a window, and, for a rate, at its beginning too.
//!
//! In: probes. Out: a number of each. Each endpoint is asked once at a time, whatever is wanted of it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use super::{named, number, Endpoint, Selector, TargetError, Watch};

/// What of the number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The number itself, at the end of the window.
    Number,
    /// How much it grows per second of the window.
    Rate,
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
        if self.kind == Kind::Rate {
            f.write_str("growth per second of ")?;
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

/// What must be known from the beginning of a window, by name.
pub(super) fn before(probes: &[Probe], deadline: Instant, watch: &dyn Watch) -> Result<Answers, TargetError> {
    Ok(ask(probes.iter().filter(|probe| probe.kind == Kind::Rate), deadline, watch)?.0)
}

/// The numbers of a window, at its end.
pub(super) fn after(
    probes: &[Probe],
    before: &Answers,
    deadline: Instant,
    watch: &dyn Watch,
) -> Result<BTreeMap<String, f64>, TargetError> {
    let (said, mut numbers) = ask(probes.iter(), deadline, watch)?;
    for (name, (value, at)) in said {
        let number = match before.get(&name) {
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
            Some(metric) => metric.find(text),
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
