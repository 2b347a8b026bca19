//! The front of several targets (the Pareto front): each of its settings is better than every other in at least one target.
//!
//! In: a history. Out: the settings, the best at the first target first. A setting counts with the mean of its trials.
//! Of two settings that differ by no more than the minimum effect in every target, the one with fewer changes stays. A
//! setting that failed, or violated a constraint, has no numbers, and is not in the front.

use std::collections::BTreeMap;

use serde_json::{json, Value as Json};

use crate::engine::SearchSpec;
use crate::history::{Goal, Objective, Outcome, Record};
use crate::{Point, Space};

/// A setting in the front.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The setting.
    pub point: Point,
    /// Its effect on each target, the first target first.
    pub effects: Vec<f64>,
    /// The number of its trials.
    pub trials: usize,
}

/// The front of a history. The default is one of the candidates, with an effect of 0.
#[must_use]
pub fn front(space: &Space, history: &[Record], goal: Goal, others: &[Objective], minimum: f64) -> Vec<Choice> {
    let mut choices = measured(history, goal, others);
    let default = Choice { point: space.default_point(), effects: vec![0.0; others.len() + 1], trials: history.len() };
    choices.push(default);
    let best: Vec<&Choice> =
        choices.iter().filter(|choice| !choices.iter().any(|other| dominates(other, choice, minimum))).collect();
    let mut kept: Vec<Choice> = Vec::new();
    let mut by_changes: Vec<(usize, &Choice)> =
        best.into_iter().map(|choice| (changes(space, &choice.point), choice)).collect();
    by_changes.sort_by(|(a_changes, a), (b_changes, b)| a_changes.cmp(b_changes).then(by_first(a, b)));
    for (_, choice) in by_changes {
        if !kept.iter().any(|known| is_as_good(known, choice, minimum)) {
            kept.push(choice.clone());
        }
    }
    kept.sort_by(by_first);
    kept
}

/// The front of a search with several targets; empty with one target.
#[must_use]
pub fn of(spec: &SearchSpec, history: &[Record]) -> Vec<Choice> {
    match spec.others.is_empty() {
        true => Vec::new(),
        false => front(&spec.space, history, spec.goal, &spec.others, spec.minimum),
    }
}

impl Choice {
    /// The name of each target, and its factor compared with the default.
    #[must_use]
    pub fn factors(&self, spec: &SearchSpec) -> Vec<(String, f64)> {
        let goals = std::iter::once((&spec.lead, spec.goal));
        let goals = goals.chain(spec.others.iter().map(|other| (&other.name, other.goal)));
        let factor = |goal, effect: f64| if goal == Goal::Maximise { effect.exp() } else { (-effect).exp() };
        goals.zip(&self.effects).map(|((name, goal), effect)| (name.clone(), factor(goal, *effect))).collect()
    }

    /// In words.
    #[must_use]
    pub fn words(&self, spec: &SearchSpec) -> String {
        let factors: Vec<String> =
            self.factors(spec).iter().map(|(name, factor)| format!("{name} x {factor:.3}")).collect();
        format!("{}: {} ({} trials)", spec.space.describe(&self.point), factors.join(", "), self.trials)
    }

    /// For the journal.
    #[must_use]
    pub fn json(&self, spec: &SearchSpec) -> Json {
        let factors: BTreeMap<String, f64> = self.factors(spec).into_iter().collect();
        json!({ "setting": spec.space.describe(&self.point), "factors": factors, "trials": self.trials })
    }
}

fn by_first(a: &Choice, b: &Choice) -> std::cmp::Ordering {
    b.effects[0].total_cmp(&a.effects[0]).then_with(|| a.point.cmp(&b.point))
}

fn changes(space: &Space, point: &Point) -> usize {
    let default = space.default_point();
    space.canonical(point).0.iter().zip(&default.0).filter(|(level, default)| level != default).count()
}

