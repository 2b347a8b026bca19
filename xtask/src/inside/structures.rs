//! Operations on data structures of `bpf/flex`, in an extension, in a module and in a process: how long each takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};
use libbpf_rs::{MapCore, MapFlags, ObjectBuilder, ProgramInput};
use serde::{Deserialize, Serialize};
use xk_flex::{take_ended, Control, Heap, Limits};

/// What reading has the module execute its operations.
const MODULE: &str = "/proc/xk_flexbench";

/// Arguments of `inside structures`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The rewritten object
    #[arg(long)]
    object: PathBuf,
    /// The same, without unrolling
    #[arg(long)]
    rolled: PathBuf,
    /// Where what user space asks for is in the variables
    #[arg(long)]
    asked: usize,
    /// bench/flex/user.c, compiled
    #[arg(long)]
    user: PathBuf,
    /// How often all operations are executed; the medians count
    #[arg(long)]
    rounds: usize,
}

/// An operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Operation {
    /// Of what.
    pub structure: String,
    /// What.
    pub operation: String,
    /// How often.
    pub turns: u64,
    /// Nanoseconds of all turns, the median of the rounds.
    pub time: u64,
}

/// All operations, in the same order.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// In an extension,
    pub flex: Vec<Operation>,
    /// without unrolling,
    pub rolled: Vec<Operation>,
    /// in a module,
    pub module: Vec<Operation>,
    /// and in a process.
    pub user: Vec<Operation>,
}

/// Measures.
///
/// # Errors
/// When something does not work.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let user = Command::new(&arguments.user).arg(arguments.rounds.to_string()).output()?;
    ensure!(user.status.success(), "{}: {}", arguments.user.display(), user.status);
    let module = (0..arguments.rounds).map(|_| parsed(&fs::read_to_string(MODULE).context(MODULE)?));
    let module = medians(&module.collect::<Result<Vec<_>>>()?);
    let user = parsed(&String::from_utf8(user.stdout)?)?;
    let user = medians(&user.chunks(module.len()).map(<[_]>::to_vec).collect::<Vec<_>>());
    let flex = extension(arguments, &arguments.object, &module)?;
    let rolled = extension(arguments, &arguments.rolled, &module)?;
    Ok(Report { flex, rolled, module, user })
}

/// Of each operation, by its number.
fn medians(rounds: &[Vec<Operation>]) -> Vec<Operation> {
    let operations = rounds.first().into_iter().flatten().enumerate();
    let median = |(number, operation): (usize, &Operation)| {
        let mut times: Vec<u64> = rounds.iter().filter_map(|round| round.get(number)).map(|found| found.time).collect();
        times.sort_unstable();
        Operation { time: times[times.len() / 2], ..operation.clone() }
    };
    operations.map(median).collect()
}

fn parsed(text: &str) -> Result<Vec<Operation>> {
    let line = |line: &str| {
        let [structure, operation, turns, time] = line.split(' ').collect::<Vec<_>>()[..] else {
            anyhow::bail!("not an operation: {line}");
        };
        let (structure, operation) = (structure.to_owned(), operation.to_owned());
        Ok(Operation { structure, operation, turns: turns.parse()?, time: time.parse()? })
    };
    text.lines().map(line).collect()
}

/// The same operations.
fn extension(arguments: &Arguments, path: &Path, operations: &[Operation]) -> Result<Vec<Operation>> {
    let bytes = fs::read(path)?;
    let (object, said) = xk_policy::listening(|| ObjectBuilder::default().open_memory(&bytes)?.load());
    let object = object.with_context(|| said)?;
    Control { deadline: None, ..Control::default() }.tell(&object)?;
    let heap = Heap::of(&object, Limits { ready: 16 << 20, ..Limits::default() })?.context("there is no heap")?;
    let variables = object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss")).context("no variables")?;
    let execute = |name: &str, repeat: u64| -> Result<bool> {
        let program = object.progs_mut().find(|program| program.name() == name);
        let repeat = repeat.try_into()?;
        let input = ProgramInput { data_in: Some(&[0; 64]), repeat, ..ProgramInput::default() };
        Ok(program.with_context(|| format!("no program {name}"))?.test_run(input)?.return_value == 1)
    };
    ensure!(execute("begin", 1)?, "a run was ended, or had no memory");
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let mut measured = Vec::new();
        for operation in operations {
            let value = variables.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
            let mut value = value.context("the variables have no value")?;
            let asked = [0; 16];
            value[arguments.asked..][..asked.len()].copy_from_slice(&asked);
            variables.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY)?;
            let name = format!("{}_{}", operation.structure, operation.operation);
            ensure!(execute(&name, operation.turns)?, "{operation:?}: a run was ended");
            let value = variables.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?.context("no value")?;
            let word = |number: usize| -> Result<u64> {
                Ok(u64::from_ne_bytes(value[arguments.asked + 8 * number..][..8].try_into()?))
            };
            ensure!(word(0)? == operation.turns, "{operation:?}: {} runs", word(0)?);
            let time = word(1)?;
            measured.push(Operation { time, ..operation.clone() });
        }
        rounds.push(measured);
    }
    let (ended, usage) = (take_ended(&object)?, heap.usage());
    ensure!(ended.is_empty() && usage.refused + usage.invalid + usage.lost == 0, "{ended:?}, {usage:?}");
    // The list, the tree, the skip list, the table, and the cache with its own table.
    ensure!(usage.allocated - usage.freed == 6, "objects are left: {usage:?}");
    Ok(medians(&rounds))
}
