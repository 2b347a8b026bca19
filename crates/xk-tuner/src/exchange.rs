//! Memories that go from one machine to another: what is remembered, in a signed file.
//!
//! In: the memory of this machine, or a file. Out: a file, or what of it was taken. Refuses as a whole: a file that was
//! altered, cut off, or made by another version; a key that nobody here trusts. Refuses one by one: what is of another
//! kernel build, hardware or search, and what this machine could not set.
//!
//! What is taken is believed half: it is tried first, and kept only if it is better here, too.

mod key;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use ed25519_dalek::{Signature as Seal, Signer};
use serde::{Deserialize, Serialize};

use crate::session::Place;
use crate::store::{Context, Forbidden, Remembrance, Store};
use crate::{Error, Value};

pub use key::{KeyError, Keys, PublicKey};

/// What the files call themselves.
const FORMAT: &str = "xk tuner memories";

/// The version that this program writes and reads.
const VERSION: u32 = 1;

/// More than a thousand memories take.
const MOST: u64 = 16 << 20;

/// The file. What is signed is a text within, so that it is signed as it stands.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    format: String,
    version: u32,
    key: String,
    signature: String,
    content: String,
}

/// What is signed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    memories: Vec<Remembrance>,
    forbidden: Vec<Forbidden>,
}

/// What became of a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Imported {
    /// Memories that were taken.
    pub taken: usize,
    /// Settings that crossed a limit elsewhere, and will not be tried here.
    pub forbidden: usize,
    /// What was there already.
    pub known: usize,
    /// Why the others were not taken, each reason once.
    pub refused: Vec<String>,
}

/// Why one entry of a file is not taken.
#[derive(Debug, thiserror::Error)]
#[error("search `{search}`: {why}")]
struct Refusal {
    search: String,
    why: Unfit,
}

/// What does not fit this machine.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    /// No search of this machine has the name.
    #[error("is another search")]
    Search,
    /// It was measured somewhere else.
    #[error("is of another {what}: {theirs}; here it is {ours}")]
    Other { what: &'static str, theirs: String, ours: String },
    /// The effect is not a positive number.
    #[error("an effect of {0} is none")]
    Effect(f64),
    /// A knob or a value does not exist here.
    #[error("this machine cannot set {}", listed(.0))]
    Setting(BTreeMap<String, Value>),
}

fn listed(setting: &BTreeMap<String, Value>) -> String {
    let pairs: Vec<String> = setting.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    pairs.join(", ")
}

/// The bytes that are signed: those of no other format or version can be taken for them.
fn signed(content: &str) -> Vec<u8> {
    format!("{FORMAT} {VERSION}\n{content}").into_bytes()
}

/// Writes what is remembered, of one search or all; how many memories that are.
///
/// # Errors
/// [`Error::Exchange`], [`Error::Store`], [`Error::Io`].
pub fn export(store: &Store, keys: &Keys, search: Option<&str>, file: &Path) -> Result<usize, Error> {
    let wanted = |name: &str| search.is_none_or(|search| search == name);
    let mut memories = store.remembrances()?;
    memories.retain(|one| wanted(&one.name));
    let mut forbidden = store.all_forbidden()?;
    forbidden.retain(|one| wanted(&one.name));
    let count = memories.len();
    if count + forbidden.len() == 0 {
        return Err(wrong(file, "nothing is remembered that could be exported".into()));
    }
    let unwritable = |error: serde_json::Error| wrong(file, error.to_string());
    let content = serde_json::to_string(&Content { memories, forbidden }).map_err(unwritable)?;
    let key = keys.own()?;
    let envelope = Envelope {
        format: FORMAT.into(),
        version: VERSION,
        key: PublicKey::of(&key).to_string(),
        signature: hex(&key.sign(&signed(&content)).to_bytes()),
        content,
    };
    let text = serde_json::to_string_pretty(&envelope).map_err(unwritable)?;
    fs::write(file, text + "\n").map_err(|error| Error::io(file, error))?;
    Ok(count)
}

