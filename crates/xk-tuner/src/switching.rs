//! What switching itself costs: sham switches.
//!
//! In: windows with the default, every second of which follows a sham switch: away from the default and back. Out: a
//! [`Verdict`], as soon as there is one, and the settle time. It decides nothing about settings.
//!
//! **Sham switches.** Without a cost of switching, all of these windows are the same. A window that follows a sham switch is
//! compared with the two windows around it, which cancels a linear drift. What a switch disturbs may last longer than the
//! window after it, so the window after that waits for the longest settle time that is possible.
//!
//! **What follows.** If switching changes the next window by more than the minimum effect, the settle time is too short, and
//! is multiplied by [`LONGER`], up to the duration of a window. An error costs time, and promotes nothing: each window of a
//! trial follows a switch (`measure.rs`), whatever a switch costs.
//!
//! **How many.** [`FEWEST`] sham switches, if all of them show less than the minimum effect. For a longer settle time,
//! [`SURE`] if they agree, and otherwise [`MOST`], at the end of which the interval of 95 % decides. In simulations of normal
//! noise of 2 to 20 % without a cost, 0.4 to 6.4 of 100 searches wait longer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::description::SETTLE;
use crate::history::{percent, Goal, Sample};
use crate::statistics::{interval, Interval};

/// The number of sham switches that can show that switching costs less than the minimum effect.
const FEWEST: usize = 3;

/// The number of sham switches that can show that it costs more, if they agree.
const SURE: usize = 4;

/// The largest number of sham switches with one settle time.
const MOST: usize = 12;

/// The factor by which a settle time is lengthened.
const LONGER: u32 = 4;

/// A settle time may be lengthened to this, even if windows are shorter.
const AT_LEAST: Duration = Duration::from_millis(500);

/// The sham switches of a search.
#[derive(Debug, Clone)]
pub struct Switching {
    /// What counts as a cost: the minimum effect, as a difference of logarithms.
    minimum: f64,
    goal: Goal,
    settle: Duration,
    effects: Vec<f64>,
    is_open: bool,
}

/// What sham switches have shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What a switch does to the window that follows, as an effect is: below 0 if it makes the target worse.
    pub effect: Interval,
    /// The number of sham switches.
    pub shams: usize,
    /// Seconds between a switch and the window.
    pub after: f64,
    /// What follows.
    pub outcome: SwitchingOutcome,
}

/// What follows from sham switches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchingOutcome {
    /// Switching costs less than the minimum effect.
    Negligible,
    /// It costs more. The settle time is as many seconds now.
    Longer(f64),
    /// It costs more, and the settle time cannot be lengthened.
    Remains,
    /// Noise hides it.
    Unknown,
}

impl Switching {
    /// Before the first sham switch.
    #[must_use]
    pub fn new(minimum: f64, goal: Goal, settle: Duration) -> Self {
        Self { minimum, goal, settle, effects: Vec::new(), is_open: true }
    }

    /// Whether more sham switches are to be measured.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The longest settle time, if windows take `window`.
    #[must_use]
    pub fn longest(window: Duration) -> Duration {
        window.max(AT_LEAST)
    }

    /// The settle time.
    #[must_use]
    pub fn settle(&self) -> Duration {
        self.settle
    }

    /// Adds a window that follows a sham switch, and those around it. Windows take `window`.
    pub fn add(&mut self, [before, sham, after]: [f64; 3], window: Duration) -> Option<Verdict> {
        let sample = Sample { default: vec![before, after], value: sham, ..Sample::default() };
        self.effects.push(sample.effect(self.goal));
        let (effect, shams) = (interval(&self.effects)?, self.effects.len());
        let is_small = effect.low > -self.minimum && effect.high < self.minimum;
        let is_large = effect.low > self.minimum || effect.high < -self.minimum;
        let is_clear = effect.high - effect.low < effect.middle.abs() / 2.0;
        let after = self.settle.as_secs_f64();
        let outcome = match shams {
            FEWEST.. if is_small => SwitchingOutcome::Negligible,
            SURE.. if is_large && is_clear => self.lengthen(window),
            MOST.. if is_large => self.lengthen(window),
            MOST.. => SwitchingOutcome::Unknown,
            _ => return None,
        };
        self.is_open = matches!(outcome, SwitchingOutcome::Longer(_));
        self.effects.clear();
        Some(Verdict { effect, shams, after, outcome })
    }

