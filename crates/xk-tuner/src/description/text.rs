//! The schema of descriptions: what a file may hold, before it is understood.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::{AtEnd, Backing, Domain, EngineName, VariableError};
use crate::history::Goal;
use crate::knob::Plain;
use crate::levels::{numbers, RangeError};
use crate::modules::{self, PlaceError};
use crate::{Steps, Value};

/// A subsystem.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subsystem {
    pub schema: Spanned<u32>,
    /// What it is, for people.
    #[expect(dead_code, reason = "for those who read the file")]
    pub summary: String,
    /// What a search must give with `with`, and what each means.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    #[serde(default)]
    pub parameter: Vec<Spanned<Parameter>>,
    #[serde(default)]
    pub sensor: Vec<Spanned<Sensor>>,
    pub bottleneck: Option<Spanned<Bottleneck>>,
}

/// A search.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    pub schema: Spanned<u32>,
    pub name: Option<String>,
    pub subsystem: Option<Spanned<String>>,
    /// Several, of which the one that holds the target up is tuned first.
    pub subsystems: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub with: BTreeMap<String, String>,
    /// Those of the subsystem to tune; all if it is not given.
    pub parameters: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    pub parameter: Vec<Spanned<Parameter>>,
    #[serde(default)]
    pub sensor: Vec<Spanned<Sensor>>,
    pub target: Option<Spanned<Target>>,
    /// Several, of which the first decides.
    #[serde(default)]
    pub targets: Vec<Spanned<Target>>,
    #[serde(default)]
    pub constraint: Vec<Spanned<Constraint>>,
    #[serde(default)]
    pub search: Options,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    pub name: Spanned<String>,
    #[serde(rename = "const")]
    constant: Option<String>,
    sysctl: Option<String>,
    file: Option<String>,
    module_parameter: Option<String>,
    module: Option<String>,
    command: Option<Pair>,
    min: Option<i64>,
    max: Option<i64>,
    steps: Option<Steps>,
    step: Option<i64>,
    choices: Option<Choices>,
    pub default: Option<Value>,
    pub only_if: Option<BTreeMap<String, OneOrMore>>,
    pub settle: Option<Spanned<String>>,
    pub at_end: Option<AtEnd>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    get: String,
    set: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Choices {
    List(Vec<Value>),
    Word(String),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    More(Vec<Value>),
    One(Value),
}

impl OneOrMore {
    pub fn list(&self) -> Vec<Value> {
        match self {
            Self::More(values) => values.clone(),
            Self::One(value) => vec![value.clone()],
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensor {
    pub name: String,
    pub of: Vec<String>,
    #[serde(default)]
    pub per: Vec<String>,
    pub similar: f64,
    #[serde(default)]
    pub within: f64,
}

/// What shows that a subsystem holds the target up.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bottleneck {
    pub of: Vec<String>,
    #[serde(default)]
    pub per: Vec<String>,
    /// It does from here on.
    pub at_least: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub name: Option<String>,
    pub command: Option<String>,
    pub window: Option<Spanned<String>>,
    prometheus: Option<String>,
    metric: Option<String>,
    socket: Option<String>,
    /// The subsystem of a module that has a target.
    pub module: Option<String>,
    latency: Option<Latency>,
    pub measure: Option<Measure>,
    pub goal: Option<Goal>,
    pub timeout: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    pub name: String,
    prometheus: Option<String>,
    metric: Option<String>,
    socket: Option<String>,
    latency: Option<Latency>,
    measure: Option<Measure>,
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
}

/// How long calls of a function of the kernel take.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    pub function: String,
    pub percentile: f64,
}

/// What of a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The number itself.
    Number,
    /// The seconds that the command takes.
    Seconds,
    /// How much it grows per second.
    Rate,
}

/// Who is asked for a number.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub prometheus: Option<String>,
    pub metric: Option<String>,
    pub socket: Option<String>,
    pub latency: Option<Latency>,
    pub measure: Option<Measure>,
}

impl Target {
    /// Who is asked.
    pub fn asked(&self) -> Asked {
        Asked {
            prometheus: self.prometheus.clone(),
            metric: self.metric.clone(),
            socket: self.socket.clone(),
            latency: self.latency.clone(),
            measure: self.measure,
        }
    }
}

