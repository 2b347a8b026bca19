//! One search: measures the default, resumes or begins, and makes trials until the engine reaches a conclusion.
//!
//! In: the job of a [`Setup`]. Out: how the search ended. Afterwards, every knob is restored that is not kept. Each trial
//! is committed to the database before it begins and when it ends, so that a killed search loses nothing.

use std::time::Instant;

use serde_json::json;

use super::conclude::conclude;
use super::identity::setting;
use super::open::{resume_or_begin, OpenSearch};
use super::{switching, who, Keeper, SearchEnd, Setup, Summary};
use crate::engine::{EngineName, Proposal};
use crate::error::MachineError;
use crate::history::{percent, Order, Outcome, Record, Trial};
use crate::machine::{Machine, MoveError};
use crate::measure::{TrialError, TrialRunner};
use crate::store::{SearchId, State, Store};
use crate::workload::Workload;
use crate::{Error, Gauges, Sensor, Signature, Space};

/// Searches, and restores knobs, however the search ended.
pub(super) fn search(setup: &Setup<'_>, keeper: &mut Keeper<'_>) -> Result<SearchEnd, Error> {
    let (mut machine, space) = Machine::find(&setup.job.parameters, setup.constants)?;
    let result = run(setup, keeper, &mut machine, &space);
    if let Ok(SearchEnd::Yielded(name)) = &result {
        machine.forget(name);
        keeper.release(name)?;
    }
    restore(setup, keeper, &mut machine)?;
    result
}

/// Restores knobs.
pub(super) fn restore(setup: &Setup<'_>, keeper: &mut Keeper<'_>, machine: &mut Machine) -> Result<(), Error> {
    let failures = machine.restore();
    for changed in keeper.store.changed()? {
        match failures.iter().find(|(name, _)| *name == changed.name) {
            // The guardian tries again, and so does the next start.
            Some((name, error)) => (setup.say)(&format!("{name} could not be restored: {error}")),
            None => keeper.release(&changed.name)?,
        }
    }
    Ok(())
}

fn run(setup: &Setup<'_>, keeper: &mut Keeper<'_>, machine: &mut Machine, space: &Space) -> Result<SearchEnd, Error> {
    let job = &setup.job;
    let store = keeper.store;
    let mut runner = TrialRunner::new(job, machine, space, keeper, setup.say);
    let signature = match first_window(setup, &mut runner) {
        Ok(signature) => signature,
        Err(error) => return stopped(setup, store, error, None),
    };
    let open = resume_or_begin(setup, store, space, signature)?;
    let sensors = Workload::sensors(&job.sensors);
    runner.workload = Some(Workload::of(&sensors, open.signature.clone()));
    let mut history = store.history(open.id)?;
    let mut has_switched = open.spec.engine != EngineName::Racing;
    loop {
        let next = open.spec.propose(&history);
        match next.map_err(|source| MachineError::Diverged { search: open.id, source })? {
            Proposal::Done(conclusion) => return conclude(setup, &mut runner, &open, conclusion, &history),
            Proposal::Try(trial) => {
                // A remembered setting is confirmed in pairs, in which switching costs both sides the same.
                let is_first = trial.order == Order::Bracketed && !std::mem::replace(&mut has_switched, true);
                let switched = if is_first { switching::measure(setup, &mut runner, &open, &history) } else { Ok(()) };
                let outcome = switched.and_then(|()| measure(setup, &mut runner, &open, history.len(), &trial));
                match outcome {
                    Ok(outcome) => history.push(Record { trial, outcome }),
                    Err(error) => return stopped(setup, store, error, Some((open.id, history.len()))),
                }
            }
        }
    }
}

/// The workload signature: what the sensors read during a window with the default. Counters that the kernel maintains only
/// on demand are active during this window only.
fn first_window(setup: &Setup<'_>, runner: &mut TrialRunner<'_, Keeper<'_>>) -> Result<Signature, TrialError> {
    let sensors = &setup.job.sensors;
    let (reading, signature) = runner.first_window(&mut Gauges::of(sensors))?;
    (setup.say)(&format!("the default: {}{}", reading.value, readings(&signature, sensors)));
    Ok(signature)
}

