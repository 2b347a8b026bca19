//! Comparison: whether a kept setting is still better than the default.
//!
//! In: a space of two levels per dimension, the default and the kept one, and samples. Out: a [`Conclusion`], which names
//! the kept setting if it wins in fresh, randomly ordered pairs, or the default. It refuses the kept setting with the same
//! test by which a search refuses a candidate, at the error level of its share (`level.rs`).

use super::confirm::{confirm, looks, MOST};
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
    /// The probability that noise alone may keep the setting.
    pub share: f64,
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
    pub const fn limit() -> usize {
        MOST
    }
}

impl Engine for Comparison {
    fn name(&self) -> &'static str {
        "comparison"
    }

    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Unfinished> {
        let kept = Self::kept(space);
        let looks = looks(self.share, MOST);
        let result = confirm(trials, &kept, &looks, self.minimum, &mut Random::new(self.seed))?;
        Ok(match result {
            // It is no new discovery.
            Some((interval, p)) => {
                let ground = Ground::Remembered { effect: interval.middle, interval: Some(interval), p: Some(p) };
                Conclusion { best: kept, ground }
            }
            None => Conclusion { best: space.default_point(), ground: Ground::Nothing },
        })
    }
}
