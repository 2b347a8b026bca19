//! The space of a search: dimensions with levels, guards between them, and points.
//!
//! In: dimensions. Out: a [`Space`]. It refuses guards that depend on each other. A dimension is *active* at a point if it has no
//! guard, or if the dimension of its guard is active and has one of the guard's levels. An inactive dimension has its
//! default, so points that differ only in inactive dimensions are the same ([`Space::canonical`]).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::Value;

/// One level for each dimension, by index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Point(pub Vec<usize>);

impl Point {
    /// This point with another level in one dimension.
    #[must_use]
    pub fn with(&self, dimension: usize, level: usize) -> Self {
        let mut point = self.clone();
        point.0[dimension] = level;
        point
    }
}

/// When a dimension is active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// The dimension on which it depends.
    pub dimension: usize,
    /// The levels of that dimension with which this one is active.
    pub levels: Vec<usize>,
}

/// One parameter, as engines see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dimension {
    /// Name of the parameter.
    pub name: String,
    /// The values to try.
    pub levels: Vec<Value>,
    /// Whether neighbouring levels have similar effects: true for numbers, false for choices.
    pub ordered: bool,
    /// The level before the search.
    pub default: usize,
    /// When it is active; always, if there is no guard.
    pub guard: Option<Guard>,
}

/// The settings that a search may try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    dimensions: Vec<Dimension>,
    /// Points that violated a constraint with this workload in earlier searches. They are not tried.
    pub forbidden: BTreeSet<Point>,
}

/// Guards that depend on each other: the names of the parameters, the first again at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle(pub Vec<String>);

impl Space {
    /// The space of these dimensions.
    ///
    /// # Errors
    /// [`Cycle`].
    pub fn new(dimensions: Vec<Dimension>) -> Result<Self, Cycle> {
        for start in 0..dimensions.len() {
            let mut path = vec![start];
            let mut at = start;
            while let Some(guard) = &dimensions[at].guard {
                at = guard.dimension;
                path.push(at);
                if at == start {
                    return Err(Cycle(path.iter().map(|&index| dimensions[index].name.clone()).collect()));
                }
                if path.len() > dimensions.len() {
                    break; // A cycle without `start`, which is found from one of its members.
                }
            }
        }
        Ok(Self { dimensions, forbidden: BTreeSet::new() })
    }

    /// The dimensions.
    #[must_use]
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// The default of each dimension.
    #[must_use]
    pub fn default_point(&self) -> Point {
        Point(self.dimensions.iter().map(|dimension| dimension.default).collect())
    }

    /// Whether a dimension is active at a point.
    #[must_use]
    pub fn is_active(&self, point: &Point, dimension: usize) -> bool {
        match &self.dimensions[dimension].guard {
            None => true,
            Some(guard) => guard.levels.contains(&point.0[guard.dimension]) && self.is_active(point, guard.dimension),
        }
    }

    /// The point with the default in each inactive dimension.
    #[must_use]
    pub fn canonical(&self, point: &Point) -> Point {
        let levels = (0..self.dimensions.len()).map(|index| match self.is_active(point, index) {
            true => point.0[index],
            false => self.dimensions[index].default,
        });
        Point(levels.collect())
    }

    /// The value of a dimension at a point.
    #[must_use]
    pub fn value(&self, point: &Point, dimension: usize) -> &Value {
        &self.dimensions[dimension].levels[point.0[dimension]]
    }

    /// The dimensions, each after the dimension of its guard.
    #[must_use]
    pub fn in_order(&self) -> Vec<usize> {
        let depth = |index: usize| {
            let mut depth = 0;
            let mut at = index;
            while let Some(guard) = &self.dimensions[at].guard {
                depth += 1;
                at = guard.dimension;
            }
            depth
        };
        let mut order: Vec<usize> = (0..self.dimensions.len()).collect();
        order.sort_by_key(|&index| (depth(index), index));
        order
    }

    /// As [`Space::in_order`], and those with fewer levels first: a good choice among few values helps the rest of the
    /// search (EOS, section 5).
    #[must_use]
    pub fn limited_first(&self) -> Vec<usize> {
        let mut order = Vec::new();
        let mut left = self.in_order();
        while !left.is_empty() {
            let free = |index: usize| {
                let guard = self.dimensions[index].guard.as_ref();
                guard.is_none_or(|guard| order.contains(&guard.dimension))
            };
            let ready = left.iter().copied().filter(|&index| free(index));
            let Some(next) = ready.min_by_key(|&index| (self.dimensions[index].levels.len(), index)) else { break };
            left.retain(|&index| index != next);
            order.push(next);
        }
        order
    }

    /// The dimensions on which others depend, each after the dimension of its own guard.
    #[must_use]
    pub fn guards(&self) -> Vec<usize> {
        let is_guard = |index: &usize| {
            self.dimensions.iter().any(|other| other.guard.as_ref().is_some_and(|guard| guard.dimension == *index))
        };
        self.in_order().into_iter().filter(is_guard).collect()
    }

