//! The history of changes: who changed what, when, from what to what.
//!
//! The crates that talk to the kernel call [`record`] after each change that succeeded. So no command can forget it.
//! Nothing is recorded until [`keep`] was called: tests and benchmarks change the kernel, too. The change is in force when
//! [`record`] is called, so it never fails: it warns that the change is missing in the history. [`noticed`] compares the
//! history with what is in force, and finds what ended without a command: by a lease, or with its process.
//!
//! Refuses nothing, and changes nothing but its own file.

mod entry;
mod journal;
mod notice;
mod system;
mod who;

use std::path::PathBuf;
use std::sync::OnceLock;

use jiff::Timestamp;

pub use entry::{Action, Entry, Event, Kind, State};
pub use journal::boot;
pub use journal::{History, HistoryError, Journal};
pub use notice::{noticed, InForce};
pub use who::Who;

/// The directory of the journal.
pub const FOLDER: &str = "/var/lib/xk/history";

struct Keeper {
    journal: Journal,
    command: String,
    warn: fn(&HistoryError),
}

static KEEPER: OnceLock<Keeper> = OnceLock::new();

/// From now on, the changes of this process are recorded in `folder`. `command` is its command line. `warn` is told why a
/// change is missing in the history.
pub fn keep(folder: PathBuf, command: String, warn: fn(&HistoryError)) {
    // The second call of a process changes nothing.
    let _ = KEEPER.set(Keeper { journal: Journal::at(folder), command, warn });
}

/// Whether [`keep`] was called. If not, a caller of [`record`] need not find out what changes.
#[must_use]
pub fn is_kept() -> bool {
    KEEPER.get().is_some()
}

/// Records changes that were made together.
pub fn record(events: Vec<Event>) {
    let Some(keeper) = KEEPER.get().filter(|_| !events.is_empty()) else { return };
    let (at, boot, who) = (Timestamp::now(), journal::boot(), Who::caller());
    let entry = |event| Entry { at, boot: boot.clone(), who: who.clone(), command: keeper.command.clone(), event };
    let entries: Vec<Entry> = events.into_iter().map(entry).collect();
    system::tell(&entries);
    if let Err(error) = keeper.journal.append(&entries) {
        (keeper.warn)(&error);
    }
}
