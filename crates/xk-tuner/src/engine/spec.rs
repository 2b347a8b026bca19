//! The specification of a search: everything that decides which trials it makes, except their results.
//!
//! It is stored when a search begins, and does not change afterwards. A resumed search reads it back, and so makes the
//! same trials, even if the description or the memories have changed since.

use serde::{Deserialize, Serialize};

use super::{level, propose, search};
use super::{
    Comparison, Diverged, Engine, Exhaustive, Orthogonal, OrthogonalFull, Proposal, Racing, Remembered, Trials,
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
    /// Whether the seed was drawn when the search began, because the description has none.
    #[serde(default)]
    pub seed_drawn: bool,
    /// The largest number of trials.
    pub limit: usize,
    /// The minimum effect, as a difference of logarithms.
    pub minimum: f64,
    /// How probable it may be that this search promotes noise. Older versions did not divide the error level.
    #[serde(default = "first_share")]
    pub share: f64,
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

fn first_share() -> f64 {
    level::FIRST
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
                share: self.share,
                warm: self.warm.clone(),
                others: self.others.clone(),
            }),
            EngineName::Orthogonal => Box::new(Orthogonal),
            EngineName::OrthogonalFull => Box::new(OrthogonalFull::default()),
            EngineName::Exhaustive => Box::new(Exhaustive),
            EngineName::Comparison => {
                let Self { seed, minimum, share, .. } = *self;
                Box::new(Comparison { seed, minimum, share })
            }
        }
    }

    /// What comes next, after this history.
    ///
    /// # Errors
    /// [`Diverged`]: the history is of another search, or of another version of this program.
    pub fn propose(&self, history: &[Record]) -> Result<Proposal, Diverged> {
        propose(&*self.engine(), &self.space, self.goal, history, self.limit)
    }

    /// Whether exploration tried each parameter before the number of trials ended it.
    #[must_use]
    pub fn has_tried_each(&self, history: &[Record]) -> bool {
        let mut trials = Trials::new(&self.space, self.goal, history, self.limit);
        search(&*self.engine(), &self.space, &mut trials).is_ok() && !trials.is_cut_short()
    }

    /// Whether this search was told that nothing is better than the default.
    #[must_use]
    pub fn is_told_nothing(&self) -> bool {
        self.warm.as_ref().is_some_and(|warm| warm.is_default(&self.space))
    }

    /// Whether `self` and `other` are the same search. The remembered and the forbidden settings, the share of the error
    /// level, and a seed that was drawn are those at the time when each began, so they may differ.
    #[must_use]
    pub fn is_same_search(&self, other: &Self) -> bool {
        let same_space = self.space.dimensions() == other.space.dimensions();
        let seed = if self.seed_drawn && other.seed_drawn { self.seed } else { other.seed };
        let (space, warm, share) = (self.space.clone(), self.warm.clone(), self.share);
        let aligned = Self { space, warm, share, seed, ..other.clone() };
        same_space && aligned == *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> SearchSpec {
        SearchSpec {
            space: Space::new(Vec::new()).unwrap(),
            goal: Goal::Maximise,
            engine: EngineName::Racing,
            seed: 1,
            seed_drawn: false,
            limit: 10,
            minimum: 0.02,
            share: level::FIRST,
            warm: None,
            command: "true".into(),
            lead: "target".into(),
            others: Vec::new(),
        }
    }

    #[test]
    fn a_drawn_seed_and_the_share_do_not_make_another_search() {
        let drawn = |seed| SearchSpec { seed, seed_drawn: true, ..spec() };
        assert!(drawn(5).is_same_search(&drawn(6)));
        assert!(spec().is_same_search(&SearchSpec { share: 0.001, ..spec() }));
        // A seed in the description is a wish.
        assert!(!spec().is_same_search(&SearchSpec { seed: 2, ..spec() }));
        assert!(!spec().is_same_search(&drawn(1)) && !drawn(1).is_same_search(&spec()));
    }

    #[test]
    fn what_an_older_version_stored_has_a_given_seed_and_the_first_share() {
        let mut old = serde_json::to_value(spec()).unwrap();
        old.as_object_mut().unwrap().retain(|name, _| name != "share" && name != "seed_drawn");
        let old: SearchSpec = serde_json::from_value(old).unwrap();
        assert_eq!((old.share, old.seed_drawn), (level::FIRST, false));
    }
}
