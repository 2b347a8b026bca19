//! The end of tunes, all of them in one transition: what `xk unset` and `xk unload` share.

use xk_runtime::{Change, Destination, Device, Mode, Transition, TuneStatus};

use super::transition::{self, Options};
use crate::context::Tables;
use crate::exit::{Failure, Result};
use crate::tunes::{owner, title_of};

/// A tune that belongs to a process ends with it, and by nothing else.
///
/// # Errors
/// When one does; nothing has changed.
pub fn refuse_held(ending: &[&TuneStatus], tables: &Tables) -> Result {
    match ending.iter().find(|tune| !tune.detached) {
        None => Ok(()),
        Some(tune) => Err(Failure::error(format!(
            "{} is {}, which puts the default back when it ends; nothing was changed",
            title_of(tune, tables),
            owner(tune)
        ))),
    }
}

/// Puts the defaults back, by default in the strictest mode that one of the tunes was in.
///
/// # Errors
/// When the transition is blocked or refused: all values stay.
pub fn end(device: &Device, ending: &[&TuneStatus], options: &Options, tables: &Tables) -> Result<(Transition, Mode)> {
    let needed = ending.iter().map(|tune| tune.mode).max().unwrap_or(Mode::Now);
    let known: Vec<_> = ending.iter().map(|tune| (tune, tables.of_tune(&tune.name))).collect();
    let mode = options.mode(needed, known.iter().filter_map(|(_, table)| *table))?;
    for (tune, _) in known.iter().filter(|(_, table)| table.is_none()) {
        options.without_table(tune, mode)?;
    }
    let changes: Vec<Change> = ending.iter().map(|tune| Change { id: tune.id, to: Destination::Unload }).collect();
    Ok((options.run(device, &changes, mode).map_err(transition::failure)?, mode))
}

/// What there is now, and how it came about.
pub fn show(ended: &[&TuneStatus], tables: &Tables, (done, mode): &(Transition, Mode)) {
    for tune in ended {
        println!("{} = {} (its default)", title_of(tune, tables), tune.default);
    }
    println!("{}", transition::describe(done, *mode));
}
