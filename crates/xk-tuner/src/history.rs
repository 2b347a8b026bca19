//! What was tried, and what came of it: all that an engine knows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Point;

/// Whether more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// It is.
    Maximise,
    /// Less is.
    Minimise,
}

impl Goal {
    /// `maximise` or `minimise`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Maximise => "maximise",
            Self::Minimise => "minimise",
        }
    }
}

/// A number of the target that is wanted besides the one that leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// What it is called.
    pub name: String,
    /// Which way is better.
    pub goal: Goal,
}

/// How a point is compared with the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Default, point, default: what drifts evenly cancels out.
    Sandwich,
    /// Default, then point: for a test with a random order.
    DefaultFirst,
    /// Point, then default.
    DefaultLast,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// What is compared with the default.
    pub point: Point,
    /// How.
    pub kind: Kind,
}

/// What the target said in each window of a trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// With the default in force: one window, or one on each side.
    pub default: Vec<f64>,
    /// With the point in force.
    pub value: f64,
    /// The same of the other targets, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, Sample>,
}

impl Sample {
    /// How much better than the default: 0.1 is about 10 %, 0.7 twice as good. Positive numbers only.
    #[must_use]
    pub fn effect(&self, goal: Goal) -> f64 {
        let default = self.default.iter().map(|value| value.ln()).sum::<f64>() / self.default.len().max(1) as f64;
        match goal {
            Goal::Maximise => self.value.ln() - default,
            Goal::Minimise => default - self.value.ln(),
        }
    }

    /// How far the default was from itself, if it was measured twice.
    #[must_use]
    pub fn drift(&self) -> Option<f64> {
        match self.default[..] {
            [before, after] => Some((after / before).ln()),
            _ => None,
        }
    }
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum Outcome {
    /// With numbers.
    Measured(Sample),
    /// The setting was refused, or the target failed under it.
    Failed {
        /// Why.
        reason: String,
    },
    /// It was so much slower than the default that it was not waited for.
    Aborted {
        /// Seconds after which it was given up.
        after: f64,
    },
    /// A hard limit was crossed; the default was put back at once.
    Violated {
        /// The limit, and what was measured.
        constraint: String,
    },
}

/// A trial that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was tried.
    pub trial: Trial,
    /// What came of it.
    pub outcome: Outcome,
}

/// A difference of logarithms as people say it: `+12.3 %`.
#[must_use]
pub fn percent(effect: f64) -> String {
    format!("{:+.1} %", (effect.exp() - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_cancels_and_less_can_be_better() {
        // The machine gets 4 % faster from window to window; the setting does nothing.
        let nothing = Sample { default: vec![100.0, 108.16], value: 104.0, ..Sample::default() };
        assert!(nothing.effect(Goal::Maximise).abs() < 1e-9);
        assert!((nothing.drift().unwrap() - 1.0816f64.ln()).abs() < 1e-9);
        let halved = Sample { default: vec![10.0], value: 5.0, ..Sample::default() };
        assert!((halved.effect(Goal::Minimise) - 2f64.ln()).abs() < 1e-9);
        assert_eq!((halved.drift(), percent(2f64.ln()).as_str()), (None, "+100.0 %"));
    }
}
