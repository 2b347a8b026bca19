//! Descriptions: TOML files that define a search.
//!
//! In: the file of a search, and the files of the subsystems that it names. Out: a [`Job`] for each subsystem, or an error
//! with file and line. It refuses unknown keys and parameters, ranges without values, guards that can never hold,
//! and targets without a number.
//!
//! A *subsystem* (`/usr/share/xk/subsystems/NAME.toml`, overridden by a file of the same name in `/etc/xk/subsystems`)
//! lists parameters and sensors. A *search* names subsystems, or has parameters of its own, and defines a target.
//! `schema.rs` defines what the files may contain. `parameter.rs`, `sensors.rs`, `target.rs` and `module.rs` turn its
//! tables into the types that a search uses.

mod error;
mod module;
mod parameter;
mod schema;
mod sensors;
mod source;
mod target;
mod variables;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::modules::Modules;
use crate::sensor::Sensor;
use crate::{Constraint, Target, Value};
pub use parameter::SETTLE;
use parameter::{check, parameters, select};
use sensors::{bottleneck, sensors};
use source::SourceText;
use target::targets;

pub use crate::engine::EngineName;
pub use crate::knob::Backing;
pub use error::{
    DescriptionError, Location, NoSubsystem, NumberProblem, ParameterProblem, Problem, SensorProblem, TargetProblem,
};
pub use schema::{BackingError, DomainError};
pub use sensors::CountersError;
pub use variables::{VariableError, Variables};

/// The version of the schema that this program reads.
pub const SCHEMA: u32 = 1;

/// The directories of subsystems, in the order of precedence. `XK_SUBSYSTEMS` names one that precedes the others.
#[must_use]
pub fn folders() -> Vec<PathBuf> {
    let own = std::env::var_os("XK_SUBSYSTEMS").filter(|value| !value.is_empty()).map(PathBuf::from);
    own.into_iter().chain(["/etc/xk/subsystems", "/usr/share/xk/subsystems"].map(PathBuf::from)).collect()
}

/// One search, as its description defines it.
#[derive(Debug, Clone)]
pub struct Job {
    /// The name of the search. Memories belong to a name.
    pub name: String,
    /// The parameters to tune.
    pub parameters: Vec<Parameter>,
    /// The sensors of the workload signature.
    pub sensors: Vec<Sensor>,
    /// The target.
    pub target: Target,
    /// The constraints.
    pub constraints: Vec<Constraint>,
    /// How to search.
    pub options: Options,
    /// The bottleneck test of the subsystem.
    pub bottleneck: Option<Bottleneck>,
}

/// A bottleneck test: the subsystem limits the target if the sensor reads at least the limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// The sensor, with the name of the subsystem.
    pub sensor: Sensor,
    /// The limit.
    pub at_least: f64,
}

/// One parameter.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its knob.
    pub backing: Backing,
    /// Its values.
    pub domain: Domain,
    /// The guard: another parameter, and those of its values with which this parameter is active.
    pub only_if: Option<(String, Vec<Value>)>,
    /// Its default if the knob does not exist yet. Otherwise the default is read from the knob.
    pub default: Option<Value>,
    /// The time between a change and the start of a measurement.
    pub settle: Duration,
    /// Whether a confirmed value is kept.
    pub at_end: AtEnd,
    /// Whether the search goes on without it if this machine does not have its knob. So are the parameters of a
    /// subsystem, unless the search names them.
    pub optional: bool,
    /// Where it is described.
    pub location: Location,
}

/// The values of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Domain {
    /// Numbers, in order.
    Numbers(Vec<Value>),
    /// A list of choices.
    Choices(Vec<Value>),
    /// The choices that the file lists, with the current one in brackets.
    Offered,
}

/// What happens to a confirmed value when the tuner ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtEnd {
    /// It is kept.
    Keep,
    /// It is reverted.
    Revert,
}

/// How to search.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The engine.
    pub engine: EngineName,
    /// The seed of the engine. Without one, each search draws its own.
    pub seed: Option<u64>,
    /// The largest number of trials.
    pub trials: usize,
    /// The minimum effect, as a share: 0.02 is 2 %.
    pub minimum_effect: f64,
    /// A window is aborted after this many times the duration of a window with the default.
    pub abort_after: f64,
}

impl Job {
    /// Reads a search file, and the subsystems that it names.
    ///
    /// # Errors
    /// [`DescriptionError`].
    pub fn read(file: &Path, folders: &[PathBuf], modules: &dyn Modules) -> Result<Vec<Self>, DescriptionError> {
        let source = SourceText::read(file)?;
        let search: schema::SearchFile = source.parse()?;
        source.check_schema(&search.schema)?;
        let stem = || file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = search.name.clone().unwrap_or_else(stem);
        let reader = Reader { source: &source, search: &search, folders, modules };
        match &search.subsystems {
            Some(several) => reader.several(several, &name),
            None => Ok(vec![reader.job(search.subsystem.as_ref(), name)?]),
        }
    }
}

/// A search file, and where what it names is found.
struct Reader<'r> {
    source: &'r SourceText,
    search: &'r schema::SearchFile,
    folders: &'r [PathBuf],
    modules: &'r dyn Modules,
}

/// What a subsystem contributes to a job.
struct Subsystem {
    parameters: Vec<Parameter>,
    sensors: Vec<Sensor>,
    bottleneck: Option<Bottleneck>,
}

