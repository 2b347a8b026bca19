//! A search: begun or gone on with, trial by trial, to its conclusion.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::machine::{Kept, Machine, Trouble};
use super::{engine, who, End, Keeper, Setup, Summary};
use crate::description::{EngineName, Job};
use crate::engine::confirm::RESERVED;
use crate::engine::{propose, Conclusion, Ground, Proposal, Remembered};
use crate::front;
use crate::history::{percent, Outcome, Record, Trial};
use crate::measure::{Halt, Lab};
use crate::report::sentence;
use crate::store::{Begun, Context, Memory, SearchId, State, Store};
use crate::{Error, Gauges, Point, Sensor, Signature, Space, Value};

/// Searches, and cleans up behind whatever happened.
pub(super) fn search(setup: &Setup<'_>, keeper: &mut Keeper<'_>) -> Result<End, Error> {
    let (mut machine, space) = Machine::find(&setup.job.parameters, setup.constants)?;
    let result = run(setup, keeper, &mut machine, &space);
    if let Ok(End::Without(name)) = &result {
        machine.forget(name);
        keeper.release(name)?;
    }
    let failures = machine.restore();
    for held in keeper.store.held()? {
        match failures.iter().find(|(name, _)| *name == held.name) {
            // The guardian tries again, and so does the next start.
            Some((name, error)) => (setup.say)(&format!("{name} could not be put back: {error}")),
            None => keeper.release(&held.name)?,
        }
    }
    result
}

fn run(setup: &Setup<'_>, keeper: &mut Keeper<'_>, machine: &mut Machine, space: &Space) -> Result<End, Error> {
    let job = &setup.job;
    let store = keeper.store;
    let mut lab = Lab {
        machine,
        space,
        target: &job.target,
        constraints: &job.constraints,
        abort_after: job.options.abort_after,
        keeper,
        took: Vec::new(),
        last_default: None,
    };
    let mut gauges = Gauges::of(&job.sensors);
    let before = gauges.read();
    let reading = match lab.default_window() {
        Ok(reading) => reading,
        Err(halt) => return stopped(setup, store, halt, None),
    };
    let after = gauges.read();
    let signature = gauges.between(&before, &after);
    // What is measured from here on is not counted.
    drop(gauges);
    (setup.say)(&format!("the default: {}{}", reading.value, signs(&signature, &job.sensors)));
    let open = resume_or_begin(setup, store, space, signature)?;
    let engine = engine(&open.begun);
    let mut history = store.history(open.id)?;
    loop {
        let next = propose(&*engine, &open.begun.space, open.begun.goal, &history, open.begun.limit)
            .map_err(|e| Error::Machine(format!("search {}: {e}", open.id)))?;
        match next {
            Proposal::Done(conclusion) => return conclude(setup, &mut lab, &open, conclusion, &history),
            Proposal::Try(trial) => match measure(setup, &mut lab, &open, history.len(), &trial) {
                Ok(outcome) => history.push(Record { trial, outcome }),
                Err(halt) => return stopped(setup, store, halt, Some((open.id, history.len()))),
            },
        }
    }
}

/// A search that is under way.
struct Open {
    id: SearchId,
    begun: Begun,
    context: Context,
    signature: Signature,
    memory: Option<Memory>,
}

/// The search of such a workload that was left open, or a new one.
fn resume_or_begin(setup: &Setup<'_>, store: &Store, space: &Space, signature: Signature) -> Result<Open, Error> {
    let job = &setup.job;
    let context = context(job, &setup.build_id, space);
    let mut space = space.clone();
    let point = |setting: &BTreeMap<String, Value>| point_of(&space, setting);
    let memory = match setup.afresh {
        true => None,
        false => store.remembered(&job.name, &context, &signature, &job.sensors)?,
    };
    let warm =
        memory.as_ref().and_then(|known| Some(Remembered { point: point(&known.setting)?, effect: known.effect }));
    // That nothing was better than another default says nothing about this one.
    let warm = warm.filter(|warm| warm.effect > 0.0 || warm.is_default(&space));
    let forbidden = store.forbidden(&job.name, &context, &signature, &job.sensors)?;
    let forbidden = forbidden.iter().filter_map(point).collect();
    space.forbidden = forbidden;
    let begun = Begun {
        space,
        goal: job.target.goal,
        engine: job.options.engine,
        seed: job.options.seed,
        limit: job.options.trials,
        minimum: job.options.minimum_effect.ln_1p(),
        warm,
        command: job.target.words(),
        lead: job.target.name.clone(),
        others: job.target.others.clone(),
    };
    for known in store.open_searches(&job.name, &context)? {
        // What was remembered or forbidden when it began stays what it was: it is part of the search.
        let same = Begun { warm: known.begun.warm.clone(), ..begun.clone() };
        let same_space = known.begun.space.dimensions() == begun.space.dimensions();
        let same = same_space && Begun { space: known.begun.space.clone(), ..same } == known.begun;
        let history = store.history(known.id)?;
        if same && propose(&*engine(&known.begun), &known.begun.space, begun.goal, &history, begun.limit).is_err() {
            // Another version of this program made it.
            store.end(known.id, State::Abandoned, None)?;
            continue;
        }
        if same && known.signature.is_like(&signature, &job.sensors) {
            let trials = history.len();
            (setup.say)(&format!("going on with search {} after {trials} trials", known.id));
            store.note(&who(), &json!({ "event": "resumed", "search": known.id, "trials": trials }))?;
            return Ok(Open { id: known.id, begun: known.begun, context, signature: known.signature, memory });
        }
    }
    match &begun.warm {
        Some(warm) if warm.is_default(&begun.space) => (setup.say)(
            "remembered: nothing was better than the default when this workload was searched; --afresh searches again",
        ),
        Some(warm) => {
            (setup.say)(&format!("remembered: {} ({})", begun.space.describe(&warm.point), percent(warm.effect)));
        }
        None => {}
    }
    let id = store.begin(&job.name, &context, &signature, &begun)?;
    store.note(&who(), &json!({ "event": "begun", "search": id, "name": job.name, "target": job.target.words() }))?;
    Ok(Open { id, begun, context, signature, memory })
}

