//! The journal: who changed what, from what, to what, on what evidence. Each entry's hash covers the one before,
//! so an entry that is altered, left out or put in shows.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::{now, Store};
use crate::Error;

/// An entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// From 1.
    pub number: i64,
    /// Seconds since 1970.
    pub at: i64,
    /// The process.
    pub who: String,
    /// What happened.
    pub what: Json,
    /// Of this entry and the one before.
    pub hash: String,
}

fn hash(before: &str, number: i64, at: i64, who: &str, what: &str) -> String {
    // The lengths keep fields apart.
    let text = format!("{before}|{number}|{at}|{}|{who}|{}|{what}", who.len(), what.len());
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Store {
    /// Adds an entry.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn note(&self, who: &str, what: &Json) -> Result<(), Error> {
        let add = || -> rusqlite::Result<()> {
            let last = self.db.query_row("SELECT number, hash FROM journal ORDER BY number DESC LIMIT 1", [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
            });
            let (number, before) = match last {
                Ok((number, before)) => (number + 1, before),
                Err(rusqlite::Error::QueryReturnedNoRows) => (1, String::new()),
                Err(error) => return Err(error),
            };
            let (at, text) = (now(), what.to_string());
            let hash = hash(&before, number, at, who, &text);
            self.db.execute("INSERT INTO journal VALUES (?1, ?2, ?3, ?4, ?5)", (number, at, who, text, hash)).map(drop)
        };
        add().map_err(|error| self.explain(&error))
    }

    /// Every entry, the first first, and the number of the first that does not fit the one before.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn journal(&self) -> Result<(Vec<Entry>, Option<i64>), Error> {
        let read = || -> rusqlite::Result<Vec<(Entry, String)>> {
            let mut statement = self.db.prepare("SELECT number, at, who, what, hash FROM journal ORDER BY number")?;
            let rows = statement.query_map([], |row| {
                let text: String = row.get(3)?;
                let what = serde_json::from_str(&text).unwrap_or_else(|_| Json::String(text.clone()));
                let entry = Entry { number: row.get(0)?, at: row.get(1)?, who: row.get(2)?, what, hash: row.get(4)? };
                Ok((entry, text))
            })?;
            rows.collect()
        };
        let read = read().map_err(|error| self.explain(&error))?;
        let mut before = "";
        let mut broken = None;
        for (index, (entry, text)) in read.iter().enumerate() {
            // The text as it stands there: a number that was read may be written otherwise.
            let right = hash(before, entry.number, entry.at, &entry.who, text);
            if entry.hash != right || entry.number != index as i64 + 1 {
                broken = Some(entry.number);
                break;
            }
            before = &entry.hash;
        }
        Ok((read.into_iter().map(|(entry, _)| entry).collect(), broken))
    }
}