impl Constraint {
    /// Who is asked.
    pub fn asked(&self) -> Asked {
        Asked {
            prometheus: self.prometheus.clone(),
            metric: self.metric.clone(),
            socket: self.socket.clone(),
            latency: self.latency.clone(),
            measure: self.measure,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    pub engine: Option<EngineName>,
    pub seed: Option<u64>,
    pub trials: Option<Spanned<usize>>,
    pub minimum_effect: Option<Spanned<f64>>,
    pub abort_after: Option<Spanned<f64>>,
}

/// Why a parameter's table does not name one knob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackingError {
    #[error(transparent)]
    Variable(#[from] VariableError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("file = \"{0}\" is no absolute path")]
    Relative(String),
    #[error("module_parameter = \"{0}\" is not MODULE.PARAMETER")]
    ModuleParameter(String),
    #[error("give one of `const`, `sysctl`, `file`, `module_parameter`, `module` and `command`")]
    NotOne,
}

/// Why a parameter's table does not give its values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    #[error("`choices` leave no room for `min`, `max`, `step` and `steps`")]
    Both,
    #[error("`choices` is empty")]
    NoChoice,
    #[error("choices = \"{0}\": give a list, or \"offered\" for what the file itself offers")]
    Word(String),
    #[error("only a `file` offers choices")]
    NotAFile,
    #[error("give `min` and `max`, or `choices`")]
    Neither,
    #[error(transparent)]
    Range(#[from] RangeError),
}

impl Parameter {
    /// What is behind it.
    pub fn backing(&self, substitute: impl Fn(&str) -> Result<String, VariableError>) -> Result<Backing, BackingError> {
        let file = |path: String| Backing::Plain(Plain::File(PathBuf::from(path)));
        let mut found = Vec::new();
        if let Some(name) = &self.constant {
            found.push(Backing::Constant(name.clone()));
        }
        if let Some(name) = &self.sysctl {
            found.push(file(format!("/proc/sys/{}", substitute(name)?.replace('.', "/"))));
        }
        if let Some(path) = &self.file {
            found.push(file(absolute(substitute(path)?)?));
        }
        if let Some(name) = &self.module_parameter {
            let (module, parameter) =
                name.split_once('.').ok_or_else(|| BackingError::ModuleParameter(name.clone()))?;
            found.push(file(format!("/sys/module/{module}/parameters/{parameter}")));
        }
        if let Some(place) = &self.module {
            let place = substitute(place)?;
            modules::split(&place)?;
            found.push(Backing::Module(place));
        }
        if let Some(Pair { get, set }) = &self.command {
            found.push(Backing::Plain(Plain::Command { get: substitute(get)?, set: substitute(set)? }));
        }
        let only = found.pop().filter(|_| found.is_empty());
        only.ok_or(BackingError::NotOne)
    }

    /// Whether it says which values it has.
    pub fn has_values(&self) -> bool {
        self.choices.is_some()
            || self.min.is_some()
            || self.max.is_some()
            || self.steps.is_some()
            || self.step.is_some()
    }

    /// Its values.
    pub fn domain(&self) -> Result<Domain, DomainError> {
        let numeric = self.min.is_some() || self.max.is_some() || self.steps.is_some() || self.step.is_some();
        match (&self.choices, self.min.zip(self.max)) {
            (Some(_), _) if numeric => Err(DomainError::Both),
            (Some(Choices::List(list)), _) if list.is_empty() => Err(DomainError::NoChoice),
            (Some(Choices::List(list)), _) => Ok(Domain::Choices(list.iter().map(normal).collect())),
            (Some(Choices::Word(word)), _) if word != "offered" => Err(DomainError::Word(word.clone())),
            (Some(Choices::Word(_)), _) if self.file.is_none() => Err(DomainError::NotAFile),
            (Some(Choices::Word(_)), _) => Ok(Domain::Offered),
            (None, Some((min, max))) => {
                let steps = self.steps.unwrap_or(Steps::Linear);
                let step = self.step.unwrap_or(if steps == Steps::Linear { 1 } else { 2 });
                Ok(Domain::Numbers(numbers(min, max, steps, step)?))
            }
            (None, None) => Err(DomainError::Neither),
        }
    }
}

/// As it will be read back.
fn normal(value: &Value) -> Value {
    Value::parse(&value.to_string())
}

fn absolute(path: String) -> Result<String, BackingError> {
    if path.starts_with('/') {
        Ok(path)
    } else {
        Err(BackingError::Relative(path))
    }
}
