//! The schema of descriptions: the keys and tables that a file may contain. It refuses all others. A type called
//! `…Table` is one table as it is written; other modules of this folder turn it into the type that a search uses.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::variables::{substitute, substitute_in_command, VariableError, Variables};
use super::{AtEnd, Backing, Domain, EngineName};
use crate::history::Goal;
use crate::knob::Plain;
use crate::levels::{numbers, RangeError};
use crate::modules::{self, NameError};
use crate::{Steps, Value};

/// The file of a subsystem.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubsystemFile {
    pub schema: Spanned<u32>,
    /// A sentence about it.
    #[expect(dead_code, reason = "for readers of the file")]
    pub summary: String,
    /// Variables to which a search must give values (`with`), and the meaning of each.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    #[serde(default)]
    pub parameter: Vec<Spanned<ParameterTable>>,
    #[serde(default)]
    pub sensor: Vec<Spanned<SensorTable>>,
    pub bottleneck: Option<Spanned<BottleneckTable>>,
}

/// The file of a search.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchFile {
    pub schema: Spanned<u32>,
    pub name: Option<String>,
    pub subsystem: Option<Spanned<String>>,
    /// Several subsystems; the one that limits the target most is tuned first.
    pub subsystems: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub with: BTreeMap<String, String>,
    /// The subsystem's parameters that are tuned; all if this is not given.
    pub parameters: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    pub parameter: Vec<Spanned<ParameterTable>>,
    #[serde(default)]
    pub sensor: Vec<Spanned<SensorTable>>,
    pub target: Option<Spanned<TargetTable>>,
    /// Several targets; the first decides.
    #[serde(default)]
    pub targets: Vec<Spanned<TargetTable>>,
    #[serde(default)]
    pub constraint: Vec<Spanned<ConstraintTable>>,
    #[serde(default)]
    pub search: SearchTable,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterTable {
    pub name: Spanned<String>,
    #[serde(rename = "const")]
    constant: Option<String>,
    sysctl: Option<String>,
    file: Option<String>,
    module_parameter: Option<String>,
    module: Option<String>,
    command: Option<CommandTable>,
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
struct CommandTable {
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
pub struct SensorTable {
    pub name: String,
    pub of: Vec<String>,
    #[serde(default)]
    pub per: Vec<String>,
    pub similar: f64,
    #[serde(default)]
    pub within: f64,
}

/// A bottleneck test.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BottleneckTable {
    pub of: Vec<String>,
    #[serde(default)]
    pub per: Vec<String>,
    /// The limit.
    pub at_least: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetTable {
    pub name: Option<String>,
    pub command: Option<String>,
    pub window: Option<Spanned<String>>,
    prometheus: Option<String>,
    metric: Option<String>,
    socket: Option<String>,
    /// The subsystem of a module that describes a target.
    pub module: Option<String>,
    latency: Option<LatencyTable>,
    pub measure: Option<Measure>,
    pub goal: Option<Goal>,
    pub timeout: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstraintTable {
    pub name: String,
    prometheus: Option<String>,
    metric: Option<String>,
    socket: Option<String>,
    latency: Option<LatencyTable>,
    measure: Option<Measure>,
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
}

/// The latency of a kernel function.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyTable {
    pub function: String,
    pub percentile: f64,
}

/// What is measured of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Its value.
    Number,
    /// The seconds that the command takes.
    Seconds,
    /// Its growth per second.
    Rate,
}

/// The source of a number.
#[derive(Debug, Clone, Default)]
pub struct NumberSource {
    pub prometheus: Option<String>,
    pub metric: Option<String>,
    pub socket: Option<String>,
    pub latency: Option<LatencyTable>,
    pub measure: Option<Measure>,
}

impl NumberSource {
    /// Whether it names a running program, or a part of what a program exposes.
    pub fn has_endpoint(&self) -> bool {
        self.prometheus.is_some() || self.metric.is_some() || self.socket.is_some()
    }
}

impl TargetTable {
    pub fn source(&self) -> NumberSource {
        NumberSource {
            prometheus: self.prometheus.clone(),
            metric: self.metric.clone(),
            socket: self.socket.clone(),
            latency: self.latency.clone(),
            measure: self.measure,
        }
    }
}

impl ConstraintTable {
    pub fn source(&self) -> NumberSource {
        NumberSource {
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
pub struct SearchTable {
    pub engine: Option<Spanned<EngineName>>,
    pub seed: Option<u64>,
    pub trials: Option<Spanned<usize>>,
    pub minimum_effect: Option<Spanned<f64>>,
    pub abort_after: Option<Spanned<f64>>,
}

/// Why a parameter's table does not name one knob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackingError {
    /// A variable has no value.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// The name is not `MODULE:NAME`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The path is not absolute.
    #[error("file = \"{0}\" is not an absolute path")]
    Relative(String),
    /// The name is not `MODULE.PARAMETER`.
    #[error("module_parameter = \"{0}\" is not MODULE.PARAMETER")]
    ModuleParameter(String),
    /// There is no knob, or there are several.
    #[error("give one of `const`, `sysctl`, `file`, `module_parameter`, `module` and `command`")]
    NotOne,
}

/// Why a parameter's table does not give its values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// A list and a range.
    #[error("`choices` excludes `min`, `max`, `step` and `steps`")]
    Both,
    /// The list is empty.
    #[error("`choices` is empty")]
    NoChoice,
    /// A word other than `offered`.
    #[error("choices = \"{0}\": give a list, or \"offered\" for the choices that the file lists")]
    Word(String),
    /// Only files list choices.
    #[error("only a `file` lists choices itself")]
    NotAFile,
    /// There is neither a list nor a range.
    #[error("give `min` and `max`, or `choices`")]
    Neither,
    /// The range has no values.
    #[error(transparent)]
    Range(#[from] RangeError),
}

impl ParameterTable {
    /// Its knob.
    pub fn backing(&self, with: &Variables) -> Result<Backing, BackingError> {
        let file = |path: String| Backing::Plain(Plain::File(PathBuf::from(path)));
        let mut found = Vec::new();
        if let Some(name) = &self.constant {
            found.push(Backing::Constant(name.clone()));
        }
        if let Some(name) = &self.sysctl {
            found.push(file(format!("/proc/sys/{}", substitute(name, with)?.replace('.', "/"))));
        }
        if let Some(path) = &self.file {
            found.push(file(absolute(substitute(path, with)?)?));
        }
        if let Some(name) = &self.module_parameter {
            let (module, parameter) =
                name.split_once('.').ok_or_else(|| BackingError::ModuleParameter(name.clone()))?;
            found.push(file(format!("/sys/module/{module}/parameters/{parameter}")));
        }
        if let Some(name) = &self.module {
            let name = substitute(name, with)?;
            modules::split(&name)?;
            found.push(Backing::Module(name));
        }
        if let Some(CommandTable { get, set }) = &self.command {
            let [get, set] = [get, set].map(|command| substitute_in_command(command, with));
            found.push(Backing::Plain(Plain::Command { get: get?, set: set? }));
        }
        let only = found.pop().filter(|_| found.is_empty());
        only.ok_or(BackingError::NotOne)
    }

    /// Whether it defines its values.
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

/// The value as it is read back.
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
