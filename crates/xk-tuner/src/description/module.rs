//! Descriptions that come from loaded modules: what a search file only names. In: the name, and who knows modules.
//! Out: parameters, sensors, bottleneck tests and targets, or the line on which something is wrong.

use std::ops::Range as Span;

use xk_runtime::{Meter, Parameter as Described, Role};

use super::{AtEnd, Backing, Bottleneck, Domain, Parameter, Place, Source, Subsystem};
use crate::history::Goal;
use crate::levels::RangeError;
use crate::modules::{self, place_of, ModuleError, Modules};
use crate::sensor::{self, Sensor};
use crate::target::{Endpoint, Kind, Probe};
use crate::Error;

/// What the name of a module's subsystem begins with.
pub(super) const PREFIX: &str = "module:";

/// The subsystem `MODULE:NAME`.
pub(super) fn subsystem(
    source: &Source,
    span: Span<usize>,
    name: &str,
    modules: &dyn Modules,
) -> Result<Subsystem, Error> {
    let found = modules.look().and_then(|all| all.subsystem(name));
    let found = found.map_err(|error| source.error(span.clone(), error.to_string()))?;
    let parameter = |one: &Described| parameter(one, &found.parameters, source.place(span.clone()));
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

fn parameter(described: &Described, all: &[Described], place: Place) -> Result<Parameter, Error> {
    let name = &described.name;
    let domain = domain(described).map_err(|message| place.error(format!("parameter `{name}`: {message}")))?;
    // xk_tunable.ko has checked that there is such a parameter, and that it can have the value.
    let only_if = described.only_if.as_ref().and_then(|(other, number)| {
        let guard = all.iter().find(|guard| guard.name == *other)?;
        Some((other.clone(), vec![modules::value(&guard.values, *number)]))
    });
    Ok(Parameter {
        name: name.clone(),
        backing: Backing::Module(place_of(described)),
        domain,
        only_if,
        default: None,
        settle: described.settle,
        at_end: at_end(described),
        place,
    })
}

/// All values of it.
pub(super) fn domain(described: &Described) -> Result<Domain, RangeError> {
    let (values, ordered) = modules::values(&described.values)?;
    Ok(if ordered { Domain::Numbers(values) } else { Domain::Choices(values) })
}

/// Whether a proved value stays.
pub(super) fn at_end(described: &Described) -> AtEnd {
    match described.revert {
        true => AtEnd::Revert,
        false => AtEnd::Keep,
    }
}

fn sensor(meter: &Meter, name: String, similar: f64) -> Sensor {
    let place = format!("{}:{}", meter.module, meter.name);
    let (of, per) = sensor::of_module(&place);
    Sensor { name, of: vec![of], per: if meter.divided { vec![per] } else { vec![] }, similar, within: 0.0 }
}

/// Why a subsystem of a module gives no target.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoTarget {
    /// The subsystem was not found.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// It describes no target.
    #[error("the subsystem `{0}` has no target of its own: give another source of the number")]
    None(String),
}

/// The target of the subsystem `MODULE:NAME`, which is called `name` in the search.
pub(super) fn target(place: &str, name: &str, modules: &dyn Modules) -> Result<(Probe, Goal), NoTarget> {
    let found = modules.look()?.subsystem(place)?;
    let target = found.meters.iter().find_map(|meter| match meter.role {
        Role::Target { rate, minimise } => Some((meter, rate, minimise)),
        _ => None,
    });
    let Some((meter, rate, minimise)) = target else {
        return Err(NoTarget::None(place.to_owned()));
    };
    let endpoint = Endpoint::Module(format!("{}:{}", meter.module, meter.name));
    let kind = if rate { Kind::Rate } else { Kind::Number };
    let goal = if minimise { Goal::Minimise } else { Goal::Maximise };
    Ok((Probe { name: name.to_owned(), endpoint, metric: None, kind }, goal))
}
