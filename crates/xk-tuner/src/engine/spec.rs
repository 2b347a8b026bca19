//! The specification of a search: everything that decides which trials it makes, except their results.
//!
//! It is stored when a search begins, and does not change afterwards. A resumed search reads it back, and so makes the
//! same trials, even if the description or the memories have changed since.

use serde::{Deserialize, Serialize};

use super::{
    propose, Comparison, Diverged, Engine, Exhaustive, Orthogonal, OrthogonalFull, Proposal, Racing, Remembered,
};
use crate::history::{Goal, Objective, Record};
use crate::target::UNNAMED;
use crate::Space;

/// The engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineName {
    /// [`Racing`].
    Racing,
    /// [`Orthogonal`].
    Orthogonal,
    /// [`OrthogonalFull`].
    OrthogonalFull,
    /// [`Exhaustive`].
    Exhaustive,
    /// [`Comparison`]. It is no search, so descriptions cannot name it.
    Comparison,
}

/// Everything that an engine needs, except the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchSpec {
    /// The settings that may be tried.
    pub space: Space,
    /// Whether more of the first target is better.
    pub goal: Goal,
    /// The engine.
    pub engine: EngineName,
    /// Its seed.
    pub seed: u64,
    /// The largest number of trials.
    pub limit: usize,
    /// The minimum effect, as a difference of logarithms.
    pub minimum: f64,
    /// The remembered setting, to be tried first.
    pub warm: Option<Remembered>,
    /// The target, in words.
    pub command: String,
    /// Name of the first target.
    #[serde(default = "unnamed")]
    pub lead: String,
    /// The further targets.
    #[serde(default)]
    pub others: Vec<Objective>,
}

fn unnamed() -> String {
    UNNAMED.to_owned()
}

impl SearchSpec {
    /// The engine, with its parameters.
    #[must_use]
    pub fn engine(&self) -> Box<dyn Engine> {
        match self.engine {
            EngineName::Racing => Box::new(Racing {
                seed: self.seed,
                minimum: self.minimum,
                warm: self.warm.clone(),
                others: self.others.clone(),
            }),
            EngineName::Orthogonal => Box::new(Orthogonal),
            EngineName::OrthogonalFull => Box::new(OrthogonalFull::default()),
            EngineName::Exhaustive => Box::new(Exhaustive),
            EngineName::Comparison => Box::new(Comparison { seed: self.seed, minimum: self.minimum }),
        }
    }

    /// What comes next, after this history.
    ///
    /// # Errors
    /// [`Diverged`]: the history is of another search, or of another version of this program.
    pub fn propose(&self, history: &[Record]) -> Result<Proposal, Diverged> {
        propose(&*self.engine(), &self.space, self.goal, history, self.limit)
    }

    /// Whether this search was told that nothing is better than the default.
    #[must_use]
    pub fn is_told_nothing(&self) -> bool {
        self.warm.as_ref().is_some_and(|warm| warm.is_default(&self.space))
    }

    /// Whether `self` and `other` are the same search. The remembered and the forbidden settings are those at the time
    /// when each began, so they may differ.
    #[must_use]
    pub fn is_same_search(&self, other: &Self) -> bool {
        let same_space = self.space.dimensions() == other.space.dimensions();
        let aligned = Self { space: self.space.clone(), warm: self.warm.clone(), ..other.clone() };
        same_space && aligned == *self
    }
}
