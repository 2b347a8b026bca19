//! A covering array: few points that change several parameters at once, such that every two changes occur together in
//! at least one of them.
//!
//! In: a space. Out: the points. Combinations that a guard excludes are left out.
//!
//! Where no change by itself has an effect, two together may: requests of 16 KiB and `bfq`, for example, each of which
//! alone is as good as the default. The number of such combinations grows with the square of the parameters, but a point
//! that changes all parameters contains many of them. The array is built greedily, point by point (D. M. Cohen, S. R.
//! Dalal, M. L. Fredman, G. C. Patton, "The AETG system: an approach to testing based on combinatorial design", IEEE
//! Transactions on Software Engineering 23, 1997, pages 437 to 444), so it is not always the smallest. It relies on
//! effects of two changes that are strong enough to show beside the effects of the other changes in the same point.

use std::collections::BTreeSet;

use crate::{Point, Space};

/// A parameter, and the level that it is changed to.
type Change = (usize, usize);

/// Two changes of different parameters.
type Combination = (Change, Change);

/// The points of a covering array.
pub fn covering_points(space: &Space) -> Vec<Point> {
    let changes = changes(space);
    let mut uncovered = combinations(space, &changes);
    let mut points = Vec::new();
    while let Some(&first) = uncovered.first() {
        let point = extend(space, &changes, &uncovered, with_both(space, first));
        uncovered.retain(|&combination| !contains(&point, combination));
        points.push(point);
    }
    points
}

/// Every change of one parameter that is active with the default: a number to its extremes, a choice to each other
/// level.
fn changes(space: &Space) -> Vec<Change> {
    let default = space.default_point();
    let mut changes = Vec::new();
    for (at, dimension) in space.dimensions().iter().enumerate().filter(|(at, _)| space.is_active(&default, *at)) {
        let last = dimension.levels.len() - 1;
        let levels = (0..=last).filter(|&level| !dimension.ordered || level == 0 || level == last);
        changes.extend(levels.filter(|&level| level != dimension.default).map(|level| (at, level)));
    }
    changes
}

/// Every combination of two changes that some point can contain.
fn combinations(space: &Space, changes: &[Change]) -> BTreeSet<Combination> {
    let mut all = BTreeSet::new();
    for (index, &a) in changes.iter().enumerate() {
        let others = changes[index + 1..].iter().filter(|b| b.0 != a.0);
        all.extend(others.map(|&b| (a, b)).filter(|&both| contains(&with_both(space, both), both)));
    }
    all
}

/// Changes further parameters of `point`, one after the other, as long as that covers more combinations.
///
/// A further choice may close the combination that the point began with, by its guard. The number of covered
/// combinations only grows, so the point still covers at least one, and [`covering_points`] ends.
fn extend(space: &Space, changes: &[Change], uncovered: &BTreeSet<Combination>, mut point: Point) -> Point {
    let default = space.default_point();
    let gain = |point: &Point| uncovered.iter().filter(|&&combination| contains(point, combination)).count();
    for dimension in 0..space.dimensions().len() {
        if point.0[dimension] == default.0[dimension] {
            let own = changes.iter().filter(|change| change.0 == dimension);
            let best = own.map(|&change| with(space, &point, change)).max_by_key(gain);
            point = best.filter(|more| gain(more) > gain(&point)).unwrap_or(point);
        }
    }
    point
}

fn with(space: &Space, point: &Point, (dimension, level): Change) -> Point {
    space.canonical(&point.with(dimension, level))
}

/// The default with two changes.
fn with_both(space: &Space, (a, b): Combination) -> Point {
    with(space, &with(space, &space.default_point(), a), b)
}

fn contains(point: &Point, (a, b): Combination) -> bool {
    point.0[a.0] == a.1 && point.0[b.0] == b.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::dimension;
    use crate::Dimension;

    #[test]
    fn every_two_changes_are_together_in_a_point() {
        // Eight numbers of five levels: 112 combinations of extremes.
        let numbers = (0..8).map(|at| dimension(&format!("n{at}"), &[0, 1, 2, 3, 4], 2, None)).collect();
        let numbers = Space::new(numbers).unwrap();
        let points = covering_points(&numbers);
        for a in 0..8 {
            for b in 0..a {
                for (x, y) in [(0, 0), (0, 4), (4, 0), (4, 4)] {
                    assert!(points.iter().any(|point| point.0[a] == x && point.0[b] == y), "{a} {b} {x} {y}");
                }
            }
        }
        assert!(points.len() <= 12, "{} points", points.len());
    }

    #[test]
    fn a_guarded_parameter_is_only_changed_where_it_is_active() {
        let mut scheduler = dimension("scheduler", &[0, 1, 2], 0, None);
        scheduler.ordered = false;
        let space = Space::new(vec![
            scheduler,
            dimension("batch", &[1, 4, 16], 2, Some((0, &[0]))),
            dimension("idle", &[0, 8], 1, Some((0, &[1]))),
            dimension("size", &[16, 32, 64], 2, None),
        ])
        .unwrap();
        // Of the first scheduler, its batch with the size; of the others, the size.
        let points: BTreeSet<Vec<usize>> = covering_points(&space).into_iter().map(|point| point.0).collect();
        assert_eq!(points, [vec![0, 0, 1, 0], vec![1, 2, 1, 0], vec![2, 2, 1, 0]].into());
    }

    #[test]
    fn a_combination_that_a_better_choice_closes_comes_later() {
        // Late in the list, the scheduler gains more combinations than the batch, which it closes.
        let choice =
            |name: &str, levels: &[i64], guard| Dimension { ordered: false, ..dimension(name, levels, 0, guard) };
        let space = Space::new(vec![
            choice("batch", &[0, 1, 2], Some((2, &[0]))),
            choice("size", &[0, 1, 2, 3], None),
            choice("scheduler", &[0, 1, 2], None),
            choice("depth", &[0, 1, 2, 3], None),
        ])
        .unwrap();
        let points = covering_points(&space);
        for (batch, size) in [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)] {
            assert!(points.iter().any(|point| contains(point, ((0, batch), (1, size)))), "{batch} {size}: {points:?}");
        }
        // Nine of size and depth; most others fit in.
        assert!(points.len() <= 18, "{} points", points.len());
    }
}
