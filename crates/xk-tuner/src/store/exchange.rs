//! Memories as they are exchanged between machines (`../exchange.rs`).

use serde::{Deserialize, Serialize};

use super::memory::Setting;
use super::{now, Context, Store};
use crate::{Error, Signature};

/// The confidence of an imported memory. If it does not hold once, it is not used again.
const IMPORTED: f64 = 0.5;

/// A memory, and where it applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportedMemory {
    /// Name of the search.
    pub name: String,
    /// The context.
    pub context: Context,
    /// The workload.
    pub signature: Signature,
    /// The setting.
    pub setting: Setting,
    /// Its effect, as a difference of logarithms.
    pub effect: f64,
    /// When it was confirmed last, in seconds since 1970.
    pub made: i64,
}

/// A setting that violated a constraint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forbidden {
    /// Name of the search.
    pub name: String,
    /// The context.
    pub context: Context,
    /// The workload.
    pub signature: Signature,
    /// The setting.
    pub setting: Setting,
    /// The constraint, and the measured value.
    pub why: String,
}

impl Store {
    /// The confirmed settings with full confidence.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn exportable_memories(&self) -> Result<Vec<ExportedMemory>, Error> {
        let sql = "SELECT json_object('name', name, 'context', json(context), 'signature', json(signature), 'setting',
                   json(setting), 'effect', effect, 'made', made) FROM memory WHERE confidence >= 1 AND effect <> 0
                   ORDER BY id";
        self.texts(sql, [])?
            .iter()
            .map(|text| serde_json::from_str(text).map_err(|_| self.damaged("a memory")))
            .collect()
    }

    /// Every setting that violated a constraint.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn all_forbidden(&self) -> Result<Vec<Forbidden>, Error> {
        let sql = "SELECT json_object('name', name, 'context', json(context), 'signature', json(signature), 'setting',
                   json(setting), 'why', why) FROM forbidden ORDER BY rowid";
        self.texts(sql, [])?
            .iter()
            .map(|text| serde_json::from_str(text).map_err(|_| self.damaged("a violated constraint")))
            .collect()
    }

    /// Imports a memory of another machine; `false` if it is already known.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn import(&self, one: &ExportedMemory) -> Result<bool, Error> {
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
                IMPORTED,
                // Clocks differ: no memory is from the future.
                one.made.min(now()),
                now(),
            ),
        )
    }

    /// Imports a setting that violated a constraint on another machine; `false` if it is already known.
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
        self.db.execute(sql, parameters).map(|rows| rows > 0).map_err(|error| self.error(error))
    }
}
