//! Racing: the default engine, for noisy targets.
//!
//! In: the space, a seed, the minimum effect, perhaps a remembered setting, and samples ([`Trials`]). Out: a
//! [`Conclusion`], which names a confirmed or remembered setting, or the default. A setting that merely looks best is only a
//! candidate: racing refuses to name it before [`confirm`] has tested it.
//!
//! A search passes through four stages, in this order:
//!
//! 1. **Recheck** ([`Racing::recheck`]): measures the remembered setting once. If it still helps, the search ends.
//! 2. **Explore** (`explore.rs`): finds settings that look better, by changing one parameter after the other, and then
//!    several at once. `select.rs` decides which of several settings is the best, and how often to measure each;
//!    `estimates.rs` holds what is known about each setting.
//! 3. **Simplify** (`simplify.rs`): reverts those changes of a candidate that do not contribute to its effect.
//! 4. **Confirm** (`../confirm.rs`): tests the candidate in fresh pairs, in random order.
//!
//! Engines also call a setting a *point*: one level for each parameter.

mod estimates;
mod explore;
mod select;
mod simplify;

use serde::{Deserialize, Serialize};

use super::confirm::{confirm, ATTEMPTS, RESERVED};
use super::{Conclusion, Engine, Ground, Trials, Unfinished};
use crate::history::{Objective, Order};
use crate::random::Random;
use crate::{Point, Space};
use estimates::{Estimates, Focus};

/// The largest number of measurements of one point during exploration.
const REPEATS: usize = 4;

/// A setting that an earlier search confirmed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    /// The setting.
    pub point: Point,
    /// Its effect. 0 with the default as `point` means: nothing was better than the default.
    pub effect: f64,
}

impl Remembered {
    /// Whether the earlier search found nothing better than the default.
    #[must_use]
    pub fn is_default(&self, space: &Space) -> bool {
        self.effect <= 0.0 && self.point == space.default_point()
    }
}

/// The engine for noisy targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Racing {
    /// Seed of the random order within pairs.
    pub seed: u64,
    /// The minimum effect, as a difference of logarithms.
    pub minimum: f64,
    /// The setting to try first.
    pub warm: Option<Remembered>,
    /// Further targets. They are explored after the first, as far as the number of trials permits. Only the first
    /// target decides what is confirmed.
    pub others: Vec<Objective>,
}

impl Engine for Racing {
    fn name(&self) -> &'static str {
        "racing"
    }

    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Unfinished> {
        if let Some(conclusion) = self.recheck(space, trials)? {
            return Ok(conclusion);
        }
        let mut race = Race::new(space, trials, self.minimum);
        race.explore_each(&self.others)?;
        self.confirm_best(&mut race)
    }
}

impl Racing {
    /// Tries the remembered setting.
    ///
    /// It was confirmed once, so one trial suffices. It holds if the trial shows more than the minimum effect and more
    /// than half of the remembered effect. Half is a compromise: noise in one trial should not discard a good setting,
    /// but a setting that lost most of its effect belongs to another workload. This relies on the signature: the store
    /// returns a setting only for a workload that looks alike. A memory that nothing was better is not measured.
    fn recheck(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Option<Conclusion>, Unfinished> {
        let Some(warm) = &self.warm else { return Ok(None) };
        if warm.is_default(space) {
            return Ok(Some(Conclusion { best: warm.point.clone(), ground: Ground::Nothing }));
        }
        let goal = trials.goal();
        let effect = trials.sample(&warm.point, Order::Bracketed)?.map(|sample| sample.effect(goal));
        let holds = effect.filter(|&effect| effect > self.minimum && effect > warm.effect / 2.0);
        Ok(holds.map(|effect| Conclusion { best: warm.point.clone(), ground: Ground::Remembered { effect } }))
    }

    /// Simplifies and tests the candidates, the best first, at most one per entry of [`ATTEMPTS`].
    fn confirm_best(&self, race: &mut Race<'_, '_>) -> Result<Conclusion, Unfinished> {
        let mut random = Random::new(self.seed);
        let mut rejected: Vec<Point> = Vec::new();
        for (candidate, looks) in race.candidates().iter().zip(ATTEMPTS) {
            let candidate = race.simplify(candidate)?;
            // Two candidates may become the same point when they are simplified.
            if rejected.contains(&candidate) {
                continue;
            }
            let result = confirm(race.trials, &candidate, looks, self.minimum, &mut random);
            match unless_exhausted(result)? {
                Some(Some((effect, p))) => {
                    return Ok(Conclusion { best: candidate, ground: Ground::Confirmed { effect, p } });
                }
                Some(None) => rejected.push(candidate),
                None => break,
            }
        }
        Ok(Conclusion { best: race.space.default_point(), ground: Ground::Nothing })
    }
}

/// The state of a search while it explores and simplifies.
struct Race<'r, 'h> {
    space: &'r Space,
    trials: &'r mut Trials<'h>,
    estimates: Estimates<'r, 'h>,
    /// The minimum effect.
    minimum: f64,
    /// The largest number of measurements of one point in the current stage.
    repeats: usize,
}

impl<'r, 'h> Race<'r, 'h> {
    fn new(space: &'r Space, trials: &'r mut Trials<'h>, minimum: f64) -> Self {
        let estimates = Estimates::new(space.default_point(), Focus::First(trials.goal()));
        Self { space, trials, estimates, minimum, repeats: REPEATS }
    }

    /// Explores for the first target, then for each further target. Afterwards, estimates are those of the first again.
    fn explore_each(&mut self, others: &'r [Objective]) -> Result<(), Unfinished> {
        let first = Focus::First(self.trials.goal());
        for focus in std::iter::once(first).chain(others.iter().map(Focus::Further)) {
            self.estimates.focus_on(focus);
            unless_exhausted(self.explore())?;
        }
        self.estimates.focus_on(first);
        Ok(())
    }

    /// Measures a point once more. The trials that a confirmation needs are not spent.
    fn measure(&mut self, point: &Point) -> Result<(), Unfinished> {
        if self.trials.left() <= RESERVED {
            return Err(Unfinished::Exhausted);
        }
        let sample = self.trials.sample(point, Order::Bracketed)?;
        self.estimates.record(point, sample);
        Ok(())
    }

    /// The points with an estimated effect above the minimum. They are ordered by a cautious estimate, because the
    /// mean of a point that was measured less often exaggerates more.
    fn candidates(&self) -> Vec<Point> {
        let estimates = &self.estimates;
        let mut points: Vec<Point> =
            estimates.points().filter(|point| estimates.mean(point) > self.minimum).cloned().collect();
        points.sort_by(|a, b| estimates.cautious_mean(b).total_cmp(&estimates.cautious_mean(a)));
        points
    }
}

/// `None` if the stage ended because no trial is left for it.
fn unless_exhausted<T>(result: Result<T, Unfinished>) -> Result<Option<T>, Unfinished> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Unfinished::Exhausted) => Ok(None),
        Err(unfinished) => Err(unfinished),
    }
}
