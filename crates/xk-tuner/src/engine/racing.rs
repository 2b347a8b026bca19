//! Racing: candidates of one parameter run against each other until an interval separates them, and no longer.
//!
//! The width of the intervals comes from the machine itself: every trial measures the default twice, and what
//! separates the two is noise. On a quiet machine every setting is measured once; on a noisy one those that
//! cannot be told apart are measured again, up to a bound, and the rest is left alone. Parameters are raced one
//! after the other, the more limited first, from coarse to fine; then all again near the best, as parameters
//! depend on each other, until nothing moves. If nothing is better, points are tried that change several at once
//! (`pairs.rs`). Who wins is only a candidate (`confirm.rs`), and loses the changes that
//! are not what it wins by.
//!
//! A setting that is remembered is tried first: it was confirmed once, and one trial shows whether it still holds. Where
//! it is remembered that nothing was better than the default, there is nothing to try.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::confirm::{confirm, ATTEMPTS, RESERVED};
use super::pairs::pairs;
use super::{Conclusion, Engine, Ground, Stop, Trials};
use crate::history::{Kind, Objective, Sample};
use crate::random::Random;
use crate::statistics::deviation_around_zero;
use crate::{Point, Space};

/// How often one point is measured, at most, while candidates race.
const REPEATS: usize = 4;

/// The same when changes are taken back: what is looked for is no difference, which takes more to see.
const LEAN_REPEATS: usize = 8;

/// Rounds over all parameters.
const PASSES: usize = 4;

/// Deviations that separate two candidates.
const SEPARATED: f64 = 2.0;

/// A setting that another search confirmed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    /// The setting.
    pub point: Point,
    /// How much better than the default it was; 0 if it is the default, and nothing was better.
    pub effect: f64,
}

impl Remembered {
    /// Whether what is known is that nothing was better.
    #[must_use]
    pub fn is_default(&self, space: &Space) -> bool {
        self.effect <= 0.0 && self.point == space.default_point()
    }
}

/// The engine for noisy targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Racing {
    /// Tosses the order within pairs.
    pub seed: u64,
    /// What is less is not worth a change; a difference of logarithms.
    pub minimum: f64,
    /// To try first.
    pub warm: Option<Remembered>,
    /// Explored after the target that leads, as far as trials are left; what is confirmed is the lead's.
    pub others: Vec<Objective>,
}

impl Engine for Racing {
    fn name(&self) -> &'static str {
        "racing"
    }

    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Stop> {
        if let Some(conclusion) = self.as_remembered(space, trials)? {
            return Ok(conclusion);
        }
        let mut race = Race {
            space,
            trials,
            aim: None,
            samples: BTreeMap::new(),
            heard: Vec::new(),
            noise: 0.0,
            minimum: self.minimum,
            repeats: REPEATS,
        };
        for aim in std::iter::once(None).chain(self.others.iter().map(Some)) {
            race.aim_at(aim);
            match race.explore() {
                Ok(()) | Err(Stop::Exhausted) => {}
                Err(stop) => return Err(stop),
            }
        }
        race.aim_at(None);
        let mut random = Random::new(self.seed);
        let mut refused: Vec<Point> = Vec::new();
        for (point, looks) in race.candidates().iter().zip(ATTEMPTS) {
            let point = race.lean(point)?;
            if refused.contains(&point) {
                continue;
            }
            match confirm(race.trials, &point, looks, self.minimum, &mut random) {
                Ok(Some((effect, p))) => {
                    return Ok(Conclusion { best: point, ground: Ground::Confirmed { effect, p } })
                }
                Ok(None) => refused.push(point),
                Err(Stop::Exhausted) => break,
                Err(stop) => return Err(stop),
            }
        }
        Ok(Conclusion { best: space.default_point(), ground: Ground::Nothing })
    }
}

impl Racing {
    /// The remembered setting, if it is still worth at least half of what it was, or the default.
    fn as_remembered(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Option<Conclusion>, Stop> {
        let Some(warm) = &self.warm else { return Ok(None) };
        if warm.is_default(space) {
            return Ok(Some(Conclusion { best: warm.point.clone(), ground: Ground::Nothing }));
        }
        let goal = trials.goal();
        let effect = trials.sample(&warm.point, Kind::Sandwich)?.map(|sample| sample.effect(goal));
        let holds = effect.filter(|&effect| effect > self.minimum && effect > warm.effect / 2.0);
        Ok(holds.map(|effect| Conclusion { best: warm.point.clone(), ground: Ground::Remembered { effect } }))
    }
}

/// What is known while candidates race.
struct Race<'r, 'h> {
    space: &'r Space,
    trials: &'r mut Trials<'h>,
    /// What is raced for; the target that leads, if it is none of the others.
    aim: Option<&'r Objective>,
    /// Of each point that was measured; empty where it failed.
    samples: BTreeMap<Point, Vec<&'h Sample>>,
    /// Everything that was measured.
    heard: Vec<&'h Sample>,
    /// Variance of one window: how far the default was from itself.
    noise: f64,
    minimum: f64,
    /// How often one point is measured now, at most.
    repeats: usize,
}

impl<'r> Race<'r, '_> {
    fn explore(&mut self) -> Result<(), Stop> {
        let best = self.climb(self.space.default_point(), true)?;
        if self.cautious(&best) > self.minimum {
            return Ok(());
        }
        // No change by itself does anything, or noise has hidden that; two may.
        let winner = self.decide(&pairs(self.space), &best)?;
        if winner != best {
            self.climb(winner, false)?;
        }
        Ok(())
    }

