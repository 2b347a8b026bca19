//! Tunes and attachments as the history describes them (`xk-history`).

use std::time::Duration;

use jiff::Timestamp;
use xk_history::{Action, Event, InForce, Kind, State};

use crate::status::TuneStatus;

/// What decides the value of a tune.
fn state(tune: &TuneStatus) -> State {
    match &tune.policy {
        Some(policy) => policy_of(Some(policy.program)),
        None => tune.value.into(),
    }
}

/// A policy, by the number of its program.
pub(crate) fn policy_of(program: Option<u32>) -> State {
    program.map_or("a policy".into(), |program| format!("the policy of program {program}")).into()
}

/// A change of `tune` to another state; `None` if it has this state.
pub(crate) fn change(tune: &TuneStatus, action: Action, to: State) -> Option<Event> {
    let from = state(tune);
    (from != to).then(|| Event::new(Kind::Constant, &tune.name, action).from(from).to(to))
}

/// A search lets a tune outlive it.
pub(crate) fn kept(tune: &TuneStatus) -> Event {
    Event::new(Kind::Constant, &tune.name, Action::Keep).from(tune.default).to(state(tune))
}

/// The end of a tune is set to this time from now, or cancelled; `None` if there was none, and is none.
pub(crate) fn lease(kind: Kind, name: &str, before: Option<Duration>, lease: Option<Duration>) -> Option<Event> {
    let until = lease.and_then(|lease| Timestamp::now().checked_add(lease).ok());
    let to = if lease.is_some() { "ends by itself" } else { "stays" };
    (before.is_some() || lease.is_some()).then(|| Event::new(kind, name, Action::Lease).to(to).until(until))
}

impl TuneStatus {
    /// What is in force, for [`xk_history::noticed`].
    #[must_use]
    pub fn in_force(&self) -> InForce {
        let state = state(self);
        // A tune with its default in force changes nothing.
        let outlives = self.detached && state != State::Value(self.default);
        InForce { kind: Kind::Constant, name: self.name.clone(), state, outlives }
    }
}
