//! Memories: confirmed settings, or that nothing was better, for a workload and a context (the policy cache of EOS). Also
//! the settings that violated a constraint.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{now, Store};
use crate::sensor::Sensor;
use crate::{Error, Signature, Value};

/// The largest number of memories. The least recently used are deleted.
const MOST: i64 = 1000;

/// The time in which a confirmation loses half of its weight (seconds): kernels, workloads and machines change.
const HALF_LIFE: f64 = 90.0 * 24.0 * 3600.0;

/// That nothing was better is believed for this long (seconds). It was not tested, and a wrong belief only costs time.
const UNPROVED: i64 = 7 * 24 * 3600;

/// The confidence from which on a memory is used. It is halved each time the memory does not hold.
const TOO_DOUBTFUL: f64 = 0.3;

/// The confidence so many seconds after it was `confidence`.
#[must_use]
pub fn decayed(confidence: f64, seconds: i64) -> f64 {
    confidence * (-(seconds.max(0) as f64) / HALF_LIFE).exp2()
}

/// Where a memory applies. With another context, this is another machine or another search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// The kernel build.
    pub build_id: String,
    /// Processors and memory.
    pub hardware: String,
    /// Digest of the description: parameters, their values, guards, target.
    pub schema: String,
}

/// A setting: parameters and values by name.
pub type Setting = BTreeMap<String, Value>;

/// A memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// Its number.
    pub id: i64,
    /// The setting.
    pub setting: Setting,
    /// Its effect, as a difference of logarithms; 0 if nothing was better than the default.
    pub effect: f64,
    /// From 0 to 1: halved each time it did not hold, and in [`HALF_LIFE`] seconds without a confirmation.
    pub confidence: f64,
}

impl Store {
    /// The memory of a similar workload in this context: the first match, as in EOS.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn remembered(
        &self,
        name: &str,
        context: &Context,
        signature: &Signature,
        sensors: &[Sensor],
    ) -> Result<Option<Memory>, Error> {
        let sql = "SELECT json_array(id, json(signature), json(setting), effect, confidence, made) FROM memory
                   WHERE name = ?1 AND context = ?2 AND made > iif(effect > 0, 0, ?3)
                   ORDER BY used DESC, id DESC";
        for text in self.texts(sql, (name, self.json(context)?, now() - UNPROVED))? {
            let (id, known, setting, effect, confidence, made): (i64, Signature, Setting, f64, f64, i64) =
                serde_json::from_str(&text).map_err(|_| self.damaged("a memory"))?;
            let confidence = decayed(confidence, now() - made);
            if confidence > TOO_DOUBTFUL && signature.is_like(&known, sensors) {
                self.execute("UPDATE memory SET used = ?2 WHERE id = ?1", (id, now()))?;
                return Ok(Some(Memory { id, setting, effect, confidence }));
            }
        }
        Ok(None)
    }

    /// Remembers a confirmed setting, or, with an effect of 0, the default that nothing was better than. If there are too
    /// many memories, the least recently used are deleted. Returns its number.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn remember(
        &self,
        name: &str,
        context: &Context,
        signature: &Signature,
        setting: &Setting,
        effect: f64,
    ) -> Result<i64, Error> {
        self.execute(
            "INSERT INTO memory (name, context, signature, setting, effect, confidence, made, used)
             VALUES (?1, ?2, ?3, ?4, ?5, 1.0, ?6, ?6)",
            (name, self.json(context)?, self.json(signature)?, self.json(setting)?, effect, now()),
        )?;
        let id = self.db.last_insert_rowid();
        self.execute(
            "DELETE FROM memory WHERE id NOT IN (SELECT id FROM memory ORDER BY used DESC, id DESC LIMIT ?1)",
            [MOST],
        )?;
        Ok(id)
    }

    /// The number of memories.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn memories(&self) -> Result<usize, Error> {
        Ok(self.texts("SELECT CAST(id AS TEXT) FROM memory", [])?.len())
    }

    /// Halves the confidence of a memory that did not hold.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn demote(&self, id: i64) -> Result<(), Error> {
        self.execute("UPDATE memory SET confidence = confidence / 2 WHERE id = ?1", [id])
    }

    /// Restores the full confidence of a memory that won again in fresh pairs, with this effect.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn confirm(&self, id: i64, effect: f64) -> Result<(), Error> {
        let sql = "UPDATE memory SET confidence = 1.0, effect = ?3, made = ?2, used = ?2 WHERE id = ?1";
        self.execute(sql, (id, now(), effect))
    }

    /// Records that a memory was refuted: it did not win in fresh pairs. It is not used any more.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn refute(&self, id: i64) -> Result<(), Error> {
        self.execute("UPDATE memory SET confidence = 0.0 WHERE id = ?1", [id])
    }

    /// Records that a setting violated a constraint with this workload: it is not tried again.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn forbid(
        &self,
        name: &str,
        context: &Context,
        signature: &Signature,
        setting: &Setting,
        why: &str,
    ) -> Result<(), Error> {
        self.execute(
            "INSERT INTO forbidden VALUES (?1, ?2, ?3, ?4, ?5)",
            (name, self.json(context)?, self.json(signature)?, self.json(setting)?, why),
        )
    }

    /// The settings that violated a constraint with a similar workload.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn forbidden(
        &self,
        name: &str,
        context: &Context,
        signature: &Signature,
        sensors: &[Sensor],
    ) -> Result<Vec<Setting>, Error> {
        let sql = "SELECT json_array(json(signature), json(setting)) FROM forbidden WHERE name = ?1 AND context = ?2";
        let mut settings = Vec::new();
        for text in self.texts(sql, (name, self.json(context)?))? {
            let (known, setting): (Signature, Setting) =
                serde_json::from_str(&text).map_err(|_| self.damaged("a violated constraint"))?;
            if signature.is_like(&known, sensors) {
                settings.push(setting);
            }
        }
        Ok(settings)
    }
}
