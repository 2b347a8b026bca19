//! Where results are kept, and when they may be used again.
//!
//! One file per row beside the tables: `corpus/BUILD-ID/ROW.json` in the folder of tables' parent, a
//! [`Ledger`]. The files of several machines are merged by copying, like the tables.

use anyhow::{Context, Result};
use xk_analysis::proof::Solver;
use xk_analysis::reuse::Keys;
use xk_kernel::{Image, Tree};
use xk_table::{Ledger, Store};

use super::outcome::{Outcome, Status};
use super::worker::SOLVER_SECONDS;
use crate::lab;
use crate::list::Row;

/// How a row becomes a constant is no part of the analysis, but of its result.
const WORKER: &str = include_str!("worker.rs");

/// Results of earlier runs for one kernel.
pub struct Results {
    ledger: Ledger,
    store: Store,
    build_id: String,
    keys: Keys,
}

impl Results {
    /// The results for `image` and `tree`.
    ///
    /// # Errors
    /// When there is no cache or no solver.
    pub fn open(image: &Image, tree: &Tree) -> Result<Self> {
        let tables = lab::tables()?;
        let build_id = image.id().build_id.clone();
        let keys = Keys::new(image, tree, &Solver::z3(SOLVER_SECONDS)?).context(".config of the source tree")?;
        let store = Store::new(&tables);
        let folder = tables.with_file_name("corpus").join(&build_id);
        Ok(Self { ledger: Ledger::new(folder, store.clone(), &build_id), store, build_id, keys })
    }

    /// Tables of the kernel.
    pub fn store(&self) -> (&Store, &str) {
        (&self.store, &self.build_id)
    }

    /// What an earlier run found, if it would find the same now.
    pub fn get(&self, row: &Row) -> Option<Outcome> {
        let outcome: Outcome = self.ledger.get(&row.id.to_string(), &self.key(row))?;
        Some(Outcome { reused: true, ..outcome })
    }

    /// Keeps what was found. Failures are not kept: they say nothing about the constant.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put(&self, row: &Row, outcome: &Outcome) -> Result<()> {
        if outcome.status == Status::Error {
            return Ok(());
        }
        let table = outcome.constant.as_deref().filter(|_| outcome.status == Status::Usable);
        Ok(self.ledger.put(&row.id.to_string(), &self.key(row), table, outcome)?)
    }

    fn key(&self, row: &Row) -> String {
        let constant = row.constant.as_deref().unwrap_or_default();
        self.keys.of(&[WORKER, &row.id.to_string(), &row.name, &row.defined_at, &row.text, constant])
    }
}
