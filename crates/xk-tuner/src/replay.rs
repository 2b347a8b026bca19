//! The replay lab: searches without a machine.
//!
//! What answers a trial is a [`Source`]: windows that a machine recorded ([`Recorded`]), or a made-up surface
//! with stated noise ([`Surface`]). The first says how an engine would have done on that machine; the second
//! compares engines, and shows how often one promotes by mistake. Neither says anything about a kernel.

use std::collections::BTreeMap;

use crate::engine::{propose, Conclusion, Diverged, Engine, Proposal};
use crate::history::{Goal, Kind, Outcome, Record, Sample, Trial};
use crate::random::Random;
use crate::{Point, Space};

/// What answers trials.
pub trait Source {
    /// What the target says in the next window, with this point in force; `None` when it fails.
    fn window(&mut self, point: &Point) -> Option<f64>;
}

/// A search from beginning to end.
///
/// # Errors
/// [`Diverged`], when the engine is no function of its history.
pub fn play(
    engine: &dyn Engine,
    space: &Space,
    goal: Goal,
    limit: usize,
    source: &mut dyn Source,
) -> Result<(Vec<Record>, Conclusion), Diverged> {
    let mut history = Vec::new();
    loop {
        match propose(engine, space, goal, &history, limit)? {
            Proposal::Done(conclusion) => return Ok((history, conclusion)),
            Proposal::Try(trial) => {
                let outcome = answer(&trial, space, source);
                history.push(Record { trial, outcome });
            }
        }
    }
}

fn answer(trial: &Trial, space: &Space, source: &mut dyn Source) -> Outcome {
    let default = space.default_point();
    let order: &[bool] = match trial.kind {
        Kind::Sandwich => &[false, true, false],
        Kind::DefaultFirst => &[false, true],
        Kind::DefaultLast => &[true, false],
    };
    let mut sample = Sample::default();
    for &candidate in order {
        let Some(value) = source.window(if candidate { &trial.point } else { &default }) else {
            return Outcome::Failed { reason: "no such window".into() };
        };
        match candidate {
            true => sample.value = value,
            false => sample.default.push(value),
        }
    }
    Outcome::Measured(sample)
}

/// Whether a recorded history is what `engine` would do: the number of trials that agree, and what comes next.
///
/// # Errors
/// [`Diverged`], with the first trial that does not agree.
pub fn check(
    engine: &dyn Engine,
    space: &Space,
    goal: Goal,
    history: &[Record],
    limit: usize,
) -> Result<(usize, Proposal), Diverged> {
    Ok((history.len(), propose(engine, space, goal, history, limit)?))
}

/// Windows that a machine recorded, each point's in the order of recording, again and again.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    windows: BTreeMap<Point, Vec<f64>>,
    asked: BTreeMap<Point, usize>,
}

impl Recorded {
    /// The windows of these trials.
    #[must_use]
    pub fn of(space: &Space, history: &[Record]) -> Self {
        let mut windows: BTreeMap<Point, Vec<f64>> = BTreeMap::new();
        for record in history {
            if let Outcome::Measured(sample) = &record.outcome {
                windows.entry(space.default_point()).or_default().extend(&sample.default);
                windows.entry(record.trial.point.clone()).or_default().push(sample.value);
            }
        }
        Self { windows, asked: BTreeMap::new() }
    }

    /// The middle of what was recorded of a point.
    #[must_use]
    pub fn middle(&self, point: &Point) -> Option<f64> {
        crate::statistics::median(self.windows.get(point)?)
    }
}

impl Source for Recorded {
    fn window(&mut self, point: &Point) -> Option<f64> {
        let known = self.windows.get(point)?;
        let asked = self.asked.entry(point.clone()).or_default();
        let value = known.get(*asked % known.len()).copied();
        *asked += 1;
        value
    }
}

/// How windows of the same setting differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise {
    /// Normally distributed, with this relative deviation.
    Normal(f64),
    /// The same, and one window of ten is several times as far off.
    HeavyTailed(f64),
    /// The same, and the machine wanders: each window starts from where the one before was.
    Wandering(f64),
    /// The same, and the machine gets steadily faster, by a thousandth each window.
    Drifting(f64),
}

/// A made-up target.
pub struct Surface<F> {
    height: F,
    noise: Noise,
    random: Random,
    windows: u32,
    wandered: f64,
}

impl<F: Fn(&Point) -> f64> Surface<F> {
    /// `height` without noise, seen through `noise`.
    pub fn new(height: F, noise: Noise, seed: u64) -> Self {
        Self { height, noise, random: Random::new(seed), windows: 0, wandered: 0.0 }
    }

    fn error(&mut self) -> f64 {
        self.windows += 1;
        let toss = self.random.normal();
        match self.noise {
            Noise::Normal(deviation) => deviation * toss,
            Noise::HeavyTailed(deviation) if self.random.unit() < 0.1 => 8.0 * deviation * toss,
            Noise::HeavyTailed(deviation) => deviation * toss,
            Noise::Wandering(deviation) => {
                self.wandered = 0.95 * self.wandered + deviation * toss;
                self.wandered
            }
            Noise::Drifting(deviation) => deviation * toss + 0.001 * f64::from(self.windows),
        }
    }
}

impl<F: Fn(&Point) -> f64> Source for Surface<F> {
    fn window(&mut self, point: &Point) -> Option<f64> {
        Some((self.height)(point) * self.error().exp())
    }
}
