//! The policy cache: what was proved better, or that nothing was, for which workload, and where that is valid.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{now, Store};
use crate::sensor::Sensor;
use crate::{Error, Signature, Value};

/// How many settings are remembered, over all; those that were used longest ago go.
const MOST: i64 = 1000;

/// A setting that was not confirmed for so long is as good as forgotten (seconds).
const OLDEST: i64 = 180 * 24 * 3600;

/// That nothing was better is believed for so long (seconds): it was not proved, and costs nothing to believe.
const UNPROVED: i64 = 7 * 24 * 3600;

/// What is demoted so often is not tried first any more: each time, confidence is halved.
const TOO_DOUBTFUL: f64 = 0.3;

/// Where and for what a memory is valid. Anything else is another machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// The kernel build.
    pub build_id: String,
    /// Processors and memory.
    pub hardware: String,
    /// Of the description: parameters, their values, guards, target.
    pub schema: String,
}

/// A setting, by name.
pub type Setting = BTreeMap<String, Value>;

/// What is remembered.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// Its number.
    pub id: i64,
    /// The setting.
    pub setting: Setting,
    /// How much better than the default, as a difference of logarithms; 0 if it was the default, and nothing better.
    pub effect: f64,
    /// From 0 to 1: halved each time it did not hold.
    pub confidence: f64,
}

impl Store {
    /// What is remembered of such a workload, on such a machine; the first match, as in EOS.
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
        let sql = "SELECT json_array(id, json(signature), json(setting), effect, confidence) FROM memory
                   WHERE name = ?1 AND context = ?2 AND confidence > ?3 AND made > iif(effect > 0, ?4, ?5)
                   ORDER BY used DESC, id DESC";
        let parameters = (name, self.json(context)?, TOO_DOUBTFUL, now() - OLDEST, now() - UNPROVED);
        for text in self.texts(sql, parameters)? {
            let (id, known, setting, effect, confidence): (i64, Signature, Setting, f64, f64) =
                serde_json::from_str(&text).map_err(|_| self.damaged("a memory"))?;
            if signature.is_like(&known, sensors) {
                self.execute("UPDATE memory SET used = ?2 WHERE id = ?1", (id, now()))?;
                return Ok(Some(Memory { id, setting, effect, confidence }));
            }
        }
        Ok(None)
    }

    /// Remembers what was proved better, or, with an effect of 0, the default that nothing was better than; what was
    /// used longest ago makes room.
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
    ) -> Result<(), Error> {
        self.execute(
            "INSERT INTO memory (name, context, signature, setting, effect, confidence, made, used)
             VALUES (?1, ?2, ?3, ?4, ?5, 1.0, ?6, ?6)",
            (name, self.json(context)?, self.json(signature)?, self.json(setting)?, effect, now()),
        )?;
        self.execute(
            "DELETE FROM memory WHERE id NOT IN (SELECT id FROM memory ORDER BY used DESC, id DESC LIMIT ?1)",
            [MOST],
        )
    }

    /// How many settings are remembered.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn memories(&self) -> Result<usize, Error> {
        Ok(self.texts("SELECT CAST(id AS TEXT) FROM memory", [])?.len())
    }

    /// What is remembered did not hold: it drifted.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn demote(&self, id: i64) -> Result<(), Error> {
        self.execute("UPDATE memory SET confidence = confidence / 2 WHERE id = ?1", [id])
    }

    /// It held again.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn confirm(&self, id: i64) -> Result<(), Error> {
        self.execute("UPDATE memory SET confidence = 1.0, made = ?2, used = ?2 WHERE id = ?1", (id, now()))
    }

    /// A setting crossed a limit under this workload: it is not tried again.
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

    /// The settings that crossed a limit under such a workload.
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
                serde_json::from_str(&text).map_err(|_| self.damaged("a limit that was crossed"))?;
            if signature.is_like(&known, sensors) {
                settings.push(setting);
            }
        }
        Ok(settings)
    }
}