/// One trial, committed before and after.
fn measure(
    setup: &Setup<'_>,
    lab: &mut Lab<'_, Keeper<'_>>,
    open: &Open,
    number: usize,
    trial: &Trial,
) -> Result<Outcome, Halt> {
    let store = lab.keeper.store;
    let words = open.begun.space.describe(&trial.point);
    store.begin_trial(open.id, number, trial)?;
    let from: BTreeMap<_, _> = setting(&open.begun.space, &open.begun.space.default_point());
    let to = setting(&open.begun.space, &trial.point);
    let what = json!({ "event": "trial", "search": open.id, "number": number, "from": from, "to": to });
    store.note(&who(), &what)?;
    let start = Instant::now();
    let outcome = lab.trial(trial)?;
    store.end_trial(open.id, number, &outcome)?;
    let end = match &outcome {
        Outcome::Measured(sample) => percent(sample.effect(open.begun.goal)),
        Outcome::Failed { reason } => format!("failed: {reason}"),
        Outcome::Aborted { after } => format!("given up after {after:.1} s"),
        Outcome::Violated { constraint } => format!("put back at once: {constraint}"),
    };
    store.note(&who(), &json!({ "event": "ended", "search": open.id, "number": number, "evidence": outcome }))?;
    if let Outcome::Violated { constraint } = &outcome {
        let setting = setting(&open.begun.space, &trial.point);
        store.forbid(&setup.job.name, &open.context, &open.signature, &setting, constraint)?;
    }
    setup.publish(store, true);
    let left = open.begun.limit.saturating_sub(number + 1) as f64 * start.elapsed().as_secs_f64();
    (setup.say)(&format!("trial {}: {words}: {end} (at most {:.0} min left)", number + 1, left / 60.0));
    Ok(outcome)
}

/// What is proved better comes into force, and is remembered.
fn conclude(
    setup: &Setup<'_>,
    lab: &mut Lab<'_, Keeper<'_>>,
    open: &Open,
    conclusion: Conclusion,
    history: &[Record],
) -> Result<End, Error> {
    let store = lab.keeper.store;
    let job = &setup.job;
    let setting = setting(&open.begun.space, &conclusion.best);
    match &conclusion.ground {
        Ground::Confirmed { effect, .. } => {
            store.remember(&job.name, &open.context, &open.signature, &setting, effect.middle)?;
        }
        Ground::Remembered { .. } => open.memory.iter().try_for_each(|known| store.confirm(known.id))?,
        Ground::Nothing if looked_everywhere(&open.begun, history) => {
            store.remember(&job.name, &open.context, &open.signature, &setting, 0.0)?;
        }
        Ground::Seen | Ground::Nothing => {}
    }
    let tried = open.begun.warm.as_ref().is_some_and(|warm| !warm.is_default(&open.begun.space));
    if tried && !matches!(conclusion.ground, Ground::Remembered { .. }) {
        open.memory.iter().try_for_each(|known| store.demote(known.id))?;
    }
    let sentence = sentence(&open.begun.space, &conclusion);
    // What was only seen, or was not, is no reason to leave a machine changed.
    let proved = matches!(conclusion.ground, Ground::Confirmed { .. } | Ground::Remembered { .. });
    let kept = if proved { keep(lab, &conclusion.best)? } else { Vec::new() };
    store.end(open.id, State::Done, Some(&conclusion))?;
    let front = front::of(&open.begun, history);
    let mut what = json!({ "event": "concluded", "search": open.id, "evidence": conclusion, "kept": kept });
    if !front.is_empty() {
        what["front"] = front.iter().map(|choice| choice.json(&open.begun)).collect();
    }
    store.note(&who(), &what)?;
    let front = front.iter().map(|choice| choice.words(&open.begun)).collect();
    let (search, conclusion, trials) = (open.id, Some(conclusion), history.len());
    Ok(End::Summary(Summary { search, conclusion, trials, sentence, kept, front }))
}

