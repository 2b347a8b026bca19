//! Searches and their trials: the history from which an engine computes the next trial.

use rusqlite::{OptionalExtension, Row};
use serde::{Deserialize, Serialize};

use super::{now, Context, Store};
use crate::engine::{Conclusion, SearchSpec};
use crate::history::{Outcome, Record, Trial};
use crate::{Error, Signature};

/// Number of a search.
pub type SearchId = i64;

/// The state of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It can be resumed.
    Open,
    /// It has a conclusion.
    Done,
    /// It cannot be resumed: the machine, the description or the program has changed, or a knob was yielded.
    Abandoned,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Done => "done",
            Self::Abandoned => "abandoned",
        }
    }
}

/// A search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Search {
    /// Its number.
    pub id: SearchId,
    /// Its name.
    pub name: String,
    /// The workload.
    pub signature: Signature,
    /// Its specification. JSON calls it `begun`.
    #[serde(rename = "begun")]
    pub spec: SearchSpec,
    /// Its state.
    pub state: State,
    /// Its conclusion.
    pub conclusion: Option<Conclusion>,
    /// When it began, in seconds since 1970.
    pub at: i64,
    /// When it ended.
    pub ended: Option<i64>,
}

impl Store {
    /// Begins a search.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn begin(
        &self,
        name: &str,
        context: &Context,
        signature: &Signature,
        spec: &SearchSpec,
    ) -> Result<SearchId, Error> {
        let (context, signature, begun) = (self.json(context)?, self.json(signature)?, self.json(spec)?);
        self.execute(
            "INSERT INTO search (name, context, signature, question, state, begun) VALUES (?1, ?2, ?3, ?4, 'open', ?5)",
            (name, context, signature, begun, now()),
        )?;
        Ok(self.db.last_insert_rowid())
    }

    pub(super) fn json(&self, value: &impl Serialize) -> Result<String, Error> {
        serde_json::to_string(value).map_err(|_| self.damaged("something"))
    }

    /// The open searches of this name in this context, the last first.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn open_searches(&self, name: &str, context: &Context) -> Result<Vec<Search>, Error> {
        let sql = "SELECT CAST(id AS TEXT) FROM search WHERE name = ?1 AND context = ?2 AND state = 'open'
                   ORDER BY id DESC";
        let ids = self.texts(sql, (name, self.json(context)?))?;
        let ids = ids.iter().map(|id| id.parse().map_err(|_| self.damaged("a search")));
        let searches = ids.map(|id| self.search(Some(id?))).filter_map(Result::transpose);
        searches.collect()
    }

    /// A search by number, or the last search.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn search(&self, id: Option<SearchId>) -> Result<Option<Search>, Error> {
        let sql = "SELECT id, name, signature, question, state, conclusion, begun, ended FROM search
                   WHERE id = ?1 OR ?1 IS NULL ORDER BY id DESC LIMIT 1";
        let found = self.db.query_row(sql, [id], |row| Ok(read(row)));
        self.one(found.optional().map_err(|error| self.error(error))?)
    }

    fn one(&self, found: Option<Option<Search>>) -> Result<Option<Search>, Error> {
        match found {
            Some(None) => Err(self.damaged("a search")),
            Some(search) => Ok(search),
            None => Ok(None),
        }
    }

    /// The last search of each name.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn last_searches(&self) -> Result<Vec<SearchId>, Error> {
        let ids = self.texts("SELECT CAST(max(id) AS TEXT) FROM search GROUP BY name", [])?;
        ids.iter().map(|id| id.parse().map_err(|_| self.damaged("a search"))).collect()
    }

    /// Records that a trial is about to begin. A trial that did not end, because the tuner was killed, begins again.
    ///
    /// # Errors
    /// [`Error::Store`]: no knob must be changed then.
    pub fn begin_trial(&self, search: SearchId, number: usize, trial: &Trial) -> Result<(), Error> {
        self.execute(
            "INSERT INTO trial (search, number, trial, begun) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (search, number) DO UPDATE SET begun = ?4 WHERE outcome IS NULL AND trial = ?3",
            (search, number as i64, self.json(trial)?, now()),
        )
    }

    /// Records the outcome of a trial.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn end_trial(&self, search: SearchId, number: usize, outcome: &Outcome) -> Result<(), Error> {
        self.execute(
            "UPDATE trial SET outcome = ?3, ended = ?4 WHERE search = ?1 AND number = ?2 AND outcome IS NULL",
            (search, number as i64, self.json(outcome)?, now()),
        )
    }

    /// The trials that have ended.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn history(&self, search: SearchId) -> Result<Vec<Record>, Error> {
        let sql = "SELECT json_array(json(trial), json(outcome)) FROM trial
                   WHERE search = ?1 AND outcome IS NOT NULL ORDER BY number";
        self.texts(sql, [search])?
            .iter()
            .map(|text| {
                let (trial, outcome) = serde_json::from_str(text).map_err(|_| self.damaged("a trial"))?;
                Ok(Record { trial, outcome })
            })
            .collect()
    }

    /// The trial that has begun and not ended.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn unfinished(&self, search: SearchId) -> Result<Option<Trial>, Error> {
        let texts = self.texts("SELECT trial FROM trial WHERE search = ?1 AND outcome IS NULL", [search])?;
        texts.first().map(|text| serde_json::from_str(text).map_err(|_| self.damaged("a trial"))).transpose()
    }

    /// Ends a search, with or without a conclusion.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn end(&self, search: SearchId, state: State, conclusion: Option<&Conclusion>) -> Result<(), Error> {
        let conclusion = conclusion.map(|conclusion| self.json(conclusion)).transpose()?;
        self.execute(
            "UPDATE search SET state = ?2, conclusion = ?3, ended = ?4 WHERE id = ?1",
            (search, state.word(), conclusion, now()),
        )
    }
}

/// `None` if the row cannot be understood.
fn read(row: &Row<'_>) -> Option<Search> {
    fn json<T: for<'de> Deserialize<'de>>(row: &Row<'_>, column: usize) -> Option<T> {
        serde_json::from_str(&row.get::<_, String>(column).ok()?).ok()
    }
    let state: String = row.get(4).ok()?;
    let conclusion: Option<String> = row.get(5).ok()?;
    Some(Search {
        id: row.get(0).ok()?,
        name: row.get(1).ok()?,
        signature: json(row, 2)?,
        spec: json(row, 3)?,
        state: [State::Open, State::Done, State::Abandoned].into_iter().find(|known| known.word() == state)?,
        conclusion: conclusion.map(|text| serde_json::from_str(&text)).transpose().ok()?,
        at: row.get(6).ok()?,
        ended: row.get(7).ok()?,
    })
}
