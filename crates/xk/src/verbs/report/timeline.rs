//! The history as a time line: a row for each name, a dot for each change, a bar where it is not the default.

use jiff::tz::TimeZone;
use jiff::Timestamp;
use xk_history::{Action, Entry, Kind};

use crate::output::moment;
use crate::verbs::history::{details, Names};

/// More rows do not fit on a sheet.
const ROWS: usize = 20;
const ROW: f64 = 24.0;
const WIDTH: f64 = 900.0;
/// Space for names.
const LEFT: f64 = 260.0;
/// A longer name is cut.
const LONGEST: usize = 36;

/// The line.
pub(super) struct Timeline {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub rows: Vec<Row>,
    /// Where the machine booted.
    pub boots: Vec<f64>,
    pub first: String,
    pub last: String,
    /// Names that have no row.
    pub hidden: usize,
}

/// What happened to one thing.
pub(super) struct Row {
    pub label: String,
    pub y: f64,
    pub spans: Vec<(f64, f64)>,
    pub marks: Vec<Mark>,
}

/// A change.
pub(super) struct Mark {
    pub x: f64,
    pub refused: bool,
    pub title: String,
}

/// Where moments are.
struct Scale {
    first: i64,
    last: i64,
}

impl Scale {
    fn x(&self, at: Timestamp) -> f64 {
        let part = (at.as_second() - self.first) as f64 / (self.last - self.first).max(1) as f64;
        // The dots at both ends are whole.
        LEFT + 6.0 + part.clamp(0.0, 1.0) * (WIDTH - LEFT - 12.0)
    }
}

impl Timeline {
    /// `None` without entries. `boot` is the present one.
    pub fn of(entries: &[Entry], boot: &str, names: &Names, now: Timestamp, zone: &TimeZone) -> Option<Self> {
        let first = entries.first()?;
        let scale = Scale { first: first.at.as_second(), last: now.as_second() };
        let mut keys: Vec<(Kind, &str)> = Vec::new();
        for entry in entries.iter().rev() {
            let key = (entry.event.kind, entry.event.name.as_str());
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let hidden = keys.len().saturating_sub(ROWS);
        keys.truncate(ROWS);
        let row = |(index, key): (usize, &(Kind, &str))| {
            let own: Vec<&Entry> =
                entries.iter().filter(|entry| (entry.event.kind, &*entry.event.name) == *key).collect();
            Row {
                label: own.first().map_or_else(String::new, |entry| label(names.title(entry))),
                y: ROW * (index as f64 + 0.5),
                spans: spans(&own, entries, boot, now, &scale),
                marks: own.iter().map(|entry| mark(entry, &scale, zone)).collect(),
            }
        };
        let boots = entries.windows(2).filter(|pair| pair[0].boot != pair[1].boot).map(|pair| scale.x(pair[1].at));
        Some(Self {
            width: WIDTH,
            height: ROW * keys.len() as f64 + 24.0,
            left: LEFT,
            rows: keys.iter().enumerate().map(row).collect(),
            boots: boots.collect(),
            first: moment(first.at.as_second(), zone),
            last: moment(now.as_second(), zone),
            hidden,
        })
    }
}

/// A command that was refused changes nothing that has a name.
fn label(title: &str) -> String {
    match title.chars().count() {
        0 => "refused commands".into(),
        1..=LONGEST => title.to_owned(),
        _ => format!("{}…", title.chars().take(LONGEST - 1).collect::<String>()),
    }
}

fn mark(entry: &Entry, scale: &Scale, zone: &TimeZone) -> Mark {
    let (event, at) = (&entry.event, moment(entry.at.as_second(), zone));
    let title = format!("{at}: {} {}, by {}", event.action.word(), details(event, zone), entry.who.user);
    Mark { x: scale.x(entry.at), refused: event.action == Action::Refused, title }
}

/// Whether it is not the default after the event; `None`: the event does not tell.
fn differs(entry: &Entry) -> Option<bool> {
    match entry.event.action {
        Action::Set | Action::Policy | Action::Keep | Action::Attach | Action::Found => Some(true),
        Action::Revert | Action::Ended => Some(false),
        Action::Lease | Action::Choose | Action::Adjust | Action::Refused => None,
    }
}

/// From each change to the next one that ends it: an entry, the next boot that the history knows, or now.
fn spans(own: &[&Entry], all: &[Entry], boot: &str, now: Timestamp, scale: &Scale) -> Vec<(f64, f64)> {
    let mut spans = Vec::new();
    let mut since: Option<&Entry> = None;
    let end_of_boot = |start: &Entry| {
        // A file of the tuner keeps its value, and a boot reverts everything else.
        if start.boot == boot || start.event.kind == Kind::Knob {
            return now;
        }
        let after = all.iter().skip_while(|entry| entry.boot != start.boot).find(|entry| entry.boot != start.boot);
        after.map_or(now, |entry| entry.at)
    };
    for entry in own {
        if let Some(start) = since.filter(|start| start.boot != entry.boot && start.event.kind != Kind::Knob) {
            spans.push((scale.x(start.at), scale.x(end_of_boot(start))));
            since = None;
        }
        match (differs(entry), since) {
            (Some(true), None) => since = Some(entry),
            (Some(false), Some(start)) => {
                spans.push((scale.x(start.at), scale.x(entry.at)));
                since = None;
            }
            _ => {}
        }
    }
    spans.extend(since.map(|start| (scale.x(start.at), scale.x(end_of_boot(start)))));
    spans
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use xk_history::{Event, Who};

    use super::*;

    fn entry(second: i64, boot: &str, name: &str, action: Action) -> Entry {
        let who = Who { user: "alice".into(), uid: 1000, pid: 42 };
        let event = Event::new(Kind::Constant, name, action);
        Entry { at: Timestamp::from_second(second).unwrap(), boot: boot.into(), who, command: "xk".into(), event }
    }

    fn line(entries: &[Entry], now: i64) -> Timeline {
        let names = Names::none();
        Timeline::of(entries, "b", &names, Timestamp::from_second(now).unwrap(), &TimeZone::UTC).unwrap()
    }

    #[test]
    fn bars_end_with_a_revert_a_boot_or_now() {
        let entries = [
            entry(0, "a", "A", Action::Set),
            entry(10, "a", "A", Action::Revert),
            entry(20, "a", "A", Action::Set),
            entry(50, "b", "B", Action::Set),
        ];
        let line = line(&entries, 100);
        let scale = Scale { first: 0, last: 100 };
        let x = |second: i64| scale.x(Timestamp::from_second(second).unwrap());
        assert_eq!(
            line.rows.iter().map(|row| row.label.as_str()).collect::<Vec<_>>(),
            ["B", "A"],
            "the last change first"
        );
        assert_eq!(line.rows[0].spans, [(x(50), x(100))]);
        assert_eq!(line.rows[1].spans, [(x(0), x(10)), (x(20), x(50))], "the boot ends it");
        assert_eq!((line.boots.clone(), line.rows[1].marks.len()), (vec![x(50)], 3));
    }

    #[test]
    fn many_names_are_counted() {
        let entries: Vec<Entry> = (0..25).map(|n| entry(n, "b", &format!("C{n}"), Action::Set)).collect();
        let line = line(&entries, 100);
        assert_eq!((line.rows.len(), line.hidden, line.rows[0].label.as_str()), (ROWS, 5, "C24"));
        assert!(Timeline::of(&[], "b", &Names::none(), Timestamp::UNIX_EPOCH, &TimeZone::UTC).is_none());
        assert_eq!(label(&"x".repeat(50)).chars().count(), LONGEST);
    }
}
