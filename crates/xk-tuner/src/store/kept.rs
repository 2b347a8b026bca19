//! What searches keep: knobs, one by one, and, for each search, what is known about the setting as a whole.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Context, SearchId, Store};
use crate::drift::Drift;
use crate::knob::Backing;
use crate::machine::KeptKnob;
use crate::{Error, Signature};

/// A setting that a search keeps, and how the target has been since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptSetting {
    /// The search, or the comparison, that confirmed it last.
    pub search: SearchId,
    /// Where it was confirmed.
    pub context: Context,
    /// The target, in words.
    pub target: String,
    /// Its memory.
    pub memory: Option<i64>,
    /// The windows with the setting in force.
    pub drift: Drift,
    /// What the sensors read with the default in force, as memories and violated constraints are found.
    pub workload: Signature,
    /// What the sensors read with the setting in force.
    pub signature: Option<Signature>,
    /// When it was last compared with the default, in seconds since 1970.
    pub compared: i64,
    /// The earliest time of the next comparison that nobody asks for, in seconds since 1970.
    pub next_comparison: i64,
    /// The settle time of the search that found it, which sham switches may have lengthened. Older versions did not store it.
    #[serde(default)]
    pub settle: Duration,
}

impl Store {
    /// Records that a knob keeps a confirmed value.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn keep(&self, kept: &KeptKnob) -> Result<(), Error> {
        self.forget_kept(&kept.backing)?;
        // Two searches may have different knobs of the same name. Older versions used the name.
        let key = self.json(&kept.backing)?;
        self.execute("INSERT OR REPLACE INTO kept VALUES (?1, ?2)", (key, self.json(kept)?))
    }

    /// Records that a knob does not keep a value any more.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn forget_kept(&self, backing: &Backing) -> Result<(), Error> {
        for key in self.texts("SELECT name FROM kept", [])? {
            let known: Vec<KeptKnob> = self.kept_rows("SELECT kept FROM kept WHERE name = ?1", [&key])?;
            if known.iter().any(|known| known.backing == *backing) {
                self.execute("DELETE FROM kept WHERE name = ?1", [&key])?;
            }
        }
        Ok(())
    }

    /// The knobs that keep a confirmed value.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn kept(&self) -> Result<Vec<KeptKnob>, Error> {
        self.kept_rows("SELECT kept FROM kept ORDER BY name", [])
    }

    fn kept_rows(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<Vec<KeptKnob>, Error> {
        let texts = self.texts(sql, parameters)?;
        texts.iter().map(|text| serde_json::from_str(text).map_err(|_| self.damaged("a knob"))).collect()
    }

    /// Records what is known about the setting that a search keeps.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn keep_setting(&self, search: &str, setting: &KeptSetting) -> Result<(), Error> {
        self.execute("INSERT OR REPLACE INTO kept_setting VALUES (?1, ?2)", (search, self.json(setting)?))
    }

    /// What is known about the setting that a search keeps; `None` if an older version kept it.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn kept_setting(&self, search: &str) -> Result<Option<KeptSetting>, Error> {
        let texts = self.texts("SELECT setting FROM kept_setting WHERE name = ?1", [search])?;
        let read = |text: &String| serde_json::from_str(text).map_err(|_| self.damaged("a kept setting"));
        texts.first().map(read).transpose()
    }

    /// Records that a search keeps no setting any more.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn forget_setting(&self, search: &str) -> Result<(), Error> {
        self.execute("DELETE FROM kept_setting WHERE name = ?1", [search])
    }
}
