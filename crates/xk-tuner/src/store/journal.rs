//! The journal: who changed what, from which value to which, on what evidence. The hash of each entry covers the entry
//! before it, so an entry that was altered, removed or inserted is detected.

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

/// A position in the journal, up to which it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    number: i64,
    hash: String,
    /// The first entry that does not follow from the one before, or is missing.
    pub broken: Option<i64>,
}

impl Mark {
    fn check(&mut self, number: i64, fits: bool) {
        if !fits {
            self.broken.get_or_insert(number);
        }
    }
}

fn hash(before: &str, number: i64, at: i64, who: &str, what: &str) -> String {
    // The lengths separate the fields.
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
        add().map_err(|error| self.error(error))
    }

    /// Every entry in order, and the number of the first that does not follow from the one before.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn journal(&self) -> Result<(Vec<Entry>, Option<i64>), Error> {
        let (mut mark, mut entries) = (Mark::default(), Vec::new());
        self.read_on(&mut mark, |entry| entries.push(entry))?;
        Ok((entries, mark.broken))
    }

    /// Reads from the mark to the end, and moves the mark there.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn read_on(&self, mark: &mut Mark, mut each: impl FnMut(Entry)) -> Result<(), Error> {
        let mut read = || -> rusqlite::Result<()> {
            let sql = "SELECT number, at, who, what, hash FROM journal WHERE number >= ?1 ORDER BY number";
            let mut statement = self.db.prepare(sql)?;
            let mut rows = statement.query([mark.number.max(1)])?;
            // The entry at the mark is read again: it must still exist, unchanged.
            let mut known = mark.number > 0;
            while let Some(row) = rows.next()? {
                let text: String = row.get(3)?;
                let what = serde_json::from_str(&text).unwrap_or_else(|_| Json::String(text.clone()));
                let entry = Entry { number: row.get(0)?, at: row.get(1)?, who: row.get(2)?, what, hash: row.get(4)? };
                if std::mem::take(&mut known) && entry.number == mark.number {
                    mark.check(entry.number, entry.hash == mark.hash);
                    continue;
                }
                // The stored text is hashed: a number that is parsed and printed again may look different.
                let right = hash(&mark.hash, entry.number, entry.at, &entry.who, &text);
                mark.check(entry.number, entry.hash == right && entry.number == mark.number + 1);
                (mark.number, mark.hash) = (entry.number, entry.hash.clone());
                each(entry);
            }
            // There was no entry: the one at the mark is missing, and all after it.
            mark.check(mark.number, !known);
            Ok(())
        };
        read().map_err(|error| self.error(error))
    }
}
