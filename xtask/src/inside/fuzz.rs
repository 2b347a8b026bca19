//! The same operations on the structures of `bpf/flex` in an extension, in a module and in a process, each answer compared
//! with the others and with a model. Some runs of the extension are ended: what they were asked for did not happen.

#[path = "../../../bench/flex/extension.rs"]
mod extension;
#[path = "../../../bench/flex/model.rs"]
mod model;
#[path = "../../../bench/flex/process.rs"]
mod process;
#[path = "../../../bench/flex/walk.rs"]
mod walk;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Error, Result};
use libbpf_rs::{Object, ObjectBuilder};
use serde::{Deserialize, Serialize};
use xk_flex::{take_ended, Control};

use crate::draw::Random;
use extension::Extension;
use model::{Asked, Model, OPERATIONS, STRUCTURES};
use process::{answers, words, Process};

/// What has the module execute operations.
const MODULE: &str = "/proc/xk_flexfuzz";
/// Operations that the module and the process execute at once.
const BATCH: usize = 256;
/// So many operations there are at least in each epoch, however slow the host is.
const LEAST: usize = 8 * BATCH;
/// Operations on the same structures.
const EPOCH: usize = 20_000;
/// Divergences that are described.
const DESCRIBED: usize = 10;

/// Arguments of `inside fuzz`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The rewritten objects, which take turns
    #[arg(long, num_args = 1..)]
    objects: Vec<PathBuf>,
    /// Where the structures are in the variables
    #[arg(long)]
    structures: usize,
    /// Where the pointer to what is asked is in them
    #[arg(long)]
    exchange: usize,
    /// bench/flex/structures_user.c, compiled
    #[arg(long)]
    user: PathBuf,
    /// How long
    #[arg(long)]
    seconds: f64,
    /// Of the operations
    #[arg(long)]
    seed: u64,
}

/// Operations on a structure.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Operations {
    /// That the extension completed,
    pub extension: u64,
    /// the module,
    pub module: u64,
    /// and the process.
    pub process: u64,
    /// Runs of the extension that were ended.
    pub ended: u64,
}

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// By the name of the structure.
    pub operations: BTreeMap<String, Operations>,
    /// Runs of the extension that were ended.
    pub ended: u64,
    /// How often the structures were begun anew.
    pub epochs: u64,
    /// Answers that differ, and structures that are not those of the model.
    pub divergences: u64,
    /// The first of them.
    pub described: Vec<String>,
}

impl Report {
    fn diverges(&mut self, text: String) {
        self.divergences += 1;
        if self.described.len() < DESCRIBED {
            self.described.push(text);
        }
    }

    fn of(&mut self, asked: &Asked) -> &mut Operations {
        self.operations.entry(OPERATIONS[asked.operation].0.to_owned()).or_default()
    }
}

/// The structures in the module.
struct Module(File);

impl Module {
    fn ask(&self, asked: &[Asked]) -> Result<Vec<(bool, u64)>> {
        let bytes = words(asked);
        ensure!((&self.0).write(&bytes).context(MODULE)? == bytes.len(), "{MODULE} took less than was written");
        let mut bytes = vec![0; 16 * asked.len()];
        self.0.read_exact_at(&mut bytes, 0).context(MODULE)?;
        Ok(answers(&bytes))
    }
}

/// An operation that the extension has completed.
struct Completed {
    asked: Asked,
    answered: (bool, u64),
}

/// One of the others has answered.
fn compare(report: &mut Report, world: &str, completed: &[Completed], found: &[(bool, u64)]) {
    for (one, other) in completed.iter().zip(found) {
        if one.answered != *other {
            let name = OPERATIONS[one.asked.operation];
            report
                .diverges(format!("{name:?} {:?}: the extension {:?}, the {world} {other:?}", one.asked, one.answered));
        }
    }
}

/// Executes what the extension has completed.
fn execute(report: &mut Report, completed: &[Completed], process: &mut Process, module: &Module) -> Result<()> {
    for part in completed.chunks(BATCH) {
        let asked: Vec<Asked> = part.iter().map(|one| one.asked).collect();
        compare(report, "process", part, &process.ask(&asked).map_err(Error::msg)?);
        compare(report, "module", part, &module.ask(&asked)?);
        for asked in &asked {
            let counted = report.of(asked);
            counted.process += 1;
            counted.module += 1;
        }
    }
    Ok(())
}

