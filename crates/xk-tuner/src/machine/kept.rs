//! Finds the knobs that a search keeps, to check them.
//!
//! In: kept knobs, and the parameters of the description. Out: a slot and a dimension with two levels for each: the value
//! before the search ([`DEFAULT`]) and the kept one. It changes nothing. It leaves out the parameters that are not kept:
//! they have the value that they had when the kept setting was confirmed, or something else has set them.

use super::find::{failed, located};
use super::slot::{Observed, Slot};
use super::KeptKnob;
use crate::description::{AtEnd, Parameter};
use crate::knob::{Backing, Constants, Knob, KnobError};
use crate::{Dimension, Error, Guard, Space, Value};

/// The level of the value before the search.
const DEFAULT: usize = 0;

pub(super) fn find(
    kept: &[KeptKnob],
    parameters: &[Parameter],
    constants: &dyn Constants,
) -> Result<(Vec<Slot>, Space), Error> {
    let mut slots = Vec::new();
    let mut dimensions = Vec::new();
    for one in kept {
        let knob = open(one, constants).map_err(|error| failed(&one.name, error))?;
        let parameter = parameters.iter().find(|parameter| parameter.backing == one.backing);
        slots.push(Slot {
            name: one.name.clone(),
            knob,
            backing: one.backing.clone(),
            original: one.value.clone(),
            is_kept: true,
            state: Observed::LeftAt(one.value.clone()),
            settle: parameter.map(|parameter| parameter.settle).unwrap_or_default(),
            at_end: AtEnd::Keep,
        });
        let levels = vec![one.original.clone(), one.value.clone()];
        dimensions.push(Dimension { name: one.name.clone(), levels, ordered: false, default: DEFAULT, guard: None });
    }
    for (index, one) in kept.iter().enumerate() {
        let parameter = parameters.iter().find(|parameter| parameter.backing == one.backing);
        let only_if = parameter.and_then(|parameter| parameter.only_if.as_ref());
        dimensions[index].guard = only_if.and_then(|(other, values)| guard(other, values, &dimensions, &mut slots));
    }
    let space = Space::new(dimensions).map_err(|cycle| located(parameters, cycle))?;
    Ok((slots, space))
}

fn open(kept: &KeptKnob, constants: &dyn Constants) -> Result<Box<dyn Knob>, KnobError> {
    match &kept.backing {
        Backing::Constant(name) => {
            let mut found = constants.find(name).map_err(|error| KnobError::missing(name, error))?;
            found.take_over(kept.value.clone());
            Ok(Box::new(found))
        }
        Backing::Module(_) | Backing::Plain(_) => kept.backing.knob(constants),
    }
}

/// The guard, if the parameter on which it depends is kept too. Otherwise that parameter keeps the value that enables the
/// guarded one.
fn guard(other: &str, values: &[Value], dimensions: &[Dimension], slots: &mut [Slot]) -> Option<Guard> {
    let dimension = dimensions.iter().position(|candidate| candidate.name == other)?;
    let knob = &mut slots[dimension].knob;
    let enabling: Vec<Value> = values.iter().map(|value| knob.complete(value)).collect();
    let levels: Vec<usize> = (0..2).filter(|&level| enabling.contains(&dimensions[dimension].levels[level])).collect();
    (!levels.is_empty()).then_some(Guard { dimension, levels })
}
