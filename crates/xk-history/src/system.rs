//! Entries in the journal of systemd, where it runs.

use libsystemd::logging::{journal_send, Priority};

use crate::entry::{Action, Entry};

/// Sends the entries. Without systemd, they are in the file only.
pub(crate) fn tell(entries: &[Entry]) {
    for entry in entries {
        let event = &entry.event;
        let priority = if event.action == Action::Refused { Priority::Warning } else { Priority::Notice };
        let number = |state: &Option<crate::State>| state.as_ref().map(ToString::to_string).unwrap_or_default();
        let fields = [
            ("SYSLOG_IDENTIFIER", "xk".to_owned()),
            ("XK_KIND", event.kind.word().to_owned()),
            ("XK_ACTION", event.action.word().to_owned()),
            ("XK_NAME", event.name.clone()),
            ("XK_FROM", number(&event.from)),
            ("XK_TO", number(&event.to)),
            ("XK_USER", entry.who.user.clone()),
            ("XK_COMMAND", entry.command.clone()),
        ];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
        // There may be no systemd: then there is nobody to tell.
        let _ = journal_send(priority, &message(entry), fields);
    }
}

/// The entry as a line.
fn message(entry: &Entry) -> String {
    let Entry { event, who, command, .. } = entry;
    let parts = [event.name.as_str(), event.action.word(), &event.states(), event.note.as_deref().unwrap_or_default()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}, by {} (`{command}`)", parts.join(" "), who.user)
}