/// How the extension goes on.
struct Epoch<'a> {
    object: &'a Object,
    extension: Extension<'a>,
    model: Model,
    completed: Vec<Completed>,
}

impl Epoch<'_> {
    /// Asks the extension, by a run that may be ended after so many turns.
    fn ask(&mut self, report: &mut Report, asked: Asked, end: Option<Control>) -> Result<()> {
        if let Some(control) = end {
            control.tell(self.object)?;
        }
        let answered = self.extension.ask(&asked).map_err(Error::msg)?;
        if end.is_some() {
            Control { deadline: None, ..Control::default() }.tell(self.object)?;
        }
        let Some(answered) = answered else {
            ensure!(end.is_some(), "{asked:?}: a run was ended without need");
            report.of(&asked).ended += 1;
            report.ended += 1;
            return self.check(report, &asked);
        };
        let expected = self.model.apply(&asked);
        if !expected.is(answered.0, answered.1) {
            let name = OPERATIONS[asked.operation];
            report.diverges(format!("{name:?} {asked:?}: the extension {answered:?}, the model {expected:?}"));
        }
        report.of(&asked).extension += 1;
        self.completed.push(Completed { asked, answered });
        Ok(())
    }

    /// Compares everything in the heap.
    fn check(&self, report: &mut Report, asked: &Asked) -> Result<()> {
        if let Err(error) = self.extension.check(&self.model) {
            report.diverges(format!("after {:?} {asked:?}: {error}", OPERATIONS[asked.operation]));
        }
        take_ended(self.object)?;
        Ok(())
    }
}

/// New structures, until the time is over or there were enough operations. Then all of them are emptied.
fn epoch(
    report: &mut Report,
    object: &Object,
    places: [usize; 2],
    random: &mut Random,
    end: Instant,
    others: (&mut Process, &Module),
) -> Result<()> {
    let extension = Extension::new(object, places).map_err(Error::msg)?;
    let (process, module) = others;
    let mut epoch = Epoch { object, extension, model: Model::default(), completed: Vec::new() };
    Control { deadline: None, ..Control::default() }.tell(object)?;
    epoch.ask(report, Asked::new("all", "begin", random.next(), 0), None)?;
    for turn in 0..EPOCH {
        let asked = epoch.model.draw(&STRUCTURES, || random.next());
        // The second look ends a run that has the shortest deadline, and the first one if all runs are to end.
        let control = (random.next() % 4 == 0).then(|| {
            let deadline = (random.next() % 2 == 0).then_some(Duration::from_nanos(1));
            let interval = 1 + (random.next() % 12) as u32;
            Control { terminate: deadline.is_none(), deadline, interval }
        });
        epoch.ask(report, asked, control)?;
        if turn % BATCH == BATCH - 1 {
            epoch.check(report, &asked)?;
            execute(report, &std::mem::take(&mut epoch.completed), process, module)?;
            if let Err(error) = process.check(&epoch.model) {
                report.diverges(format!("in the process: {error}"));
            }
            if turn >= LEAST && Instant::now() > end {
                break;
            }
        }
    }
    for asked in epoch.model.drain() {
        epoch.ask(report, asked, None)?;
    }
    let usage = epoch.extension.heap.usage();
    if usage.allocated != usage.freed {
        report.diverges(format!("objects are left: {usage:?}"));
    }
    execute(report, &epoch.completed, process, module)?;
    report.epochs += 1;
    Ok(())
}

/// Executes and compares.
///
/// # Errors
/// When something cannot be loaded, started or read. Divergences are no errors.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let mut report = Report::default();
    let mut process = Process::start(&arguments.user).map_err(Error::msg)?;
    let module = Module(File::options().read(true).write(true).open(MODULE).context(MODULE)?);
    let mut random = Random::of("flex-fuzz", arguments.seed);
    let start = Instant::now();
    while report.divergences == 0 && (report.epochs == 0 || start.elapsed().as_secs_f64() < arguments.seconds) {
        for path in &arguments.objects {
            let bytes = fs::read(path)?;
            let (object, said) = xk_policy::listening(|| ObjectBuilder::default().open_memory(&bytes)?.load());
            let object = object.with_context(|| said)?;
            // Each object has its share of the time.
            let end = Instant::now() + Duration::from_secs_f64(arguments.seconds / arguments.objects.len() as f64);
            let places = [arguments.structures, arguments.exchange];
            epoch(&mut report, &object, places, &mut random, end, (&mut process, &module))?;
        }
    }
    process.end().map_err(Error::msg)?;
    Ok(report)
}
