//! Finds the knobs of a search on this machine.
//!
//! In: the parameters of a description. Out: a slot and a dimension of the space for each. It changes nothing. It refuses
//! a parameter whose knob does not exist (unless a guard can enable it), one that something else tunes or holds, and
//! guards with values that this machine does not have.

use super::slot::{Observed, Slot};
use crate::description::{Domain, Parameter, ParameterProblem, Problem};
use crate::error::MachineError;
use crate::knob::{in_force_instead_of, Backing, Constants, Knob, KnobError, Module, Plain};
use crate::levels::with_default;
use crate::{Cycle, Dimension, Error, Guard, Space, Value};

pub(super) fn find(parameters: &[Parameter], constants: &dyn Constants) -> Result<(Vec<Slot>, Space), Error> {
    let mut slots = Vec::new();
    let mut dimensions = Vec::new();
    for parameter in parameters {
        let (slot, dimension) = find_one(parameter, constants)?;
        slots.push(slot);
        dimensions.push(dimension);
    }
    for (index, parameter) in parameters.iter().enumerate() {
        let guard = guard(parameter, &dimensions, &mut slots).map_err(|problem| parameter.error(problem))?;
        dimensions[index].guard = guard;
    }
    let space = Space::new(dimensions).map_err(|cycle| located(parameters, cycle))?;
    Ok((slots, space))
}

/// The error of guards that depend on each other.
pub(super) fn located(parameters: &[Parameter], Cycle(names): Cycle) -> Error {
    let first = parameters.iter().find(|parameter| names.first() == Some(&parameter.name)).unwrap_or(&parameters[0]);
    first.location.error(Problem::GuardCycle(names)).into()
}

pub(super) fn find_one(parameter: &Parameter, constants: &dyn Constants) -> Result<(Slot, Dimension), Error> {
    let (levels, ordered) = match &parameter.domain {
        Domain::Numbers(levels) => (levels.clone(), true),
        Domain::Choices(levels) => (levels.clone(), false),
        Domain::Offered => (Vec::new(), false),
    };
    let (mut knob, mut levels) = open(parameter, constants, levels)?;
    let state = read(parameter, &mut *knob)?;
    if parameter.domain == Domain::Offered {
        levels = offered(parameter, &mut *knob)?;
    }
    let original = match &state {
        Observed::LeftAt(value) => value.clone(),
        Observed::Absent => parameter.default.clone().unwrap_or(Value::Number(0)),
    };
    let levels = completed(levels, &mut *knob);
    let (levels, default) = with_default(levels, &original, ordered);
    let dimension = Dimension { name: parameter.name.clone(), levels, ordered, default, guard: None };
    let slot = Slot {
        name: parameter.name.clone(),
        knob,
        backing: parameter.backing.clone(),
        original,
        is_kept: false,
        state,
        settle: parameter.settle,
        at_end: parameter.at_end,
    };
    Ok((slot, dimension))
}

/// The knob of a parameter, and those of its levels that can be set here. A description is for many kernels and many
/// versions of a module.
fn open(
    parameter: &Parameter,
    constants: &dyn Constants,
    mut levels: Vec<Value>,
) -> Result<(Box<dyn Knob>, Vec<Value>), Error> {
    match &parameter.backing {
        Backing::Plain(plain) => Ok((plain.knob(), levels)),
        Backing::Constant(constant) => {
            let found = constants.find(constant);
            let mut found = found.map_err(|error| failed(&parameter.name, KnobError::missing(constant, error)))?;
            let default = found.default_value();
            if let Some(value) = found.read().ok().filter(|value| *value != default) {
                return Err(MachineError::AlreadyTuned { parameter: parameter.name.clone(), value, default }.into());
            }
            levels = found.offered(levels);
            Ok((Box::new(found), levels))
        }
        Backing::Module(name) => {
            let found = Module::find(name).map_err(|error| failed(&parameter.name, KnobError::missing(name, error)))?;
            if let Some(hold) = found.hold() {
                let (parameter, name) = (parameter.name.clone(), name.clone());
                return Err(MachineError::Held { parameter, name, hold }.into());
            }
            levels.retain(|level| found.takes(level));
            Ok((Box::new(found), levels))
        }
    }
}

/// The value of a knob, which the kernel must be able to restore. It may be absent if a guard can enable it, and its default is described.
fn read(parameter: &Parameter, knob: &mut dyn Knob) -> Result<Observed, Error> {
    if let Backing::Plain(Plain::File(path)) = &parameter.backing {
        if let Some((other, value)) = in_force_instead_of(path) {
            let place = path.display().to_string();
            return Err(failed(&parameter.name, KnobError::Shadowed { place, other, value }));
        }
    }
    match knob.read() {
        Ok(value) => Ok(Observed::LeftAt(value)),
        Err(KnobError::Missing { .. }) if parameter.only_if.is_some() && parameter.default.is_some() => {
            Ok(Observed::Absent)
        }
        Err(error) => Err(failed(&parameter.name, error)),
    }
}

/// The levels as the knob reads them back. Two levels of a description may be the same value.
fn completed(levels: Vec<Value>, knob: &mut dyn Knob) -> Vec<Value> {
    let mut complete: Vec<Value> = Vec::new();
    for level in levels {
        let level = knob.complete(&level);
        if !complete.contains(&level) {
            complete.push(level);
        }
    }
    complete
}

/// The choices that the file of a parameter lists.
fn offered(parameter: &Parameter, knob: &mut dyn Knob) -> Result<Vec<Value>, Error> {
    let offered = knob.offered().map_err(|error| failed(&parameter.name, error))?;
    offered.ok_or_else(|| parameter.error(ParameterProblem::NothingOffered).into())
}

pub(super) fn failed(parameter: &str, source: KnobError) -> Error {
    Error::Knob { parameter: parameter.to_owned(), source }
}

fn guard(
    parameter: &Parameter,
    dimensions: &[Dimension],
    slots: &mut [Slot],
) -> Result<Option<Guard>, ParameterProblem> {
    let Some((other, values)) = &parameter.only_if else { return Ok(None) };
    let Some(dimension) = dimensions.iter().position(|candidate| candidate.name == *other) else {
        let known = dimensions.iter().map(|dimension| dimension.name.clone()).collect();
        return Err(ParameterProblem::UnknownGuard { guard: other.clone(), known });
    };
    let known = &dimensions[dimension].levels;
    let knob = &mut slots[dimension].knob;
    let level = |value: &Value| {
        let complete = knob.complete(value);
        known.iter().position(|level| *level == complete).ok_or_else(|| ParameterProblem::GuardValue {
            guard: other.clone(),
            value: value.clone(),
            known: known.clone(),
        })
    };
    let levels = values.iter().map(level).collect::<Result<_, _>>()?;
    Ok(Some(Guard { dimension, levels }))
}
