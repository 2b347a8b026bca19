//! What a search leaves out because this machine does not have it, or because another search keeps it.
//!
//! In: a job, and the knobs that other searches keep. Out: the job without these, without the optional parameters whose
//! knobs do not exist here or cannot be read, without the parameters that are active only with one of those, and without
//! those of a choice that this machine does not offer (bfq's, where bfq is not loaded); and why each is left out. It refuses a job of which nothing is left. A description is for many kernels: one missing table,
//! module or file must not cost the rest of a subsystem.

use super::find::find_one;
use super::KeptKnob;
use crate::description::{Job, Parameter};
use crate::error::MachineError;
use crate::knob::{set, Backing, Constants, KnobError, Plain};
use crate::{Error, LeftOut};

/// The job with the parameters that can be searched here, and those that are left out. Changes nothing.
///
/// # Errors
/// [`MachineError::NothingLeft`] if no parameter is left.
pub fn present(job: &Job, constants: &dyn Constants, taken: &[KeptKnob]) -> Result<(Job, Vec<LeftOut>), Error> {
    let why = |one: &Parameter| {
        is_taken(one, taken)
            .or_else(|| missing(one, constants))
            .or_else(|| never_active(one, &job.parameters, constants))
    };
    let mut left_out: Vec<LeftOut> = job.parameters.iter().filter_map(why).collect();
    let mut parameters = job.parameters.clone();
    loop {
        let is_left_out = |name: &str| left_out.iter().any(|other| other.name == name);
        parameters.retain(|parameter| !is_left_out(&parameter.name));
        let dependent: Vec<LeftOut> = parameters.iter().filter_map(|one| depends_on(one, &is_left_out)).collect();
        if dependent.is_empty() {
            break;
        }
        left_out.extend(dependent);
    }
    if parameters.is_empty() {
        return Err(MachineError::NothingLeft { search: job.name.clone(), left_out }.into());
    }
    Ok((Job { parameters, ..job.clone() }, left_out))
}

fn is_taken(parameter: &Parameter, taken: &[KeptKnob]) -> Option<LeftOut> {
    let kept = taken.iter().find(|kept| kept.backing == parameter.backing)?;
    let reason =
        format!("search {} keeps it at {}; `xk tune revert` reverts what searches keep", kept.search, kept.value);
    Some(LeftOut { name: parameter.name.clone(), reason })
}

fn missing(parameter: &Parameter, constants: &dyn Constants) -> Option<LeftOut> {
    if !parameter.optional {
        return None;
    }
    match find_one(parameter, constants) {
        Err(Error::Knob {
            source: source @ (KnobError::Missing { .. } | KnobError::Unreadable { .. } | KnobError::Shadowed { .. }),
            ..
        }) => Some(LeftOut { name: parameter.name.clone(), reason: source.to_string() }),
        // Other errors concern knobs that are here, and are reported when the search finds them.
        _ => None,
    }
}

/// The job with the parameters that can be restored: the kernel takes the value that each file has now. Writes that value.
///
/// # Errors
/// [`Error::Knob`] if it does not take the value of a parameter that is not optional, [`MachineError::NothingLeft`].
pub fn restorable(job: Job, constants: &dyn Constants) -> Result<(Job, Vec<LeftOut>), Error> {
    let mut left_out = Vec::new();
    for parameter in &job.parameters {
        let Some(error) = refuses_its_own(parameter) else { continue };
        if !parameter.optional {
            return Err(Error::Knob { parameter: parameter.name.clone(), source: error });
        }
        let reason = format!("it could not be restored: {error}");
        left_out.push(LeftOut { name: parameter.name.clone(), reason });
    }
    if left_out.is_empty() {
        return Ok((job, left_out));
    }
    let remains = |parameter: &Parameter| left_out.iter().all(|other| other.name != parameter.name);
    let parameters = job.parameters.iter().filter(|parameter| remains(parameter)).cloned().collect();
    let (job, dependent) = present(&Job { parameters, ..job }, constants, &[])?;
    left_out.extend(dependent);
    Ok((job, left_out))
}

fn refuses_its_own(parameter: &Parameter) -> Option<KnobError> {
    let Backing::Plain(plain @ Plain::File(_)) = &parameter.backing else { return None };
    let mut knob = plain.knob();
    // A file that lists its values takes each of them.
    if knob.offered().is_ok_and(|offered| offered.is_some()) {
        return None;
    }
    let value = knob.read().ok()?;
    set(&mut *knob, &value).err()
}

/// Whether the guard of an optional parameter names a choice that this machine does not offer.
fn never_active(parameter: &Parameter, all: &[Parameter], constants: &dyn Constants) -> Option<LeftOut> {
    let (name, values) = parameter.only_if.as_ref().filter(|_| parameter.optional)?;
    let guard = all.iter().find(|other| other.name == *name)?;
    let (mut slot, dimension) = find_one(guard, constants).ok()?;
    let unknown = values.iter().find(|value| !dimension.levels.contains(&slot.knob.complete(value)))?;
    let offered: Vec<String> = dimension.levels.iter().map(ToString::to_string).collect();
    let reason = format!(
        "it is active only with {name} = {unknown}, which this machine does not offer; it offers: {}",
        offered.join(", ")
    );
    Some(LeftOut { name: parameter.name.clone(), reason })
}

fn depends_on(parameter: &Parameter, is_left_out: &dyn Fn(&str) -> bool) -> Option<LeftOut> {
    let (guard, _) = parameter.only_if.as_ref().filter(|(guard, _)| is_left_out(guard))?;
    let reason = format!("it is active only with some values of {guard}, which is left out");
    Some(LeftOut { name: parameter.name.clone(), reason })
}
