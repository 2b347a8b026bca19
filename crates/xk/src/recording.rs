//! The history of changes (`xk-history`): this command's part in it.
//!
//! The devices record changes by themselves. This names the command line, and adds commands that were refused. A change
//! that cannot be recorded is made all the same: a full disk must not keep anybody from reverting a value.

use std::path::{Path, PathBuf};

use xk_history::{Action, Event, HistoryError, Kind};

use crate::exit::{Exit, Failure};
use crate::output::Paint;

/// The directory that `$XK_HISTORY` names, or else that of the system.
pub fn folder() -> PathBuf {
    let named = std::env::var_os("XK_HISTORY").filter(|folder| !folder.is_empty());
    named.map_or_else(|| xk_history::FOLDER.into(), PathBuf::from)
}

/// From now on, changes are recorded.
pub fn keep() {
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy())).collect();
    xk_history::keep(folder(), format!("xk {}", arguments.join(" ")), warn);
}

/// Records that the command was refused, on a machine where it could have changed something.
pub fn refused(failure: &Failure) {
    let is_there = |device: &str| Path::new(device).exists();
    let refused = matches!(failure.exit, Exit::Refused | Exit::Drift | Exit::Blocked);
    if refused && [xk_runtime::DEVICE_PATH, xk_sched::DEVICE_PATH].into_iter().any(is_there) {
        let reason = failure.message.lines().next().unwrap_or_default();
        let event = Event::new(Kind::Command, "", Action::Refused).note(format!("{}: {reason}", failure.exit.word()));
        xk_history::record(vec![event]);
    }
}

fn warn(error: &HistoryError) {
    eprintln!("{} {error}", Paint::stderr().warning("warning:"));
}

/// An argument, as a shell would read it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_command_line_can_be_repeated() {
        assert_eq!(quoted("BLK_MAX_REQUEST_COUNT=128"), "BLK_MAX_REQUEST_COUNT=128");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
