//! `xk history`: who changed what, when, from what to what.
//!
//! What the kernel ended by itself is found now, and recorded: by a lease, or with its process.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde_json::{json, Value};
use xk_history::{noticed, Action, Entry, Event, History, InForce, Journal};
use xk_kernel::KernelId;
use xk_runtime::{Device, Error as RuntimeError};
use xk_store::{Folders, Tables};

use crate::exit::{Failure, Result};
use crate::output::{count, moment, print_json, to_json, Columns, Paint};
use crate::recording;

/// A command that has just changed something may not have recorded it yet.
const RECORDING: Duration = Duration::from_millis(200);

/// Arguments of `xk history`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: xk history --since '2 days' --name BLK_MAX_REQUEST_COUNT

The history has each change of a constant, a policy, a kept setting of a search, kept probes and the choice of a
scheduler, and the commands that were refused. It is in /var/lib/xk/history ($XK_HISTORY), for root only, and in
the journal of the system: journalctl -t xk. `xk tune history` has the trials of searches.

A change that the disk cannot record is made, with a warning. What ended by a lease or with a process is recorded
when this command finds it.")]
pub struct Args {
    /// Changes since a moment (2026-11-29, '2026-11-29 10:00') or for so long ('2 days', 90min)
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Timestamp>,
    /// Changes of this constant, parameter, knob, attachment or policy, and refused commands that name it
    #[arg(long)]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Shows it.
pub fn run(args: &Args) -> Result {
    let names = Names::read();
    let mut history = current()?;
    let is_meant = |entry: &Entry| {
        args.since.is_none_or(|since| entry.at >= since)
            && args.name.as_deref().is_none_or(|name| names.means(entry, name))
    };
    history.entries.retain(is_meant);
    if args.json {
        let entries: Vec<Value> = history.entries.iter().map(|entry| names.json(entry)).collect();
        print_json(json!({ "entries": entries, "damaged": history.damaged }));
        return Ok(());
    }
    print!("{}", text(&history.entries, &names, &TimeZone::system(), Paint::stdout()));
    if history.damaged > 0 {
        println!("{} cannot be read: a power loss, or a newer version", count(history.damaged, "line"));
    }
    Ok(())
}

/// The history, with what ended without a command.
///
/// # Errors
/// It cannot be read.
pub fn current() -> Result<History> {
    let journal = Journal::at(recording::folder());
    let missing = |history: &History| -> Vec<Event> {
        let boot = xk_history::boot();
        in_force().map(|now| noticed(&history.entries, &now, &boot, Timestamp::now())).unwrap_or_default()
    };
    let history = journal.read()?;
    let first = missing(&history);
    if first.is_empty() {
        return Ok(history);
    }
    std::thread::sleep(RECORDING);
    let second = missing(&journal.read()?);
    xk_history::record(second.into_iter().filter(|event| first.contains(event)).collect());
    Ok(journal.read()?)
}

/// What the kernel says is in force; `None` if it cannot be asked.
fn in_force() -> Option<Vec<InForce>> {
    let Some(device) = Device::open_to_read_if_loaded().ok()? else { return Some(Vec::new()) };
    let ask = || -> std::result::Result<_, RuntimeError> { Ok((device.tunes()?, device.probes()?)) };
    let (tunes, probes) = ask().ok()?;
    Some(tunes.iter().map(|tune| tune.in_force()).chain(probes.iter().map(|probes| probes.in_force())).collect())
}

/// Names of constants: the history has their IDs.
pub struct Names(Option<Tables>);

impl Names {
    /// Those of the tables of this kernel. Without tables, IDs are shown.
    pub fn read() -> Self {
        let tables =
            KernelId::live().ok().and_then(|kernel| Tables::read(&Folders::from_environment(), &kernel.build_id).ok());
        Self(tables)
    }

    /// No names.
    #[cfg(test)]
    pub fn none() -> Self {
        Self(None)
    }

    /// How an entry is named.
    pub fn title<'a>(&'a self, entry: &'a Entry) -> &'a str {
        let name = &entry.event.name;
        self.0.as_ref().and_then(|tables| tables.alias(name)).unwrap_or(name)
    }

    fn means(&self, entry: &Entry, wanted: &str) -> bool {
        let event = &entry.event;
        let is_part = || event.name.split(':').any(|part| part == wanted);
        let is_named = || entry.command.split(|c: char| c.is_whitespace() || c == '=').any(|word| word == wanted);
        event.name == wanted
            || self.title(entry) == wanted
            || is_part()
            || (event.action == Action::Refused && is_named())
    }

