//! The budget: how many trials are left for the confirmation, and how often exploration measures a point.
//!
//! In: the noise and the effects measured so far. Out: two numbers, which change as more is known.
//!
//! **What is reserved.** The pairs that confirm the effect of the best point so far in 80 of 100 cases, at the error
//! level of the first candidate. As long as no point looks better by more than twice the minimum effect, the effect to be
//! confirmed is twice the minimum effect. At least [`LEAST`] trials are reserved, and at most two thirds of all.
//!
//! **How often a point is measured.** As often as the rest permits for every point of the first pass, at most
//! [`REPEATS`] times. To measure each parameter once is worth more than to measure the first one often.
//!
//! An error here costs power, and promotes nothing.

use super::estimates::Estimates;
use crate::engine::confirm::{pairs_needed, MOST};

/// The smallest number of trials that are left for a confirmation.
const LEAST: usize = 16;

/// The largest number of measurements of one point during exploration.
const REPEATS: usize = 4;

/// The budget.
#[derive(Debug)]
pub(super) struct Budget {
    /// The number of all trials.
    limit: usize,
    /// The error level of the first candidate.
    level: f64,
    /// Trials that are left for the confirmation.
    reserved: usize,
    /// The number of points of the first pass.
    points: usize,
    /// The number of measurements of one point that the current stage demands, if it does.
    repeats: Option<usize>,
    /// Whether the estimates are those of exploration, for the first target.
    changes: bool,
}

impl Budget {
    pub fn new(limit: usize, level: f64) -> Self {
        Self { limit, level, reserved: LEAST, points: 1, repeats: None, changes: true }
    }

    /// Trials that exploration and simplification must not spend.
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// The largest number of measurements of one point.
    pub fn repeats(&self) -> usize {
        let fits = self.limit.saturating_sub(self.reserved) / self.points;
        self.repeats.unwrap_or(fits.clamp(1, REPEATS))
    }

    /// Begins a stage that measures points up to this many times, or, with `None`, as often as the budget permits.
    /// Returns what the stage before had.
    pub fn set_repeats(&mut self, repeats: Option<usize>) -> Option<usize> {
        std::mem::replace(&mut self.repeats, repeats)
    }

    /// Begins exploration with a first pass of this many points.
    pub fn begin(&mut self, points: usize) {
        self.points = points.max(1);
    }

    /// What is reserved does not change any more.
    pub fn fix(&mut self) {
        self.changes = false;
    }

    /// Reserves what the estimates demand.
    pub fn update(&mut self, estimates: &Estimates<'_>, minimum: f64) {
        if self.changes {
            let best = estimates.points().map(|point| estimates.cautious_mean(point)).fold(0.0, f64::max);
            let pairs = pairs_needed(estimates.noise(), (best - minimum).max(minimum), self.level);
            let most = (2 * self.limit / 3).clamp(LEAST, MOST);
            self.reserved = pairs.clamp(LEAST, most);
        }
    }
}
