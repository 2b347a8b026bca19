//! The policy cache as it is carried to other machines (`exchange.rs`).

use serde::{Deserialize, Serialize};

use super::memory::Setting;
use super::{now, Context, Store};
use crate::{Error, Signature};

/// What was proved elsewhere is believed half; once it does not hold, it is not tried first again.
const HEARSAY: f64 = 0.5;

/// A memory, with everything that it is valid for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remembrance {
    /// Of the search of this name.
    pub name: String,
    /// On such a machine.
    pub context: Context,
    /// Of this workload.
    pub signature: Signature,
    /// The setting.
    pub setting: Setting,
    /// How much better than the default, as a difference of logarithms.
    pub effect: f64,
    /// When it was confirmed last, in seconds since 1970.
    pub made: i64,
}

/// A setting that crossed a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forbidden {
    /// In the search of this name.
    pub name: String,
    /// On such a machine.
    pub context: Context,
    /// Under this workload.
    pub signature: Signature,
    /// The setting.
    pub setting: Setting,
    /// What it crossed.
    pub why: String,
}

impl Store {
    /// Everything that was proved better, and is believed.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn remembrances(&self) -> Result<Vec<Remembrance>, Error> {
        let sql = "SELECT json_object('name', name, 'context', json(context), 'signature', json(signature), 'setting',
                   json(setting), 'effect', effect, 'made', made) FROM memory WHERE confidence >= 1 AND effect <> 0
                   ORDER BY id";
        self.texts(sql, [])?
            .iter()
            .map(|text| serde_json::from_str(text).map_err(|_| self.damaged("a memory")))
            .collect()
    }

    /// Every setting that crossed a limit.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn all_forbidden(&self) -> Result<Vec<Forbidden>, Error> {
        let sql = "SELECT json_object('name', name, 'context', json(context), 'signature', json(signature), 'setting',
                   json(setting), 'why', why) FROM forbidden ORDER BY rowid";
        self.texts(sql, [])?
            .iter()
            .map(|text| serde_json::from_str(text).map_err(|_| self.damaged("a limit that was crossed")))
            .collect()
    }

    /// Takes a memory of another machine; `false` if it is there already.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn import(&self, one: &Remembrance) -> Result<bool, Error> {
        self.changes(
            "INSERT INTO memory (name, context, signature, setting, effect, confidence, made, used)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE NOT EXISTS
             (SELECT 1 FROM memory WHERE name = ?1 AND context = ?2 AND signature = ?3 AND setting = ?4)",
            (
                &one.name,
                self.json(&one.context)?,
                self.json(&one.signature)?,
                self.json(&one.setting)?,
                one.effect,
                HEARSAY,
                // Clocks differ; nothing is remembered from days to come.
                one.made.min(now()),
                now(),
            ),
        )
    }

    /// Takes a limit that was crossed on another machine; `false` if it is there already.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn import_forbidden(&self, one: &Forbidden) -> Result<bool, Error> {
        self.changes(
            "INSERT INTO forbidden SELECT ?1, ?2, ?3, ?4, ?5 WHERE NOT EXISTS
             (SELECT 1 FROM forbidden WHERE name = ?1 AND context = ?2 AND signature = ?3 AND setting = ?4)",
            (&one.name, self.json(&one.context)?, self.json(&one.signature)?, self.json(&one.setting)?, &one.why),
        )
    }

    fn changes(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<bool, Error> {
        self.db.execute(sql, parameters).map(|rows| rows > 0).map_err(|error| self.explain(&error))
    }
}
