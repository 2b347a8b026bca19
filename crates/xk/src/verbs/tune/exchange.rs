//! Export and import of memories.

use std::path::{Path, PathBuf};

use serde_json::json;
use xk_keys::Keys;
use xk_tuner::description::{folders, Job};
use xk_tuner::exchange;
use xk_tuner::modules;
use xk_tuner::session::{taken, who, SearchIdentity};
use xk_tuner::store::Store;
use xk_tuner::Error as TunerError;

use super::Live;
use crate::exit::{Failure, Result};

/// The directory of other machines' keys, unless `XK_TUNE_KEYS` names another.
const TRUSTED: &str = "/etc/xk/tune-keys";

fn keys(state: &Path) -> Keys {
    let own = std::env::var_os("XK_TUNE_KEYS").filter(|value| !value.is_empty()).map(PathBuf::from);
    Keys::new(state, &own.unwrap_or_else(|| TRUSTED.into()))
}

fn memories(count: usize) -> String {
    if count == 1 {
        "1 memory".into()
    } else {
        format!("{count} memories")
    }
}

/// Prints this machine's key.
pub fn key(state: &Path) -> Result {
    // Creates the directory, if it does not exist.
    Store::open(state)?;
    println!("{}", keys(state).public()?);
    Ok(())
}

/// Writes memories to a file.
pub fn export(state: &Path, file: &Path, search: Option<&str>) -> Result {
    let (store, keys) = (Store::open(state)?, keys(state));
    let count = exchange::export(&store, &keys, search, file)?;
    store.note(&who(), &json!({ "event": "exported", "file": file, "memories": count }))?;
    println!("{}: {}, signed with {}", file.display(), memories(count), keys.public()?);
    Ok(())
}

/// Imports the memories of a file that apply to a search.
pub fn import(state: &Path, file: &Path, search: &Path, live: &Live) -> Result {
    let jobs = Job::read(search, &folders(), &modules::Kernel).map_err(TunerError::from)?;
    let store = Store::open(state)?;
    let taken = taken(&store, &jobs)?;
    let identity = |job: &Job| SearchIdentity::of(job, live, &taken, &live.build_id);
    let searches: Vec<SearchIdentity> = jobs.iter().map(identity).collect::<std::result::Result<_, _>>()?;
    let (imported, key) = exchange::import(&store, &keys(state), &searches, file)?;
    let what = json!({ "event": "imported", "file": file, "key": key.to_string(), "outcome": imported });
    store.note(&who(), &what)?;
    println!(
        "{}: {} imported, {} settings that are not tried here, {} already known",
        file.display(),
        memories(imported.taken),
        imported.forbidden,
        imported.known
    );
    imported.refused.iter().for_each(|why| println!("refused: {why}"));
    if imported.taken + imported.forbidden + imported.known == 0 {
        return Err(Failure::error("nothing in it applies to this search on this machine"));
    }
    Ok(())
}
