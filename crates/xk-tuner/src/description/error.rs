//! What is wrong with a description, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::schema::{BackingError, DomainError};
use super::sensors::CountersError;
use super::SCHEMA;
use crate::levels::RangeError;
use crate::modules::ModuleError;
use crate::target::{AddressError, SelectorError};
use crate::Value;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

impl Location {
    /// An error at this line.
    #[must_use]
    pub fn error(&self, problem: Problem) -> DescriptionError {
        DescriptionError::Wrong { location: self.clone(), problem: Box::new(problem) }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Why a description cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file is wrong.
    #[error("{location}: {problem}")]
    Wrong {
        /// Where.
        location: Location,
        /// What is wrong, and what would be right.
        #[source]
        problem: Box<Problem>,
    },
    /// There is no such subsystem.
    #[error(transparent)]
    NoSubsystem(#[from] NoSubsystem),
}

/// No folder has a file for a subsystem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no subsystem `{name}` (searched: {})", searched.join(", "))]
pub struct NoSubsystem {
    /// Its name.
    pub name: String,
    /// The files that were searched for.
    pub searched: Vec<String>,
}

/// What is wrong in a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It is not TOML, or has other keys or types than the schema.
    #[error("{}", .0.message().replace('\n', " "))]
    Syntax(#[from] toml::de::Error),
    /// It has another version.
    #[error("this program does not know schema {0}; it reads schema {SCHEMA}: update xk, or the file")]
    Schema(u32),
    /// `subsystems` together with what it excludes.
    #[error(
        "`subsystems` names one or more subsystems, each of which is tuned as a whole: it excludes `subsystem`, \
         `parameters` and [[parameter]]"
    )]
    Subsystems,
    /// The engine that checks kept settings.
    #[error("engine `comparison` checks settings that are kept; a search uses `racing`, `orthogonal` or `exhaustive`")]
    Comparison,
    /// One of several subsystems has no bottleneck test.
    #[error("subsystem `{0}` has no `bottleneck`, which decides when a subsystem of several is tuned")]
    NoBottleneck(String),
    /// There is no such subsystem.
    #[error(transparent)]
    NoSubsystem(#[from] NoSubsystem),
    /// A module does not describe such a subsystem.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The search does not give a variable of its subsystem.
    #[error(
        "subsystem `{subsystem}` needs a value for {variable} ({meaning}): write for example \
         `with = {{ {variable} = \"…\" }}`"
    )]
    Variable {
        /// The subsystem.
        subsystem: String,
        /// The variable.
        variable: String,
        /// Its meaning.
        meaning: String,
    },
    /// There is nothing to tune.
    #[error("there is no parameter to tune: name a `subsystem`, or add [[parameter]]")]
    NoParameter,
    /// The search names a parameter that is not described.
    #[error("there is no parameter `{name}`; there are: {}", known.join(", "))]
    UnknownParameter {
        /// The name.
        name: String,
        /// The parameters that are described.
        known: Vec<String>,
    },
    /// A parameter is wrong.
    #[error("parameter `{name}`: {problem}")]
    Parameter {
        /// Its name.
        name: String,
        /// What is wrong.
        #[source]
        problem: ParameterProblem,
    },
    /// Guards depend on each other.
    #[error("guards depend on each other: {}", .0.join(" needs "))]
    GuardCycle(Vec<String>),
    /// A sensor is wrong.
    #[error("sensor `{name}`: {problem}")]
    Sensor {
        /// Its name.
        name: String,
        /// What is wrong.
        #[source]
        problem: SensorProblem,
    },
    /// A bottleneck test is wrong.
    #[error("`bottleneck`: {0}")]
    Bottleneck(#[source] SensorProblem),
    /// There is no target.
    #[error("there is no [target]: it says what to optimise")]
    NoTarget,
    /// There are both forms of targets.
    #[error("give [target], or several [[targets]]; not both")]
    TargetAndTargets,
    /// Two targets have one name.
    #[error("two targets are called `{0}`")]
    TwoTargets(String),
    /// A target is wrong.
    #[error("target: {0}")]
    Target(#[from] TargetProblem),
    /// The source of a number is wrong.
    #[error("`{name}`: {problem}")]
    Number {
        /// Name of the number.
        name: String,
        /// What is wrong.
        #[source]
        problem: NumberProblem,
    },
    /// Two tables give a source for one number.
    #[error("`{0}` has two sources: leave the source out here")]
    TwoSources(String),
    /// A constraint limits nothing.
    #[error("constraint `{0}`: give `at_most` or `at_least`")]
    NoLimit(String),
    /// A text is not a time.
    #[error("`{0}` is not a time; write for example 200ms, 5s or 2m")]
    Time(String),
    /// The minimum effect is not a share.
    #[error("minimum_effect = {0} is not between 0 and 1; 0.02 is 2 %")]
    MinimumEffect(f64),
    /// Windows would be aborted too early.
    #[error("abort_after = {0} would abort windows that are as fast as the default; it must be above 1")]
    AbortAfter(f64),
    /// No trial is allowed.
    #[error("trials = 0 would search nothing; `xk tune --plan` shows the plan and changes nothing")]
    NoTrials,
}

/// What is wrong with a parameter.
#[derive(Debug, thiserror::Error)]
pub enum ParameterProblem {
    /// It does not name one knob.
    #[error(transparent)]
    Backing(#[from] BackingError),
    /// It has no values.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// The module does not describe it.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The range that its module describes has no values.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// `only_if` has several keys.
    #[error("`only_if` names one other parameter: `only_if = {{ scheduler = \"bfq\" }}`")]
    SeveralGuards,
    /// It is described twice.
    #[error("it is described twice")]
    Twice,
    /// It depends on a parameter that is not described.
    #[error("it depends on `{guard}`: there is no parameter `{guard}`; there are: {}", known.join(", "))]
    UnknownGuard {
        /// The other parameter.
        guard: String,
        /// The parameters that are described.
        known: Vec<String>,
    },
    /// It depends on a value that the other parameter does not have.
    #[error(
        "it is active only if {guard} = {value}, which is not a value of {guard}; its values are: {}",
        listed(known)
    )]
    GuardValue {
        /// The other parameter.
        guard: String,
        /// The value.
        value: Value,
        /// The values of the other parameter.
        known: Vec<Value>,
    },
    /// The file lists no choices.
    #[error("its file offers no choices: nothing in it is in brackets")]
    NothingOffered,
}

