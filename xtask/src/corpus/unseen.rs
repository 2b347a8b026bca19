//! Whether tables hold for random values: some of the values that each table accepts are drawn at random, compiled, and
//! compared with the deployed code, as `xk verify --at` does.
//!
//! In: tables, how many values, a seed. Out: how many values were compared, and which are not the same. What is
//! compiled with a value may be code that the comparison does not show to be the same, nor to be another: a compiler
//! that knows the value concludes more. Such values are executed ([`crate::differential`]).
//! Besides the random ones, each accepted value is compared that lies at, or beside, another number in
//! the table's functions: that is where code tells values apart.

use std::collections::BTreeSet;
use std::sync::Mutex;

use anyhow::{Context, Result};
use serde::Serialize;
use xk_analysis::pipeline::Options;
use xk_analysis::proof::Solver;
use xk_analysis::verify::{verify, Claim};
use xk_const::{recall, Spec};
use xk_kernel::{Image, Tree};
use xk_table::ScopeTable;

use super::outcome::Outcome;
use super::place::Results;
use super::worker::SOLVER_SECONDS;
use crate::differential::{self, Executed, Kernel};
use crate::draw::{numbers, one, Random};
use crate::lab;

/// States for each function and value that is executed.
const STATES: usize = 500;
/// Numbers of functions that are looked at, at most.
const MOST_BESIDE: usize = 12;

/// What came of one constant.
#[derive(Debug, Serialize)]
struct Checked {
    constant: String,
    checked: usize,
    /// Values of which the comparison says nothing: these are executed.
    inconclusive: Vec<i64>,
    /// Values that are accepted and not the same, or proofs that did not succeed again.
    mismatches: Vec<String>,
    /// The table could not be verified at all.
    error: Option<String>,
}

/// What came of all. Its fields are those of the last JSON object.
#[derive(Debug, Serialize)]
struct Sum {
    constants: usize,
    /// Values that were compared, those that were executed among them.
    checked: usize,
    /// Values that were executed, from how many states in all, and how many of these differ.
    executed: usize,
    states: usize,
    differences: usize,
    /// Updates of these values that no state came to: nothing is known of them.
    unreached: usize,
    /// Differences between values, and in states.
    mismatches: usize,
    errors: usize,
    seed: u64,
}

/// Draws, compiles and compares.
///
/// # Errors
/// When a table does not hold for a value, or could not be compared.
pub fn run(outcomes: &[Outcome], results: &Results, number: usize, seed: u64, jobs: usize, json: bool) -> Result<()> {
    let (image, tree) = lab::image_and_tree()?;
    let (store, build_id) = results.store();
    let mut tables = Vec::new();
    for id in
        outcomes.iter().filter(|o| o.proved.is_some() || !o.compiled.is_empty()).filter_map(|o| o.constant.as_ref())
    {
        tables.push(store.load(build_id, id).with_context(|| format!("the table of {id}"))?);
    }
    tables.reverse();
    let all = tables.clone();
    let (work, done) = (Mutex::new(tables), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| loop {
                let next = work.lock().ok().and_then(|mut work| work.pop());
                let Some(table) = next else { return };
                let checked = check(&image, &tree, &table, number, seed);
                if json {
                    println!("{}", serde_json::to_string(&checked).unwrap_or_default());
                } else {
                    println!("{}: {} values{}", checked.constant, checked.checked, words(&checked));
                }
                if let Ok(mut done) = done.lock() {
                    done.push(checked);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_default();
    let left = |table: ScopeTable| {
        let values = &done.iter().find(|checked| checked.constant == table.constant.id)?.inconclusive;
        (!values.is_empty()).then(|| (values.clone(), table))
    };
    let left: Vec<(Vec<i64>, ScopeTable)> = all.into_iter().filter_map(left).collect();
    let executed = left.iter().map(|(values, _)| values.len()).sum();
    let Executed { states, differences, errors, updates, executed: reached } =
        differential::executed(&Kernel::new(image, tree)?, left, STATES, seed)?;
    let sum = Sum {
        constants: done.len(),
        checked: done.iter().map(|checked| checked.checked).sum(),
        executed,
        states,
        differences,
        unreached: updates - reached,
        mismatches: done.iter().map(|checked| checked.mismatches.len()).sum::<usize>() + differences,
        errors: done.iter().filter(|checked| checked.error.is_some()).count() + errors,
        seed,
    };
    println!("{}", serde_json::to_string(&sum)?);
    anyhow::ensure!(sum.mismatches == 0 && sum.errors == 0, "tables do not hold, or were not compared: see above");
    Ok(())
}

fn words(checked: &Checked) -> String {
    let executed = if checked.inconclusive.is_empty() {
        String::new()
    } else {
        format!(", of which {:?} are executed below", checked.inconclusive)
    };
    let wrong: String = checked.mismatches.iter().map(|why| format!("\n    WRONG: {why}")).collect();
    let error = checked.error.as_ref().map_or(String::new(), |why| format!("\n    not compared: {why}"));
    executed + &wrong + &error
}

fn check(image: &Image, tree: &Tree, table: &ScopeTable, number: usize, seed: u64) -> Checked {
    let constant = table.constant.id.clone();
    let mut checked = Checked { constant, checked: 0, inconclusive: Vec::new(), mismatches: Vec::new(), error: None };
    let values = drawn(table, number, seed);
    let verified = (|| {
        let solver = Solver::z3(SOLVER_SECONDS)?;
        let constant = recall(tree, &Spec::parse(&table.constant.id)?)?;
        let cache = lab::cache()?.join("objects");
        let options = Options { cache: &cache, jobs: 1, progress: &|_| {} };
        Ok::<_, anyhow::Error>(verify(tree, image, &constant, table, &[solver], &values, &options)?)
    })();
    match verified {
        Ok(report) => {
            checked.checked = report.values.iter().filter(|value| table.values.contains(**value)).count();
            checked.inconclusive = report.inconclusive.keys().copied().collect();
            let about = |claim| matches!(claim, Claim::Validation | Claim::Values);
            let wrong = report.faults.iter().filter(|fault| about(fault.claim));
            checked.mismatches = wrong.map(|fault| fault.detail.clone()).collect();
        }
        Err(error) => checked.error = Some(format!("{error:#}")),
    }
    checked
}

/// Accepted values: at random, and beside the numbers of the code.
fn drawn(table: &ScopeTable, number: usize, seed: u64) -> Vec<i64> {
    let values = &table.values;
    let mut random = Random::of(&table.constant.id, seed);
    let mut drawn = BTreeSet::new();
    for _ in 0..number * 20 {
        if drawn.len() >= number {
            break;
        }
        drawn.extend(one(values, table.constant.default, &mut random).filter(|value| *value != table.constant.default));
    }
    let beside = numbers(table).into_iter().flat_map(|n| [n - 1, n, n + 1]);
    let beside: BTreeSet<i64> = beside.filter(|value| values.contains(*value)).collect();
    drawn.extend(beside.into_iter().take(MOST_BESIDE));
    drawn.into_iter().collect()
}
