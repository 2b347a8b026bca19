//! Descriptions: TOML files that say what can be tuned, and what is to be tuned.
//!
//! A *subsystem* (`/usr/share/xk/subsystems/NAME.toml`, or one of the same name in `/etc/xk/subsystems`, which
//! then takes its place) lists parameters and sensors. A *search* names a subsystem, or parameters of its own, and a
//! target. In: text. Out: a [`Job`], or an error that points at the line. `text.rs` holds the schema.

mod module;
mod sensors;
mod target;
mod text;
mod variables;

use std::fmt;
use std::fs;
use std::ops::Range as Span;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::knob::Plain;
use crate::modules::Modules;
use crate::sensor::Sensor;
use crate::{Constraint, Error, Target, Value};
use sensors::{bottleneck, sensors};
use target::targets;
use text::DomainError;
use variables::substitute;
pub use variables::{VariableError, Variables};

/// The version of the schema that this program reads.
pub const SCHEMA: u32 = 1;

/// Where subsystems are looked for, the first first; `XK_SUBSYSTEMS` names another folder before all.
#[must_use]
pub fn folders() -> Vec<PathBuf> {
    let own = std::env::var_os("XK_SUBSYSTEMS").filter(|value| !value.is_empty()).map(PathBuf::from);
    own.into_iter().chain(["/etc/xk/subsystems", "/usr/share/xk/subsystems"].map(PathBuf::from)).collect()
}

/// Everything that a search file asks for.
#[derive(Debug, Clone)]
pub struct Job {
    /// What the search is called: it is remembered by that name.
    pub name: String,
    /// What may be changed.
    pub parameters: Vec<Parameter>,
    /// What tells workloads apart.
    pub sensors: Vec<Sensor>,
    /// What is optimised.
    pub target: Target,
    /// Hard limits.
    pub constraints: Vec<Constraint>,
    /// How to search.
    pub options: Options,
    /// What shows that these parameters are worth a search.
    pub bottleneck: Option<Bottleneck>,
}

/// What shows that a subsystem holds the target up: a sensor, and from which reading on it does.
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
    /// What it is.
    pub backing: Backing,
    /// Its values.
    pub domain: Domain,
    /// Another parameter and its values with which alone this one matters.
    pub only_if: Option<(String, Vec<Value>)>,
    /// Its value while it is not there; read from the machine otherwise.
    pub default: Option<Value>,
    /// How long the machine takes to get used to another value.
    pub settle: Duration,
    /// Whether a value that was proved better stays.
    pub at_end: AtEnd,
    /// Where it was described, for messages.
    pub place: Place,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line.
    pub line: usize,
}

impl Place {
    /// An error there.
    pub fn error(&self, message: impl Into<String>) -> Error {
        Error::Description { file: self.file.clone(), line: self.line, message: message.into() }
    }
}

/// What is behind a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backing {
    /// A perf-const, by name.
    Constant(String),
    /// What a loaded module describes: `MODULE:NAME`.
    Module(String),
    /// Anything else.
    Plain(Plain),
}

/// The values of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Domain {
    /// Numbers, in order.
    Numbers(Vec<Value>),
    /// These.
    Choices(Vec<Value>),
    /// What the file itself offers, with the choice in brackets.
    Offered,
}

/// What becomes of a value that was proved better, when the tuner ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtEnd {
    /// It stays.
    Keep,
    /// The value from before comes back.
    Revert,
}

/// How to search.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Which engine.
    pub engine: EngineName,
    /// Tosses its coins.
    pub seed: u64,
    /// No more trials than that.
    pub trials: usize,
    /// What is less is not worth a change, as a share: 0.02 is 2 %.
    pub minimum_effect: f64,
    /// A window that takes so many times as long as one with the default is given up.
    pub abort_after: f64,
}

/// The engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    /// [`crate::engine::Racing`].
    Racing,
    /// [`crate::engine::Orthogonal`].
    Orthogonal,
    /// [`crate::engine::Exhaustive`].
    Exhaustive,
}

/// A text that is being read.
struct Source {
    file: PathBuf,
    text: String,
}

