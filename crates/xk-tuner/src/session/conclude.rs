//! The end of a search that reached a conclusion: sets and keeps a confirmed setting, and updates the memories.
//!
//! In: the conclusion and the history. Out: the summary. It refuses to keep a setting that was not confirmed, now or
//! earlier: such a setting is no reason to change a machine.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::identity::setting;
use super::open::OpenSearch;
use super::{who, Keeper, SearchEnd, Setup, Summary};
use crate::drift::Drift;
use crate::engine::{Conclusion, EngineName, Ground, SearchSpec};
use crate::error::MachineError;
use crate::front;
use crate::history::{Outcome, Record};
use crate::machine::{KeptKnob, MoveError};
use crate::measure::TrialRunner;
use crate::report::sentence;
use crate::store::{now, KeptSetting, State, Store};
use crate::{Error, Gauges, Point, Signature, Value};

/// Ends a search.
pub(super) fn conclude(
    setup: &Setup<'_>,
    runner: &mut TrialRunner<'_, Keeper<'_>>,
    open: &OpenSearch,
    conclusion: Conclusion,
    history: &[Record],
) -> Result<SearchEnd, Error> {
    let store = runner.keeper.store;
    let best = setting(&open.spec.space, &conclusion.best);
    let memory = remember(setup, store, open, &conclusion, &best, history)?;
    let sentence = sentence(&open.spec.space, &conclusion);
    let confirmed = matches!(conclusion.ground, Ground::Confirmed { .. } | Ground::Remembered { .. });
    let kept = if confirmed { keep(runner, &setup.job.name, &conclusion.best)? } else { Vec::new() };
    let setting = KeptSetting { settle: runner.settle, ..kept_setting(setup, open, memory) };
    if !kept.is_empty() {
        store.keep_setting(&setup.job.name, &setting)?;
    }
    store.end(open.id, State::Done, Some(&conclusion))?;
    if !kept.is_empty() {
        let signature = signature_of_kept(setup, runner, &conclusion.best);
        store.keep_setting(&setup.job.name, &KeptSetting { signature, ..setting })?;
    }
    let front = front::of(&open.spec, history);
    let mut event = json!({ "event": "concluded", "search": open.id, "evidence": conclusion, "kept": kept });
    if !front.is_empty() {
        event["front"] = front.iter().map(|choice| choice.json(&open.spec)).collect();
    }
    store.note(&who(), &event)?;
    let front = front.iter().map(|choice| choice.words(&open.spec)).collect();
    let (search, conclusion, trials) = (open.id, Some(conclusion), history.len());
    Ok(SearchEnd::Summary(Summary { search, conclusion, is_interrupted: false, trials, sentence, kept, front }))
}

/// A setting that was confirmed now. The checks measure its windows afresh: those of a search follow a change.
fn kept_setting(setup: &Setup<'_>, open: &OpenSearch, memory: Option<i64>) -> KeptSetting {
    KeptSetting {
        search: open.id,
        context: open.context.clone(),
        target: setup.job.target.words(),
        memory,
        drift: Drift::default(),
        workload: open.signature.clone(),
        signature: None,
        compared: now(),
        next_comparison: 0,
        settle: Duration::ZERO,
    }
}

/// The workload signature with the kept setting in force, which may differ from that with the default; `None` if a window
/// gives no number, or the search is asked to stop.
fn signature_of_kept(setup: &Setup<'_>, runner: &mut TrialRunner<'_, Keeper<'_>>, kept: &Point) -> Option<Signature> {
    let mut gauges = Gauges::of(&setup.job.sensors);
    let before = gauges.read();
    runner.candidate(kept).ok()?.ok()?;
    let after = gauges.read();
    Some(gauges.between(&before, &after))
}

