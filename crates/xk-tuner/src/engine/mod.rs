//! Search engines behind one small interface.
//!
//! An engine is straight code that asks [`Trials`] for samples. What the history holds is answered from
//! there; the first sample that it lacks ends the call, and is the next trial. So what is proposed depends
//! on the space, the history and the engine's own constants, and on nothing else: a search that was killed
//! goes on with the trial that it was killed in, and a recorded one can be walked through without a machine.

pub mod confirm;
mod exhaustive;
mod orthogonal;
mod pairs;
mod racing;

use serde::{Deserialize, Serialize};

use crate::history::{Goal, Kind, Outcome, Record, Sample, Trial};
use crate::statistics::Interval;
use crate::{Point, Space};

pub use exhaustive::Exhaustive;
pub use orthogonal::Orthogonal;
pub use racing::{Racing, Remembered};

/// A way to search.
pub trait Engine {
    /// What it is called in descriptions.
    fn name(&self) -> &'static str;

    /// Searches, as far as the history reaches.
    ///
    /// # Errors
    /// [`Stop`]: the next trial, mostly.
    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Stop>;
}

/// Why an engine did not come to an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// This has to be measured first.
    Next(Trial),
    /// No more trials are allowed.
    Exhausted,
    /// The history is of another search: what it holds, and what was to come there.
    Diverged {
        /// Number of the trial.
        at: usize,
        /// What the engine would have tried.
        expected: Trial,
    },
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// Where to go; the default where nothing is better.
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
        /// How much better it is.
        effect: Interval,
        /// How often noise alone would have won like this.
        p: f64,
    },
    /// It was confirmed in an earlier search, and is as good again.
    Remembered {
        /// How much better it is, in this one trial.
        effect: f64,
    },
    /// It was the best that was seen, and nothing more is known (the paper's way).
    Seen,
    /// Nothing was shown to be better than the default.
    Nothing,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Proposal {
    /// A trial.
    Try(Trial),
    /// Nothing.
    Done(Conclusion),
}

/// A history that another engine, or the same one in another space, made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("trial {at} of this history is not the one that this search would have made")]
pub struct Diverged {
    /// Number of the trial.
    pub at: usize,
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
    match engine.search(space, &mut Trials::new(space, goal, history, limit)) {
        Ok(conclusion) => Ok(Proposal::Done(conclusion)),
        Err(Stop::Next(trial)) => Ok(Proposal::Try(trial)),
        Err(Stop::Exhausted) => Ok(Proposal::Done(Conclusion { best: space.default_point(), ground: Ground::Nothing })),
        Err(Stop::Diverged { at, .. }) => Err(Diverged { at }),
    }
}

/// The samples that an engine asks for.
#[derive(Debug)]
pub struct Trials<'a> {
    space: &'a Space,
    goal: Goal,
    history: &'a [Record],
    used: usize,
    limit: usize,
}

impl<'a> Trials<'a> {
    /// Answered from this history; no more than `limit` in all.
    #[must_use]
    pub fn new(space: &'a Space, goal: Goal, history: &'a [Record], limit: usize) -> Self {
        Self { space, goal, history, used: 0, limit }
    }

    /// How many more there may be.
    #[must_use]
    pub fn left(&self) -> usize {
        self.limit.saturating_sub(self.used)
    }

    /// Whether more is better.
    #[must_use]
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// The sample of a point; `None` when there is none to be had: it failed, was too slow, or crosses a limit.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn sample(&mut self, point: &Point, kind: Kind) -> Result<Option<&'a Sample>, Stop> {
        let trial = Trial { point: self.space.canonical(point), kind };
        if self.space.forbidden.contains(&trial.point) {
            return Ok(None);
        }
        if self.used == self.limit {
            return Err(Stop::Exhausted);
        }
        let Some(record) = self.history.get(self.used) else { return Err(Stop::Next(trial)) };
        if record.trial != trial {
            return Err(Stop::Diverged { at: self.used, expected: trial });
        }
        self.used += 1;
        match &record.outcome {
            Outcome::Measured(sample) => Ok(Some(sample)),
            Outcome::Failed { .. } | Outcome::Aborted { .. } | Outcome::Violated { .. } => Ok(None),
        }
    }
}