fn listed(values: &[Value]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What is wrong with a sensor or a bottleneck test.
#[derive(Debug, thiserror::Error)]
pub enum SensorProblem {
    /// Its counters are wrong.
    #[error(transparent)]
    Counters(#[from] CountersError),
    /// `similar` is not a share.
    #[error("similar = {0} is not between 0 and 1")]
    Similar(f64),
    /// `within` is not a difference.
    #[error("within = {0} must be 0 or more")]
    Within(f64),
    /// The limit of a bottleneck test is not positive.
    #[error("at_least = {0} must be above 0")]
    AtLeast(f64),
}

/// What is wrong with a target.
#[derive(Debug, thiserror::Error)]
pub enum TargetProblem {
    /// Nothing ends a window.
    #[error("give `command`, or the `window` of time after which a program is queried for its number")]
    NoWindow,
    /// Two things end a window.
    #[error("the command is the window: leave `window` out")]
    CommandAndWindow,
    /// There is no timeout.
    #[error("give `timeout`: a longer window is a failure")]
    NoTimeout,
    /// The window never ends in time.
    #[error("`timeout` must be longer than the `window`, and the `window` longer than 0")]
    Timeout,
    /// A window of time has no number.
    #[error("a `window` has no number of its own: give `prometheus`, `socket`, `module` or `latency`, too")]
    NoNumber,
    /// Which number of a command counts is not said.
    #[error("give `measure`: \"number\" (the last line that the command prints) or \"seconds\"")]
    NoMeasure,
    /// A further target has no name.
    #[error("each target except the first needs a `name`")]
    NoName,
    /// A further target has a window.
    #[error("the window belongs to the first target: give `command`, `window` and `timeout` there")]
    WindowOfFurther,
    /// Whether more is better is not said.
    #[error("give `goal`: \"maximise\" or \"minimise\"")]
    NoGoal,
    /// A module and another source.
    #[error("give `module` or another source; not both")]
    ModuleAndSource,
    /// The module decides this.
    #[error("the module defines the goal and the measure: leave `goal` and `measure` out")]
    ModuleDecides,
    /// The module does not describe it.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The module's subsystem has no target.
    #[error("the subsystem `{0}` describes no target: give another source of the number")]
    ModuleHasNone(String),
}

/// What is wrong with the source of a number.
#[derive(Debug, thiserror::Error)]
pub enum NumberProblem {
    /// A latency and another source.
    #[error("a `latency` is measured in the kernel: leave other sources, and `measure`, out")]
    LatencyAndSource,
    /// There is no such percentile.
    #[error("percentile = {0} must be above 0, and at most 100")]
    Percentile(f64),
    /// A metric without an endpoint.
    #[error("a `metric` needs a `prometheus` endpoint")]
    MetricAlone,
    /// Two endpoints.
    #[error("give `prometheus` or `socket`; not both")]
    TwoEndpoints,
    /// An endpoint without a metric.
    #[error("name the `metric` of the endpoint")]
    NoMetric,
    /// A socket with a metric.
    #[error("a socket sends one number: leave `metric` out")]
    SocketAndMetric,
    /// The seconds of an endpoint.
    #[error("`measure` is \"number\" or \"rate\"; only a command has \"seconds\"")]
    Seconds,
    /// The address is wrong.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The metric is wrong.
    #[error(transparent)]
    Selector(#[from] SelectorError),
}
