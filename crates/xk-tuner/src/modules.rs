//! What loaded modules describe for a tuner: parameters, and meters (`docs/module-api.md`).
//!
//! In: names, `MODULE:NAME`. Out: the description, or a [`ModuleError`]. [`Modules`] hides the kernel, so
//! that tests read descriptions without one.

use std::fmt;

use xk_runtime::{Meter, Parameter, ParameterDevice, ParameterError};

use crate::levels::{self, RangeError};
use crate::{Steps, Value};

/// Everything that is described now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Described {
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// Sensors, targets and bottleneck tests.
    pub meters: Vec<Meter>,
}

/// A text that is not `MODULE:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not MODULE:NAME")]
pub struct PlaceError(
    /// The text.
    pub String,
);

/// What a module can describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A parameter.
    Parameter,
    /// A meter.
    Meter,
    /// A subsystem.
    Subsystem,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parameter => "parameter",
            Self::Meter => "meter",
            Self::Subsystem => "subsystem",
        })
    }
}

/// Why a description of a module was not found.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// xk_tunable.ko does not answer.
    #[error(transparent)]
    Device(#[from] ParameterError),
    /// The name is not `MODULE:NAME`.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// No loaded module describes it.
    #[error("no loaded module describes a {kind} `{place}`{}", advice(known))]
    Absent {
        /// What was looked for.
        kind: Kind,
        /// Its name, as the description gives it.
        place: String,
        /// The names that modules describe, if they are listed.
        known: Vec<String>,
    },
}

fn advice(known: &[String]) -> String {
    match known {
        [] => ": `xk tune parameters` lists what loaded modules describe; the kernel log says which descriptions \
               were refused"
            .into(),
        _ => format!("; there are: {}", known.join(", ")),
    }
}

/// Who knows what loaded modules describe.
pub trait Modules {
    /// Everything that loaded modules describe now.
    ///
    /// # Errors
    /// [`ModuleError::Device`].
    fn look(&self) -> Result<Described, ModuleError>;
}

/// The running kernel.
#[derive(Debug, Clone, Copy)]
pub struct Kernel;

impl Modules for Kernel {
    fn look(&self) -> Result<Described, ModuleError> {
        let device = ParameterDevice::open_to_read()?;
        Ok(Described { parameters: device.parameters()?, meters: device.meters()? })
    }
}

/// `MODULE:NAME`, taken apart; the kernel writes `_` where a file of a module may have `-`.
///
/// # Errors
/// [`PlaceError`].
pub fn split(place: &str) -> Result<(String, String), PlaceError> {
    match place.split_once(':') {
        Some((module, name)) if !module.is_empty() && !name.is_empty() && !name.contains(':') => {
            Ok((module.replace('-', "_"), name.to_owned()))
        }
        _ => Err(PlaceError(place.to_owned())),
    }
}

fn absent(kind: Kind, place: &str, known: Vec<String>) -> ModuleError {
    ModuleError::Absent { kind, place: place.to_owned(), known }
}

impl Described {
    /// The parameter `MODULE:NAME`.
    ///
    /// # Errors
    /// [`ModuleError::Place`], [`ModuleError::Absent`].
    pub fn parameter(&self, place: &str) -> Result<&Parameter, ModuleError> {
        let (module, name) = split(place)?;
        let found = self.parameters.iter().find(|one| one.module == module && one.name == name);
        found.ok_or_else(|| absent(Kind::Parameter, place, self.parameters.iter().map(place_of).collect()))
    }

    /// The meter `MODULE:NAME`.
    ///
    /// # Errors
    /// [`ModuleError::Place`], [`ModuleError::Absent`].
    pub fn meter(&self, place: &str) -> Result<&Meter, ModuleError> {
        let (module, name) = split(place)?;
        let found = self.meters.iter().find(|one| one.module == module && one.name == name);
        found.ok_or_else(|| absent(Kind::Meter, place, Vec::new()))
    }

    /// The parameters and meters of the subsystem `MODULE:NAME`.
    ///
    /// # Errors
    /// [`ModuleError::Place`], [`ModuleError::Absent`].
    pub fn subsystem(&self, place: &str) -> Result<Self, ModuleError> {
        let (module, name) = split(place)?;
        let parameters = self.parameters.iter().filter(|one| one.module == module && one.subsystem == name);
        let meters = self.meters.iter().filter(|one| one.module == module && one.subsystem == name);
        let found = Self { parameters: parameters.cloned().collect(), meters: meters.cloned().collect() };
        if !found.parameters.is_empty() {
            return Ok(found);
        }
        let mut known: Vec<String> =
            self.parameters.iter().map(|one| format!("{}:{}", one.module, one.subsystem)).collect();
        known.dedup();
        Err(absent(Kind::Subsystem, place, known))
    }
}

/// Where a parameter is.
#[must_use]
pub fn place_of(parameter: &Parameter) -> String {
    format!("{}:{}", parameter.module, parameter.name)
}

/// What the kernel calls a value.
#[must_use]
pub fn number(values: &xk_runtime::Values, value: &Value) -> Option<i64> {
    match (values, value) {
        (xk_runtime::Values::Numbers { min, max, .. }, Value::Number(number)) => {
            (min..=max).contains(&number).then_some(*number)
        }
        (xk_runtime::Values::Choices(words), Value::Words(word)) => {
            words.iter().position(|known| known == word).and_then(|index| i64::try_from(index).ok())
        }
        _ => None,
    }
}

/// What a search calls a value of the kernel.
#[must_use]
pub fn value(values: &xk_runtime::Values, number: i64) -> Value {
    let word = match values {
        xk_runtime::Values::Choices(words) => usize::try_from(number).ok().and_then(|index| words.get(index)),
        xk_runtime::Values::Numbers { .. } => None,
    };
    word.map_or(Value::Number(number), |word| Value::Words(word.clone()))
}

/// All values that its developer thinks worth trying, and whether they are in order.
///
/// # Errors
/// [`RangeError`].
pub fn values(values: &xk_runtime::Values) -> Result<(Vec<Value>, bool), RangeError> {
    match values {
        xk_runtime::Values::Choices(words) => {
            Ok((words.iter().map(|word| Value::Words(word.clone())).collect(), false))
        }
        &xk_runtime::Values::Numbers { min, max, step, exponential } => {
            let steps = if exponential { Steps::Exponential } else { Steps::Linear };
            Ok((levels::numbers(min, max, steps, step)?, true))
        }
    }
}
