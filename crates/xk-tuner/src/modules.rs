//! What loaded modules describe for a tuner: parameters, and meters (`docs/module-api.md`).
//!
//! In: names, `MODULE:NAME`. Out: the description, or a sentence. The kernel is behind [`Modules`], so that
//! descriptions are understood without one.

use xk_runtime::{Meter, Parameter, ParameterDevice};

use crate::{levels, Steps, Value};

/// Everything that is described now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Described {
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// Sensors, targets and bottleneck tests.
    pub meters: Vec<Meter>,
}

/// Who knows what loaded modules describe.
pub trait Modules {
    /// Looks.
    ///
    /// # Errors
    /// A sentence.
    fn look(&self) -> Result<Described, String>;
}

/// The running kernel.
#[derive(Debug, Clone, Copy)]
pub struct Kernel;

impl Modules for Kernel {
    fn look(&self) -> Result<Described, String> {
        let device = ParameterDevice::open_to_read().map_err(|error| error.to_string())?;
        let parameters = device.parameters().map_err(|error| error.to_string())?;
        let meters = device.meters().map_err(|error| error.to_string())?;
        Ok(Described { parameters, meters })
    }
}

/// `MODULE:NAME`, taken apart; the kernel writes `_` where a file of a module may have `-`.
///
/// # Errors
/// A sentence.
pub fn split(place: &str) -> Result<(String, String), String> {
    match place.split_once(':') {
        Some((module, name)) if !module.is_empty() && !name.is_empty() && !name.contains(':') => {
            Ok((module.replace('-', "_"), name.to_owned()))
        }
        _ => Err(format!("`{place}` is not MODULE:NAME")),
    }
}

/// What to do when something is not described.
const ADVICE: &str =
    "`xk tune parameters` lists what loaded modules describe, and the kernel's log says what of it was \
                      refused";

fn absent(what: &str, place: &str, known: &[String]) -> String {
    match known {
        [] => format!("no loaded module describes a {what} `{place}`: {ADVICE}"),
        _ => format!("no loaded module describes a {what} `{place}`; there are: {}", known.join(", ")),
    }
}

impl Described {
    /// The parameter `MODULE:NAME`.
    ///
    /// # Errors
    /// A sentence.
    pub fn parameter(&self, place: &str) -> Result<&Parameter, String> {
        let (module, name) = split(place)?;
        let found = self.parameters.iter().find(|one| one.module == module && one.name == name);
        let known = || self.parameters.iter().map(place_of).collect::<Vec<_>>();
        found.ok_or_else(|| absent("parameter", place, &known()))
    }

    /// The meter `MODULE:NAME`.
    ///
    /// # Errors
    /// A sentence.
    pub fn meter(&self, place: &str) -> Result<&Meter, String> {
        let (module, name) = split(place)?;
        let found = self.meters.iter().find(|one| one.module == module && one.name == name);
        found.ok_or_else(|| absent("meter", place, &[]))
    }

    /// The parameters and meters of the subsystem `MODULE:NAME`.
    ///
    /// # Errors
    /// A sentence.
    pub fn subsystem(&self, place: &str) -> Result<Self, String> {
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
        Err(absent("subsystem", place, &known))
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
/// A sentence: there are too many.
pub fn values(values: &xk_runtime::Values) -> Result<(Vec<Value>, bool), String> {
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