impl Source {
    fn read(file: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(file).map_err(|error| Error::io(file, error))?;
        Ok(Self { file: file.to_owned(), text })
    }

    fn place(&self, span: Span<usize>) -> Place {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        Place { file: self.file.clone(), line: before.matches('\n').count() + 1 }
    }

    fn error(&self, span: Span<usize>, message: impl Into<String>) -> Error {
        self.place(span).error(message)
    }

    fn parse<T: for<'de> Deserialize<'de>>(&self) -> Result<T, Error> {
        toml::from_str(&self.text)
            .map_err(|error| self.error(error.span().unwrap_or(0..0), error.message().replace('\n', " ")))
    }

    fn check_schema(&self, schema: &Spanned<u32>) -> Result<(), Error> {
        match *schema.get_ref() {
            SCHEMA => Ok(()),
            other => Err(self.error(
                schema.span(),
                format!(
                    "schema {other} is not known to this program, which reads schema {SCHEMA}: update xk, or the file"
                ),
            )),
        }
    }
}

impl Job {
    /// Reads a search file, and the subsystems that it names: one job, or one for each of several.
    ///
    /// # Errors
    /// [`Error::Description`], [`Error::Io`].
    pub fn read(file: &Path, folders: &[PathBuf], modules: &dyn Modules) -> Result<Vec<Self>, Error> {
        let source = Source::read(file)?;
        let search: text::Search = source.parse()?;
        source.check_schema(&search.schema)?;
        let stem = || file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = search.name.clone().unwrap_or_else(stem);
        let Some(several) = &search.subsystems else {
            return Ok(vec![Self::of(&source, &search, search.subsystem.as_ref(), folders, modules, name)?]);
        };
        let own = search.subsystem.is_some() || search.parameters.is_some() || !search.parameter.is_empty();
        if own || several.get_ref().is_empty() {
            let message = "`subsystems` names one or more, each of which is tuned as it stands: it goes neither with \
                           `subsystem` nor with parameters of the search's own";
            return Err(source.error(several.span(), message));
        }
        let job = |subsystem: &Spanned<String>| {
            let name = format!("{name}/{}", subsystem.get_ref());
            let job = Self::of(&source, &search, Some(subsystem), folders, modules, name)?;
            match job.bottleneck {
                Some(_) => Ok(job),
                None => Err(source.error(
                    subsystem.span(),
                    format!(
                        "subsystem `{}` has no [bottleneck], so nobody can say when it is its turn",
                        subsystem.get_ref()
                    ),
                )),
            }
        };
        several.get_ref().iter().map(job).collect()
    }

    fn of(
        source: &Source,
        search: &text::Search,
        subsystem: Option<&Spanned<String>>,
        folders: &[PathBuf],
        modules: &dyn Modules,
        name: String,
    ) -> Result<Self, Error> {
        let mut parameters = own(source, &search.parameter, &search.with, modules)?;
        let mut sensors = sensors(source, &search.sensor, &search.with)?;
        let mut bottleneck = None;
        if let Some(name) = subsystem {
            let known = self::subsystem(source, name, &search.with, folders, modules)?;
            parameters.extend(known.parameters);
            sensors.extend(known.sensors);
            bottleneck = known.bottleneck;
        }
        select(source, &mut parameters, search.parameters.as_deref())?;
        check(source, &parameters)?;
        let (target, constraints) = targets(source, search, modules)?;
        Ok(Self {
            name,
            parameters,
            sensors,
            target,
            constraints,
            options: options(source, &search.search)?,
            bottleneck,
        })
    }
}

/// What the file of a subsystem says.
struct Subsystem {
    parameters: Vec<Parameter>,
    sensors: Vec<Sensor>,
    bottleneck: Option<Bottleneck>,
}

/// The sensors of a subsystem.
///
/// # Errors
/// [`Error::Description`], [`Error::Io`], [`Error::Machine`].
pub fn sensors_of(name: &str, with: &Variables, folders: &[PathBuf]) -> Result<Vec<Sensor>, Error> {
    let source = Source::read(&find(name, folders).map_err(|error| Error::Machine(error.to_string()))?)?;
    let subsystem: text::Subsystem = source.parse()?;
    source.check_schema(&subsystem.schema)?;
    sensors(&source, &subsystem.sensor, with)
}

