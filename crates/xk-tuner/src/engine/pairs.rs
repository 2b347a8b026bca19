//! Points that change several parameters at once, so few of them that every two changes are together in one.
//!
//! In: a space. Out: the points. Pairs that a guard excludes are left out.
//!
//! Where no change by itself does anything, two may: requests of 16 KiB and `bfq`, each of which is as good as the default
//! alone. There are as many such pairs as the square of the parameters, but a point that changes all of them tries many
//! at once. Such sets are known as covering arrays; this one is built greedily, a point after the other (D. M. Cohen, S.
//! R. Dalal, M. L. Fredman, G. C. Patton, "The AETG system: an approach to testing based on combinatorial design", IEEE
//! Transactions on Software Engineering 23, 1997, pages 437 to 444), and is not always the smallest.

use std::collections::BTreeSet;

use crate::{Point, Space};

/// A parameter, and the level that it is changed to.
type Change = (usize, usize);

/// The points. A number is changed to its extremes, a choice to each other one; what only another choice opens stays.
pub fn pairs(space: &Space) -> Vec<Point> {
    let default = space.default_point();
    let changes: Vec<Change> = changes(space);
    let mut open: BTreeSet<(Change, Change)> = BTreeSet::new();
    for (index, &a) in changes.iter().enumerate() {
        let others = changes[index + 1..].iter().copied().filter(|b| b.0 != a.0);
        open.extend(others.map(|b| (a, b)).filter(|&(a, b)| has(&with(space, &with(space, &default, a), b), a, b)));
    }
    let mut points = Vec::new();
    while let Some(&(a, b)) = open.first() {
        let mut point = with(space, &with(space, &default, a), b);
        for dimension in 0..space.dimensions().len() {
            if point.0[dimension] != default.0[dimension] {
                continue;
            }
            let more = changes.iter().filter(|change| change.0 == dimension).map(|&change| with(space, &point, change));
            // It only grows, so that each point has a pair that was open; not always the one that it was begun with, as a
            // choice may close that.
            let gain = |point: &Point| open.iter().filter(|&&(a, b)| has(point, a, b)).count();
            let best = more.max_by_key(gain).filter(|more| gain(more) > gain(&point));
            point = best.unwrap_or(point);
        }
        open.retain(|&(a, b)| !has(&point, a, b));
        points.push(point);
    }
    points
}

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

fn with(space: &Space, point: &Point, (dimension, level): Change) -> Point {
    space.canonical(&point.with(dimension, level))
}

fn has(point: &Point, a: Change, b: Change) -> bool {
    point.0[a.0] == a.1 && point.0[b.0] == b.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::dimension;
    use crate::Dimension;

    #[test]
    fn every_two_changes_are_together_in_a_point() {
        // Eight numbers of five levels: 112 pairs of extremes.
        let numbers = (0..8).map(|at| dimension(&format!("n{at}"), &[0, 1, 2, 3, 4], 2, None)).collect();
        let numbers = Space::new(numbers).unwrap();
        let points = pairs(&numbers);
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
    fn what_a_choice_closes_is_not_asked_of_it() {
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
        let points: BTreeSet<Vec<usize>> = pairs(&space).into_iter().map(|point| point.0).collect();
        assert_eq!(points, [vec![0, 0, 1, 0], vec![1, 2, 1, 0], vec![2, 2, 1, 0]].into());
    }

    #[test]
    fn a_pair_that_a_better_choice_closes_comes_later() {
        // Late in the list, the scheduler gains more pairs than the batch, which it closes.
        let choice =
            |name: &str, levels: &[i64], guard| Dimension { ordered: false, ..dimension(name, levels, 0, guard) };
        let space = Space::new(vec![
            choice("batch", &[0, 1, 2], Some((2, &[0]))),
            choice("size", &[0, 1, 2, 3], None),
            choice("scheduler", &[0, 1, 2], None),
            choice("depth", &[0, 1, 2, 3], None),
        ])
        .unwrap();
        let points = pairs(&space);
        for (batch, size) in [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)] {
            assert!(points.iter().any(|point| has(point, (0, batch), (1, size))), "{batch} {size}: {points:?}");
        }
        // Nine of size and depth; most others fit in.
        assert!(points.len() <= 18, "{} points", points.len());
    }
}