    fn lengthen(&mut self, window: Duration) -> SwitchingOutcome {
        let longer = (self.settle * LONGER).max(SETTLE).min(Self::longest(window));
        if longer <= self.settle {
            return SwitchingOutcome::Remains;
        }
        self.settle = longer;
        SwitchingOutcome::Longer(longer.as_secs_f64())
    }
}

impl Verdict {
    /// In a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { effect, shams, after, outcome } = self;
        let [middle, low, high] = [effect.middle, effect.low, effect.high].map(percent);
        let measured = format!("{after} s after a switch, a window differs by {middle} ({low} to {high})");
        match outcome {
            SwitchingOutcome::Negligible => format!("switching costs less than the minimum effect: {measured}"),
            SwitchingOutcome::Longer(longer) => format!("{measured}: the settle time is {longer} s from now on"),
            SwitchingOutcome::Remains => format!(
                "{measured}: with every setting alike, so that differences look smaller than they are. Longer windows \
                 would help"
            ),
            SwitchingOutcome::Unknown => {
                format!("noise hides what switching costs: {measured}, after {shams} switches")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const WINDOW: Duration = Duration::from_secs(10);

    fn switching(settle: Duration) -> Switching {
        Switching::new(0.02, Goal::Maximise, settle)
    }

    /// Adds windows until there is a verdict: of a target that a switch multiplies by `cost`, drifts, and has noise.
    fn judge(switching: &mut Switching, cost: f64, drift: f64, mut noise: impl FnMut() -> f64) -> Verdict {
        let mut level = 100.0;
        let mut window = |factor: f64| {
            level *= drift;
            level * factor * noise().exp()
        };
        let mut before = window(1.0);
        for _ in 0..MOST {
            let [sham, after] = [window(cost), window(1.0)];
            if let Some(verdict) = switching.add([before, sham, after], WINDOW) {
                return verdict;
            }
            before = after;
        }
        panic!("no verdict");
    }

    fn none() -> f64 {
        0.0
    }

    #[test]
    fn without_noise_three_shams_show_that_switching_costs_nothing() {
        let mut quiet = switching(SETTLE);
        let verdict = judge(&mut quiet, 1.0, 1.0, none);
        assert_eq!((verdict.outcome, verdict.shams, quiet.is_open()), (SwitchingOutcome::Negligible, 3, false));
        assert_eq!(quiet.settle(), SETTLE);
    }

    #[test]
    fn a_cost_lengthens_the_settle_time_until_it_is_as_long_as_a_window() {
        let mut costly = switching(Duration::ZERO);
        for longer in [0.1, 0.4, 1.6, 6.4, 10.0] {
            let verdict = judge(&mut costly, 0.8, 1.0, none);
            assert_eq!((verdict.outcome, costly.is_open()), (SwitchingOutcome::Longer(longer), true));
            assert!((verdict.effect.middle - 0.8f64.ln()).abs() < 1e-9, "{verdict:?}");
        }
        assert_eq!(judge(&mut costly, 0.8, 1.0, none).outcome, SwitchingOutcome::Remains);
        assert!(!costly.is_open());
        // A switch may also make the next window better.
        assert!(matches!(judge(&mut switching(SETTLE), 1.25, 1.0, none).outcome, SwitchingOutcome::Longer(_)));
    }

    /// A target that gets 5 % faster in each window: a window after a switch and the one after that would differ by 5 %.
    #[test]
    fn drift_is_no_cost() {
        assert_eq!(judge(&mut switching(SETTLE), 1.0, 1.05, none).outcome, SwitchingOutcome::Negligible);
        assert!(matches!(judge(&mut switching(SETTLE), 0.9, 1.05, none).outcome, SwitchingOutcome::Longer(_)));
    }

    /// The shares of 1,000 searches that lengthen the settle time.
    fn lengthened(cost: f64, noise: f64) -> f64 {
        let longer = (0..1000u64).filter(|seed| {
            let mut random = Random::new(*seed);
            let verdict = judge(&mut switching(SETTLE), cost, 1.0, || noise * random.normal());
            matches!(verdict.outcome, SwitchingOutcome::Longer(_))
        });
        longer.count() as f64 / 1000.0
    }

    #[test]
    fn noise_seldom_lengthens_the_settle_time_and_a_cost_beyond_it_does() {
        let flat = [0.02, 0.05, 0.10, 0.20].map(|noise| lengthened(1.0, noise));
        assert!(flat.iter().all(|share| *share <= 0.07), "{flat:?}");
        let costly = [lengthened(0.9, 0.02), lengthened(0.8, 0.05)];
        assert!(costly.iter().all(|share| *share >= 0.95), "{costly:?}");
        eprintln!("{flat:?} {costly:?}");
    }
}