    /// From `best` on, a parameter after the other, until nothing moves; the first time all over, if `coarse`.
    fn climb(&mut self, mut best: Point, coarse: bool) -> Result<Point, Stop> {
        let order = self.space.limited_first();
        for pass in 0..PASSES {
            let before = best.clone();
            for &dimension in &order {
                if self.space.is_active(&best, dimension) {
                    best = self.run(&best, dimension, coarse && pass == 0)?;
                }
            }
            if best == before {
                break;
            }
        }
        Ok(best)
    }

    /// The best level of one parameter, the others being as at `base`.
    fn run(&mut self, base: &Point, dimension: usize, coarse: bool) -> Result<Point, Stop> {
        let ordered = self.space.dimensions()[dimension].ordered;
        let last = self.space.dimensions()[dimension].levels.len() - 1;
        let mut levels: BTreeSet<usize> = match (ordered, coarse) {
            (true, true) => [0, last / 3, 2 * last / 3, last].into(),
            (true, false) => BTreeSet::new(),
            (false, _) => (0..=last).collect(),
        };
        let mut best = base.0[dimension];
        loop {
            if ordered {
                levels.extend([best.saturating_sub(1), best, (best + 1).min(last)]);
            }
            let known = levels.len();
            let mut points: Vec<Point> =
                levels.iter().map(|&level| self.space.canonical(&base.with(dimension, level))).collect();
            if coarse && !ordered {
                points.extend(self.opened(base, dimension));
            }
            let winner = self.decide(&points, base)?;
            best = winner.0[dimension];
            levels.extend([best.saturating_sub(1), (best + 1).min(last)]);
            if !ordered || levels.len() == known {
                return Ok(winner);
            }
        }
    }

    /// What becomes active only with another level of this parameter is part of that level: `bfq` is as slow as others
    /// here until its `low_latency` is off, and would never be chosen by itself. The extremes of each such parameter.
    fn opened(&self, base: &Point, dimension: usize) -> Vec<Point> {
        let dimensions = self.space.dimensions();
        let others = (0..dimensions[dimension].levels.len()).filter(|&level| level != base.0[dimension]);
        let mut points = Vec::new();
        for point in others.map(|level| base.with(dimension, level)) {
            let opens = |&inner: &usize| {
                let guard = dimensions[inner].guard.as_ref();
                guard.is_some_and(|guard| guard.dimension == dimension) && self.space.is_active(&point, inner)
            };
            for inner in (0..dimensions.len()).filter(opens) {
                let last = dimensions[inner].levels.len() - 1;
                let extremes = (0..=last).filter(|&level| !dimensions[inner].ordered || level == 0 || level == last);
                points.extend(extremes.map(|level| self.space.canonical(&point.with(inner, level))));
            }
        }
        points.sort();
        points.dedup();
        points
    }

    /// Measures until the best of these points is known well enough. A point that is no worse than the best
    /// by half the minimum effect is as good; of such, the incumbent wins.
    fn decide(&mut self, points: &[Point], incumbent: &Point) -> Result<Point, Stop> {
        for point in points {
            self.measure_once(point)?;
        }
        loop {
            let Some(best) = self.best_of(points) else { return Ok(incumbent.clone()) };
            let unclear = points.iter().filter(|point| self.may_be_better(point, &best)).chain([&best]);
            let worth = unclear.filter(|point| self.is_worth_another(point, points.len()));
            match worth.min_by_key(|point| self.repeated(point)).cloned() {
                Some(point) => self.measure(&point)?,
                None if self.mean(incumbent) >= self.mean(&best) - self.minimum / 2.0 => return Ok(incumbent.clone()),
                None => return Ok(best),
            }
        }
    }

    fn best_of(&self, points: &[Point]) -> Option<Point> {
        let known = points.iter().filter(|point| self.mean(point).is_finite());
        known.max_by(|a, b| self.mean(a).total_cmp(&self.mean(b))).cloned()
    }

    /// Whether noise may hide that `point` is better than `best`.
    fn may_be_better(&self, point: &Point, best: &Point) -> bool {
        let variance = self.variance(point) + self.variance(best);
        point != best && self.mean(best) - self.mean(point) < SEPARATED * variance.sqrt()
    }

