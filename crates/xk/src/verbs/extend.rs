//! More values for a table: each is compiled and compared with the deployed code before it is
//! accepted.
//!
//! In: a table and values that it does not accept. Out: the table with them, shown again as a
//! whole; or which of them is not the same, and where. The table is changed only when all are.

use xk_analysis::pipeline::{BuildError, Options};
use xk_analysis::proof::Solver;
use xk_analysis::verify::verify;
use xk_const::{recall, Spec};
use xk_kernel::{Image, Tree, UnknownHz};
use xk_table::{Quantity, ScopeTable};

use super::build::{Progress, SOLVER_SECONDS};
use crate::context::{Folders, Tables};
use crate::exit::{Exit, Failure, Result};
use crate::kernel::{booted, KernelOf};
use crate::limits::not_accepted;
use crate::output::Paint;
use crate::tunes::title;

/// What is needed to compile.
pub struct Extender<'a> {
    pub image: &'a Image,
    pub tree: &'a Tree,
    pub solver: &'a Solver,
    pub folders: &'a Folders,
    pub jobs: usize,
}

impl Extender<'_> {
    /// `table`, which then accepts `values`, too. Those that it accepts already are not compiled.
    pub fn extended(&self, table: &ScopeTable, values: &[i64]) -> Result<ScopeTable> {
        let name = title(&table.constant);
        let mut wider = table.clone();
        wider.values.compiled.extend(values.iter().filter(|value| !table.values.contains(**value)));
        wider.values.compiled.sort_unstable();
        wider.values.compiled.dedup();
        wider.values.refused.retain(|value, _| !values.contains(value));
        if wider.values == table.values {
            return Ok(wider);
        }
        wider.check().map_err(|why| Failure::new(Exit::Refused, format!("{name}: {why}")))?;
        let progress = Progress::new(name);
        let say = |line: &str| progress.say(line);
        let objects = self.folders.cache.join("objects");
        let options = Options { cache: &objects, jobs: self.jobs, progress: &say };
        let constant = recall(self.tree, &Spec::parse(&table.constant.id)?)?;
        if let Some(value) = values.iter().find(|value| !constant.c_type.fits(**value)) {
            let why = format!("{name}: its type, `{}`, has no value {value}", constant.c_type.name());
            return Err(Failure::new(Exit::Refused, why));
        }
        let solvers = std::slice::from_ref(self.solver);
        let report = verify(self.tree, self.image, &constant, &wider, solvers, &[], &options);
        progress.end();
        let report = report.map_err(|error| match error {
            BuildError::Refused(refusal) => refusal.into(),
            other => Failure::error(other.to_string()),
        })?;
        match report.faults.first() {
            None => Ok(wider),
            Some(fault) => {
                Err(Failure::new(Exit::Refused, format!("{name}: {}: {}", fault.claim.word(), fault.detail)))
            }
        }
    }
}

/// Compiles and compares the values that no table accepts and none refuses; whether there were any.
pub fn compiled(
    folders: &Folders,
    tables: &Tables,
    wanted: &[(&str, Quantity)],
    hz: &dyn Fn() -> std::result::Result<u32, UnknownHz>,
) -> Result<bool> {
    let mut any = false;
    for (name, quantity) in wanted {
        let table = tables.find(folders, name)?;
        let number = table.constant.number(*quantity, hz)?;
        let Ok(value) = i64::try_from(number) else { continue };
        if table.values.contains(value) || table.values.refused.contains_key(&value) {
            continue;
        }
        compile_now(table, value, folders).map_err(|failure| not_added(table, number, &failure))?;
        any = true;
    }
    Ok(any)
}

/// Why a value was not added to a table: it is not the same, or nobody can tell here.
fn not_added(table: &ScopeTable, number: i128, failure: &Failure) -> Failure {
    let why = &failure.message;
    let refused = not_accepted(table, number);
    if failure.exit == Exit::Refused {
        return refused.then(&format!("; compiled and compared now, it is refused: {why}"));
    }
    let title = title(&table.constant);
    refused.then(&format!(
        "; it cannot be compiled here: {why}; `xk build {title} --values {number}` does so where the kernel's \
         source and compiler are"
    ))
}

/// Compiles `value` for the running kernel and saves `table` with it. Needs the source and the compiler
/// of that kernel.
fn compile_now(table: &ScopeTable, value: i64, folders: &Folders) -> Result {
    let paint = Paint::stderr();
    let name = title(&table.constant);
    eprintln!("{name}: {value} is neither proved nor compiled: compiling it and comparing");
    let image = booted()?;
    let tree = KernelOf::default()
        .tree(&image, &folders.cache, &|line| eprintln!("{}", paint.dim(&format!("prepare: {line}"))))?;
    let solver = Solver::z3(SOLVER_SECONDS).map_err(|error| Failure::error(error.to_string()))?;
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let extender = Extender { image: &image, tree: &tree, solver: &solver, folders, jobs };
    let wider = extender.extended(table, &[value])?;
    folders.store().save(&wider)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_value_that_differs_is_not_one_that_cannot_be_compiled() {
        let said = |failure: Failure| not_added(&fixture::powers_table(), 48, &failure);
        let differs = said(Failure::new(Exit::Refused, "f+0x4 is `inc %eax` there"));
        assert_eq!(differs.exit, Exit::Refused);
        assert!(differs.message.ends_with("compiled and compared now, it is refused: f+0x4 is `inc %eax` there"));
        let message = said(Failure::error("there is no gcc-12")).message;
        assert!(message.contains("48 is none of the compiled values"), "{message}");
        assert!(message.contains("it cannot be compiled here: there is no gcc-12"), "{message}");
        assert!(message.contains("`xk build BLK_MAX_REQUEST_COUNT --values 48`"), "{message}");
    }
}
