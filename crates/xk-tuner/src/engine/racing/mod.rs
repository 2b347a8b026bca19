//! Racing: the default engine, for noisy targets.
//!
//! In: the space, a seed, the minimum effect, perhaps a remembered setting, and samples ([`Trials`]). Out: a
//! [`Conclusion`], which names a confirmed or remembered setting, or the default. A setting that merely looks best is only a
//! candidate: racing refuses to name it before [`confirm`] has tested it.
//!
//! A search passes through four stages, in this order:
//!
//! 1. **Recheck** (`recheck.rs`): tests the remembered setting in fresh pairs. If it still helps, the search ends.
//! 2. **Explore** (`explore.rs`): finds settings that look better, by changing one parameter after the other, and then
//!    several at once. `select.rs` decides which of several settings is the best, and how often to measure each;
//!    `estimates.rs` holds what is known about each setting.
//! 3. **Simplify** (`simplify.rs`): reverts those changes of a candidate that do not contribute to its effect.
//! 4. **Confirm** (`../confirm.rs`): tests the candidate in fresh pairs, in random order.
//!
//! **The budget** (`budget.rs`). The more noise there is, the more trials does a confirmation take, and the fewer are left
//! for exploration. Exploration then measures each setting less often.
//!
//! Engines also call a setting a *point*: one level for each parameter.

mod budget;
mod estimates;
mod explore;
mod recheck;
mod select;
mod simplify;

use serde::{Deserialize, Serialize};

use super::confirm::{confirm, looks};
use super::level::{self, Division};
use super::{Conclusion, Engine, Ground, Trials, Unfinished};
use crate::history::{Objective, Order};
use crate::random::Random;
use crate::{Point, Space};
use budget::Budget;
use estimates::{Estimates, Focus};

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
    /// How probable it may be that this search promotes noise.
    pub share: f64,
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
        let mut random = Random::new(self.seed);
        let remembered = match self.recheck(space, trials, &mut random)? {
            Recheck::Ends(conclusion) => return Ok(conclusion),
            Recheck::Weaker(conclusion) => Some(conclusion),
            Recheck::Fails => None,
        };
        let division = self.division();
        let mut race = Race::new(space, trials, self.minimum, division.candidates[0]);
        race.explore_each(&self.others)?;
        let found = self.confirm_best(&mut race, &division, &mut random)?;
        Ok(better(remembered, found))
    }
}

/// What became of the remembered setting.
enum Recheck {
    /// The search ends with it.
    Ends(Conclusion),
    /// It is better than the default, but by far less than it was: this is another workload, so it is searched.
    Weaker(Conclusion),
    /// It is not better, or there is none.
    Fails,
}

/// The better one of what is remembered and what the search has found.
fn better(remembered: Option<Conclusion>, found: Conclusion) -> Conclusion {
    let effect = |conclusion: &Conclusion| match &conclusion.ground {
        Ground::Confirmed { effect, .. } => effect.middle,
        Ground::Remembered { effect, .. } => *effect,
        Ground::Seen | Ground::Nothing => 0.0,
    };
    match remembered {
        Some(remembered) if effect(&remembered) > effect(&found) => remembered,
        _ => found,
    }
}

impl Racing {
    /// The first search of a workload, with one target.
    #[must_use]
    pub fn new(seed: u64, minimum: f64) -> Self {
        Self { seed, minimum, share: level::FIRST, warm: None, others: Vec::new() }
    }

    fn division(&self) -> Division {
        Division::of(self.share, self.warm.is_some())
    }

    /// Simplifies and tests the candidates, the best first, as many as the error level is divided among.
    fn confirm_best(
        &self,
        race: &mut Race<'_, '_>,
        division: &Division,
        random: &mut Random,
    ) -> Result<Conclusion, Unfinished> {
        let mut rejected: Vec<Point> = Vec::new();
        for (candidate, level) in race.candidates().iter().zip(division.candidates) {
            let candidate = race.simplify(candidate)?;
            // Two candidates may become the same point when they are simplified.
            if rejected.contains(&candidate) {
                continue;
            }
            let looks = looks(level, race.trials.left());
            match confirm(race.trials, &candidate, &looks, self.minimum, random)? {
                Some((effect, p)) => {
                    return Ok(Conclusion { best: candidate, ground: Ground::Confirmed { effect, p } });
                }
                None => rejected.push(candidate),
            }
        }
        Ok(Conclusion { best: race.space.default_point(), ground: Ground::Nothing })
    }
}

/// The state of a search while it explores and simplifies.
struct Race<'r, 'h> {
    space: &'r Space,
    trials: &'r mut Trials<'h>,
    estimates: Estimates<'r>,
    /// The minimum effect.
    minimum: f64,
    budget: Budget,
    /// Whether exploration has tried each parameter.
    has_tried_each: bool,
}

impl<'r, 'h> Race<'r, 'h> {
    fn new(space: &'r Space, trials: &'r mut Trials<'h>, minimum: f64, level: f64) -> Self {
        let estimates = Estimates::new(space.default_point(), Focus::First(trials.goal()));
        let budget = Budget::new(trials.limit(), level);
        Self { space, trials, estimates, minimum, budget, has_tried_each: false }
    }

    /// Explores for the first target, then for each further target. Afterwards, estimates are those of the first again.
    fn explore_each(&mut self, others: &'r [Objective]) -> Result<(), Unfinished> {
        let first = Focus::First(self.trials.goal());
        for focus in std::iter::once(first).chain(others.iter().map(Focus::Further)) {
            self.estimates.focus_on(focus);
            unless_exhausted(self.explore())?;
            if matches!(focus, Focus::First(_)) && !self.has_tried_each {
                self.trials.cut_short();
            }
        }
        self.estimates.focus_on(first);
        Ok(())
    }

    /// Measures a point once more. The trials that a confirmation needs are not spent. A point beyond one that violated a
    /// constraint is not measured, and counts as one that violated it too.
    fn measure(&mut self, point: &Point) -> Result<(), Unfinished> {
        if self.trials.left() <= self.budget.reserved() {
            return Err(Unfinished::Exhausted);
        }
        let sample = match self.trials.is_beyond_limit(point) {
            true => None,
            false => self.trials.sample(point, Order::Bracketed)?,
        };
        self.estimates.record(point, sample);
        self.budget.update(&self.estimates, self.minimum);
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
