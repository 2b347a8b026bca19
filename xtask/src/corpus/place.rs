//! Where results are kept, and when they may be used again.
//!
//! One file per row beside the tables: `corpus/BUILD-ID/ROW.json` in the folder of tables' parent. It
//! holds the key under which it was made, the outcome, and, for a table, the digest of its file. The
//! files of several machines are merged by copying, like the tables.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use xk_const::BuildTree;
use xk_kernel::{Image, Tree};
use xk_table::Store;

use super::list::Row;
use super::outcome::{Outcome, Status};
use super::worker::SOLVER_SECONDS;
use crate::lab;

/// What the analysis is made of: see `build.rs`. A hash of the sources, because a number that is raised
/// by hand is forgotten once and then lies, and because the executable's own hash would differ between
/// machines and after every change of a text that has nothing to do with it.
const ANALYSIS: &str = env!("XK_ANALYSIS");

/// The folder of tables, as `xk build` chooses it.
///
/// # Errors
/// When there is no cache.
pub fn tables() -> Result<PathBuf> {
    let own = std::env::var_os("XK_STORE").filter(|value| !value.is_empty()).map(PathBuf::from);
    own.map_or_else(|| Ok(lab::cache()?.join("tables")), Ok)
}

/// Results of earlier runs for one kernel.
pub struct Results {
    folder: PathBuf,
    store: Store,
    build_id: String,
    /// What every row has in common.
    base: Sha256,
}

/// A file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    key: String,
    table: Option<String>,
    outcome: Outcome,
}

impl Results {
    /// The results for `image` and `tree`.
    ///
    /// # Errors
    /// When there is no cache or no solver.
    pub fn open(image: &Image, tree: &Tree) -> Result<Self> {
        let tables = tables()?;
        let build_id = image.id().build_id.clone();
        let solver = lab::output(lab::command("z3")?.arg("--version"))?;
        // Not where the tree is: results come from several machines.
        let stamp = tree.stamp().replace(&tree.root().display().to_string(), "");
        let config = fs::read(tree.root().join(".config")).context(".config of the source tree")?;
        let mut base = Sha256::new();
        for part in [ANALYSIS, &build_id, &stamp, solver.trim(), &SOLVER_SECONDS.to_string()] {
            feed(&mut base, part.as_bytes());
        }
        feed(&mut base, &config);
        Ok(Self { folder: results(&tables).join(&build_id), store: Store::new(tables), build_id, base })
    }

    /// Tables of the kernel.
    pub fn store(&self) -> (&Store, &str) {
        (&self.store, &self.build_id)
    }

    /// What an earlier run found, if it would find the same now.
    pub fn get(&self, row: &Row) -> Option<Outcome> {
        let text = fs::read(self.path(row)).ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        let current = kept.key == self.key(row) && kept.table == self.digest(&kept.outcome);
        current.then_some(Outcome { reused: true, ..kept.outcome })
    }

    /// Keeps what was found. Failures are not kept: they say nothing about the constant.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put(&self, row: &Row, outcome: &Outcome) -> Result<()> {
        if outcome.status == Status::Error {
            return Ok(());
        }
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        let kept = Kept { key: self.key(row), table: self.digest(outcome), outcome: outcome.clone() };
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        serde_json::to_writer_pretty(&mut file, &kept)?;
        file.write_all(b"\n")?;
        file.persist(self.path(row))?;
        Ok(())
    }

    fn path(&self, row: &Row) -> PathBuf {
        self.folder.join(format!("{}.json", row.id))
    }

    fn key(&self, row: &Row) -> String {
        let mut hash = self.base.clone();
        for part in [&row.id.to_string(), &row.name, &row.defined_at, &row.text] {
            feed(&mut hash, part.as_bytes());
        }
        hex(hash)
    }

    /// Of the table's file, if the outcome has one.
    fn digest(&self, outcome: &Outcome) -> Option<String> {
        let id = outcome.constant.as_ref().filter(|_| outcome.status == Status::Usable)?;
        let bytes = fs::read(self.store.path(&self.build_id, id)).ok()?;
        Some(hex(Sha256::new_with_prefix(bytes)))
    }
}

/// The folder of results that belongs to a folder of tables.
fn results(tables: &Path) -> PathBuf {
    tables.with_file_name("corpus")
}

fn feed(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
