//! Searches without a machine.
//!
//! In: an engine, and a [`Source`] of windows. Out: the history and the conclusion. A source is either windows that a machine
//! recorded ([`Recorded`]), or an artificial surface with known noise ([`Surface`]). The first shows what an engine would
//! have found on that machine. The second compares engines, and shows how often one promotes noise. It says nothing
//! about a kernel.

use std::collections::BTreeMap;

use crate::engine::{propose, search, Conclusion, Diverged, Engine, OrthogonalFull, Proposal, Trials};
use crate::history::{Goal, Order, Outcome, Record, Sample, Trial};
use crate::random::Random;
use crate::{Point, Space};

/// A source of windows.
pub trait Source {
    /// The target in the next window with this point in force; `None` if the window fails.
    fn window(&mut self, point: &Point) -> Option<f64>;
}

/// Runs a whole search.
///
/// # Errors
/// [`Diverged`], if the engine depends on more than its history.
pub fn play(
    engine: &dyn Engine,
    space: &Space,
    goal: Goal,
    limit: usize,
    source: &mut dyn Source,
) -> Result<(Vec<Record>, Conclusion), Diverged> {
    let mut make = |trial: &Trial| answer(trial, space, source);
    let mut trials = Trials::made_by(space, goal, limit, &mut make);
    let found = search(engine, space, &mut trials)?;
    let history = trials.into_made();
    // An engine that depends on more than its history does not get here again.
    let expected = match (found, propose(engine, space, goal, &history, limit)?) {
        (Proposal::Done(found), Proposal::Done(again)) if found == again => return Ok((history, found)),
        (Proposal::Try(trial), _) | (_, Proposal::Try(trial)) => trial,
        (Proposal::Done(found), _) => Trial { point: found.best, order: Order::Bracketed },
    };
    Err(Diverged { at: history.len(), expected })
}

/// Runs the paper's search with as many trials as another search made: each setting is measured as often as `trials`
/// permits, but at least once. `source` makes the windows of a search anew.
///
/// The search is shorter or longer, depending on what it measures. So the number of measurements of a setting is the
/// largest with which the search completes within `trials`.
///
/// # Errors
/// [`Diverged`].
pub fn play_paper<S: Source>(
    space: &Space,
    goal: Goal,
    trials: usize,
    source: impl Fn() -> S,
) -> Result<(Vec<Record>, Conclusion), Diverged> {
    let play_with = |repeats| play(&OrthogonalFull { repeats }, space, goal, usize::MAX, &mut source());
    let once = play_with(1)?;
    // With less noise, a search may be a little shorter.
    let most = 3 * trials / (2 * once.0.len().max(1));
    for repeats in (2..=most).rev() {
        let played = play_with(repeats)?;
        if played.0.len() <= trials {
            return Ok(played);
        }
    }
    Ok(once)
}

fn answer(trial: &Trial, space: &Space, source: &mut dyn Source) -> Outcome {
    let default = space.default_point();
    let order: &[bool] = match trial.order {
        Order::Bracketed => &[false, true, false],
        // A window costs nothing here, so none is shared.
        Order::DefaultFirst | Order::Alone => &[false, true],
        Order::DefaultLast => &[true, false],
    };
    let mut sample = Sample::default();
    for &candidate in order {
        let Some(value) = source.window(if candidate { &trial.point } else { &default }) else {
            return Outcome::failed("no such window");
        };
        match candidate {
            true => sample.value = value,
            false => sample.default.push(value),
        }
    }
    Outcome::Measured(sample)
}

/// Checks that `engine` would have made a recorded history. Returns the number of trials, and what comes next.
///
/// # Errors
/// [`Diverged`], with the first trial that differs.
pub fn check(
    engine: &dyn Engine,
    space: &Space,
    goal: Goal,
    history: &[Record],
    limit: usize,
) -> Result<(usize, Proposal), Diverged> {
    Ok((history.len(), propose(engine, space, goal, history, limit)?))
}

/// Windows that a machine recorded. The windows of each point are returned in their order, and then from the first again.
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
                if record.trial.order != Order::Alone {
                    windows.entry(space.default_point()).or_default().extend(&sample.default);
                }
                windows.entry(record.trial.point.clone()).or_default().push(sample.value);
            }
        }
        Self { windows, asked: BTreeMap::new() }
    }

    /// The median of the recorded windows of a point.
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

/// The noise of windows with the same setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise {
    /// Normally distributed, with this relative standard deviation.
    Normal(f64),
    /// The same, and in one window of ten eight times as large.
    HeavyTailed(f64),
    /// The noise of each window also contains 0.95 times the noise of the one before.
    Wandering(f64),
    /// Normally distributed, and the target grows by a thousandth each window.
    Drifting(f64),
}

/// An artificial target.
pub struct Surface<F> {
    height: F,
    noise: Noise,
    random: Random,
    windows: u32,
    wandered: f64,
}

impl<F: Fn(&Point) -> f64> Surface<F> {
    /// The target `height`, with noise.
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
