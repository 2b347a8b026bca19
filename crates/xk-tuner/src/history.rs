//! The trials of a search and their results: everything that an engine knows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Point;

/// Whether more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// More is better.
    Maximise,
    /// Less is better.
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

/// A target besides the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// Its name.
    pub name: String,
    /// Whether more is better.
    pub goal: Goal,
}

/// The order of the windows of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Default, candidate, default: linear drift cancels out. Databases call it `sandwich`.
    #[serde(rename = "sandwich")]
    Bracketed,
    /// Default, then candidate: one side of a randomised test.
    DefaultFirst,
    /// Candidate, then default.
    DefaultLast,
    /// The candidate alone. It is compared with the last window that the search has measured with the default, which may be
    /// some trials old: drift does not cancel out, so this is for measurements that are repeated before anything is decided.
    Alone,
}

impl Order {
    /// Whether this is a pair of a confirmation.
    #[must_use]
    pub fn confirms(self) -> bool {
        matches!(self, Self::DefaultFirst | Self::DefaultLast)
    }
}

/// One comparison with the default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The setting that is compared with the default.
    pub point: Point,
    /// The order of the windows. Databases call it `kind`.
    #[serde(rename = "kind")]
    pub order: Order,
}

/// The target in each window of a trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The windows with the default: one, or one before and one after the candidate. That of a candidate measured alone is
    /// also in an earlier trial.
    pub default: Vec<f64>,
    /// The window with the candidate.
    pub value: f64,
    /// The same for the further targets, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, Sample>,
}

/// The share of the largest window of a sample that a smaller window counts as at least.
const SMALLEST: f64 = 1e-6;

impl Sample {
    /// The effect: how much better the candidate is than the default, as a difference of logarithms. 0.1 is about 10 %,
    /// 0.7 is twice as good. No window may be negative.
    ///
    /// A number of errors, or a rate, may be 0, which has no logarithm. Such a window counts as a millionth of the largest
    /// window of the sample. So an effect is at most a factor of a million, and without any difference it is 0.
    #[must_use]
    pub fn effect(&self, goal: Goal) -> f64 {
        let default = self.default.iter().map(|window| self.positive(*window).ln()).sum::<f64>()
            / self.default.len().max(1) as f64;
        let value = self.positive(self.value).ln();
        match goal {
            Goal::Maximise => value - default,
            Goal::Minimise => default - value,
        }
    }

    /// The difference between the two windows with the default, if there are two.
    #[must_use]
    pub fn drift(&self) -> Option<f64> {
        match self.default[..] {
            [before, after] => Some((self.positive(after) / self.positive(before)).ln()),
            _ => None,
        }
    }

    /// The window, or a number above 0 that stands for it.
    fn positive(&self, window: f64) -> f64 {
        let largest = self.default.iter().copied().fold(self.value, f64::max);
        let window = window.max(SMALLEST * largest);
        if window == 0.0 {
            1.0
        } else {
            window
        }
    }
}

/// The result of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum Outcome {
    /// Every window gave a number.
    Measured(Sample),
    /// The setting was refused, or the target failed with it.
    Failed {
        /// Why.
        reason: String,
        /// Whether a knob did not take its value. Then the setting is impossible here, and not only this time.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
    },
    /// The window took much longer than windows with the default, so it was aborted.
    Aborted {
        /// Seconds until it was aborted.
        after: f64,
    },
    /// A constraint was violated. The default was restored at once.
    Violated {
        /// The constraint, and the measured value.
        constraint: String,
    },
}

impl Outcome {
    /// What happened in a window that gave no number, as a predicate; of a measured one, nothing.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Measured(_) => "gave a number".into(),
            Self::Failed { reason, .. } => format!("failed: {reason}"),
            Self::Aborted { after } => format!("was aborted after {after:.1} s"),
            Self::Violated { constraint } => format!("violates a constraint: {constraint}"),
        }
    }

    /// A failure that another trial of the same setting might not have.
    #[must_use]
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), refused: false }
    }
}

/// A trial and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The trial.
    pub trial: Trial,
    /// Its outcome.
    pub outcome: Outcome,
}

/// A difference of logarithms as a percentage: `+12.3 %`.
#[must_use]
pub fn percent(effect: f64) -> String {
    format!("{:+.1} %", (effect.exp() - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_0_is_comparable() {
        let sample = |default: &[f64], value| Sample { default: default.to_vec(), value, ..Sample::default() };
        let none = sample(&[0.0, 0.0], 0.0);
        assert_eq!((none.effect(Goal::Minimise), none.drift()), (0.0, Some(0.0)));
        let million = 1e6f64.ln();
        for (default, value, effect) in [(5.0, 0.0, million), (0.0, 5.0, -million), (1.0, 0.0, million)] {
            let errors = sample(&[default], value);
            assert!((errors.effect(Goal::Minimise) - effect).abs() < 1e-9);
            assert!((errors.effect(Goal::Maximise) + effect).abs() < 1e-9);
        }
        assert!((sample(&[0.0, 5.0], 5.0).drift().unwrap() - million).abs() < 1e-9);
    }

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
