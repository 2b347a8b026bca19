//! Ends tunes, all of them in one transition: for `xk unset` and `xk unload`.

use thiserror::Error;
use xk_runtime::{Change, Destination, Device, Mode, TuneStatus};
use xk_store::Tables;

use crate::transition::{Done, TransitionError, TransitionOptions, Warning};

/// A tune belongs to a running process, and only that process can end it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{title} is {owner}, and reverts to its default when that process ends; nothing was changed")]
pub struct Held {
    /// The constant.
    pub title: String,
    /// The process, in words.
    pub owner: String,
}

/// Refuses to end a tune that belongs to a running process.
///
/// # Errors
/// The first such tune.
pub fn refuse_held(ending: &[&TuneStatus], tables: &Tables) -> Result<(), Held> {
    match ending.iter().find(|tune| !tune.detached) {
        None => Ok(()),
        Some(tune) => Err(Held { title: tables.title_of(tune).to_owned(), owner: tune.owner() }),
    }
}

/// Reverts tunes to their defaults and unloads them. Without a requested mode, uses the strongest mode that one of them was
/// last changed in.
///
/// # Errors
/// The transition is not sound, or did not complete: all values stay.
pub fn end(
    device: &Device,
    ending: &[&TuneStatus],
    options: &TransitionOptions,
    tables: &Tables,
    warn: &dyn Fn(&Warning),
) -> Result<Done, TransitionError> {
    let needed = ending.iter().map(|tune| tune.mode).max().unwrap_or(Mode::Now);
    let known: Vec<_> = ending.iter().map(|tune| (tune, tables.of_tune(&tune.name))).collect();
    let mode = options.mode(needed, known.iter().filter_map(|(_, table)| *table), warn)?;
    for (tune, _) in known.iter().filter(|(_, table)| table.is_none()) {
        options.without_table(tune, mode)?;
    }
    let changes: Vec<Change> = ending.iter().map(|tune| Change { id: tune.id, to: Destination::Unload }).collect();
    Ok(Done { transition: options.run(device, &changes, mode, warn)?, mode })
}

#[cfg(test)]
mod tests {
    use xk_harness::example;

    use super::*;

    #[test]
    fn a_tune_of_a_running_process_is_not_ended() {
        let table = example::table();
        let tables = Tables::of(&table.kernel.build_id.clone(), vec![table]);
        let mut tune = example::tune();
        assert_eq!(refuse_held(&[&tune], &tables), Ok(()));
        tune.detached = false;
        let refused = refuse_held(&[&example::tune(), &tune], &tables).map_err(|held| held.to_string());
        let words = "BLK_MAX_REQUEST_COUNT is held by process 4194305, and reverts to its default";
        assert!(refused.as_ref().is_err_and(|message| message.starts_with(words)), "{refused:?}");
    }
}
