//! A second opinion on scope tables: the deployed code with the operations of a table, and the code compiled with the
//! value, are executed from the same random states (docs/proofs.md).
//!
//! In: tables of the store. Out: what the program in `xtask/differential/` found. Nothing here executes or compares:
//! this side only compiles, and writes down what there is.

mod export;

use std::io::Write;

use std::process::{Child, Stdio};

use anyhow::{ensure, Context, Result};
use xk_table::{ScopeTable, Store};

use crate::corpus::list;
use crate::corpus::{kernel, place};
use crate::lab;
use export::Kernel;

/// States of one seed are numbered from the seed, shifted by this.
const SEED_SHIFT: u32 = 32;

/// Options of `cargo xtask differential`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Constants, by name or ID (default: those of xtask/corpus.tsv that have a table)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// States for each function and value
    #[arg(long, value_name = "N", default_value_t = 1000)]
    states: usize,
    /// Values for each constant: the bounds, and others at random
    #[arg(long, value_name = "K", default_value_t = 4)]
    values: usize,
    /// Draw the same values and states again
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Only the state with this number, as a difference names it
    #[arg(long, value_name = "NUMBER")]
    state: Option<u64>,
    /// End with one JSON object
    #[arg(long)]
    json: bool,
}

/// Compiles, and has executed.
///
/// # Errors
/// When a table is missing or behaves differently, or something could not be executed.
pub fn run(arguments: &Arguments) -> Result<()> {
    // A state's number says with which seed it was made.
    let seed = arguments.state.map_or(arguments.seed, |state| state >> SEED_SHIFT);
    let (image, tree) = kernel()?;
    let tables = tables(arguments, &image.id().build_id)?;
    let noreturns = xk_sie::pipeline::noreturns(&tree)?.into_iter().collect();
    let kernel = Kernel { image, tree, noreturns };
    let folder = tempfile::tempdir()?;
    let mut program = start(arguments, seed)?;
    let mut input = program.stdin.take().context("the program's standard input")?;
    for table in tables {
        let id = table.constant.id.clone();
        let path = export::write(&kernel, table, arguments.values, seed, folder.path())
            .with_context(|| format!("{id} could not be compiled for execution"))?;
        // It is executed while the next constant is compiled.
        writeln!(input, "{}", path.display()).context("the program in xtask/differential ended early")?;
    }
    drop(input);
    let status = program.wait()?;
    ensure!(status.success(), "deployed code does not behave as compiled code, or was not executed: see above");
    Ok(())
}

/// The tables that are asked for.
fn tables(arguments: &Arguments, build_id: &str) -> Result<Vec<ScopeTable>> {
    let folder = place::tables()?;
    let (mut found, damaged) = Store::new(&folder).list(build_id)?;
    for error in damaged {
        eprintln!("left out: {error}");
    }
    let called =
        |table: &ScopeTable, name: &str| table.constant.name.as_deref() == Some(name) || table.constant.id == name;
    for name in &arguments.names {
        let there = found.iter().any(|table| called(table, name));
        ensure!(there, "{name} has no table in {}: run `xk build {name}` first", folder.display());
    }
    if arguments.names.is_empty() {
        let rows = list::read(&lab::repository()?.join("xtask/corpus.tsv"))?;
        let listed = |table: &ScopeTable| {
            let place = table.constant.id.split(':').next().unwrap_or_default();
            rows.iter().any(|row| called(table, &row.name) || row.defined_at.starts_with(&format!("{place}:")))
        };
        found.retain(listed);
        ensure!(
            !found.is_empty(),
            "no constant of the corpus has a table in {}: run `cargo xtask corpus`",
            folder.display()
        );
    } else {
        found.retain(|table| arguments.names.iter().any(|name| called(table, name)));
    }
    Ok(found)
}

/// The program that executes, in the interpreter that `scripts/setup emulator` makes.
fn start(arguments: &Arguments, seed: u64) -> Result<Child> {
    let python = lab::cache()?.join("emulator/bin/python3");
    ensure!(python.is_file(), "{} is missing: run `scripts/setup emulator`", python.display());
    let mut command = lab::command(&python.to_string_lossy())?;
    command.args(["-B", "xtask/differential/main.py"]);
    command.args(["--states", &arguments.states.to_string(), "--seed", &seed.to_string()]);
    if let Some(state) = arguments.state {
        command.args(["--state", &state.to_string()]);
    }
    command.args(arguments.json.then_some("--json"));
    command.stdin(Stdio::piped()).spawn().context("the program in xtask/differential")
}