    fn json(&self, entry: &Entry) -> Value {
        let mut value = to_json(entry);
        value["title"] = self.title(entry).into();
        value
    }
}

/// The entries as lines, with a line for each boot between them.
fn text(entries: &[Entry], names: &Names, zone: &TimeZone, paint: Paint) -> String {
    let mut text = String::new();
    for boot in entries.chunk_by(|a, b| a.boot == b.boot) {
        if !text.is_empty() {
            text += &paint.dim("-- boot: the kernel has its defaults; files keep what they have --");
            text.push('\n');
        }
        let mut columns = Columns::default();
        for entry in boot {
            columns.row([
                moment(entry.at.as_second(), zone),
                entry.who.user.clone(),
                names.title(entry).to_owned(),
                entry.event.action.word().to_owned(),
                details(&entry.event, zone),
                format!("`{}`", entry.command),
            ]);
        }
        text += &columns.lines("");
    }
    text
}

/// States, the end, and what else is known.
pub fn details(event: &Event, zone: &TimeZone) -> String {
    let until = event.until.map(|until| format!("until {}", moment(until.as_second(), zone)));
    let parts = [Some(event.states()), until, event.note.clone()];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// A moment, or the time that has passed since.
fn since(text: &str) -> std::result::Result<Timestamp, String> {
    moment_of(text, Timestamp::now(), &TimeZone::system()).ok_or_else(|| {
        format!("`{text}` is neither a moment (2026-11-29, '2026-11-29 10:00') nor a time ('2 days', 90min)")
    })
}

fn moment_of(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment);
    }
    if let Ok(date) = text.parse::<DateTime>() {
        return zone.to_timestamp(date).ok();
    }
    let span = text.parse::<Span>().ok()?.abs();
    now.to_zoned_datetime(zone.clone()).checked_sub(span).ok().map(|moment| moment.timestamp())
}

impl From<xk_history::HistoryError> for Failure {
    fn from(error: xk_history::HistoryError) -> Self {
        Self::error(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use xk_history::{Kind, Who};

    use super::*;

    fn entry(second: i64, boot: &str, command: &str, event: Event) -> Entry {
        let who = Who { user: "alice".into(), uid: 1000, pid: 42 };
        let (at, command) = (Timestamp::from_second(second).unwrap(), command.into());
        Entry { at, boot: boot.into(), who, command, event }
    }

    fn entries() -> Vec<Entry> {
        let id = "block/blk.h:L335:BLK_MAX_REQUEST_COUNT:0";
        let set = Event::new(Kind::Constant, id, Action::Set).from(32).to(128);
        let lease = Event::new(Kind::Constant, id, Action::Lease).until(Timestamp::from_second(600).ok());
        let refused = Event::new(Kind::Command, "", Action::Refused).note("refused: 0 is not accepted");
        vec![
            entry(0, "a", "xk set BLK_MAX_REQUEST_COUNT=128 --for 10min", set),
            entry(0, "a", "xk set BLK_MAX_REQUEST_COUNT=128 --for 10min", lease),
            entry(100, "b", "xk set SHRINK_BATCH=0", refused),
        ]
    }

    #[test]
    fn each_change_is_a_line_and_each_boot_another() {
        let shown = text(&entries(), &Names::none(), &TimeZone::UTC, Paint::PLAIN);
        let id = "block/blk.h:L335:BLK_MAX_REQUEST_COUNT:0";
        let expected = format!(
            "1970-01-01 00:00:00 +00:00  alice  {id}  set    32 -> 128                         \
             `xk set BLK_MAX_REQUEST_COUNT=128 --for 10min`\n\
             1970-01-01 00:00:00 +00:00  alice  {id}  lease  until 1970-01-01 00:10:00 +00:00  \
             `xk set BLK_MAX_REQUEST_COUNT=128 --for 10min`\n\
             -- boot: the kernel has its defaults; files keep what they have --\n\
             1970-01-01 00:01:40 +00:00  alice    refused  refused: 0 is not accepted  `xk set SHRINK_BATCH=0`\n"
        );
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_name_selects_its_changes_and_the_commands_that_were_refused_for_it() {
        let selected =
            |name: &str| -> Vec<bool> { entries().iter().map(|entry| Names::none().means(entry, name)).collect() };
        assert_eq!(selected("BLK_MAX_REQUEST_COUNT"), [true, true, false]);
        assert_eq!(selected("block/blk.h:L335:BLK_MAX_REQUEST_COUNT:0"), [true, true, false]);
        assert_eq!(selected("SHRINK_BATCH"), [false, false, true]);
        assert_eq!(selected("SHRINK"), [false; 3]);
    }

    #[test]
    fn a_moment_is_a_date_a_time_or_a_span() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let at = |text: &str| moment_of(text, now, &TimeZone::UTC).map(|moment| moment.to_string());
        assert_eq!(at("2026-11-28").as_deref(), Some("2026-11-28T00:00:00Z"));
        assert_eq!(at("2026-11-28 10:30").as_deref(), Some("2026-11-28T10:30:00Z"));
        assert_eq!(at("2026-11-28T10:30:00Z").as_deref(), Some("2026-11-28T10:30:00Z"));
        assert_eq!(at("2 days").as_deref(), Some("2026-11-27T12:00:00Z"));
        assert_eq!(at("90min").as_deref(), Some("2026-11-29T10:30:00Z"));
        assert_eq!(at("2 days ago").as_deref(), Some("2026-11-27T12:00:00Z"));
        assert_eq!(at("yesterday"), None);
    }
}