    /// Whether `point` is the same as `nearer`, except for one number that is further from its default in the same
    /// direction.
    #[must_use]
    pub fn is_beyond(&self, point: &Point, nearer: &Point) -> bool {
        let mut differences = (0..point.0.len()).filter(|&index| point.0[index] != nearer.0[index]);
        let (Some(index), None) = (differences.next(), differences.next()) else { return false };
        let Dimension { ordered, default, .. } = self.dimensions[index];
        let (level, nearer) = (point.0[index], nearer.0[index]);
        ordered && ((default < nearer && nearer < level) || (level < nearer && nearer < default))
    }

    /// Every point, each once.
    #[must_use]
    pub fn all(&self) -> Vec<Point> {
        let mut points = BTreeSet::new();
        let mut point = Point(vec![0; self.dimensions.len()]);
        loop {
            points.insert(self.canonical(&point));
            let Some(at) = (0..point.0.len()).rev().find(|&at| point.0[at] + 1 < self.dimensions[at].levels.len())
            else {
                return points.into_iter().collect();
            };
            point.0[at] += 1;
            point.0[at + 1..].fill(0);
        }
    }

    /// The active dimensions in which a point differs from the default: `scheduler = none, nr_requests = 64`.
    #[must_use]
    pub fn describe(&self, point: &Point) -> String {
        let point = self.canonical(point);
        let changes: Vec<String> = (0..point.0.len())
            .filter(|&index| point.0[index] != self.dimensions[index].default)
            .map(|index| format!("{} = {}", self.dimensions[index].name, self.value(&point, index)))
            .collect();
        if changes.is_empty() {
            "the default".into()
        } else {
            changes.join(", ")
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A dimension of numbers.
    pub fn dimension(name: &str, levels: &[i64], default: usize, guard: Option<(usize, &[usize])>) -> Dimension {
        Dimension {
            name: name.into(),
            levels: levels.iter().map(|&level| Value::Number(level)).collect(),
            ordered: true,
            default,
            guard: guard.map(|(dimension, levels)| Guard { dimension, levels: levels.to_vec() }),
        }
    }

    #[test]
    fn inactive_dimensions_make_no_points() {
        let space = Space::new(vec![
            dimension("a", &[0, 1], 0, None),
            dimension("b", &[1, 2, 3], 0, Some((0, &[1]))),
            dimension("c", &[5, 6], 1, Some((1, &[2]))),
        ])
        .unwrap();
        assert!(!space.is_active(&Point(vec![0, 2, 0]), 2), "its guard is not active itself");
        assert_eq!(space.canonical(&Point(vec![0, 2, 0])), Point(vec![0, 0, 1]));
        assert_eq!(space.all().len(), 5);
        assert_eq!(space.guards(), [0, 1]);
        assert_eq!(space.describe(&Point(vec![1, 2, 0])), "a = 1, b = 3, c = 5");
        assert_eq!(space.describe(&Point(vec![0, 2, 0])), "the default");
    }

    #[test]
    fn a_number_further_from_the_default_is_beyond() {
        let mut choice = dimension("choice", &[0, 1, 2], 0, None);
        choice.ordered = false;
        let space = Space::new(vec![dimension("n", &[0, 1, 2, 3, 4], 2, None), choice]).unwrap();
        let beyond =
            |point: [usize; 2], nearer: [usize; 2]| space.is_beyond(&Point(point.to_vec()), &Point(nearer.to_vec()));
        assert!(beyond([4, 0], [3, 0]) && beyond([0, 1], [1, 1]));
        assert!(!beyond([3, 0], [4, 0]) && !beyond([3, 0], [3, 0]) && !beyond([1, 0], [3, 0]));
        // Another parameter differs too, or is a choice; the default itself violated it.
        assert!(!beyond([4, 1], [3, 0]) && !beyond([2, 2], [2, 1]) && !beyond([4, 0], [2, 0]));
    }

    #[test]
    fn guards_that_depend_on_each_other_are_found() {
        let dimensions = vec![
            dimension("a", &[0, 1], 0, Some((1, &[1]))),
            dimension("b", &[1, 2], 0, Some((2, &[1]))),
            dimension("c", &[1, 2], 0, Some((1, &[0]))),
        ];
        assert_eq!(Space::new(dimensions), Err(Cycle(vec!["b".into(), "c".into(), "b".into()])));
        assert!(Space::new(vec![dimension("a", &[0, 1], 0, Some((0, &[1])))]).is_err());
    }

    #[test]
    fn limited_parameters_come_first_and_guards_before_their_dependents() {
        let space = Space::new(vec![
            dimension("few, guarded", &[0, 1], 0, Some((2, &[0]))),
            dimension("many", &[1, 2, 3, 4, 5], 0, None),
            dimension("some", &[1, 2, 3], 0, None),
        ])
        .unwrap();
        assert_eq!(space.limited_first(), [2, 0, 1]);
        assert_eq!(space.in_order(), [1, 2, 0]);
    }
}
