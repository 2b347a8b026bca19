//! The analysis of one constant after the other, in a process of its own: whatever happens to it, the
//! run goes on. In: rows as JSON lines on standard input. Out: outcomes as JSON lines.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use xk_analysis::outcome::{unbuilt, unresolved};
use xk_analysis::pipeline::{Analyser, Options};
use xk_analysis::proof::Solver;
use xk_const::{resolve, ConstId, Constant, ResolveError, Spec};
use xk_table::Store;

use super::outcome::{reason, Outcome, Status};
use crate::lab;
use crate::list::Row;

/// As `xk build`.
pub const SOLVER_SECONDS: u64 = 30;

/// Answers rows until standard input ends.
///
/// # Errors
/// When the kernel under study is missing or damaged.
pub fn serve(jobs: usize) -> Result<()> {
    let worker = Worker::open(jobs)?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let row: Row = serde_json::from_str(&line?).context("a row")?;
        let outcome = worker.outcome(&row)?;
        serde_json::to_writer(&mut out, &outcome)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

/// The kernel under study, with what every constant shares.
pub struct Worker {
    analyser: Analyser,
    store: Store,
    objects: PathBuf,
    jobs: usize,
}

impl Worker {
    fn open(jobs: usize) -> Result<Self> {
        let (image, tree) = lab::image_and_tree()?;
        let cache = lab::cache()?;
        Ok(Self {
            analyser: Analyser::new(image, tree, Solver::z3(SOLVER_SECONDS)?)?,
            store: Store::new(lab::tables()?),
            objects: cache.join("objects"),
            jobs,
        })
    }

    /// Analyses what a row means and keeps its table. Of several literals the
    /// first that is usable counts.
    fn outcome(&self, row: &Row) -> Result<Outcome> {
        let started = Instant::now();
        let constants = match self.constants(row) {
            Ok(constants) => constants,
            Err(Unresolved::Row(error)) => {
                return Ok(Outcome::without(row, Status::Error, reason("row", format!("{error:#}")), 0.0));
            }
            Err(Unresolved::Constant(error)) => {
                let (status, reason) = unresolved(&error);
                return Ok(Outcome::without(row, status, reason, started.elapsed().as_secs_f64()));
            }
        };
        let mut first = None;
        for constant in &constants {
            let outcome = self.analysed(row, constant, started)?;
            if outcome.status == Status::Usable {
                return Ok(outcome);
            }
            first.get_or_insert(outcome);
        }
        first.context("a row means at least one constant")
    }

    fn analysed(&self, row: &Row, constant: &Constant, started: Instant) -> Result<Outcome> {
        let options = Options { cache: &self.objects, jobs: self.jobs, progress: &|_| {} };
        let analysed = self.analyser.analyse(constant, &options);
        let seconds = started.elapsed().as_secs_f64();
        Ok(match analysed {
            Ok(table) => {
                self.store.save(&table)?;
                Outcome::with(row, &table, seconds)
            }
            Err(error) => {
                let (status, reason) = unbuilt(&error);
                Outcome {
                    constant: Some(constant.id.to_string()),
                    default: Some(constant.default),
                    ..Outcome::without(row, status, reason, seconds)
                }
            }
        })
    }

    /// The constants that a row means. Where its name alone means several, those that stand on the
    /// row's line; where that is an expression, the literals in it.
    fn constants(&self, row: &Row) -> std::result::Result<Vec<Constant>, Unresolved> {
        let spec = row.spec().map_err(Unresolved::Row)?;
        let spec = Spec::parse(&spec).map_err(|error| Unresolved::Row(error.into()))?;
        let error = match resolve(self.analyser.tree(), &spec) {
            Ok(constant) => return Ok(vec![constant]),
            Err(error) => error,
        };
        let candidates: &[ConstId] = match &error {
            ResolveError::Ambiguous { candidates, .. } => candidates,
            ResolveError::NotConstant { literals, .. } => literals,
            _ => &[],
        };
        let there = candidates.iter().filter(|id| format!("{}:{}", id.path, id.line) == row.defined_at);
        let meant: Vec<_> = there.map(|id| resolve(self.analyser.tree(), &Spec::Id(id.clone()))).collect();
        if meant.is_empty() {
            return Err(Unresolved::Constant(error));
        }
        meant.into_iter().map(|constant| constant.map_err(Unresolved::Constant)).collect()
    }
}

enum Unresolved {
    /// The row makes no sense.
    Row(anyhow::Error),
    /// The kernel has no such constant that could be analysed.
    Constant(ResolveError),
}
