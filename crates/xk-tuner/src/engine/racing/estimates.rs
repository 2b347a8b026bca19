//! What the samples say about each point: a mean effect, and the variance of that mean.
//!
//! In: samples of points. Out: estimates for the target in focus. A point whose trial failed has no estimate, and keeps
//! none.
//!
//! **Noise of one window.** Each bracketed trial measures the default twice. The two windows have the same setting, so
//! their difference (the *drift* of the sample) is noise alone, with twice the variance of one window. The standard
//! deviation of the drifts is the median of their absolute values divided by 0.6745: the median absolute deviation,
//! which outliers hardly change (F. R. Hampel, "The influence curve and its role in robust estimation", Journal of the
//! American Statistical Association 69, 1974). This relies on noise being independent of the setting and of the
//! previous window.
//!
//! **Variance of a mean.** The effect of a bracketed trial is one window minus the mean of two, so its variance is
//! 1 + 1/2 times the noise. The mean of n such effects has 1.5/n times the noise. This relies on the same assumption.
//! An error here costs trials or misses candidates, but promotes nothing: confirmation uses none of these estimates.

use std::collections::BTreeMap;

use crate::history::{Goal, Objective, Sample};
use crate::statistics::deviation_around_zero;
use crate::Point;

/// The target that estimates are about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Focus<'r> {
    /// The first target, which decides.
    First(Goal),
    /// One of the further targets.
    Further(&'r Objective),
}

impl Focus<'_> {
    fn goal(self) -> Goal {
        match self {
            Self::First(goal) => goal,
            Self::Further(objective) => objective.goal,
        }
    }

    /// The windows of this target in a sample.
    fn of(self, sample: &Sample) -> Option<&Sample> {
        match self {
            Self::First(_) => Some(sample),
            Self::Further(objective) => sample.others.get(&objective.name),
        }
    }
}

/// What was measured of one point.
#[derive(Debug)]
enum Measured {
    /// Every trial gave a sample.
    Samples(Vec<Sample>),
    /// A trial gave none. Such a point is not measured again, and never chosen.
    Failed,
}

/// The estimates.
#[derive(Debug)]
pub(super) struct Estimates<'r> {
    default: Point,
    focus: Focus<'r>,
    points: BTreeMap<Point, Measured>,
    /// The samples of all points, for the noise. They stay when points are forgotten.
    all: Vec<Sample>,
    /// Variance of one window.
    noise: f64,
}

impl<'r> Estimates<'r> {
    pub fn new(default: Point, focus: Focus<'r>) -> Self {
        Self { default, focus, points: BTreeMap::new(), all: Vec::new(), noise: 0.0 }
    }

    pub fn focus_on(&mut self, focus: Focus<'r>) {
        self.focus = focus;
        self.estimate_noise();
    }

    /// Adds the result of a trial; `None` if it gave no sample.
    pub fn record(&mut self, point: &Point, sample: Option<Sample>) {
        self.all.extend(sample.clone());
        let measured = self.points.entry(point.clone()).or_insert_with(|| Measured::Samples(Vec::new()));
        match (sample, measured) {
            (Some(sample), Measured::Samples(samples)) => samples.push(sample),
            (Some(_), Measured::Failed) => {}
            (None, measured) => *measured = Measured::Failed,
        }
        self.estimate_noise();
    }

    fn estimate_noise(&mut self) {
        let drifts: Vec<f64> = self.all.iter().filter_map(|sample| self.focus.of(sample)?.drift()).collect();
        self.noise = deviation_around_zero(&drifts).unwrap_or(0.0).powi(2) / 2.0;
    }

    /// The variance of one window.
    pub fn noise(&self) -> f64 {
        self.noise
    }

    /// Sets all points aside, so that they can be measured afresh. The noise estimate stays.
    pub fn take_points(&mut self) -> Points {
        Points(std::mem::take(&mut self.points))
    }

    /// Forgets the points that were measured since, and restores those that were set aside.
    pub fn restore_points(&mut self, points: Points) {
        self.points = points.0;
    }

    /// The points for which a trial was made.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.points.keys()
    }

    /// Whether a trial of this point was made. The default needs none.
    pub fn is_known(&self, point: &Point) -> bool {
        self.is_default(point) || self.points.contains_key(point)
    }

    /// How many samples there are of a point; 0 if a trial of it failed.
    pub fn repeats(&self, point: &Point) -> usize {
        match self.points.get(point) {
            Some(Measured::Samples(samples)) => samples.len(),
            Some(Measured::Failed) | None => 0,
        }
    }

    /// The mean effect. It is 0 for the default, and negative infinity where there is no sample.
    pub fn mean(&self, point: &Point) -> f64 {
        if self.is_default(point) {
            return 0.0;
        }
        let effects = self.effects(point);
        match effects.len() {
            0 => f64::NEG_INFINITY,
            repeats => effects.iter().sum::<f64>() / repeats as f64,
        }
    }

    /// The variance of the mean. It is 0 for the default, whose effect is 0 by definition.
    pub fn variance(&self, point: &Point) -> f64 {
        match self.repeats(point) {
            _ if self.is_default(point) => 0.0,
            0 => 0.0,
            repeats => 1.5 * self.noise / repeats as f64,
        }
    }

    /// The mean, less one standard deviation.
    pub fn cautious_mean(&self, point: &Point) -> f64 {
        self.mean(point) - self.variance(point).sqrt()
    }

    pub fn is_default(&self, point: &Point) -> bool {
        *point == self.default
    }

    fn effects(&self, point: &Point) -> Vec<f64> {
        let Some(Measured::Samples(samples)) = self.points.get(point) else { return Vec::new() };
        let goal = self.focus.goal();
        samples.iter().filter_map(|sample| Some(self.focus.of(sample)?.effect(goal))).collect()
    }
}

/// Points that were set aside.
pub(super) struct Points(BTreeMap<Point, Measured>);