/// No folder has a file for a subsystem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no subsystem `{name}` (looked for {})", looked.join(", "))]
pub struct NoSubsystem {
    /// Its name.
    pub name: String,
    /// The files that were looked for.
    pub looked: Vec<String>,
}

/// The file of a subsystem.
fn find(name: &str, folders: &[PathBuf]) -> Result<PathBuf, NoSubsystem> {
    let candidates = folders.iter().map(|folder| folder.join(format!("{name}.toml")));
    candidates.clone().find(|file| file.exists()).ok_or_else(|| NoSubsystem {
        name: name.to_owned(),
        looked: candidates.map(|file| file.display().to_string()).collect(),
    })
}

fn subsystem(
    search: &Source,
    name: &Spanned<String>,
    with: &Variables,
    folders: &[PathBuf],
    modules: &dyn Modules,
) -> Result<Subsystem, Error> {
    if let Some(place) = name.get_ref().strip_prefix(module::PREFIX) {
        return module::subsystem(search, name.span(), place, modules);
    }
    let file = find(name.get_ref(), folders).map_err(|error| search.error(name.span(), error.to_string()))?;
    let source = Source::read(&file)?;
    let subsystem: text::Subsystem = source.parse()?;
    source.check_schema(&subsystem.schema)?;
    for (variable, meaning) in &subsystem.variables {
        if !with.contains_key(variable) {
            let message = format!(
                "subsystem `{}` must be told its {variable} ({meaning}): write for example `with = {{ {variable} = \"…\" }}`",
                name.get_ref()
            );
            return Err(search.error(name.span(), message));
        }
    }
    let test = |text: &Spanned<text::Bottleneck>| bottleneck(&source, name.get_ref(), text, with);
    Ok(Subsystem {
        parameters: own(&source, &subsystem.parameter, with, modules)?,
        sensors: sensors(&source, &subsystem.sensor, with)?,
        bottleneck: subsystem.bottleneck.as_ref().map(test).transpose()?,
    })
}

fn own(
    source: &Source,
    texts: &[Spanned<text::Parameter>],
    with: &Variables,
    modules: &dyn Modules,
) -> Result<Vec<Parameter>, Error> {
    texts.iter().map(|text| parameter(source, text, with, modules)).collect()
}

fn parameter(
    source: &Source,
    text: &Spanned<text::Parameter>,
    with: &Variables,
    modules: &dyn Modules,
) -> Result<Parameter, Error> {
    let place = source.place(text.span());
    let text = text.get_ref();
    let name = text.name.get_ref();
    let wrong = |message: &dyn fmt::Display| place.error(format!("parameter `{name}`: {message}"));
    let backing = text.backing(|text| substitute(text, with)).map_err(|error| wrong(&error))?;
    let described = match &backing {
        Backing::Module(place) => {
            let found = modules.look().and_then(|all| all.parameter(place).cloned());
            Some(found.map_err(|error| wrong(&error))?)
        }
        _ => None,
    };
    let described = described.as_ref();
    let domain = match described.filter(|_| !text.has_values()) {
        Some(described) => module::domain(described).map_err(DomainError::from),
        None => text.domain(),
    };
    let settle = text.settle.as_ref().map(|settle| duration(source, settle)).transpose()?;
    let only_if = match text.only_if.as_ref().map(|only| only.iter().collect::<Vec<_>>()).as_deref() {
        None => None,
        Some([(other, values)]) => Some(((*other).clone(), values.list())),
        Some(_) => return Err(wrong(&"`only_if` names one other parameter: `only_if = { scheduler = \"bfq\" }`")),
    };
    Ok(Parameter {
        name: name.clone(),
        backing,
        domain: domain.map_err(|error| wrong(&error))?,
        only_if,
        default: text.default.clone(),
        settle: settle.or(described.map(|one| one.settle)).unwrap_or_default(),
        at_end: text.at_end.or(described.map(module::at_end)).unwrap_or(AtEnd::Keep),
        place,
    })
}

