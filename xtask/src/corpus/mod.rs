//! Every constant of a list, from its name to its scope table or its refusal.
//!
//! Results are reused as long as nothing changed that they depend on (`place.rs`); what is left is
//! analysed by workers (`pool.rs`, `worker.rs`), so that one constant cannot stop the rest. Parts of the
//! list run on several machines (`--shard`) and are merged by copying files; see `docs/scale.md`.

mod guards;
mod load;
mod outcome;
mod place;
mod pool;
mod report;
mod sample;
mod unseen;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};

use crate::lab;
use crate::list::{self, Row, Shard};
use xk_kernel::Tree;

use outcome::{Outcome, Summary};
use place::Results;
use sample::Sample;

/// Options of `cargo xtask corpus`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// One JSON object per constant, then one for all of them
    #[arg(long)]
    json: bool,
    /// The list (default: xtask/corpus.tsv)
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Draw N constants at random from what `xk scan` proposes, instead of the list
    #[arg(long, value_name = "N", conflicts_with_all = ["file", "report", "load", "worker"])]
    sample: Option<usize>,
    /// With --sample: only constants in these folders or subsystems
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "sample")]
    within: Vec<String>,
    /// Constants to analyse side by side (default: as many as there are processors and memory for)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Only part I of N, counted from 1
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: Shard,
    /// Seconds for one constant
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    limit: u64,
    /// Analyse again what was analysed before; compiled variants are used nevertheless
    #[arg(long)]
    fresh: bool,
    /// Write docs/corpus.md from the results
    #[arg(long, conflicts_with_all = ["load", "worker"])]
    report: bool,
    /// Load every usable constant at once in a guest, under load
    #[arg(long, conflicts_with = "worker")]
    load: bool,
    /// With --load: how control reaches the updates, `kprobe` or `auto`
    #[arg(long, default_value = "kprobe", requires = "load", value_name = "BACKEND")]
    backend: String,
    /// Compile and compare N random values of what each table accepts, and those beside the numbers of
    /// its code
    #[arg(long, value_name = "N", conflicts_with_all = ["report", "load", "worker"])]
    unseen: Option<usize>,
    /// With --sample and --unseen: draw the same constants and values again (default: others each time)
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Answer rows on standard input; for the runner itself
    #[arg(long, hide = true, value_name = "COMPILERS")]
    worker: Option<usize>,
}

impl Arguments {
    /// The rows of the list, or of a sample.
    fn rows(&self, tree: &Tree, seed: u64) -> Result<Vec<Row>> {
        if let Some(number) = self.sample {
            eprintln!("sample: seed {seed}");
            return Sample { number, seed, within: &self.within }.draw(tree);
        }
        let file =
            self.file.clone().map_or_else(|| Ok(lab::repository()?.join("xtask/corpus.tsv")), Ok::<_, anyhow::Error>);
        list::read(&file?)
    }
}

/// Runs the list.
///
/// # Errors
/// When the list or the kernel is not there, or the analysis of a constant failed: a refusal is a
/// result, a failure is not.
pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(compilers) = arguments.worker {
        return worker::serve(compilers);
    }
    let started = Instant::now();
    let (image, tree) = lab::image_and_tree()?;
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
    let seed = arguments.seed.unwrap_or_else(now);
    let rows = arguments.shard.rows(&arguments.rows(&tree, seed)?);
    let results = Results::open(&image, &tree)?;
    let release = image.id().release.clone();
    drop((image, tree));

    let outcomes = analyse(arguments, &rows, &results)?;
    let summary = Summary::of(&outcomes, started.elapsed().as_secs_f64());
    if arguments.report {
        let path = lab::repository()?.join("docs/corpus.md");
        std::fs::write(&path, report::page(&release, &rows, &outcomes, &summary))
            .with_context(|| path.display().to_string())?;
        eprintln!("{}", path.display());
    } else if arguments.load {
        load::run(&outcomes, &results, &arguments.backend, arguments.json)?;
    } else if let Some(number) = arguments.unseen {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let jobs = arguments.jobs.map_or_else(|| processors.min(fitting()), usize::from);
        unseen::run(&outcomes, &results, number, seed, jobs, arguments.json)?;
    } else if arguments.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        print!("{}", report::total(&summary));
    }
    ensure!(summary.errors() == 0, "{} constant(s) could not be analysed; their reasons are above", summary.errors());
    Ok(())
}

/// The outcome of every row, in their order. Each is printed as soon as those before it are known.
fn analyse(arguments: &Arguments, rows: &[Row], results: &Results) -> Result<Vec<Outcome>> {
    let known: Vec<Option<Outcome>> =
        rows.iter().map(|row| if arguments.fresh { None } else { results.get(row) }).collect();
    let (positions, open): (Vec<usize>, Vec<Row>) =
        rows.iter().enumerate().filter(|(at, _)| known[*at].is_none()).map(|(at, row)| (at, row.clone())).unzip();
    let printer = Mutex::new(Printer { arguments, waiting: BTreeMap::new(), outcomes: Vec::new(), failed: None });
    for (at, outcome) in known.into_iter().enumerate() {
        if let Some(outcome) = outcome {
            printer.lock().unwrap_or_else(PoisonError::into_inner).add(at, outcome);
        }
    }
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = arguments.jobs.map_or_else(|| processors.min(fitting()), usize::from).max(1);
    let plan = pool::Plan {
        workers,
        limit: Duration::from_secs(arguments.limit),
        command: worker_command,
        compilers: processors.div_ceil(workers.min(open.len().max(1))),
    };
    pool::run(&plan, &open, &|index, outcome| {
        let kept = results.put(&open[index], &outcome);
        let mut printer = printer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = kept {
            printer.failed.get_or_insert(error);
        }
        printer.add(positions[index], outcome);
    })?;
    let printer = printer.into_inner().unwrap_or_else(PoisonError::into_inner);
    match printer.failed {
        Some(error) => Err(error.context("results could not be kept or shown")),
        None => Ok(printer.outcomes),
    }
}

/// Prints outcomes in the order of the rows.
struct Printer<'a> {
    arguments: &'a Arguments,
    waiting: BTreeMap<usize, Outcome>,
    outcomes: Vec<Outcome>,
    failed: Option<anyhow::Error>,
}

impl Printer<'_> {
    fn add(&mut self, at: usize, outcome: Outcome) {
        if !outcome.reused {
            eprintln!("{}: {:.1} s", outcome.name, outcome.seconds);
        }
        self.waiting.insert(at, outcome);
        while let Some(outcome) = self.waiting.remove(&self.outcomes.len()) {
            if self.arguments.unseen.is_some() {
                // What comes of its values is printed.
            } else if self.arguments.json && !self.arguments.load {
                match serde_json::to_string(&outcome) {
                    Ok(line) => println!("{line}"),
                    Err(error) => self.failed = Some(error.into()),
                }
            } else if !self.arguments.report && !self.arguments.load {
                println!("{}", report::line(&outcome));
            }
            self.outcomes.push(outcome);
        }
    }
}

fn worker_command(compilers: usize) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program's own path")?);
    command.args(["corpus", "--worker", &compilers.to_string()]);
    Ok(command)
}

/// Workers that the memory has room for: the largest analyses take a little over 1 GB, compilers
/// included.
fn fitting() -> usize {
    const EACH_KB: usize = 1_500_000;
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kb = available.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    kb.map_or(1, |kb| kb / EACH_KB).max(1)
}
