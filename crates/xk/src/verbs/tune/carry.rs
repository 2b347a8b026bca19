//! Exports remembered settings to other machines, and imports them.

use std::path::{Path, PathBuf};

use serde_json::json;
use xk_tuner::description::{folders, Job};
use xk_tuner::exchange::{self, Keys};
use xk_tuner::modules;
use xk_tuner::session::{who, Place};
use xk_tuner::store::Store;

use super::Live;
use crate::exit::{Failure, Result};

/// The directory of the keys of other machines, unless `XK_TUNE_KEYS` names another.
const TRUSTED: &str = "/etc/xk/tune-keys";

fn keys(state: &Path) -> Keys {
    let own = std::env::var_os("XK_TUNE_KEYS").filter(|value| !value.is_empty()).map(PathBuf::from);
    Keys::new(state, &own.unwrap_or_else(|| TRUSTED.into()))
}

/// Prints this machine's key.
pub fn key(state: &Path) -> Result {
    // Creates the directory, if there is none.
    Store::open(state)?;
    println!("{}", keys(state).public()?);
    Ok(())
}

/// Exports remembered settings.
pub fn export(state: &Path, file: &Path, search: Option<&str>) -> Result {
    let (store, keys) = (Store::open(state)?, keys(state));
    let count = exchange::export(&store, &keys, search, file)?;
    store.note(&who(), &json!({ "event": "exported", "file": file, "memories": count }))?;
    println!("{}: {count} memories, signed with {}", file.display(), keys.public()?);
    Ok(())
}

/// Imports the settings that fit a search of this machine.
pub fn import(state: &Path, file: &Path, search: &Path, live: &Live) -> Result {
    let jobs = Job::read(search, &folders(), &modules::Kernel)?;
    let place = |job: &Job| Place::of(job, live, &live.build_id);
    let places: Vec<Place> = jobs.iter().map(place).collect::<std::result::Result<_, _>>()?;
    let store = Store::open(state)?;
    let (imported, key) = exchange::import(&store, &keys(state), &places, file)?;
    let what = json!({ "event": "imported", "file": file, "key": key.to_string(), "outcome": imported });
    store.note(&who(), &what)?;
    println!(
        "{}: {} memories taken, {} settings that are not tried here, {} known already",
        file.display(),
        imported.taken,
        imported.forbidden,
        imported.known
    );
    imported.refused.iter().for_each(|why| println!("refused: {why}"));
    if imported.taken + imported.forbidden + imported.known == 0 {
        return Err(Failure::error("nothing in it is for this search on this machine"));
    }
    Ok(())
}
