//! Exchange of memories between machines, in a signed file.
//!
//! In: the memories of this machine, or a file. Out: a file, or the memories of it that were imported. It refuses a whole
//! file that was altered or cut off, is of another version, or is signed with an untrusted key. It refuses single
//! memories of another kernel build, hardware or search, and those that this machine cannot set.
//!
//! An imported memory has half confidence: it is tried first, and stays only if it is better here too.

mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use xk_keys::{Format, Keys, PublicKey};

use crate::session::SearchIdentity;
use crate::store::{Context, ExportedMemory, Forbidden, Store};
use crate::Value;

pub use error::{ExchangeError, FileProblem};

const FORMAT: Format = Format { name: "xk tuner memories", version: 1, command: "xk tune export" };

/// The largest size of a file. A thousand memories need less.
const MOST: u64 = 16 << 20;

/// The signed content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    memories: Vec<ExportedMemory>,
    forbidden: Vec<Forbidden>,
}

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Imported {
    /// Number of imported memories.
    pub taken: usize,
    /// Number of settings that violated a constraint elsewhere, and are not tried here.
    pub forbidden: usize,
    /// Number of entries that were already known.
    pub known: usize,
    /// Why the others were refused, each reason once.
    pub refused: Vec<String>,
}

/// Why one entry of a file is refused.
#[derive(Debug, thiserror::Error)]
#[error("search `{search}`: {why}")]
struct Refusal {
    search: String,
    why: Mismatch,
}

/// Why an entry does not apply to this machine.
#[derive(Debug, thiserror::Error)]
enum Mismatch {
    /// It belongs to a search that was not named.
    #[error("is another search")]
    Search,
    /// It was measured in another context.
    #[error("is of another {what}: {theirs}; this machine has {ours}")]
    Other { what: &'static str, theirs: String, ours: String },
    /// The effect is not a positive number.
    #[error("its effect is {0}, but must be above 0")]
    Effect(f64),
    /// A knob or a value does not exist here.
    #[error("this machine cannot set {}", listed(.0))]
    Setting(BTreeMap<String, Value>),
}

fn listed(setting: &BTreeMap<String, Value>) -> String {
    let pairs: Vec<String> = setting.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    pairs.join(", ")
}

/// Writes the memories of one search, or all, to a file. Returns their number.
///
/// # Errors
/// [`ExchangeError`].
pub fn export(store: &Store, keys: &Keys, search: Option<&str>, file: &Path) -> Result<usize, ExchangeError> {
    let wanted = |name: &str| search.is_none_or(|search| search == name);
    let mut memories = store.exportable_memories()?;
    memories.retain(|one| wanted(&one.name));
    let mut forbidden = store.all_forbidden()?;
    forbidden.retain(|one| wanted(&one.name));
    let count = memories.len();
    if count + forbidden.len() == 0 {
        return Err(ExchangeError::file(file, FileProblem::NothingToExport));
    }
    let unwritable = |error| ExchangeError::file(file, FileProblem::Unwritable(error));
    let content = serde_json::to_string(&Content { memories, forbidden }).map_err(unwritable)?;
    let text = FORMAT.seal(keys, content).map_err(|error| ExchangeError::file(file, error))?;
    fs::write(file, text).map_err(|error| ExchangeError::file(file, error))?;
    Ok(count)
}

/// Imports the entries of a file that belong to these searches of this machine.
///
/// # Errors
/// [`ExchangeError`]. If the file was refused, nothing was imported.
pub fn import(
    store: &Store,
    keys: &Keys,
    searches: &[SearchIdentity],
    file: &Path,
) -> Result<(Imported, PublicKey), ExchangeError> {
    let (content, key) = open(keys, file)?;
    let mut imported = Imported::default();
    let mut refused = BTreeSet::new();
    for one in content.memories {
        match applies(searches, &one.name, &one.context, |search| can_be_set(search, &one)) {
            Ok(()) if store.import(&one)? => imported.taken += 1,
            Ok(()) => imported.known += 1,
            Err(why) => {
                refused.insert(why.to_string());
            }
        }
    }
    for one in content.forbidden {
        match applies(searches, &one.name, &one.context, |_| Ok(())) {
            Ok(()) if store.import_forbidden(&one)? => imported.forbidden += 1,
            Ok(()) => imported.known += 1,
            Err(why) => {
                refused.insert(why.to_string());
            }
        }
    }
    imported.refused = refused.into_iter().collect();
    Ok((imported, key))
}

/// The content of a file, if it is unaltered and signed with a trusted key.
fn open(keys: &Keys, file: &Path) -> Result<(Content, PublicKey), ExchangeError> {
    let wrong = |problem| ExchangeError::file(file, problem);
    let text = read(file).map_err(wrong)?;
    let (content, key) = FORMAT.open(keys, &text).map_err(|error| wrong(error.into()))?;
    let content =
        serde_json::from_str(&content).map_err(|source| wrong(FileProblem::Content { key: Box::new(key), source }))?;
    Ok((content, key))
}

fn read(file: &Path) -> Result<String, FileProblem> {
    let mut text = String::new();
    File::open(file)?.take(MOST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MOST {
        true => Err(FileProblem::TooLarge),
        false => Ok(text),
    }
}

/// Checks that an entry belongs to one of these searches on this machine.
fn applies(
    searches: &[SearchIdentity],
    name: &str,
    context: &Context,
    check: impl Fn(&SearchIdentity) -> Result<(), Mismatch>,
) -> Result<(), Refusal> {
    let refused = |why| Refusal { search: name.to_owned(), why };
    let Some(search) = searches.iter().find(|search| search.name == name) else {
        return Err(refused(Mismatch::Search));
    };
    let here = &search.context;
    for (what, theirs, ours) in [
        ("kernel build", &context.build_id, &here.build_id),
        ("hardware", &context.hardware, &here.hardware),
        ("description (parameters, values, guards, target)", &context.schema, &here.schema),
    ] {
        if theirs != ours {
            return Err(refused(Mismatch::Other { what, theirs: theirs.clone(), ours: ours.clone() }));
        }
    }
    check(search).map_err(refused)
}

/// Checks that this machine can set it, and that its effect is an improvement.
fn can_be_set(search: &SearchIdentity, one: &ExportedMemory) -> Result<(), Mismatch> {
    if !one.effect.is_finite() || one.effect <= 0.0 {
        return Err(Mismatch::Effect(one.effect));
    }
    if search.point_of(&one.setting).is_none() {
        return Err(Mismatch::Setting(one.setting.clone()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
