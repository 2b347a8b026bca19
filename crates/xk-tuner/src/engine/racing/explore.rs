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
//! **Coarse steps, then fine steps.** The first pass tries four levels of a number, spread over its range, and the
//! neighbours of its default; later steps try neighbours of the best. This relies on neighbouring levels having similar
//! effects (`ordered`), with few peaks. A choice (`ordered` is false) has no neighbours, so all its levels are tried.
//!
//! **From what is known outwards.** Of the levels of a number, those nearest to the best so far are tried first. Levels
//! beyond one that violated a constraint are not tried: a service with a limit must not be moved further past it. Nor
//! are combinations with a change that violates a constraint by itself.
//!
//! **Choices with their dependents.** A choice may only help together with parameters that it enables (`only_if`).
//! With `bfq`, for example, a disk may be as slow as with other schedulers until its `low_latency` is off. So the first
//! pass tries each choice also with the extremes of each parameter that it enables, one at a time.
//!
//! **Several changes at once.** Two changes together may help where neither does alone. The points of a covering array
//! (`../covering.rs`) contain every combination of two changes. They are tried even if a single change helps: in
//! simulations, this adds 5 to 14 trials, and finds a combination that is worth 30 % beside a single change that is
//! worth 5 % (`tests/power.rs`). Exploration continues from the best of them.
//!
//! **The leader is measured again.** The best of many points is mostly lucky. At the end, the point with the best mean is
//! measured until it is known well, or has been measured [`LEADER`] times, or another one leads.

use std::collections::BTreeSet;

use super::Race;
use crate::engine::covering::covering_points;
use crate::engine::Unfinished;
use crate::space::Dimension;
use crate::Point;

/// The largest number of passes over all parameters.
const PASSES: usize = 4;

/// The largest number of measurements of the leader at the end of exploration.
const LEADER: usize = 12;

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
        let default = self.space.default_point();
        self.budget.begin(self.first_points(&default).len() + covering_points(self.space).len());
        let explored = self.climb_from(default);
        self.budget.fix();
        explored
    }

    fn climb_from(&mut self, default: Point) -> Result<(), Unfinished> {
        let best = self.climb(default, Pass::Coarse)?;
        let mut combined = covering_points(self.space);
        combined.retain(|point| !self.has_change_beyond_limit(point));
        let winner = self.select(&combined, &best)?;
        if winner != best {
            self.climb(winner, Pass::Fine)?;
        }
        self.play_off()
    }

    /// Whether a change of this point, by itself, violates a constraint.
    fn has_change_beyond_limit(&self, point: &Point) -> bool {
        let default = self.space.default_point();
        (0..point.0.len()).any(|dimension| self.trials.is_beyond_limit(&default.with(dimension, point.0[dimension])))
    }

    /// Measures the leader again, as long as it is not known well enough: the luckiest of many points loses its lead.
    fn play_off(&mut self) -> Result<(), Unfinished> {
        let is_open =
            |race: &Self, leader: &Point| race.estimates.repeats(leader) < LEADER && race.is_uncertain(leader);
        while let Some(leader) = self.leader().filter(|leader| is_open(self, leader)) {
            self.measure(&leader)?;
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
                    best = self.best_level(&best, dimension, pass)?;
                }
            }
            // The first pass was not ended by the number of trials.
            self.has_tried_each = true;
            if best == before {
                break;
            }
        }
        Ok(best)
    }

    /// The best level of a parameter, with all others as at `base`. Around the best level of a number, the search goes on
    /// until the best has no neighbour that was not tried.
    fn best_level(&mut self, base: &Point, dimension: usize, pass: Pass) -> Result<Point, Unfinished> {
        let mut points = self.points(base, dimension, pass);
        loop {
            let winner = self.select(&points, base)?;
            let neighbours = match self.space.dimensions()[dimension].ordered {
                true => {
                    self.at_levels(base, dimension, around(&self.space.dimensions()[dimension], winner.0[dimension]))
                }
                false => Vec::new(),
            };
            let tried = points.len();
            points.extend(neighbours.into_iter().filter(|point| !points.contains(point)).collect::<Vec<_>>());
            if points.len() == tried {
                return Ok(winner);
            }
        }
    }

    /// The points that a pass tries first for a parameter, those nearest to `base` first.
    fn points(&self, base: &Point, dimension: usize, pass: Pass) -> Vec<Point> {
        let Dimension { levels, ordered, .. } = &self.space.dimensions()[dimension];
        let last = levels.len() - 1;
        let from = base.0[dimension];
        let mut chosen: BTreeSet<usize> = match (*ordered, pass) {
            (false, _) => (0..=last).collect(),
            (true, Pass::Coarse) => [0, last / 3, 2 * last / 3, last].into(),
            (true, Pass::Fine) => BTreeSet::new(),
        };
        if *ordered {
            chosen.extend(around(&self.space.dimensions()[dimension], from));
        }
        let mut chosen: Vec<usize> = chosen.into_iter().collect();
        if *ordered {
            chosen.sort_by_key(|level| level.abs_diff(from));
        }
        let mut points = self.at_levels(base, dimension, chosen.into_iter());
        if !*ordered && pass == Pass::Coarse {
            points.extend(self.with_dependents(base, dimension));
        }
        points
    }

    /// The points of the first pass, if no change helps.
    fn first_points(&self, default: &Point) -> BTreeSet<Point> {
        let active = (0..self.space.dimensions().len()).filter(|&dimension| self.space.is_active(default, dimension));
        active.flat_map(|dimension| self.points(default, dimension, Pass::Coarse)).filter(|p| p != default).collect()
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

/// A level and its neighbours.
fn around(dimension: &Dimension, level: usize) -> impl Iterator<Item = usize> {
    let last = dimension.levels.len() - 1;
    BTreeSet::from([level.saturating_sub(1), level, (level + 1).min(last)]).into_iter()
}

/// The first and the last level of a number; all levels of a choice.
fn extremes(dimension: &Dimension) -> impl Iterator<Item = usize> + '_ {
    let last = dimension.levels.len() - 1;
    (0..=last).filter(move |&level| !dimension.ordered || level == 0 || level == last)
}
