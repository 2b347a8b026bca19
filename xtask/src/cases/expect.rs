//! What must come of a study. In: `[expect]` of its `study.toml`, and what it
//! measured. Out: sentences about what was not there.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Everything here must hold.
#[derive(Debug, Default, Deserialize)]
pub struct Expect {
    /// The least ratio.
    ratio: Option<f64>,
    /// Numbers of the result that must stay within bounds.
    #[serde(default)]
    limits: Vec<Limit>,
    /// Numbers of the points that must rise or fall from each to the next.
    #[serde(default)]
    monotonic: Vec<Monotonic>,
}

#[derive(Debug, Deserialize)]
struct Limit {
    of: String,
    least: Option<f64>,
    most: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Monotonic {
    of: String,
    direction: Direction,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Direction {
    Rising,
    Falling,
}

impl Expect {
    /// The ratio alone: a short run has nothing else.
    pub fn missed_ratio(&self, measured: &Map<String, Value>) -> Vec<String> {
        let limit = Limit { of: "ratio".to_owned(), least: self.ratio, most: None };
        limit.missed(measured).into_iter().collect()
    }

    /// What does not hold.
    pub fn missed(&self, measured: &Map<String, Value>) -> Vec<String> {
        let limits = self.limits.iter().filter_map(|limit| limit.missed(measured));
        let lines = self.monotonic.iter().filter_map(|line| line.missed(measured));
        self.missed_ratio(measured).into_iter().chain(limits).chain(lines).collect()
    }
}

impl Limit {
    fn missed(&self, measured: &Map<String, Value>) -> Option<String> {
        let Some(found) = measured.get(&self.of).and_then(Value::as_f64) else {
            return Some(format!("{} was not measured", self.of));
        };
        match (self.least, self.most) {
            (Some(least), _) if found < least => Some(format!("{} is {found}, less than {least}", self.of)),
            (_, Some(most)) if found > most => Some(format!("{} is {found}, more than {most}", self.of)),
            _ => None,
        }
    }
}

impl Monotonic {
    fn missed(&self, measured: &Map<String, Value>) -> Option<String> {
        let points = measured.get("points").and_then(Value::as_array);
        let numbers: Option<Vec<f64>> =
            points.and_then(|points| points.iter().map(|point| point.get(&self.of)?.as_f64()).collect());
        let Some(numbers) = numbers.filter(|numbers| numbers.len() > 1) else {
            return Some(format!("the points have no {}", self.of));
        };
        let holds = numbers.windows(2).all(|pair| match self.direction {
            Direction::Rising => pair[0] < pair[1],
            Direction::Falling => pair[0] > pair[1],
        });
        (!holds).then(|| format!("{} is not {:?} throughout: {numbers:?}", self.of, self.direction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Map<String, Value> {
        let text = r#"{"ratio": 4.0, "share": 1.02, "points": [{"a": 1, "b": 9}, {"a": 2, "b": 9}]}"#;
        serde_json::from_str(text).expect("it is JSON")
    }

    fn missed(text: &str) -> Vec<String> {
        let expect: Expect = toml::from_str(text).expect("it is TOML");
        expect.missed(&measured())
    }

    #[test]
    fn what_holds_is_not_missed() {
        let text = "ratio = 4.0\nlimits = [{ of = 'share', most = 1.03, least = 1.0 }]\n\
                    monotonic = [{ of = 'a', direction = 'rising' }]";
        assert!(missed(text).is_empty());
    }

    #[test]
    fn a_ratio_that_is_too_small_is_missed() {
        assert_eq!(missed("ratio = 4.01").len(), 1);
    }

    #[test]
    fn numbers_out_of_bounds_are_missed() {
        assert_eq!(missed("ratio = 1.0\nlimits = [{ of = 'share', most = 1.01 }]").len(), 1);
        assert_eq!(missed("ratio = 1.0\nlimits = [{ of = 'share', least = 1.03 }]").len(), 1);
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        assert_eq!(missed("limits = [{ of = 'other', most = 1.0 }]\nratio = 1.0").len(), 1);
        assert_eq!(missed("monotonic = [{ of = 'c', direction = 'rising' }]\nratio = 1.0").len(), 1);
    }

    #[test]
    fn a_line_that_stands_still_is_missed() {
        assert_eq!(missed("monotonic = [{ of = 'b', direction = 'rising' }]\nratio = 1.0").len(), 1);
        assert_eq!(missed("monotonic = [{ of = 'b', direction = 'falling' }]\nratio = 1.0").len(), 1);
        assert_eq!(missed("monotonic = [{ of = 'a', direction = 'falling' }]\nratio = 1.0").len(), 1);
    }
}