/// Each point that has a number for each target.
fn measured(history: &[Record], goal: Goal, others: &[Objective]) -> Vec<Choice> {
    let mut points: BTreeMap<&Point, Vec<Vec<f64>>> = BTreeMap::new();
    for record in history {
        let Outcome::Measured(sample) = &record.outcome else { continue };
        let rest = others.iter().map(|other| Some(sample.others.get(&other.name)?.effect(other.goal)));
        let effects: Option<Vec<f64>> = std::iter::once(Some(sample.effect(goal))).chain(rest).collect();
        points.entry(&record.trial.point).or_default().extend(effects);
    }
    let mean = |trials: &[Vec<f64>], target: usize| {
        trials.iter().map(|effects| effects[target]).sum::<f64>() / trials.len() as f64
    };
    let choice = |(point, trials): (&Point, Vec<Vec<f64>>)| Choice {
        point: point.clone(),
        effects: (0..=others.len()).map(|target| mean(&trials, target)).collect(),
        trials: trials.len(),
    };
    points.into_iter().filter(|(_, trials)| !trials.is_empty()).map(choice).collect()
}

/// Whether `a` is no worse than `b` in any target, and better in one by more than the minimum effect.
fn dominates(a: &Choice, b: &Choice, minimum: f64) -> bool {
    let pairs = || a.effects.iter().zip(&b.effects);
    pairs().all(|(a, b)| a >= b) && pairs().any(|(a, b)| a - b > minimum)
}

/// Whether `b` is in no target better than `a` by more than the minimum effect.
fn is_as_good(a: &Choice, b: &Choice, minimum: f64) -> bool {
    a.effects.iter().zip(&b.effects).all(|(a, b)| b - a <= minimum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Order, Sample, Trial};
    use crate::space::tests::dimension;

    fn space() -> Space {
        Space::new(vec![dimension("a", &[0, 1, 2, 3], 0, None), dimension("b", &[0, 1], 0, None)]).unwrap()
    }

    /// Throughput (more is better) and latency (less is), 100 and 10 by default.
    fn record(point: [usize; 2], throughput: f64, latency: f64) -> Record {
        let sample = |default: f64, value| Sample { default: vec![default], value, ..Sample::default() };
        Record {
            trial: Trial { point: Point(point.to_vec()), order: Order::DefaultFirst },
            outcome: Outcome::Measured(Sample {
                others: [("latency".to_owned(), sample(10.0, latency))].into(),
                ..sample(100.0, throughput)
            }),
        }
    }

    fn points(history: &[Record]) -> Vec<Vec<usize>> {
        let others = [Objective { name: "latency".into(), goal: Goal::Minimise }];
        let front = front(&space(), history, Goal::Maximise, &others, 0.02);
        front.into_iter().map(|choice| choice.point.0).collect()
    }

    #[test]
    fn what_is_worse_in_everything_is_not_on_it() {
        let history = [
            record([1, 0], 150.0, 15.0),
            record([2, 0], 120.0, 9.0),
            record([3, 0], 110.0, 12.0),
            record([0, 1], 90.0, 5.0),
        ];
        // [3, 0] is beaten by [2, 0], and so is the default.
        assert_eq!(points(&history), [vec![1, 0], vec![2, 0], vec![0, 1]]);
    }

    #[test]
    fn the_default_is_a_choice_too() {
        assert_eq!(points(&[]), [vec![0, 0]]);
        assert_eq!(points(&[record([1, 0], 150.0, 15.0)]), [vec![1, 0], vec![0, 0]]);
        assert_eq!(points(&[record([1, 0], 150.0, 5.0)]), [vec![1, 0]]);
    }

    #[test]
    fn of_equals_the_one_that_changes_less_stays() {
        // Better by half a hundredth, and another parameter changed.
        let history = [record([1, 1], 150.7, 8.0), record([1, 0], 150.0, 8.0)];
        assert_eq!(points(&history), [vec![1, 0]]);
        let history = [record([1, 1], 160.0, 8.0), record([1, 0], 150.0, 8.0)];
        assert_eq!(points(&history), [vec![1, 1]]);
    }

    #[test]
    fn trials_are_averaged_and_what_has_no_numbers_is_no_choice() {
        let mut failed = record([3, 0], 900.0, 1.0);
        failed.outcome = Outcome::Violated { constraint: "latency".into() };
        let mut half = record([2, 0], 900.0, 1.0);
        if let Outcome::Measured(sample) = &mut half.outcome {
            sample.others.clear();
        }
        // One window of luck, and three that are none.
        let lucky = [120.0, 80.0, 80.0, 80.0].map(|throughput| record([1, 0], throughput, 10.0));
        assert_eq!(points(&[vec![failed, half], lucky.to_vec()].concat()), [vec![0, 0]]);
    }
}
