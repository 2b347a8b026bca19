//! The dates of the indices whose tables were fetched. An older index of the same repository is refused: a server that has
//! been taken over, or somebody on the way to it, could otherwise offer tables that were withdrawn.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::RepositoryError;
use crate::index::now;
use crate::pack::replace;

/// In the store.
const FILE: &str = ".accepted.json";
/// An index may be so much later than this machine's clock. One that is much later would make all that follow it old.
const AHEAD: i64 = 24 * 3600;

/// By build-id and repository, the date of the last index.
#[derive(Debug)]
pub(crate) struct Accepted {
    file: PathBuf,
    dates: BTreeMap<String, i64>,
}

impl Accepted {
    /// Those of a store.
    ///
    /// # Errors
    /// They exist and cannot be read or understood: nobody knows then what is old.
    pub fn read(store: &Path) -> Result<Self, RepositoryError> {
        let file = store.join(FILE);
        let dates = match fs::read(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(RepositoryError::file(&file, error)),
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| RepositoryError::Dates { file: file.clone(), error })?
            }
        };
        Ok(Self { file, dates })
    }

    /// Accepts an index of this date. `place` names it in messages.
    ///
    /// # Errors
    /// One that is later was accepted, or it is of the future.
    pub fn accept(&mut self, repository: &str, build_id: &str, made: i64, place: &str) -> Result<(), RepositoryError> {
        if made > now() + AHEAD {
            return Err(RepositoryError::Future { place: place.to_owned(), made: date(made) });
        }
        let known = self.dates.entry(format!("{build_id} {repository}")).or_insert(made);
        if made < *known {
            let (made, accepted) = (date(made), date(*known));
            return Err(RepositoryError::Older { place: place.to_owned(), made, accepted, file: self.file.clone() });
        }
        *known = made;
        Ok(())
    }

    /// Writes them.
    ///
    /// # Errors
    /// The file cannot be written. The old one stays.
    pub fn write(&self) -> Result<(), RepositoryError> {
        let failed = |error| RepositoryError::file(&self.file, error);
        let text = serde_json::to_vec_pretty(&self.dates).map_err(|error| failed(error.into()))?;
        replace(&self.file, &text).map_err(failed)
    }
}

/// Seconds since 1970 as a date.
pub(crate) fn date(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| format!("second {seconds}"), |moment| moment.to_string())
}
