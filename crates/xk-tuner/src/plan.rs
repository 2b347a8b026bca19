//! The plan of a search: the knobs, their order, and who restores them.
//!
//! In: a job. Out: a [`Plan`]. It reads knobs, and changes nothing.

use crate::description::{AtEnd, Backing, Job};
use crate::knob::Constants;
use crate::machine::{present, KeptKnob, Machine};
use crate::{Error, LeftOut, MachineError, Value};

/// The plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The knobs, in the order in which they are searched.
    pub steps: Vec<Step>,
    /// The parameters that are left out.
    pub left_out: Vec<LeftOut>,
    /// The number of points of the space, if it is not too large to count.
    pub points: Option<usize>,
}

/// One knob.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The parameter.
    pub name: String,
    /// Where it is.
    pub place: String,
    /// Its value now.
    pub now: Value,
    /// The values that may be tried.
    pub values: Vec<Value>,
    /// Its guard.
    pub only_if: Option<String>,
    /// Who restores it if the tuner is killed.
    pub rescue: &'static str,
    /// Whether a confirmed value is kept.
    pub at_end: AtEnd,
}

/// The largest number of points that is counted.
const COUNTABLE: usize = 1_000_000;

/// Makes the plan, without the knobs that other searches keep.
///
/// # Errors
/// As [`present`] and [`Machine::find`].
pub fn plan(job: &Job, constants: &dyn Constants, taken: &[KeptKnob]) -> Result<Plan, Error> {
    let (job, left_out) = present(job, constants, taken)?;
    let (_, space) = Machine::find(&job.parameters, constants)?;
    job.target.check().map_err(MachineError::from)?;
    let size = space.dimensions().iter().try_fold(1usize, |product, dimension| {
        product.checked_mul(dimension.levels.len()).filter(|&product| product <= COUNTABLE)
    });
    let step = |index: usize| {
        let (parameter, dimension) = (&job.parameters[index], &space.dimensions()[index]);
        let (place, rescue) = match &parameter.backing {
            Backing::Constant(name) => (name.clone(), "the kernel (lease)"),
            Backing::Module(place) => (format!("module {place}"), "the kernel (lease)"),
            Backing::Plain(plain) => (plain.place(), "the guardian process, or the next start"),
        };
        Step {
            name: parameter.name.clone(),
            place,
            now: dimension.levels[dimension.default].clone(),
            values: dimension.levels.clone(),
            only_if: parameter.only_if.as_ref().map(|(other, values)| {
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                format!("{other} = {}", values.join(" or "))
            }),
            rescue,
            at_end: parameter.at_end,
        }
    };
    let steps = space.limited_first().into_iter().map(step).collect();
    Ok(Plan { steps, left_out, points: size.map(|_| space.all().len()) })
}