    /// What is known to within the minimum effect is known well enough.
    fn is_worth_another(&self, point: &Point, rivals: usize) -> bool {
        let repeated = self.repeated(point);
        let width = SEPARATED * self.variance(point).sqrt();
        rivals > 1 && (1..self.repeats).contains(&repeated) && width > self.minimum
    }

    fn is_default(&self, point: &Point) -> bool {
        *point == self.space.default_point()
    }

    /// What was measured of what is raced for.
    fn aimed<'s>(&self, sample: &'s Sample) -> Option<&'s Sample> {
        self.aim.map_or(Some(sample), |other| sample.others.get(&other.name))
    }

    fn effects(&self, point: &Point) -> Vec<f64> {
        let goal = self.aim.map_or(self.trials.goal(), |other| other.goal);
        let samples = self.samples.get(point).into_iter().flatten();
        samples.filter_map(|sample| Some(self.aimed(sample)?.effect(goal))).collect()
    }

    fn aim_at(&mut self, aim: Option<&'r Objective>) {
        self.aim = aim;
        self.listen();
    }

    fn listen(&mut self) {
        let drifts: Vec<f64> = self.heard.iter().filter_map(|sample| self.aimed(sample)?.drift()).collect();
        // A drift is the difference of two windows.
        self.noise = deviation_around_zero(&drifts).unwrap_or(0.0).powi(2) / 2.0;
    }

    fn repeated(&self, point: &Point) -> usize {
        self.samples.get(point).map_or(0, Vec::len)
    }

    fn mean(&self, point: &Point) -> f64 {
        let effects = self.effects(point);
        match effects.len() {
            _ if self.is_default(point) => 0.0,
            0 => f64::NEG_INFINITY,
            repeated => effects.iter().sum::<f64>() / repeated as f64,
        }
    }

    /// Of the mean of a point's effects. The default is no better than itself, which needs no measuring.
    fn variance(&self, point: &Point) -> f64 {
        let repeated = self.repeated(point);
        if self.is_default(point) || repeated == 0 {
            return 0.0;
        }
        // An effect is the difference of one window and the mean of two.
        1.5 * self.noise / repeated as f64
    }

    fn measure_once(&mut self, point: &Point) -> Result<(), Stop> {
        match self.is_default(point) || self.samples.contains_key(point) {
            true => Ok(()),
            false => self.measure(point),
        }
    }

    fn measure(&mut self, point: &Point) -> Result<(), Stop> {
        // What is explored must be confirmed.
        if self.trials.left() <= RESERVED {
            return Err(Stop::Exhausted);
        }
        let sample = self.trials.sample(point, Kind::Sandwich)?;
        let samples = self.samples.entry(point.clone()).or_default();
        match sample {
            Some(sample) => {
                samples.push(sample);
                self.heard.push(sample);
            }
            None => samples.clear(),
        }
        self.listen();
        Ok(())
    }

    /// What is left of a candidate when each parameter has its default again that makes no difference beside the others;
    /// those with the most values first, as the more limited do more (EOS, section 5). The candidate was chosen as
    /// the best of many, which flatters it: it is measured anew. A difference is always from the whole candidate, so
    /// that small ones do not add up. What is left is confirmed like any other candidate.
    fn lean(&mut self, point: &Point) -> Result<Point, Stop> {
        let known = std::mem::take(&mut self.samples);
        self.repeats = LEAN_REPEATS;
        let lean = self.lean_afresh(point);
        self.repeats = REPEATS;
        self.samples = known;
        lean
    }

    fn lean_afresh(&mut self, point: &Point) -> Result<Point, Stop> {
        let mut lean = point.clone();
        for dimension in self.space.limited_first().into_iter().rev() {
            let default = self.space.dimensions()[dimension].default;
            let less = self.space.canonical(&lean.with(dimension, default));
            if less == lean || self.is_default(&less) {
                continue;
            }
            match self.decide(&[less.clone(), point.clone()], &less) {
                Ok(_) if self.mean(&less) >= self.mean(point) - self.minimum => lean = less,
                Ok(_) => {}
                Err(Stop::Exhausted) => break,
                Err(stop) => return Err(stop),
            }
        }
        Ok(lean)
    }

    /// The mean, less what noise adds to it now and then.
    fn cautious(&self, point: &Point) -> f64 {
        self.mean(point) - self.variance(point).sqrt()
    }

    /// What is worth confirming, the best first.
    fn candidates(&self) -> Vec<Point> {
        let mut points: Vec<Point> =
            self.samples.keys().filter(|point| self.mean(point) > self.minimum).cloned().collect();
        points.sort_by(|a, b| self.cautious(b).total_cmp(&self.cautious(a)));
        points
    }
}