/// Takes what a file holds for these searches of this machine.
///
/// # Errors
/// [`Error::Exchange`], [`Error::Store`], [`Error::Io`]: nothing was taken.
pub fn import(store: &Store, keys: &Keys, places: &[Place], file: &Path) -> Result<(Imported, PublicKey), Error> {
    let (content, key) = open(keys, file)?;
    let mut imported = Imported::default();
    let mut refused = BTreeSet::new();
    for one in content.memories {
        match fits(places, &one.name, &one.context, |place| sensible(place, &one)) {
            Ok(()) if store.import(&one)? => imported.taken += 1,
            Ok(()) => imported.known += 1,
            Err(why) => {
                refused.insert(why.to_string());
            }
        }
    }
    for one in content.forbidden {
        match fits(places, &one.name, &one.context, |_| Ok(())) {
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

/// What a file holds, if it is whole and signed by somebody who is trusted.
fn open(keys: &Keys, file: &Path) -> Result<(Content, PublicKey), Error> {
    let mut text = String::new();
    File::open(file)
        .and_then(|opened| opened.take(MOST + 1).read_to_string(&mut text))
        .map_err(|error| Error::io(file, error))?;
    if text.len() as u64 > MOST {
        return Err(wrong(file, format!("is larger than {} MiB, which no such file is", MOST >> 20)));
    }
    let envelope: Envelope = serde_json::from_str(&text)
        .map_err(|error| wrong(file, format!("is no file of `xk tune export` ({error})")))?;
    if envelope.format != FORMAT || envelope.version != VERSION {
        let what = format!(
            "is `{}` version {}; this program reads `{FORMAT}` version {VERSION}",
            envelope.format, envelope.version
        );
        return Err(wrong(file, what));
    }
    let key: PublicKey = envelope.key.parse().map_err(|why: KeyError| wrong(file, format!("its key: {why}")))?;
    let seal = unhex(&envelope.signature).ok_or_else(|| wrong(file, "its signature is no signature".into()))?;
    // Altered is the worse of the two, and said first.
    key.verify(&signed(&envelope.content), &Seal::from_bytes(&seal))
        .map_err(|()| wrong(file, format!("was altered, or was not signed with the key that it names ({key})")))?;
    if !keys.trusts(&key)? {
        let what = format!(
            "is signed with a key that is not trusted here: {key}. If you know whose it is (`xk tune key` on that \
             machine prints it), put it into a file NAME.pub in {}, and repeat",
            keys.folder().display()
        );
        return Err(wrong(file, what));
    }
    let content = serde_json::from_str(&envelope.content).map_err(|error| {
        wrong(file, format!("is signed by {key}, and not understood ({error}): update xk on one side"))
    })?;
    Ok((content, key))
}

/// Whether something is of one of these searches, on such a machine.
fn fits(
    places: &[Place],
    name: &str,
    context: &Context,
    sensible: impl Fn(&Place) -> Result<(), Unfit>,
) -> Result<(), Refusal> {
    let refused = |why| Refusal { search: name.to_owned(), why };
    let Some(place) = places.iter().find(|place| place.name == name) else {
        return Err(refused(Unfit::Search));
    };
    let here = &place.context;
    for (what, theirs, ours) in [
        ("kernel build", &context.build_id, &here.build_id),
        ("hardware", &context.hardware, &here.hardware),
        ("description (parameters, values, guards, target)", &context.schema, &here.schema),
    ] {
        if theirs != ours {
            return Err(refused(Unfit::Other { what, theirs: theirs.clone(), ours: ours.clone() }));
        }
    }
    sensible(place).map_err(refused)
}

/// Whether this machine can set it, and its numbers are numbers.
fn sensible(place: &Place, one: &Remembrance) -> Result<(), Unfit> {
    if !one.effect.is_finite() || one.effect <= 0.0 {
        return Err(Unfit::Effect(one.effect));
    }
    if place.point_of(&one.setting).is_none() {
        return Err(Unfit::Setting(one.setting.clone()));
    }
    Ok(())
}

fn wrong(file: &Path, what: String) -> Error {
    Error::Exchange { path: file.to_owned(), what }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    (digits.len() == 2 * N).then(|| bytes.try_into().ok()).flatten()
}

#[cfg(test)]
mod tests;