/// Leaves those that the search names, in its order.
fn select(source: &Source, all: &mut Vec<Parameter>, names: Option<&[Spanned<String>]>) -> Result<(), Error> {
    let Some(names) = names else { return Ok(()) };
    let mut chosen = Vec::new();
    for name in names {
        let Some(parameter) = all.iter().find(|parameter| parameter.name == *name.get_ref()) else {
            return Err(source.error(name.span(), unknown(name.get_ref(), all)));
        };
        chosen.push(parameter.clone());
    }
    *all = chosen;
    Ok(())
}

fn unknown(name: &str, all: &[Parameter]) -> String {
    let known: Vec<&str> = all.iter().map(|parameter| parameter.name.as_str()).collect();
    format!("there is no parameter `{name}`; there are: {}", known.join(", "))
}

/// What can be said about parameters without a machine.
fn check(source: &Source, parameters: &[Parameter]) -> Result<(), Error> {
    if parameters.is_empty() {
        return Err(source.error(0..0, "there is no parameter to tune: name a `subsystem`, or add [[parameter]]"));
    }
    for (index, parameter) in parameters.iter().enumerate() {
        if parameters[..index].iter().any(|other| other.name == parameter.name) {
            return Err(parameter.place.error(format!("parameter `{}` is described twice", parameter.name)));
        }
        let Some((other, values)) = &parameter.only_if else { continue };
        let Some(guard) = parameters.iter().find(|candidate| candidate.name == *other) else {
            let why = format!("parameter `{}` depends on `{other}`: {}", parameter.name, unknown(other, parameters));
            return Err(parameter.place.error(why));
        };
        let levels = match &guard.domain {
            Domain::Numbers(levels) | Domain::Choices(levels) => levels,
            Domain::Offered => continue,
        };
        if let Some(value) = values.iter().find(|value| !levels.contains(value)) {
            let known: Vec<String> = levels.iter().map(ToString::to_string).collect();
            return Err(parameter.place.error(format!(
                "parameter `{}` is active only if {other} = {value}, which {other} can never be; it can be: {}",
                parameter.name,
                known.join(", ")
            )));
        }
    }
    Ok(())
}

fn options(source: &Source, text: &text::Options) -> Result<Options, Error> {
    let minimum = text.minimum_effect.as_ref().map_or(0.02, |share| *share.get_ref());
    if let Some(share) = text.minimum_effect.as_ref().filter(|_| !(0.0..1.0).contains(&minimum)) {
        return Err(source.error(share.span(), format!("minimum_effect = {minimum} is no share; 0.02 is 2 %")));
    }
    let abort = text.abort_after.as_ref().map_or(4.0, |times| *times.get_ref());
    if let Some(times) = text.abort_after.as_ref().filter(|_| abort.is_nan() || abort <= 1.0) {
        let message = format!("abort_after = {abort} would give up windows that are as fast as the default");
        return Err(source.error(times.span(), message));
    }
    let trials = text.trials.as_ref().map_or(120, |trials| *trials.get_ref());
    if let Some(none) = text.trials.as_ref().filter(|_| trials == 0) {
        return Err(source.error(none.span(), "trials = 0 would search nothing; `xk tune --plan` touches nothing"));
    }
    Ok(Options {
        engine: text.engine.unwrap_or(EngineName::Racing),
        seed: text.seed.unwrap_or(1),
        trials,
        minimum_effect: minimum,
        abort_after: abort,
    })
}

/// `200ms`, `5s`, `2m`.
fn duration(source: &Source, text: &Spanned<String>) -> Result<Duration, Error> {
    let word = text.get_ref().trim();
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (number, unit) = word.split_at(digits);
    let factor = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let milliseconds = factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(factor));
    milliseconds
        .map(Duration::from_millis)
        .ok_or_else(|| source.error(text.span(), format!("`{word}` is no time; write for example 200ms, 5s or 2m")))
}

#[cfg(test)]
mod tests;