/// Updates the memories: a new one, more confidence in the one that was tried, or less. Returns the memory of a confirmed
/// setting.
fn remember(
    setup: &Setup<'_>,
    store: &Store,
    open: &OpenSearch,
    conclusion: &Conclusion,
    best: &BTreeMap<String, Value>,
    history: &[Record],
) -> Result<Option<i64>, Error> {
    let remember = |effect| store.remember(&setup.job.name, &open.context, &open.signature, best, effect);
    match &conclusion.ground {
        Ground::Remembered { effect, .. } if !is_weaker(open, *effect) => {
            open.memory.iter().try_for_each(|known| store.confirm(known.id, *effect))?;
            return Ok(open.memory.as_ref().map(|known| known.id));
        }
        Ground::Confirmed { .. } | Ground::Remembered { .. } | Ground::Seen | Ground::Nothing => {}
    }
    if open.spec.warm.is_some() && !open.spec.is_told_nothing() {
        open.memory.iter().try_for_each(|known| store.demote(known.id))?;
    }
    match &conclusion.ground {
        Ground::Confirmed { effect, .. } => remember(effect.middle).map(Some),
        Ground::Remembered { effect, .. } => remember(*effect).map(Some),
        Ground::Nothing if is_complete(&open.spec, history) => remember(0.0).map(|_| None),
        Ground::Seen | Ground::Nothing => Ok(None),
    }
}

/// Whether the remembered setting has lost half of its effect. The next search compares it with the effect that it has
/// now.
fn is_weaker(open: &OpenSearch, effect: f64) -> bool {
    open.spec.warm.as_ref().is_some_and(|warm| effect <= warm.effect / 2.0)
}

/// Whether a search that found nothing better shows that there is nothing better.
///
/// It does if no window failed, and exploration did not run out of trials before it had tried each parameter. A window that
/// failed might succeed another time, with a better setting. A value that a knob does not take is impossible on this machine, so it does not matter. A search
/// that was told so by a memory measured nothing, and shows nothing. Only racing repeats measurements enough for that.
fn is_complete(spec: &SearchSpec, history: &[Record]) -> bool {
    let failed = history.iter().any(|record| matches!(record.outcome, Outcome::Failed { refused: false, .. }));
    let racing = spec.engine == EngineName::Racing;
    racing && !spec.is_told_nothing() && !failed && spec.has_tried_each(history)
}

/// Sets the best setting, and keeps it. What is kept is recorded first: a tuner that dies in between leaves the default, and
/// a record that the next check finds not to be in force.
fn keep(runner: &mut TrialRunner<'_, Keeper<'_>>, search: &str, best: &Point) -> Result<Vec<KeptKnob>, Error> {
    runner.machine.go(runner.space, best, runner.keeper).map_err(unkept)?;
    let kept = runner.machine.to_keep(search);
    kept.iter().try_for_each(|knob| runner.keeper.store.keep(knob))?;
    runner.machine.keep(&kept).map_err(unkept)?;
    kept.iter().try_for_each(|knob| runner.keeper.release(&knob.name))?;
    Ok(kept)
}

fn unkept(error: MoveError) -> Error {
    match error {
        MoveError::Fatal(error) => error,
        MoveError::Knob { name, error } | MoveError::LeaseEnded { name, error } => {
            Error::Knob { parameter: name, source: error }
        }
        MoveError::Yielded { name, found, .. } => MachineError::ChangedAtEnd { parameter: name, found }.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{spec, trial};

    #[test]
    fn a_refused_value_does_not_make_a_search_incomplete() {
        let spec = SearchSpec { limit: 100, ..spec() };
        let complete = |outcome| is_complete(&spec, &[Record { trial: trial(), outcome }]);
        assert!(complete(Outcome::Failed { reason: "a does not take 2: Invalid argument".into(), refused: true }));
        assert!(!complete(Outcome::failed("the target: it failed (exit status: 1)")));
        assert!(complete(Outcome::Aborted { after: 5.0 }));
        assert!(complete(Outcome::Violated { constraint: "p99 = 7, at most 5 is allowed".into() }));
    }

    #[test]
    fn what_an_older_version_recorded_as_failed_may_have_been_anything() {
        let old: Outcome = serde_json::from_str(r#"{"end":"failed","reason":"a does not take 2"}"#).unwrap();
        assert_eq!(old, Outcome::failed("a does not take 2"));
        assert_eq!(serde_json::to_string(&old).unwrap(), r#"{"end":"failed","reason":"a does not take 2"}"#);
    }
}
