//! Descriptions from loaded modules, which a search file only names. In: the name, and a source of module descriptions.
//! Out: parameters, sensors, bottleneck tests and targets, or the line on which something is wrong. It refuses names
//! that no loaded module describes.

use std::ops::Range as Span;

use xk_runtime::{Meter, Parameter as Described, Role};

use super::error::{DescriptionError, Location, ParameterProblem, Problem, TargetProblem};
use super::source::SourceText;
use super::{AtEnd, Backing, Bottleneck, Domain, Parameter, Subsystem};
use crate::history::Goal;
use crate::levels::RangeError;
use crate::modules::{self, full_name, Modules};
use crate::sensor::{self, Sensor};
use crate::target::{Endpoint, Probe, Quantity};

/// Prefix of the names of modules' subsystems.
pub(super) const PREFIX: &str = "module:";

/// The subsystem `MODULE:NAME`.
pub(super) fn subsystem(
    source: &SourceText,
    span: Span<usize>,
    name: &str,
    modules: &dyn Modules,
) -> Result<Subsystem, DescriptionError> {
    let found = modules.look().and_then(|all| all.subsystem(name));
    let found = found.map_err(|error| source.error(span.clone(), error))?;
    let parameter = |one: &Described| parameter(one, &found.parameters, source.location(span.clone()));
    let sensors = found.meters.iter().filter_map(|meter| match meter.role {
        Role::Sensor(similar) => Some(sensor(meter, meter.name.clone(), similar)),
        _ => None,
    });
    let bottleneck = found.meters.iter().find_map(|meter| match meter.role {
        Role::Bottleneck(at_least) => {
            Some(Bottleneck { sensor: sensor(meter, format!("{PREFIX}{name}"), 0.0), at_least })
        }
        _ => None,
    });
    Ok(Subsystem {
        parameters: found.parameters.iter().map(parameter).collect::<Result<_, _>>()?,
        sensors: sensors.collect(),
        bottleneck,
    })
}

fn parameter(described: &Described, all: &[Described], location: Location) -> Result<Parameter, DescriptionError> {
    let name = described.name.clone();
    let wrong = |error: RangeError| Problem::Parameter { name: name.clone(), problem: ParameterProblem::Range(error) };
    let domain = domain(described).map_err(|error| location.error(wrong(error)))?;
    // xk_tunable.ko has checked that there is such a parameter, and that it can have the value.
    let only_if = described.only_if.as_ref().and_then(|(other, number)| {
        let guard = all.iter().find(|guard| guard.name == *other)?;
        Some((other.clone(), vec![modules::value(&guard.values, *number)]))
    });
    Ok(Parameter {
        name,
        backing: Backing::Module(full_name(described)),
        domain,
        only_if,
        default: None,
        settle: described.settle,
        at_end: at_end(described),
        optional: false,
        location,
    })
}

/// The values that the module describes.
pub(super) fn domain(described: &Described) -> Result<Domain, RangeError> {
    let (values, ordered) = modules::values(&described.values)?;
    Ok(if ordered { Domain::Numbers(values) } else { Domain::Choices(values) })
}

/// Whether a confirmed value is kept.
pub(super) fn at_end(described: &Described) -> AtEnd {
    match described.revert {
        true => AtEnd::Revert,
        false => AtEnd::Keep,
    }
}

fn sensor(meter: &Meter, name: String, similar: f64) -> Sensor {
    let (of, per) = sensor::of_module(&format!("{}:{}", meter.module, meter.name));
    Sensor { name, of: vec![of], per: if meter.divided { vec![per] } else { vec![] }, similar, within: 0.0 }
}

/// The target of the subsystem `subsystem` (`MODULE:NAME`), which is called `name` in the search.
pub(super) fn target(subsystem: &str, name: &str, modules: &dyn Modules) -> Result<(Probe, Goal), TargetProblem> {
    let found = modules.look()?.subsystem(subsystem)?;
    let target = found.meters.iter().find_map(|meter| match meter.role {
        Role::Target { rate, minimise } => Some((meter, rate, minimise)),
        _ => None,
    });
    let Some((meter, rate, minimise)) = target else {
        return Err(TargetProblem::ModuleHasNone(subsystem.to_owned()));
    };
    let endpoint = Endpoint::Module(format!("{}:{}", meter.module, meter.name));
    let quantity = if rate { Quantity::Rate } else { Quantity::Number };
    let goal = if minimise { Goal::Minimise } else { Goal::Maximise };
    Ok((Probe { name: name.to_owned(), endpoint, metric: None, quantity }, goal))
}
