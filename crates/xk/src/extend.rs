//! Adds values to tables, with progress on standard error.

use xk_analysis::extend::extend;
use xk_analysis::pipeline::Options;
use xk_analysis::proof::Solver;
use xk_kernel::{Image, KernelChoice, Tree, UnknownHz};
use xk_store::{Folders, Tables};
use xk_table::{NotAccepted, Quantity, ScopeTable};

use crate::exit::{Exit, Failure, Result};
use crate::output::Paint;
use crate::progress::Progress;

/// Time limit of one query to the solver.
pub const SOLVER_SECONDS: u64 = 30;

/// `table`, extended by `values`, with `jobs` compilers at a time.
pub fn extended(
    table: &ScopeTable,
    values: &[i64],
    kernel: (&Tree, &Image),
    solver: &Solver,
    folders: &Folders,
    jobs: usize,
) -> Result<ScopeTable> {
    let progress = Progress::new(table.constant.title());
    let say = |line: &str| progress.say(line);
    let objects = folders.cache.join("objects");
    let wider = extend(table, values, kernel, solver, &Options { cache: &objects, jobs, progress: &say });
    progress.end();
    Ok(wider?)
}

/// Compiles and compares the values that no table accepts and none refuses. Returns whether there were any.
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

/// Why a value was not added to a table: its code differs, or this machine cannot compile it.
fn not_added(table: &ScopeTable, number: i128, failure: &Failure) -> Failure {
    let why = &failure.message;
    let refused = Failure::from(NotAccepted::new(table, number));
    if failure.exit == Exit::Refused {
        return refused.then(&format!("; compiled and compared now, it is refused: {why}"));
    }
    let title = table.constant.title();
    refused.then(&format!(
        "; it cannot be compiled here: {why}; `xk build {title} --values {number}` compiles it on a machine with the \
         kernel's source and compiler"
    ))
}

/// Compiles `value` for the running kernel and saves `table` with it. Needs the source and the compiler
/// of that kernel.
fn compile_now(table: &ScopeTable, value: i64, folders: &Folders) -> Result {
    let paint = Paint::stderr();
    let name = table.constant.title();
    eprintln!("{name}: {value} is neither proved nor compiled: compiling it and comparing");
    let image = KernelChoice::booted()?;
    let tree = KernelChoice::default()
        .tree(&image, &folders.cache, &|line| eprintln!("{}", paint.dim(&format!("prepare: {line}"))))?;
    let solver = Solver::z3(SOLVER_SECONDS).map_err(|error| Failure::error(error.to_string()))?;
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wider = extended(table, &[value], (&tree, &image), &solver, folders, jobs)?;
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
