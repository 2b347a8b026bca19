//! Exploration: finds points that look better than the default.
//!
//! In: the space. Out: estimates of the points that were tried; [`Race::candidates`] reads them. It ends early when only
//! the trials for a confirmation are left.
//!
//! **One parameter after the other.** Exploration changes one parameter, keeps the best level, and continues with the
//! next parameter, those with the fewest levels first. This is the orthogonal search of EOS (section 5): a good
//! choice among few values helps the rest of the search. It relies on parameters that mostly act independently. As
//! they do interact, all parameters are tried again near the best, until nothing changes or [`PASSES`] passes are made.
//!
//! **Coarse steps, then fine steps.** The first pass tries four levels of a number, spread over its range; later steps
//! try neighbours of the best. This relies on neighbouring levels having similar effects (`ordered`), with few peaks.
//! A choice (`ordered` is false) has no neighbours, so all its levels are tried.
//!
//! **Choices with their dependents.** A choice may only help together with parameters that it enables (`only_if`).
//! With `bfq`, for example, a disk may be as slow as with other schedulers until its `low_latency` is off. So the first
//! pass tries each choice also with the extremes of each parameter that it enables, one at a time.
//!
//! **Several changes at once.** If no single change looks better, two together may. The points of a covering array
//! (`../covering.rs`) contain every combination of two changes. Exploration continues from the best of them.

use std::collections::BTreeSet;

use super::Race;
use crate::engine::covering::covering_points;
use crate::engine::Unfinished;
use crate::space::Dimension;
use crate::Point;

/// The largest number of passes over all parameters.
const PASSES: usize = 4;

/// How a pass chooses the levels that it tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Levels spread over the whole range, and choices together with what they enable.
    Coarse,
    /// Neighbours of the best level.
    Fine,
}

impl Race<'_, '_> {
    pub(super) fn explore(&mut self) -> Result<(), Unfinished> {
        let best = self.climb(self.space.default_point(), Pass::Coarse)?;
        if self.estimates.cautious_mean(&best) > self.minimum {
            return Ok(());
        }
        let winner = self.select(&covering_points(self.space), &best)?;
        if winner != best {
            self.climb(winner, Pass::Fine)?;
        }
        Ok(())
    }

    /// Changes one parameter after the other, beginning at `best`, until no change helps.
    fn climb(&mut self, mut best: Point, first: Pass) -> Result<Point, Unfinished> {
        let order = self.space.limited_first();
        for number in 0..PASSES {
            let pass = if number == 0 { first } else { Pass::Fine };
            let before = best.clone();
            for &dimension in &order {
                if self.space.is_active(&best, dimension) {
                    best = match self.space.dimensions()[dimension].ordered {
                        true => self.best_number(&best, dimension, pass)?,
                        false => self.best_choice(&best, dimension, pass)?,
                    };
                }
            }
            if best == before {
                break;
            }
        }
        Ok(best)
    }

    /// The best level of a choice, with all other parameters as at `base`.
    fn best_choice(&mut self, base: &Point, dimension: usize, pass: Pass) -> Result<Point, Unfinished> {
        let levels = 0..self.space.dimensions()[dimension].levels.len();
        let mut points = self.at_levels(base, dimension, levels);
        if pass == Pass::Coarse {
            points.extend(self.with_dependents(base, dimension));
        }
        self.select(&points, base)
    }

    /// The best level of a number, with all other parameters as at `base`: selects, and adds the neighbours of the
    /// best, until the best has no neighbour that was not tried.
    fn best_number(&mut self, base: &Point, dimension: usize, pass: Pass) -> Result<Point, Unfinished> {
        let last = self.space.dimensions()[dimension].levels.len() - 1;
        let around = |level: usize| [level.saturating_sub(1), level, (level + 1).min(last)];
        let mut levels: BTreeSet<usize> = match pass {
            Pass::Coarse => [0, last / 3, 2 * last / 3, last].into(),
            Pass::Fine => BTreeSet::new(),
        };
        levels.extend(around(base.0[dimension]));
        loop {
            let tried = levels.len();
            let points = self.at_levels(base, dimension, levels.iter().copied());
            let winner = self.select(&points, base)?;
            levels.extend(around(winner.0[dimension]));
            if levels.len() == tried {
                return Ok(winner);
            }
        }
    }

    /// `base` with other levels of one parameter.
    fn at_levels(&self, base: &Point, dimension: usize, levels: impl Iterator<Item = usize>) -> Vec<Point> {
        levels.map(|level| self.space.canonical(&base.with(dimension, level))).collect()
    }

    /// `base` with each other level of a choice, and there with the extremes of each parameter that the level enables.
    fn with_dependents(&self, base: &Point, choice: usize) -> Vec<Point> {
        let dimensions = self.space.dimensions();
        let others = (0..dimensions[choice].levels.len()).filter(|&level| level != base.0[choice]);
        let mut points = BTreeSet::new();
        for point in others.map(|level| base.with(choice, level)) {
            let is_enabled = |&dependent: &usize| {
                let guard = dimensions[dependent].guard.as_ref();
                guard.is_some_and(|guard| guard.dimension == choice) && self.space.is_active(&point, dependent)
            };
            for dependent in (0..dimensions.len()).filter(is_enabled) {
                let extremes = extremes(&dimensions[dependent]);
                points.extend(extremes.map(|level| self.space.canonical(&point.with(dependent, level))));
            }
        }
        points.into_iter().collect()
    }
}

/// The first and the last level of a number; all levels of a choice.
fn extremes(dimension: &Dimension) -> impl Iterator<Item = usize> + '_ {
    let last = dimension.levels.len() - 1;
    (0..=last).filter(move |&level| !dimension.ordered || level == 0 || level == last)
}
