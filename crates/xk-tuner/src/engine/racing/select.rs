//! Which of several points is the best.
//!
//! In: points, and an incumbent. Out: the best of them, or the incumbent. Measures each point once, and then again only
//! those between which noise does not allow a decision.
//!
//! **When two points are separated.** A point is out of the race when its mean is more than two standard deviations of
//! the difference below the best mean. This is the idea of racing (O. Maron and A. W. Moore, "Hoeffding races:
//! accelerating model selection search for classification and function approximation", NIPS 6, 1994), with the estimated
//! variance instead of Hoeffding's bound, as the range of a target is not known. It relies on the variance of
//! `estimates.rs`, and on nothing else: a wrong decision loses a good candidate, but does not promote a bad one.
//!
//! **When a point is known well enough.** A point is not measured again when two standard deviations of its mean are
//! within the minimum effect, since a smaller difference is not worth a change, or when it was measured as often as
//! the stage permits. Of the points that remain, the one measured least is next.
//!
//! **When the incumbent stays.** It stays if the best is better by no more than half of the minimum effect, or by no more
//! than [`REASON`] standard deviations of the difference. A change must have a reason; without this rule, the search
//! would wander between points that differ by noise, and measure the next parameter beside changes that do harm.

use super::Race;
use crate::engine::Unfinished;
use crate::Point;

/// Standard deviations that separate two points.
const SEPARATION: f64 = 2.0;

/// Standard deviations by which the best must be better than the incumbent.
const REASON: f64 = 1.0;

impl Race<'_, '_> {
    /// The best of `points`, or `incumbent`.
    pub(super) fn select(&mut self, points: &[Point], incumbent: &Point) -> Result<Point, Unfinished> {
        for point in points {
            if !self.estimates.is_known(point) {
                self.measure(point)?;
            }
        }
        while let Some(point) = self.most_uncertain(points) {
            self.measure(&point)?;
        }
        let worst_that_stays = |best: &Point| self.estimates.mean(best) - self.reason(best, incumbent);
        let better = self.best_of(points).filter(|best| self.estimates.mean(incumbent) < worst_that_stays(best));
        Ok(better.unwrap_or_else(|| incumbent.clone()))
    }

    /// The point to measure next; `None` if the best is known well enough.
    fn most_uncertain(&self, points: &[Point]) -> Option<Point> {
        let best = self.best_of(points)?;
        let in_the_race = points.iter().filter(|point| self.may_be_better(point, &best)).chain([&best]);
        let next = in_the_race.filter(|point| points.len() > 1 && self.is_worth_another(point));
        next.min_by_key(|point| self.estimates.repeats(point)).cloned()
    }

    fn best_of(&self, points: &[Point]) -> Option<Point> {
        let mean = |point: &Point| self.estimates.mean(point);
        let known = points.iter().filter(|point| mean(point).is_finite());
        // Of equals, the first: the one nearest to what is known.
        known.rev().max_by(|a, b| mean(a).total_cmp(&mean(b))).cloned()
    }

    /// The difference that is a reason to leave the incumbent.
    fn reason(&self, best: &Point, incumbent: &Point) -> f64 {
        let variance = self.estimates.variance(best) + self.estimates.variance(incumbent);
        (self.minimum / 2.0).max(REASON * variance.sqrt())
    }

    /// Whether noise may hide that `point` is better than `best`.
    fn may_be_better(&self, point: &Point, best: &Point) -> bool {
        let variance = self.estimates.variance(point) + self.estimates.variance(best);
        point != best && self.estimates.mean(best) - self.estimates.mean(point) < SEPARATION * variance.sqrt()
    }

    fn is_worth_another(&self, point: &Point) -> bool {
        (1..self.budget.repeats()).contains(&self.estimates.repeats(point)) && self.is_uncertain(point)
    }

    /// Whether two standard deviations of the mean are more than the minimum effect.
    pub(super) fn is_uncertain(&self, point: &Point) -> bool {
        SEPARATION * self.estimates.variance(point).sqrt() > self.minimum
    }

    /// The point with the best mean, if that is more than the minimum effect.
    pub(super) fn leader(&self) -> Option<Point> {
        let points: Vec<Point> = self.estimates.points().cloned().collect();
        self.best_of(&points).filter(|leader| self.estimates.mean(leader) > self.minimum)
    }
}
