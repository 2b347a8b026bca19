//! Comparison: whether a kept setting is still better than the default.
//!
//! In: a space of two levels per dimension, the default and the kept one, and samples. Out: a [`Conclusion`], which names
//! the kept setting if it wins in fresh, randomly ordered pairs, or the default. It refuses the kept setting with the same
//! test, and the same limits of error, by which a search refuses a candidate.

use super::confirm::{confirm, ATTEMPTS};
use super::{Conclusion, Engine, Ground, Trials, Unfinished};
use crate::random::Random;
use crate::{Point, Space};

/// Compares one setting with the default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Seed of the random order within pairs.
    pub seed: u64,
    /// The minimum effect, as a difference of logarithms.
    pub minimum: f64,
}

impl Comparison {
    /// The setting that is compared: the last level of each dimension.
    #[must_use]
    pub fn kept(space: &Space) -> Point {
        let last = space.dimensions().iter().map(|dimension| dimension.levels.len().saturating_sub(1));
        space.canonical(&Point(last.collect()))
    }

    /// The largest number of trials.
    #[must_use]
    pub fn limit() -> usize {
        ATTEMPTS[0].last().map_or(0, |(pairs, _)| *pairs)
    }
}

impl Engine for Comparison {
    fn name(&self) -> &'static str {
        "comparison"
    }

    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Unfinished> {
        let kept = Self::kept(space);
        let result = confirm(trials, &kept, ATTEMPTS[0], self.minimum, &mut Random::new(self.seed))?;
        Ok(match result {
            Some((effect, p)) => Conclusion { best: kept, ground: Ground::Confirmed { effect, p } },
            None => Conclusion { best: space.default_point(), ground: Ground::Nothing },
        })
    }
}
