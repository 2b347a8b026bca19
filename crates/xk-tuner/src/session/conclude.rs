//! The end of a search that reached a conclusion: sets and keeps a confirmed setting, and updates the memories.
//!
//! In: the conclusion and the history. Out: the summary. It refuses to keep a setting that was not confirmed, now or
//! earlier: such a setting is no reason to change a machine.

use std::collections::BTreeMap;

use serde_json::json;

use super::identity::setting;
use super::open::OpenSearch;
use super::{who, Keeper, SearchEnd, Setup, Summary};
use crate::engine::{Conclusion, EngineName, Ground, SearchSpec};
use crate::error::MachineError;
use crate::front;
use crate::history::{Outcome, Record};
use crate::machine::{KeptKnob, MoveError};
use crate::measure::TrialRunner;
use crate::report::sentence;
use crate::store::{State, Store};
use crate::{Error, Point, Value};

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
    remember(setup, store, open, &conclusion, &best, history)?;
    let sentence = sentence(&open.spec.space, &conclusion);
    let confirmed = matches!(conclusion.ground, Ground::Confirmed { .. } | Ground::Remembered { .. });
    let kept = if confirmed { keep(runner, &setup.job.name, &conclusion.best)? } else { Vec::new() };
    store.end(open.id, State::Done, Some(&conclusion))?;
    let front = front::of(&open.spec, history);
    let mut event = json!({ "event": "concluded", "search": open.id, "evidence": conclusion, "kept": kept });
    if !front.is_empty() {
        event["front"] = front.iter().map(|choice| choice.json(&open.spec)).collect();
    }
    store.note(&who(), &event)?;
    let front = front.iter().map(|choice| choice.words(&open.spec)).collect();
    let (search, conclusion, trials) = (open.id, Some(conclusion), history.len());
    Ok(SearchEnd::Summary(Summary { search, conclusion, trials, sentence, kept, front }))
}

/// Updates the memories: a new one, more confidence in the one that was tried, or less.
fn remember(
    setup: &Setup<'_>,
    store: &Store,
    open: &OpenSearch,
    conclusion: &Conclusion,
    best: &BTreeMap<String, Value>,
    history: &[Record],
) -> Result<(), Error> {
    let remember = |effect| store.remember(&setup.job.name, &open.context, &open.signature, best, effect);
    match &conclusion.ground {
        Ground::Confirmed { effect, .. } => remember(effect.middle)?,
        Ground::Remembered { effect, .. } if is_weaker(open, *effect) => remember(*effect)?,
        Ground::Remembered { .. } => return open.memory.iter().try_for_each(|known| store.confirm(known.id)),
        Ground::Nothing if is_complete(&open.spec, history) => remember(0.0)?,
        Ground::Seen | Ground::Nothing => {}
    }
    let tried = open.spec.warm.is_some() && !open.spec.is_told_nothing();
    match tried {
        true => open.memory.iter().try_for_each(|known| store.demote(known.id)),
        false => Ok(()),
    }
}

/// Whether the remembered setting has lost half of its effect. The next search compares it with the effect that it has
/// now.
fn is_weaker(open: &OpenSearch, effect: f64) -> bool {
    open.spec.warm.as_ref().is_some_and(|warm| effect <= warm.effect / 2.0)
}

/// Whether a search that found nothing better shows that there is nothing better.
///
/// It does if no window failed, and exploration did not run out of trials before it had tried each parameter. A window that failed might succeed another time,
/// with a better setting. A value that a knob does not take is impossible on this machine, so it does not matter. A search
/// that was told so by a memory measured nothing, and shows nothing. Only racing repeats measurements enough for that.
fn is_complete(spec: &SearchSpec, history: &[Record]) -> bool {
    let failed = history.iter().any(|record| matches!(record.outcome, Outcome::Failed { refused: false, .. }));
    let racing = spec.engine == EngineName::Racing;
    racing && !spec.is_told_nothing() && !failed && spec.has_tried_each(history)
}

/// Sets the best setting, and keeps it.
fn keep(runner: &mut TrialRunner<'_, Keeper<'_>>, search: &str, best: &Point) -> Result<Vec<KeptKnob>, Error> {
    let done = runner.machine.go(runner.space, best, runner.keeper).and_then(|()| runner.machine.keep(search));
    let kept = done.map_err(|error| match error {
        MoveError::Fatal(error) => error,
        MoveError::Knob { name, error } | MoveError::LeaseEnded { name, error } => {
            Error::Knob { parameter: name, source: error }
        }
        MoveError::Yielded { name, found, .. } => MachineError::ChangedAtEnd { parameter: name, found }.into(),
    })?;
    for knob in &kept {
        runner.keeper.store.keep(knob)?;
        runner.keeper.release(&knob.name)?;
    }
    Ok(kept)
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
