//! Whether the windows of a kept setting have changed: a cumulative sum with running statistics.
//!
//! In: the target in one window after the other. Out: an alarm, when they have become larger or smaller for good. A kept
//! setting is watched in this way because that costs the service nothing. An alarm is only a reason to compare the setting
//! with the default.
//!
//! **The sums.** Each window is standardised: its logarithm, less the mean of all windows before, in standard deviations.
//! Two sums add up what exceeds [`ALLOWANCE`] in each direction, and never fall below 0 (E. S. Page, "Continuous inspection
//! schemes", Biometrika 41, 1954). The alarm is raised when one reaches [`THRESHOLD`].
//!
//! **The running mean.** The mean and the deviation come from few windows at first. With these errors, an ordinary
//! cumulative sum raises false alarms. So the difference is scaled to have Student's distribution, and converted to the normal
//! distribution (D. M. Hawkins, "Self-starting cusum charts for location and scale", The Statistician 36, 1987; D. L.
//! Wallace, "Bounds on normal approximations to Student's and the chi-square distributions", Annals of Mathematical
//! Statistics 30, 1959). A window that adds to a large sum does not enter the mean, so that a slow change is not learned.
//!
//! **Outliers.** A window counts for at most [`CLIP`] standard deviations. So one window never raises the alarm; three do.

use serde::{Deserialize, Serialize};

/// What each window may differ by without adding to a sum, in standard deviations.
const ALLOWANCE: f64 = 0.5;

/// A sum that raises the alarm.
const THRESHOLD: f64 = 8.0;

/// A larger difference counts as this one.
const CLIP: f64 = 4.0;

/// The number of windows before any is judged.
const LEAST: f64 = 8.0;

/// A window counts as at least this share of the mean, since 0 has no logarithm.
const SMALLEST: f64 = 1e-6;

/// The windows of a kept setting so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// The number of windows in the mean.
    windows: f64,
    /// The mean of their logarithms.
    mean: f64,
    /// The sum of their squared distances from the mean.
    squares: f64,
    /// The sum of what was above the mean, and of what was below.
    sums: [f64; 2],
}

impl Drift {
    /// Begins with these windows.
    #[must_use]
    pub fn of(windows: impl IntoIterator<Item = f64>) -> Self {
        let mut drift = Self::default();
        windows.into_iter().for_each(|window| drift.learn(drift.logarithm(window)));
        drift
    }

    /// The geometric mean of the windows; `None` without any.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.windows > 0.0).then(|| self.mean.exp())
    }

    /// Whether there are too few windows yet to judge the next one.
    #[must_use]
    pub fn is_learning(&self) -> bool {
        self.windows < LEAST
    }

    /// Whether the next window may raise the alarm.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.sums.iter().any(|sum| *sum > THRESHOLD - CLIP)
    }

    /// Whether the alarm is raised.
    #[must_use]
    pub fn is_alarm(&self) -> bool {
        self.sums.iter().any(|sum| *sum >= THRESHOLD)
    }

    /// Adds a window. A difference of less than half of `minimum`, a difference of logarithms, is no change.
    pub fn add(&mut self, window: f64, minimum: f64) {
        let value = self.logarithm(window);
        if self.is_learning() {
            self.learn(value);
            return;
        }
        let score = self.score(value, minimum / 2.0).clamp(-CLIP, CLIP);
        let add = |sum: f64, score: f64| (sum + score - ALLOWANCE).max(0.0);
        self.sums = [add(self.sums[0], score), add(self.sums[1], -score)];
        if !self.is_near() && score.abs() < CLIP {
            self.learn(value);
        }
    }

    fn logarithm(&self, window: f64) -> f64 {
        let least = self.mean().map_or(0.0, |mean| SMALLEST * mean);
        window.max(least).max(f64::MIN_POSITIVE).ln()
    }

    /// The normal score of the next logarithm, with a standard deviation of at least `least`.
    fn score(&self, value: f64, least: f64) -> f64 {
        let freedom = self.windows - 1.0;
        let deviation = (self.squares / freedom).sqrt().max(least).max(f64::MIN_POSITIVE);
        let t = (value - self.mean) / deviation * (self.windows / (self.windows + 1.0)).sqrt();
        let size = (freedom * (t * t / freedom).ln_1p()).sqrt() * (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0);
        size.copysign(t)
    }

    /// Adds a logarithm to the mean (B. P. Welford, "Note on a method for calculating corrected sums of squares and
    /// products", Technometrics 4, 1962).
    fn learn(&mut self, value: f64) {
        self.windows += 1.0;
        let distance = value - self.mean;
        self.mean += distance / self.windows;
        self.squares += distance * (value - self.mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const MINIMUM: f64 = 0.0198;

    /// Windows with noise of 5 %, changed by `shift` standard deviations after `before`. Returns after how many more the
    /// alarm was raised, if within `most`.
    fn alarm(random: &mut Random, before: usize, shift: f64, most: usize) -> Option<usize> {
        let mut window = |shift: f64| 1000.0 * (0.05 * (random.normal() + shift)).exp();
        let mut drift = Drift::of((0..8).map(|_| window(0.0)));
        for number in 0..before + most {
            drift.add(window(if number < before { 0.0 } else { shift }), MINIMUM);
            if drift.is_alarm() {
                return number.checked_sub(before).map(|more| more + 1);
            }
        }
        None
    }

    #[test]
    fn noise_alone_seldom_raises_the_alarm() {
        let mut random = Random::new(7);
        // A check per 15 minutes makes 35,040 in a year.
        let alarms = (0..200).filter(|_| alarm(&mut random, 0, 0.0, 2_000).is_some()).count();
        assert!(alarms <= 60, "{alarms} of 200 in 2,000 windows each");
    }

    #[test]
    fn a_change_raises_it_soon() {
        let mut random = Random::new(8);
        for (shift, most) in [(5.0, 3), (-5.0, 3), (2.0, 10), (-1.0, 40)] {
            let mut delays: Vec<usize> =
                (0..100).map(|_| alarm(&mut random, 40, shift, 1000).unwrap_or(1000)).collect();
            delays.sort_unstable();
            assert!(delays[50] <= most, "{shift}: {} windows", delays[50]);
        }
    }

    #[test]
    fn one_outlier_does_not_raise_it() {
        let mut drift = Drift::of([100.0; 20]);
        drift.add(1.0, MINIMUM);
        assert!(!drift.is_alarm());
        drift.add(1.0, MINIMUM);
        drift.add(1.0, MINIMUM);
        assert!(drift.is_alarm());
    }

    #[test]
    fn windows_of_0_and_without_noise_are_judged() {
        let mut drift = Drift::of([0.0; 8]);
        (0..100).for_each(|_| drift.add(0.0, MINIMUM));
        assert!(!drift.is_alarm());
        (0..3).for_each(|_| drift.add(5.0, MINIMUM));
        assert!(drift.is_alarm());
        let mut drift = Drift::of([100.0; 8]);
        (0..100).for_each(|_| drift.add(100.4, MINIMUM));
        assert!(!drift.is_alarm(), "less than the minimum effect");
    }
}
