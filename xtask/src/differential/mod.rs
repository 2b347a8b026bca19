//! A second opinion on scope tables: the deployed code with the operations of a table, and the code compiled with the
//! value, are executed from the same random states (docs/proofs.md).
//!
//! In: tables of the store. Out: what the program in `xtask/differential/` found. Nothing here executes or compares:
//! this side only compiles, and writes down what there is.

mod export;

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{anyhow, ensure, Context, Result};
use serde::Deserialize;
use xk_table::{ScopeTable, Store};

use crate::{lab, list};
pub use export::Kernel;

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
    /// These values
    #[arg(
        long,
        value_name = "V",
        value_delimiter = ',',
        allow_hyphen_values = true,
        conflicts_with = "values",
        requires = "names"
    )]
    at: Vec<i64>,
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
    let (image, tree) = lab::image_and_tree()?;
    let tables = tables(arguments, &image.id().build_id)?;
    let drawn = |table: &ScopeTable| match arguments.at.is_empty() {
        true => export::drawn(table, arguments.values, seed),
        false => arguments.at.clone(),
    };
    for table in &tables {
        let (name, values) = (&table.constant.id, &table.values);
        let other = arguments.at.iter().find(|value| !values.contains(**value));
        ensure!(other.is_none(), "the table of {name} does not accept {}, but {values}", other.unwrap_or(&0));
    }
    let work = tables.into_iter().map(|table| (drawn(&table), table)).collect();
    let mut command = program(arguments.states, seed)?;
    if let Some(state) = arguments.state {
        command.args(["--state", &state.to_string()]);
    }
    command.args(arguments.json.then_some("--json"));
    let status =
        feed(command.spawn().context("the program in xtask/differential")?, &Kernel::new(image, tree)?, work)?.status;
    ensure!(status.success(), "deployed code does not behave as compiled code, or was not executed: see above");
    Ok(())
}

/// What came of an execution. Its fields are some of those of the program's last line.
#[derive(Debug, Default, Deserialize)]
pub struct Executed {
    /// From how many states.
    pub states: usize,
    /// In how many of them the two did not do the same.
    pub differences: usize,
    /// Functions that could not be executed.
    pub errors: usize,
    /// Instructions with an update, counted for each function and value.
    pub updates: usize,
    /// Those of them that some state came to.
    pub executed: usize,
}

/// Executes tables with values that they accept, from `states` states for each function and value. Differences
/// are printed on standard error.
///
/// # Errors
/// When something cannot be compiled, or the program fails.
pub fn executed(kernel: &Kernel, work: Vec<(Vec<i64>, ScopeTable)>, states: usize, seed: u64) -> Result<Executed> {
    if work.is_empty() {
        return Ok(Executed::default());
    }
    let mut command = program(states, seed)?;
    let child = command.arg("--json").stdout(Stdio::piped()).spawn().context("the program in xtask/differential")?;
    let output = feed(child, kernel, work)?.stdout;
    let text = String::from_utf8_lossy(&output);
    let last = text.lines().last().unwrap_or_default();
    let executed: Executed = serde_json::from_str(last).with_context(|| format!("the program ended with `{last}`"))?;
    if executed.differences + executed.errors > 0 {
        eprint!("{text}");
    }
    Ok(executed)
}

/// Compiles what is to be executed, and waits for the program.
fn feed(mut program: Child, kernel: &Kernel, work: Vec<(Vec<i64>, ScopeTable)>) -> Result<Output> {
    let folder = tempfile::tempdir()?;
    let mut input = program.stdin.take().context("the program's standard input")?;
    // Its output is read while input is written: it stops if its output is not read.
    let reader = std::thread::spawn(move || program.wait_with_output());
    for (values, table) in work {
        let id = table.constant.id.clone();
        let path = export::write(kernel, table, values, folder.path())
            .with_context(|| format!("{id} could not be compiled for execution"))?;
        // It is executed while the next constant is compiled.
        writeln!(input, "{}", path.display()).context("the program in xtask/differential ended early")?;
    }
    drop(input);
    reader.join().map_err(|_| anyhow!("the thread that reads from the program failed"))?.context("the program")
}

/// The tables that are asked for.
fn tables(arguments: &Arguments, build_id: &str) -> Result<Vec<ScopeTable>> {
    let folder = lab::tables()?;
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
fn program(states: usize, seed: u64) -> Result<Command> {
    let python = lab::cache()?.join("emulator/bin/python3");
    ensure!(python.is_file(), "{} is missing: run `scripts/setup emulator`", python.display());
    let mut command = lab::command(&python.to_string_lossy())?;
    command.args(["-B", "xtask/differential/main.py"]);
    command.args(["--states", &states.to_string(), "--seed", &seed.to_string()]);
    command.stdin(Stdio::piped());
    Ok(command)
}
