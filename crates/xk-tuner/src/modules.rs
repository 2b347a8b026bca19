//! What loaded modules describe for the tuner: parameters and meters (`docs/module-api.md`).
//!
//! In: full names, `MODULE:NAME`. Out: descriptions. It refuses names that no loaded module describes. [`Modules`] hides
//! the kernel, so that tests read descriptions without it.

use std::fmt;

use xk_runtime::{Meter, Parameter, ParameterDevice, ParameterError};

use crate::levels::{self, RangeError};
use crate::{Steps, Value};

/// Everything that loaded modules describe.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Described {
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// Sensors, targets and bottleneck tests.
    pub meters: Vec<Meter>,
}

/// A text that is not a full name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not MODULE:NAME")]
pub struct NameError(
    /// The text.
    pub String,
);

/// What a module describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    /// A parameter.
    Parameter,
    /// A meter.
    Meter,
    /// A subsystem.
    Subsystem,
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parameter => "parameter",
            Self::Meter => "meter",
            Self::Subsystem => "subsystem",
        })
    }
}

/// Why a module's description was not found.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// xk_tunable.ko does not answer.
    #[error(transparent)]
    Device(#[from] ParameterError),
    /// The name is not `MODULE:NAME`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// No loaded module describes it.
    #[error("no loaded module describes a {entity} `{name}`{}", advice(known))]
    Absent {
        /// What was searched for.
        entity: Entity,
        /// Its full name.
        name: String,
        /// The full names that modules describe, if they are listed.
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

/// A source of modules' descriptions.
pub trait Modules {
    /// Reads everything that loaded modules describe.
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

/// Module and name of a full name. The kernel writes `_` where the file of a module may have `-`.
///
/// # Errors
/// [`NameError`].
pub fn split(full: &str) -> Result<(String, String), NameError> {
    match full.split_once(':') {
        Some((module, name)) if !module.is_empty() && !name.is_empty() && !name.contains(':') => {
            Ok((module.replace('-', "_"), name.to_owned()))
        }
        _ => Err(NameError(full.to_owned())),
    }
}

fn absent(entity: Entity, full: &str, known: Vec<String>) -> ModuleError {
    ModuleError::Absent { entity, name: full.to_owned(), known }
}

impl Described {
    /// The parameter `MODULE:NAME`.
    ///
    /// # Errors
    /// [`ModuleError::Name`], [`ModuleError::Absent`].
    pub fn parameter(&self, full: &str) -> Result<&Parameter, ModuleError> {
        let (module, name) = split(full)?;
        let found = self.parameters.iter().find(|one| one.module == module && one.name == name);
        found.ok_or_else(|| absent(Entity::Parameter, full, self.parameters.iter().map(full_name).collect()))
    }

    /// The meter `MODULE:NAME`.
    ///
    /// # Errors
    /// [`ModuleError::Name`], [`ModuleError::Absent`].
    pub fn meter(&self, full: &str) -> Result<&Meter, ModuleError> {
        let (module, name) = split(full)?;
        let found = self.meters.iter().find(|one| one.module == module && one.name == name);
        found.ok_or_else(|| absent(Entity::Meter, full, Vec::new()))
    }

    /// The parameters and meters of the subsystem `MODULE:NAME`.
    ///
    /// # Errors
    /// [`ModuleError::Name`], [`ModuleError::Absent`].
    pub fn subsystem(&self, full: &str) -> Result<Self, ModuleError> {
        let (module, name) = split(full)?;
        let parameters = self.parameters.iter().filter(|one| one.module == module && one.subsystem == name);
        let meters = self.meters.iter().filter(|one| one.module == module && one.subsystem == name);
        let found = Self { parameters: parameters.cloned().collect(), meters: meters.cloned().collect() };
        if !found.parameters.is_empty() {
            return Ok(found);
        }
        let mut known: Vec<String> =
            self.parameters.iter().map(|one| format!("{}:{}", one.module, one.subsystem)).collect();
        known.dedup();
        Err(absent(Entity::Subsystem, full, known))
    }
}

/// The full name of a parameter.
#[must_use]
pub fn full_name(parameter: &Parameter) -> String {
    format!("{}:{}", parameter.module, parameter.name)
}

/// The number by which the kernel knows a value; `None` if the module does not describe the value.
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

/// The value that the kernel knows by this number.
#[must_use]
pub fn value(values: &xk_runtime::Values, number: i64) -> Value {
    let word = match values {
        xk_runtime::Values::Choices(words) => usize::try_from(number).ok().and_then(|index| words.get(index)),
        xk_runtime::Values::Numbers { .. } => None,
    };
    word.map_or(Value::Number(number), |word| Value::Words(word.clone()))
}

/// The values that the module describes, and whether they are ordered.
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