impl Reader<'_> {
    /// A job for each of several subsystems.
    fn several(&self, names: &Spanned<Vec<Spanned<String>>>, name: &str) -> Result<Vec<Job>, DescriptionError> {
        let Self { source, search, .. } = self;
        let own = search.subsystem.is_some() || search.parameters.is_some() || !search.parameter.is_empty();
        if own || names.get_ref().is_empty() {
            return Err(source.error(names.span(), Problem::Subsystems));
        }
        let job = |subsystem: &Spanned<String>| {
            let job = self.job(Some(subsystem), format!("{name}/{}", subsystem.get_ref()))?;
            match job.bottleneck {
                Some(_) => Ok(job),
                None => Err(source.error(subsystem.span(), Problem::NoBottleneck(subsystem.get_ref().clone()))),
            }
        };
        names.get_ref().iter().map(job).collect()
    }

    /// The job with one subsystem, or with the search's own parameters only.
    fn job(&self, subsystem: Option<&Spanned<String>>, name: String) -> Result<Job, DescriptionError> {
        let Self { source, search, modules, .. } = *self;
        let mut all = parameters(source, &search.parameter, &search.with, modules)?;
        let mut sensors = sensors(source, &search.sensor, &search.with)?;
        let mut bottleneck = None;
        if let Some(name) = subsystem {
            let known = self.subsystem(name)?;
            let optional = search.parameters.is_none();
            all.extend(known.parameters.into_iter().map(|parameter| Parameter { optional, ..parameter }));
            sensors.extend(known.sensors);
            bottleneck = known.bottleneck;
        }
        let parameters = select(source, all, search.parameters.as_deref())?;
        check(source, &parameters)?;
        let (target, constraints) = targets(source, search, modules)?;
        let options = options(source, &search.search)?;
        Ok(Job { name, parameters, sensors, target, constraints, options, bottleneck })
    }

    fn subsystem(&self, name: &Spanned<String>) -> Result<Subsystem, DescriptionError> {
        let with = &self.search.with;
        if let Some(described) = name.get_ref().strip_prefix(module::PREFIX) {
            return module::subsystem(self.source, name.span(), described, self.modules);
        }
        let file = find(name.get_ref(), self.folders).map_err(|error| self.source.error(name.span(), error))?;
        let source = SourceText::read(&file)?;
        let subsystem: schema::SubsystemFile = source.parse()?;
        source.check_schema(&subsystem.schema)?;
        if let Some((variable, meaning)) = subsystem.variables.iter().find(|(name, _)| !with.contains_key(*name)) {
            let [subsystem, variable, meaning] = [name.get_ref(), variable, meaning].map(String::clone);
            return Err(self.source.error(name.span(), Problem::Variable { subsystem, variable, meaning }));
        }
        let test = |table: &Spanned<schema::BottleneckTable>| bottleneck(&source, name.get_ref(), table, with);
        Ok(Subsystem {
            parameters: parameters(&source, &subsystem.parameter, with, self.modules)?,
            sensors: sensors(&source, &subsystem.sensor, with)?,
            bottleneck: subsystem.bottleneck.as_ref().map(test).transpose()?,
        })
    }
}

/// The sensors of a subsystem.
///
/// # Errors
/// [`DescriptionError`].
pub fn sensors_of(name: &str, with: &Variables, folders: &[PathBuf]) -> Result<Vec<Sensor>, DescriptionError> {
    let source = SourceText::read(&find(name, folders)?)?;
    let subsystem: schema::SubsystemFile = source.parse()?;
    source.check_schema(&subsystem.schema)?;
    sensors(&source, &subsystem.sensor, with)
}

/// The file of a subsystem.
fn find(name: &str, folders: &[PathBuf]) -> Result<PathBuf, NoSubsystem> {
    let candidates = folders.iter().map(|folder| folder.join(format!("{name}.toml")));
    candidates.clone().find(|file| file.exists()).ok_or_else(|| NoSubsystem {
        name: name.to_owned(),
        searched: candidates.map(|file| file.display().to_string()).collect(),
    })
}

fn options(source: &SourceText, table: &schema::SearchTable) -> Result<Options, DescriptionError> {
    let minimum = table.minimum_effect.as_ref().map_or(0.02, |share| *share.get_ref());
    if let Some(share) = table.minimum_effect.as_ref().filter(|_| !(0.0..1.0).contains(&minimum)) {
        return Err(source.error(share.span(), Problem::MinimumEffect(minimum)));
    }
    let abort = table.abort_after.as_ref().map_or(4.0, |times| *times.get_ref());
    if let Some(times) = table.abort_after.as_ref().filter(|_| abort.is_nan() || abort <= 1.0) {
        return Err(source.error(times.span(), Problem::AbortAfter(abort)));
    }
    let engine = table.engine.as_ref().map_or(EngineName::Racing, |engine| *engine.get_ref());
    if let Some(named) = table.engine.as_ref().filter(|_| engine == EngineName::Comparison) {
        return Err(source.error(named.span(), Problem::Comparison));
    }
    let trials = table.trials.as_ref().map_or(120, |trials| *trials.get_ref());
    if let Some(none) = table.trials.as_ref().filter(|_| trials == 0) {
        return Err(source.error(none.span(), Problem::NoTrials));
    }
    Ok(Options { engine, seed: table.seed, trials, minimum_effect: minimum, abort_after: abort })
}

#[cfg(test)]
mod tests;