/// Whether a search that found nothing came to its end, and was not told so: every trial had an answer, and there could
/// have been more.
fn looked_everywhere(begun: &Begun, history: &[Record]) -> bool {
    let failed = history.iter().any(|record| matches!(record.outcome, Outcome::Failed { .. }));
    let told = begun.warm.as_ref().is_some_and(|warm| warm.is_default(&begun.space));
    begun.engine == EngineName::Racing && !told && !failed && history.len() + RESERVED < begun.limit
}

fn keep(lab: &mut Lab<'_, Keeper<'_>>, best: &Point) -> Result<Vec<Kept>, Error> {
    let done = lab.machine.go(lab.space, best, lab.keeper).and_then(|()| lab.machine.keep());
    let kept = done.map_err(|trouble| match trouble {
        Trouble::Fatal(error) => error,
        Trouble::Knob { name, error } | Trouble::Lapsed { name, error } => {
            Error::Knob { parameter: name, source: error }
        }
        Trouble::Yielded { name, found, .. } => {
            Error::Machine(format!("{name} was set to {found} by somebody else in the last moment: nothing is kept"))
        }
    })?;
    for knob in &kept {
        lab.keeper.store.keep(knob)?;
        lab.keeper.release(&knob.name)?;
    }
    Ok(kept)
}

/// What becomes of a search that cannot go on right now.
fn stopped(setup: &Setup<'_>, store: &Store, halt: Halt, open: Option<(SearchId, usize)>) -> Result<End, Error> {
    match halt {
        Halt::Interrupted => {
            let (search, trials) = open.unwrap_or_default();
            store.note(&who(), &json!({ "event": "interrupted", "search": search, "trials": trials }))?;
            let sentence = "interrupted; the same command goes on with it".into();
            Ok(End::Summary(Summary {
                search,
                conclusion: None,
                trials,
                sentence,
                kept: Vec::new(),
                front: Vec::new(),
            }))
        }
        Halt::Trouble(Trouble::Yielded { name, expected, found }) => {
            let line = format!(
                "{name} is {found}, and not {expected} as the tuner had left it: somebody else has set it. The tuner \
                 yields it; `xk tune history` says when"
            );
            (setup.say)(&line);
            let what = json!({ "event": "yielded", "knob": name, "left_at": expected, "found": found });
            store.note(&who(), &what)?;
            if let Some((search, _)) = open {
                store.end(search, State::Abandoned, None)?;
            }
            Ok(End::Without(name))
        }
        Halt::Trouble(Trouble::Knob { name, error } | Trouble::Lapsed { name, error }) => {
            Err(Error::Knob { parameter: name, source: error })
        }
        Halt::Trouble(Trouble::Fatal(error)) => Err(error),
    }
}

/// A point by the names and values of what it changes.
fn setting(space: &Space, point: &Point) -> BTreeMap<String, Value> {
    let point = space.canonical(point);
    let dimensions = space.dimensions().iter().enumerate();
    let active = dimensions.filter(|(index, _)| space.is_active(&point, *index));
    active.map(|(index, dimension)| (dimension.name.clone(), space.value(&point, index).clone())).collect()
}

/// The point of a setting, if this space has it.
pub(super) fn point_of(space: &Space, setting: &BTreeMap<String, Value>) -> Option<Point> {
    let mut point = space.default_point();
    for (name, value) in setting {
        let index = space.dimensions().iter().position(|dimension| dimension.name == *name)?;
        point.0[index] = space.dimensions()[index].levels.iter().position(|level| level == value)?;
    }
    Some(space.canonical(&point))
}

/// Where what is found is valid.
pub(super) fn context(job: &Job, build_id: &str, space: &Space) -> Context {
    // The default is no part of it: it is what memories are compared with.
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

/// What each sensor says; one that says nothing may be a slip of the pen in the description.
fn signs(signature: &Signature, sensors: &[Sensor]) -> String {
    let sign = |sensor: &Sensor| match signature.0.get(&sensor.name) {
        Some(value) => format!("{} {value:.3}", sensor.name),
        None => format!("{} cannot be read here", sensor.name),
    };
    let signs: Vec<String> = sensors.iter().map(sign).collect();
    if signs.is_empty() {
        String::new()
    } else {
        format!(" ({})", signs.join(", "))
    }
}
