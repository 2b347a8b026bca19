//! Search engines.
//!
//! An engine is straight-line code that requests samples from [`Trials`]. If the history contains a sample, the engine
//! gets it from there. The first missing sample ends the call: it is the next trial. The next trial therefore depends
//! only on the space, the history and the engine's parameters ([`SearchSpec`]). A killed search resumes with the trial
//! in which it was killed, and a recorded search can be replayed without a machine.

mod comparison;
pub mod confirm;
mod covering;
mod exhaustive;
pub mod level;
mod orthogonal;
mod racing;
mod spec;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::history::{Goal, Order, Outcome, Record, Sample, Trial};
use crate::statistics::Interval;
use crate::{Point, Space};

pub use comparison::Comparison;
pub use exhaustive::Exhaustive;
pub use orthogonal::{Orthogonal, OrthogonalFull};
pub use racing::{Racing, Remembered};
pub use spec::{EngineName, SearchSpec};

/// A search algorithm.
pub trait Engine {
    /// Its name in descriptions.
    fn name(&self) -> &'static str;

    /// Searches, as far as the history reaches.
    ///
    /// # Errors
    /// [`Unfinished`]: usually the next trial.
    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Unfinished>;
}

/// Why an engine did not reach a conclusion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfinished {
    /// This trial must be made first.
    Needs(Trial),
    /// No more trials are allowed.
    Exhausted,
    /// The history belongs to another search.
    Diverged(Diverged),
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// The best setting; the default if nothing is better.
    pub best: Point,
    /// What is known about it.
    pub ground: Ground,
}

/// Why a point is believed to be better.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ground {
    /// It won in fresh, randomly ordered pairs.
    Confirmed {
        /// Its effect.
        effect: Interval,
        /// The probability that noise alone produces such a result.
        p: f64,
    },
    /// An earlier search confirmed it, and it won in fresh pairs of this search too.
    Remembered {
        /// The estimate of its effect.
        effect: f64,
        /// The estimate with its interval. Older versions believed one trial, and recorded none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interval: Option<Interval>,
        /// The probability that noise alone produces such a result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        p: Option<f64>,
    },
    /// It was the best that was measured, and was not confirmed (the paper's method).
    Seen,
    /// Nothing was shown to be better than the default.
    Nothing,
}

/// What an engine asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Proposal {
    /// A trial.
    Try(Trial),
    /// Nothing: the search is complete.
    Done(Conclusion),
}

/// A history that another engine, or the same engine in another space, has made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("trial {at} of this history is not the trial that this search would have made")]
pub struct Diverged {
    /// Number of the trial, from 0.
    pub at: usize,
    /// The trial that the engine would have made.
    pub expected: Trial,
}

/// What `engine` does next, after this history.
///
/// # Errors
/// [`Diverged`].
pub fn propose(
    engine: &dyn Engine,
    space: &Space,
    goal: Goal,
    history: &[Record],
    limit: usize,
) -> Result<Proposal, Diverged> {
    search(engine, space, &mut Trials::new(space, goal, history, limit))
}

/// What `engine` does after these trials.
///
/// # Errors
/// [`Diverged`].
pub fn search(engine: &dyn Engine, space: &Space, trials: &mut Trials<'_>) -> Result<Proposal, Diverged> {
    match engine.search(space, trials) {
        Ok(conclusion) => Ok(Proposal::Done(conclusion)),
        Err(Unfinished::Needs(trial)) => Ok(Proposal::Try(trial)),
        Err(Unfinished::Exhausted) => {
            Ok(Proposal::Done(Conclusion { best: space.default_point(), ground: Ground::Nothing }))
        }
        Err(Unfinished::Diverged(diverged)) => Err(diverged),
    }
}

/// The samples that an engine requests.
pub struct Trials<'a> {
    space: &'a Space,
    goal: Goal,
    history: &'a [Record],
    used: usize,
    limit: usize,
    /// Points that have violated a constraint in this search. No stage of an engine may try them again.
    violated: BTreeSet<Point>,
    /// Whether exploration ended before each parameter was tried.
    cut_short: bool,
    /// In a simulation: makes the trials that the history does not contain.
    maker: Option<Maker<'a>>,
}

/// Makes trials, and keeps them.
struct Maker<'a> {
    make: &'a mut dyn FnMut(&Trial) -> Outcome,
    made: Vec<Record>,
}

impl<'a> Trials<'a> {
    /// Samples from this history; at most `limit` trials in all.
    #[must_use]
    pub fn new(space: &'a Space, goal: Goal, history: &'a [Record], limit: usize) -> Self {
        Self { space, goal, history, used: 0, limit, violated: BTreeSet::new(), cut_short: false, maker: None }
    }

    /// Trials that are made when they are requested: a whole search is one call of its engine.
    #[must_use]
    pub fn made_by(space: &'a Space, goal: Goal, limit: usize, make: &'a mut dyn FnMut(&Trial) -> Outcome) -> Self {
        Self { maker: Some(Maker { make, made: Vec::new() }), ..Self::new(space, goal, &[], limit) }
    }

    /// The trials that were made on request.
    #[must_use]
    pub fn into_made(self) -> Vec<Record> {
        self.maker.map(|maker| maker.made).unwrap_or_default()
    }

    /// How many more trials are allowed.
    #[must_use]
    pub fn left(&self) -> usize {
        self.limit.saturating_sub(self.used)
    }

    /// How many trials are allowed in all.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether more is better.
    #[must_use]
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// Records that exploration ended before each parameter was tried.
    pub fn cut_short(&mut self) {
        self.cut_short = true;
    }

    /// Whether exploration ended before each parameter was tried.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Whether this point has violated a constraint, or one on the way to it from the default has: a point that differs
    /// from it only in one number, which is nearer to the default.
    #[must_use]
    pub fn is_beyond_limit(&self, point: &Point) -> bool {
        let point = self.space.canonical(point);
        let violated = || self.violated.union(&self.space.forbidden);
        violated().any(|known| *known == point || self.space.is_beyond(&point, known))
    }

    /// The sample of a point; `None` if there is none, because the trial failed, was aborted, or violated a constraint. A
    /// point that has violated a constraint is not tried again.
    ///
    /// # Errors
    /// [`Unfinished`].
    pub fn sample(&mut self, point: &Point, order: Order) -> Result<Option<Sample>, Unfinished> {
        let trial = Trial { point: self.space.canonical(point), order };
        if self.space.forbidden.contains(&trial.point) || self.violated.contains(&trial.point) {
            return Ok(None);
        }
        if self.used == self.limit {
            return Err(Unfinished::Exhausted);
        }
        let outcome = self.outcome(&trial)?;
        self.used += 1;
        match outcome {
            Outcome::Measured(sample) => Ok(Some(sample)),
            Outcome::Failed { .. } | Outcome::Aborted { .. } => Ok(None),
            Outcome::Violated { .. } => {
                self.violated.insert(trial.point);
                Ok(None)
            }
        }
    }

    fn outcome(&mut self, trial: &Trial) -> Result<Outcome, Unfinished> {
        match (self.history.get(self.used), &mut self.maker) {
            (Some(record), _) if record.trial != *trial => {
                Err(Unfinished::Diverged(Diverged { at: self.used, expected: trial.clone() }))
            }
            (Some(record), _) => Ok(record.outcome.clone()),
            (None, Some(maker)) => {
                let outcome = (maker.make)(trial);
                maker.made.push(Record { trial: trial.clone(), outcome: outcome.clone() });
                Ok(outcome)
            }
            (None, None) => Err(Unfinished::Needs(trial.clone())),
        }
    }
}
