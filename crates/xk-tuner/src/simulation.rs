//! How much the tuner finds, and how often it promotes noise: simulations, without a machine.
//!
//! In: an effect, noise, and a number of repetitions. Out: a share or a rate. Every result is the same each time. The
//! tests, `cargo xtask bench tuner`, and `docs/tuner.md` state the same figures from here.

use crate::engine::confirm::{confirm, looks};
use crate::engine::level::{share, Division, FIRST};
use crate::engine::{Conclusion, Diverged, Engine, Ground, Racing, Trials, Unfinished};
use crate::history::Goal;
use crate::random::Random;
use crate::replay::{play, Noise, Surface};
use crate::{Point, Space};

/// The default number of trials of a search.
pub const TRIALS: usize = 120;

/// The default minimum effect, as a difference of logarithms.
#[must_use]
pub fn minimum() -> f64 {
    0.02f64.ln_1p()
}

/// Searches of a daemon in a year: that nothing was better is believed for a week.
const PER_YEAR: u64 = 52;

/// Confirms the last point of a space, and explores nothing.
struct Given {
    seed: u64,
}

impl Engine for Given {
    fn name(&self) -> &'static str {
        "given"
    }

    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Unfinished> {
        let candidate = Point(space.dimensions().iter().map(|dimension| dimension.levels.len() - 1).collect());
        let looks = looks(Division::of(FIRST, false).candidates[0], trials.left());
        let ground = confirm(trials, &candidate, &looks, minimum(), &mut Random::new(self.seed))?;
        Ok(match ground {
            Some((effect, p)) => Conclusion { best: candidate, ground: Ground::Confirmed { effect, p } },
            None => Conclusion { best: space.default_point(), ground: Ground::Nothing },
        })
    }
}

/// The share of first searches that confirm the right candidate, if it is better by this share, and the number of pairs
/// that they take on average. The noise is that of a window.
///
/// # Errors
/// [`Diverged`]: the engine is not a function of its history.
pub fn power(space: &Space, gain: f64, noise: Noise, searches: u64) -> Result<(f64, f64), Diverged> {
    let default = space.default_point();
    let (mut found, mut pairs) = (0, 0);
    for seed in 0..searches {
        let height = |point: &Point| if *point == default { 1.0 } else { 1.0 + gain };
        let mut surface = Surface::new(height, noise, seed);
        let (history, end) = play(&Given { seed }, space, Goal::Maximise, TRIALS, &mut surface)?;
        found += usize::from(end.best != default);
        pairs += history.len();
    }
    Ok((found as f64 / searches as f64, pairs as f64 / searches as f64))
}

/// How often a daemon promotes something in its first year, on average over this number of daemons, if every setting is
/// better than the default by this share. Up to the minimum effect, every promotion is false. With 0, noise alone is
/// promoted; with the minimum effect itself, no test errs more often. Later years promote less: the shares of the error
/// level become smaller.
///
/// # Errors
/// [`Diverged`]: the engine is not a function of its history.
pub fn false_promotions_per_year(space: &Space, gain: f64, noise: Noise, daemons: u64) -> Result<f64, Diverged> {
    let default = space.default_point();
    let height = |point: &Point| if *point == default { 1.0 } else { 1.0 + gain };
    let mut promoted = 0;
    for daemon in 0..daemons {
        // As `store/error_level.rs` counts them.
        let mut tests = 0;
        for week in 0..PER_YEAR {
            let seed = daemon * PER_YEAR + week;
            let engine = Racing { share: share(tests), ..Racing::new(seed, minimum()) };
            let mut surface = Surface::new(height, noise, seed);
            let (history, end) = play(&engine, space, Goal::Maximise, TRIALS, &mut surface)?;
            if end.best != default {
                promoted += 1;
                tests = 0;
            } else if history.iter().any(|record| record.trial.order.confirms()) {
                tests += 1;
            }
        }
    }
    Ok(f64::from(promoted) / daemons as f64)
}
