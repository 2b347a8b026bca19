//! Simplification: reverts those changes of a candidate that do not contribute to its effect.
//!
//! In: a candidate. Out: the candidate with fewer changes. What is left is confirmed like any other candidate.
//!
//! **Which changes are reverted.** A change is reverted if the candidate without it loses no more than the minimum
//! effect. Parameters with the most values are first, since those with few values do more (EOS, section 5). The loss is
//! always measured against the *whole* candidate: several small losses then do not add up to a large one.
//!
//! **Why points are measured again.** The candidate is the best of many measured points, so its mean exaggerates (the
//! winner's curse). Its simpler neighbours would seem to lose. So the estimates of exploration are set aside, and
//! each point is measured afresh. To show that there is *no* difference takes more samples than to find one, hence
//! [`REPEATS`]. The noise estimate stays, as it does not depend on the points.

use super::{unless_exhausted, Race};
use crate::engine::Unfinished;
use crate::Point;

/// The largest number of measurements of one point during simplification.
const REPEATS: usize = 10;

impl Race<'_, '_> {
    pub(super) fn simplify(&mut self, candidate: &Point) -> Result<Point, Unfinished> {
        let explored = self.estimates.take_points();
        let repeats = self.budget.set_repeats(Some(REPEATS));
        let simplified = self.without_idle_changes(candidate);
        self.budget.set_repeats(repeats);
        self.estimates.restore_points(explored);
        simplified
    }

    fn without_idle_changes(&mut self, candidate: &Point) -> Result<Point, Unfinished> {
        let mut simplified = candidate.clone();
        for dimension in self.space.limited_first().into_iter().rev() {
            let default = self.space.dimensions()[dimension].default;
            let simpler = self.space.canonical(&simplified.with(dimension, default));
            if simpler == simplified || self.estimates.is_default(&simpler) {
                continue;
            }
            let compared = self.select(&[simpler.clone(), candidate.clone()], &simpler);
            if unless_exhausted(compared)?.is_none() {
                break;
            }
            if self.estimates.mean(&simpler) >= self.estimates.mean(candidate) - self.minimum {
                simplified = simpler;
            }
        }
        Ok(simplified)
    }
}
