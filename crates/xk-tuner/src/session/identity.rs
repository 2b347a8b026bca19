//! What a search is on this machine, and where its memories apply.

use std::collections::BTreeMap;
use std::fs;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::description::Job;
use crate::knob::Constants;
use crate::machine::{present, KeptKnob, Machine};
use crate::store::Context;
use crate::{Error, Point, Space, Value};

/// A search on this machine.
#[derive(Debug, Clone)]
pub struct SearchIdentity {
    /// The name of the search.
    pub name: String,
    /// The machine and the description.
    pub context: Context,
    space: Space,
}

impl SearchIdentity {
    /// The identity of a job, without the knobs that other searches keep. Reads knobs, and changes nothing.
    ///
    /// # Errors
    /// As [`present`] and [`Machine::find`].
    pub fn of(job: &Job, constants: &dyn Constants, taken: &[KeptKnob], build_id: &str) -> Result<Self, Error> {
        let (job, _) = present(job, constants, taken)?;
        let (_, space) = Machine::find(&job.parameters, constants)?;
        Ok(Self { name: job.name.clone(), context: context(&job, build_id, &space), space })
    }

    /// The point of a setting, if this machine has it.
    #[must_use]
    pub fn point_of(&self, setting: &BTreeMap<String, Value>) -> Option<Point> {
        point_of(&self.space, setting)
    }

    #[cfg(test)]
    pub(crate) fn new(name: &str, context: Context, space: Space) -> Self {
        Self { name: name.to_owned(), context, space }
    }
}

/// The names and values of the parameters that are active at a point.
pub(super) fn setting(space: &Space, point: &Point) -> BTreeMap<String, Value> {
    let point = space.canonical(point);
    let dimensions = space.dimensions().iter().enumerate();
    let active = dimensions.filter(|(index, _)| space.is_active(&point, *index));
    active.map(|(index, dimension)| (dimension.name.clone(), space.value(&point, index).clone())).collect()
}

/// The point of a setting, if the space has it.
pub(super) fn point_of(space: &Space, setting: &BTreeMap<String, Value>) -> Option<Point> {
    let mut point = space.default_point();
    for (name, value) in setting {
        let index = space.dimensions().iter().position(|dimension| dimension.name == *name)?;
        point.0[index] = space.dimensions()[index].levels.iter().position(|level| level == value)?;
    }
    Some(space.canonical(&point))
}

/// Where results of a job are valid. The default is not part of it: memories are compared with the default.
pub(super) fn context(job: &Job, build_id: &str, space: &Space) -> Context {
    let dimensions: Vec<_> = space.dimensions().iter().map(|d| (&d.name, &d.levels, &d.guard)).collect();
    let schema = json!([dimensions, job.target.words()]).to_string();
    Context { build_id: build_id.to_owned(), hardware: hardware(), schema: digest(&schema) }
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Processors and memory, in words.
fn hardware() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let models: Vec<&str> = processors.lines().filter(|line| line.starts_with("model name")).collect();
    let model = models.first().and_then(|line| line.split_once(": ")).map_or("unknown", |(_, model)| model);
    let memory = read("/proc/meminfo");
    let kilobytes: u64 = memory.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
    format!("{} x {model}, {} GB", models.len(), (kilobytes + (1 << 19)) >> 20)
}
