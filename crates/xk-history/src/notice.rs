//! What changed without a command: the history compared with what is in force.
//!
//! A lease ends a tune in the kernel, and a tune that is held ends with its process. Nobody is there to record it, and the
//! history would still claim that the value is in force.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::entry::{Action, Entry, Event, Kind, State};

/// Something that the kernel says is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its state, as entries describe it.
    pub state: State,
    /// It outlives the process that made it. The trials of a search do not, and are not recorded.
    pub outlives: bool,
}

/// What the history says of one thing.
struct Known<'a> {
    state: &'a State,
    until: Option<Timestamp>,
}

/// The events that are missing in `entries`: what has ended, and what is in force and was not recorded. `boot` is the
/// present boot.
#[must_use]
pub fn noticed(entries: &[Entry], in_force: &[InForce], boot: &str, now: Timestamp) -> Vec<Event> {
    let known = known(entries, boot);
    let ended = known.iter().filter(|((kind, name), _)| {
        let is_there = |one: &InForce| one.kind == *kind && one.name == *name;
        !in_force.iter().any(is_there)
    });
    let ended = ended.map(|((kind, name), known)| {
        let why = match known.until {
            Some(until) if until <= now => "its lease has ended",
            _ => "its process has ended, or its module was removed",
        };
        Event::new(*kind, *name, Action::Ended).from(known.state.clone()).until(known.until).note(why)
    });
    let found = in_force.iter().filter(|one| {
        let known = known.get(&(one.kind, one.name.as_str()));
        one.outlives && known.is_none_or(|known| *known.state != one.state)
    });
    let found = found.map(|one| {
        Event::new(one.kind, &one.name, Action::Found).to(one.state.clone()).note("the change was not recorded")
    });
    ended.chain(found).collect()
}

/// What is in force, if the history of this boot is complete.
fn known<'a>(entries: &'a [Entry], boot: &str) -> BTreeMap<(Kind, &'a str), Known<'a>> {
    let mut known: BTreeMap<(Kind, &str), Known<'_>> = BTreeMap::new();
    for event in entries.iter().filter(|entry| entry.boot == boot).map(|entry| &entry.event) {
        // Files keep their values, and threads end: the kernel lists neither of them.
        if !matches!(event.kind, Kind::Constant | Kind::Probe) {
            continue;
        }
        let key = (event.kind, event.name.as_str());
        match (event.action, &event.to) {
            (Action::Lease, _) => {
                if let Some(known) = known.get_mut(&key) {
                    known.until = event.until;
                }
            }
            (Action::Revert | Action::Ended, _) => {
                known.remove(&key);
            }
            (_, Some(state)) => {
                known.insert(key, Known { state, until: event.until });
            }
            (_, None) => {}
        }
    }
    known
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Who;

    /// An entry of the boot `now`.
    pub(crate) fn entry(event: Event) -> Entry {
        let who = Who { user: "alice".into(), uid: 1000, pid: 42 };
        let command = "xk set A=64".into();
        Entry { at: Timestamp::from_second(1_000).unwrap(), boot: "now".into(), who, command, event }
    }

    fn set(to: i64) -> Entry {
        entry(Event::new(Kind::Constant, "A", Action::Set).from(32).to(to))
    }

    fn tune(value: i64) -> InForce {
        InForce { kind: Kind::Constant, name: "A".into(), state: value.into(), outlives: true }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_agrees_is_not_noticed() {
        assert!(noticed(&[], &[], "now", at(2_000)).is_empty());
        assert!(noticed(&[set(64)], &[tune(64)], "now", at(2_000)).is_empty());
        let revert = entry(Event::new(Kind::Constant, "A", Action::Revert).from(64).to(32));
        assert!(noticed(&[set(64), revert.clone()], &[], "now", at(2_000)).is_empty());
        let trial = InForce { outlives: false, ..tune(128) };
        assert!(noticed(&[set(64), revert], &[trial], "now", at(2_000)).is_empty(), "a trial is not recorded");
        assert!(noticed(&[set(64)], &[], "next", at(2_000)).is_empty(), "a boot reverts everything");
    }

    #[test]
    fn a_lease_and_a_process_that_ended_are_told_apart() {
        let lease = entry(Event::new(Kind::Constant, "A", Action::Lease).until(Some(at(1_500))));
        let why = |entries: &[Entry], now| {
            let events = noticed(entries, &[], "now", at(now));
            assert_eq!((events.len(), events[0].action, events[0].from.clone()), (1, Action::Ended, Some(64.into())));
            events[0].note.clone().unwrap()
        };
        assert_eq!(why(&[set(64), lease.clone()], 2_000), "its lease has ended");
        assert!(why(&[set(64), lease.clone()], 1_400).starts_with("its process"));
        assert!(why(&[set(64)], 2_000).starts_with("its process"));
        // What was noticed once is not noticed again.
        let ended = entry(noticed(&[set(64), lease.clone()], &[], "now", at(2_000)).remove(0));
        assert!(noticed(&[set(64), lease, ended], &[], "now", at(2_000)).is_empty());
    }

    #[test]
    fn a_value_that_nobody_recorded_is_found_once() {
        let events = noticed(&[set(64)], &[tune(128)], "now", at(2_000));
        assert_eq!((events.len(), events[0].action, events[0].to.clone()), (1, Action::Found, Some(128.into())));
        assert!(noticed(&[set(64), entry(events[0].clone())], &[tune(128)], "now", at(2_000)).is_empty());
    }
}