/// The reading of each sensor. A sensor without a reading may be a spelling error in the description.
fn readings(signature: &Signature, sensors: &[Sensor]) -> String {
    let reading = |sensor: &Sensor| match signature.0.get(&sensor.name) {
        Some(value) => format!("{} {value:.3}", sensor.name),
        None => format!("{} cannot be read here", sensor.name),
    };
    let readings: Vec<String> = sensors.iter().map(reading).collect();
    if readings.is_empty() {
        String::new()
    } else {
        format!(" ({})", readings.join(", "))
    }
}

/// Makes one trial.
pub(super) fn measure(
    setup: &Setup<'_>,
    runner: &mut TrialRunner<'_, Keeper<'_>>,
    open: &OpenSearch,
    number: usize,
    trial: &Trial,
) -> Result<Outcome, TrialError> {
    let store = runner.keeper.store;
    let (space, to) = (&open.spec.space, setting(&open.spec.space, &trial.point));
    store.begin_trial(open.id, number, trial)?;
    let from = setting(space, &space.default_point());
    let event = json!({ "event": "trial", "search": open.id, "number": number, "from": from, "to": to });
    store.note(&who(), &event)?;
    let start = Instant::now();
    let outcome = runner.trial(trial)?;
    store.end_trial(open.id, number, &outcome)?;
    store.note(&who(), &json!({ "event": "ended", "search": open.id, "number": number, "evidence": outcome }))?;
    if let Outcome::Violated { constraint } = &outcome {
        store.forbid(&setup.job.name, &open.context, &open.signature, &to, constraint)?;
    }
    setup.publish(store, true);
    let left = open.spec.limit.saturating_sub(number + 1) as f64 * start.elapsed().as_secs_f64();
    let result = match &outcome {
        Outcome::Measured(sample) => percent(sample.effect(open.spec.goal)),
        Outcome::Failed { reason, .. } => format!("failed: {reason}"),
        Outcome::Aborted { after } => format!("aborted after {after:.1} s"),
        Outcome::Violated { constraint } => format!("violates a constraint, reverted: {constraint}"),
    };
    let setting = space.describe(&trial.point);
    (setup.say)(&format!("trial {}: {setting}: {result} (at most {:.0} min left)", number + 1, left / 60.0));
    Ok(outcome)
}

/// The end of a search that cannot continue now.
fn stopped(
    setup: &Setup<'_>,
    store: &Store,
    error: TrialError,
    open: Option<(SearchId, usize)>,
) -> Result<SearchEnd, Error> {
    match error {
        TrialError::Interrupted => {
            let (search, trials) = open.unwrap_or_default();
            store.note(&who(), &json!({ "event": "interrupted", "search": search, "trials": trials }))?;
            let sentence = "interrupted; the same command resumes it".into();
            let (kept, front) = (Vec::new(), Vec::new());
            let (conclusion, is_interrupted) = (None, true);
            Ok(SearchEnd::Summary(Summary { search, conclusion, is_interrupted, trials, sentence, kept, front }))
        }
        TrialError::Shifted => {
            let (search, trials) = open.unwrap_or_default();
            (setup.say)("the sensors show another workload: this search waits for the old one");
            store.note(&who(), &json!({ "event": "shifted", "search": search, "trials": trials }))?;
            Ok(SearchEnd::Shifted { search, trials })
        }
        TrialError::Move(MoveError::Yielded { name, expected, found }) => {
            let line = format!(
                "{name} is {found}, but the tuner had left {expected}: something else has set it. The tuner yields it; \
                 `xk tune history` shows when"
            );
            (setup.say)(&line);
            let event = json!({ "event": "yielded", "knob": name, "left_at": expected, "found": found });
            store.note(&who(), &event)?;
            if let Some((search, _)) = open {
                store.end(search, State::Abandoned, None)?;
            }
            Ok(SearchEnd::Yielded(name))
        }
        TrialError::Move(MoveError::Knob { name, error } | MoveError::LeaseEnded { name, error }) => {
            Err(Error::Knob { parameter: name, source: error })
        }
        TrialError::Move(MoveError::Fatal(error)) => Err(error),
    }
}
