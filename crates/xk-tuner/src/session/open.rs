//! Resumes the unfinished search of this workload, or begins a new one.
//!
//! In: the job, the space, and the workload signature. Out: an open search. A search is resumed only if it has the same
//! specification and a similar signature, and if this version of the engine would have made the same trials. Others that
//! cannot continue are abandoned.

use std::collections::BTreeMap;

use serde_json::json;

use super::identity::{context, point_of};
use super::{who, Setup};
use crate::engine::{Remembered, SearchSpec};
use crate::history::percent;
use crate::store::{Context, Memory, Search, SearchId, State, Store};
use crate::{Error, Point, Signature, Space, Value};

/// A search in progress.
pub(super) struct OpenSearch {
    pub id: SearchId,
    pub spec: SearchSpec,
    pub context: Context,
    pub signature: Signature,
    /// The memory that the search tried first.
    pub memory: Option<Memory>,
}

/// The unfinished search of this workload, or a new one.
pub(super) fn resume_or_begin(
    setup: &Setup<'_>,
    store: &Store,
    space: &Space,
    signature: Signature,
) -> Result<OpenSearch, Error> {
    let context = context(&setup.job, &setup.build_id, space);
    let memory = match setup.afresh {
        true => None,
        false => store.remembered(&setup.job.name, &context, &signature, &setup.job.sensors)?,
    };
    let spec = specify(setup, store, space, &context, &signature, memory.as_ref())?;
    if let Some(known) = resumable(setup, store, &context, &signature, &spec)? {
        let trials = store.history(known.id)?.len();
        (setup.say)(&format!("resuming search {} after {trials} trials", known.id));
        store.note(&who(), &json!({ "event": "resumed", "search": known.id, "trials": trials }))?;
        let Search { id, spec, signature, .. } = known;
        return Ok(OpenSearch { id, spec, context, signature, memory });
    }
    announce(setup, &spec);
    let id = store.begin(&setup.job.name, &context, &signature, &spec)?;
    let target = setup.job.target.words();
    store.note(&who(), &json!({ "event": "begun", "search": id, "name": setup.job.name, "target": target }))?;
    Ok(OpenSearch { id, spec, context, signature, memory })
}

/// The specification of a new search.
fn specify(
    setup: &Setup<'_>,
    store: &Store,
    space: &Space,
    context: &Context,
    signature: &Signature,
    memory: Option<&Memory>,
) -> Result<SearchSpec, Error> {
    let job = &setup.job;
    let point = |setting: &BTreeMap<String, Value>| -> Option<Point> { point_of(space, setting) };
    let warm = memory.and_then(|known| Some(Remembered { point: point(&known.setting)?, effect: known.effect }));
    // A memory that nothing was better than another default says nothing about this default.
    let warm = warm.filter(|warm| warm.effect > 0.0 || warm.is_default(space));
    let forbidden = store.forbidden(&job.name, context, signature, &job.sensors)?;
    let mut space = space.clone();
    space.forbidden = forbidden.iter().filter_map(point).collect();
    Ok(SearchSpec {
        space,
        goal: job.target.goal,
        engine: job.options.engine,
        seed: job.options.seed.map_or_else(|| store.draw_seed(&job.name), Ok)?,
        seed_drawn: job.options.seed.is_none(),
        share: store.share(&job.name)?,
        limit: job.options.trials,
        minimum: job.options.minimum_effect.ln_1p(),
        warm,
        command: job.target.words(),
        lead: job.target.name.clone(),
        others: job.target.others.clone(),
    })
}

/// The last unfinished search of this workload with the same specification.
fn resumable(
    setup: &Setup<'_>,
    store: &Store,
    context: &Context,
    signature: &Signature,
    spec: &SearchSpec,
) -> Result<Option<Search>, Error> {
    for known in store.open_searches(&setup.job.name, context)? {
        if !known.spec.is_same_search(spec) {
            continue;
        }
        if known.spec.propose(&store.history(known.id)?).is_err() {
            // Another version of this program made these trials.
            store.end(known.id, State::Abandoned, None)?;
        } else if known.signature.is_like(signature, &setup.job.sensors) {
            return Ok(Some(known));
        }
    }
    Ok(None)
}

/// Tells what is remembered.
fn announce(setup: &Setup<'_>, spec: &SearchSpec) {
    match &spec.warm {
        Some(_) if spec.is_told_nothing() => (setup.say)(
            "remembered: nothing was better than the default when this workload was searched; --afresh searches again",
        ),
        Some(warm) => {
            (setup.say)(&format!("remembered: {} ({})", spec.space.describe(&warm.point), percent(warm.effect)));
        }
        None => {}
    }
}
