//! `xk tune`: searches good settings on a real workload, and remembers them. xk-tuner does the work; this module is its
//! command line, finds scope tables, and prints results.

mod described;
mod exchange;
mod show;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use xk_apply::parse_time;
use xk_kernel::KernelId;
use xk_runtime::{BackendChoice, Device, Rules};
use xk_store::{Addresses, Folders, LookupError, Tables};
use xk_tuner::description::{folders, DescriptionError, Job};
use xk_tuner::exchange::ExchangeError;
use xk_tuner::knob::{Constant, Constants, NoConstant};
use xk_tuner::metrics::Publisher;
use xk_tuner::modules;
use xk_tuner::plan::plan;
use xk_tuner::session::{once, recover, revert, stop_file, taken, Setup, Summary};
use xk_tuner::store::{Lock, Store};
use xk_tuner::{guardian, report, Error as TunerError};

use crate::exit::{Exit, Failure, Result};
use crate::notify::Notify;
use crate::signals;

/// The directory of the database, unless `XK_TUNER` or `--state` names another.
const STATE: &str = "/var/lib/xk/tuner";

/// The directory of the database and of this machine's key.
pub fn state_folder() -> PathBuf {
    let variable = std::env::var_os("XK_TUNER").filter(|value| !value.is_empty());
    variable.map_or_else(|| STATE.into(), PathBuf::from)
}

/// Arguments of `xk tune`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
FILE names parameters, a target and constraints (see docs/tuner.md). Every setting is compared with the default in the same \
trial; before a candidate is kept, it must also win in fresh, randomly ordered pairs. The same command resumes a search that was \
interrupted or killed. While its result is kept, it compares that with the default; --daemon does so only for a reason."
)]
pub struct Args {
    /// Target file
    #[arg(required = true)]
    file: Option<PathBuf>,
    /// Show which knobs would be changed, in which order, and who restores them; change nothing
    #[arg(long, conflicts_with_all = ["once", "daemon"])]
    plan: bool,
    /// Search once (the default)
    #[arg(long, conflicts_with = "daemon")]
    once: bool,
    /// Search again, even if the best setting for this workload is known
    #[arg(long, conflicts_with = "plan")]
    afresh: bool,
    /// Run as a daemon: search, keep improvements, check that they still hold
    #[arg(long)]
    daemon: bool,
    /// With --daemon: interval between checks
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = parse_time)]
    every: Duration,
    /// Write a report when the search ends
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write metrics here, in Prometheus' text format, after each trial (for node_exporter: NAME.prom)
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Directory for the history of searches (default: $XK_TUNER, or /var/lib/xk/tuner)
    #[arg(long, value_name = "FOLDER", global = true)]
    state: Option<PathBuf>,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show the last search, the knobs that are changed now, and whether a tuner is running
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the journal: who changed what, from which value to which, on what evidence
    History {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the parameters and meters that loaded modules describe
    Parameters {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print metrics of the tuner in Prometheus' text format
    Metrics,
    /// Write the report of a search
    Report {
        /// Its number; the last one if it is not given
        #[arg(long)]
        search: Option<i64>,
        /// The HTML file
        file: PathBuf,
    },
    /// Write remembered settings to a signed file, for machines like this one
    Export {
        /// The file
        file: PathBuf,
        /// Only settings of this search
        #[arg(long, value_name = "NAME")]
        search: Option<String>,
    },
    /// Import the settings of such a file that apply to a search of this machine
    Import {
        /// The file
        file: PathBuf,
        /// The description of the search
        search: PathBuf,
    },
    /// Print this machine's key, which other machines must trust to import its files
    Key,
    /// End the running tuner, and block new ones until `resume`
    Stop,
    /// Allow tuning again
    Resume,
    /// Revert what searches have kept
    Revert,
    /// Restore knobs when the tuner dies (started by the tuner itself)
    #[command(hide = true)]
    Guard,
}

impl Args {
    /// Whether JSON was asked for.
    pub fn json(&self) -> bool {
        let action = self.action.as_ref();
        matches!(
            action,
            Some(Action::Status { json: true } | Action::History { json: true } | Action::Parameters { json: true })
        )
    }

    fn state(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(state_folder)
    }
}

impl From<TunerError> for Failure {
    fn from(error: TunerError) -> Self {
        let exit = match &error {
            TunerError::Description(DescriptionError::Wrong { .. }) => Exit::Usage,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<ExchangeError> for Failure {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Tuner(error) => error.into(),
            error @ ExchangeError::File { .. } => Failure::error(error.to_string()),
        }
    }
}

/// Runs `xk tune`.
pub fn run(args: &Args) -> Result {
    let state = args.state();
    match &args.action {
        None => tune(args),
        Some(Action::Guard) => {
            guardian::serve(&OnDemand, |line| eprintln!("xk tune: {line}"));
            Ok(())
        }
        Some(Action::Status { json }) => show::status(&state, *json),
        Some(Action::History { json }) => show::history(&state, *json),
        Some(Action::Parameters { json }) => described::parameters(*json),
        Some(Action::Metrics) => show::metrics(&state),
        Some(Action::Report { search, file }) => write_report(&Store::open(&state)?, *search, file),
        Some(Action::Export { file, search }) => exchange::export(&state, file, search.as_deref()),
        Some(Action::Import { file, search }) => exchange::import(&state, file, search, &Live::new()?),
        Some(Action::Key) => exchange::key(&state),
        Some(Action::Stop) => stop(&state),
        Some(Action::Resume) => resume(&state),
        Some(Action::Revert) => {
            let store = Store::open(&state)?;
            let _lock = Lock::take(&state, Duration::ZERO)?;
            let live = Live::new()?;
            let lines = [recover(&store, &live)?, revert(&store, &live)?].concat();
            lines.iter().for_each(|line| println!("{line}"));
            if lines.is_empty() {
                println!("nothing is kept");
            }
            Ok(())
        }
    }
}

/// The constants of the running kernel.
struct Live {
    folders: Folders,
    tables: Tables,
    build_id: String,
}

impl Live {
    fn new() -> Result<Self> {
        let (folders, kernel) = (Folders::from_environment(), KernelId::live()?);
        let tables = Tables::read(&folders, &kernel.build_id)?;
        Ok(Self { folders, tables, build_id: kernel.build_id })
    }
}

impl Constants for Live {
    fn find(&self, name: &str) -> std::result::Result<Constant, NoConstant> {
        // The tuner uses kprobes.
        Rules::read()?.check(BackendChoice::Kprobe)?;
        let no_table = |error: LookupError| NoConstant::Table { name: name.to_owned(), message: error.to_string() };
        let table = self.tables.find(&self.folders, name).map_err(no_table)?;
        let addresses = Addresses::live(std::iter::once(table))?;
        Ok(Constant::new(Device::open()?, Rc::new(addresses), table.clone()))
    }
}

/// The constants of the running kernel, for the guardian: it seldom needs them, and must start even where they cannot be read.
struct OnDemand;

impl Constants for OnDemand {
    fn find(&self, name: &str) -> std::result::Result<Constant, NoConstant> {
        let no_table = |failure: Failure| NoConstant::Table { name: name.to_owned(), message: failure.message };
        Live::new().map_err(no_table)?.find(name)
    }
}

fn tune(args: &Args) -> Result {
    let Some(file) = &args.file else { return Err(Failure::usage("name the FILE that describes the search")) };
    let jobs = Job::read(file, &folders(), &modules::Kernel).map_err(TunerError::from)?;
    let live = Live::new()?;
    if args.plan {
        if jobs.len() > 1 {
            println!("subsystems that limit the target are tuned, the one that limits it most first");
        }
        // A plan creates no database.
        let store = Store::open_existing(&args.state())?;
        let taken = store.map(|store| taken(&store, &jobs)).transpose()?.unwrap_or_default();
        for job in &jobs {
            show::plan(job, &plan(job, &live, &taken)?);
        }
        return Ok(());
    }
    let interrupted = signals::flag();
    let manager = Notify::from_environment();
    manager.ready();
    loop {
        let summaries = match search(args, &jobs, &live, interrupted, &manager) {
            // A daemon outlives a service that is down, a limit that is broken for a while, and a longer search of another.
            Err(SearchError::Tuner(
                error @ (TunerError::Target(_) | TunerError::Constraint(_) | TunerError::Locked { .. }),
            )) if args.daemon => {
                println!("{error}; the next check is in {} s", args.every.as_secs());
                manager.status(&error.to_string());
                Vec::new()
            }
            summaries => summaries?,
        };
        for summary in &summaries {
            manager.status(&summary.sentence);
            show::summary(summary);
        }
        if let Some((report, last)) = args.report.as_ref().zip(summaries.last()) {
            write_report(&Store::open(&args.state())?, Some(last.search), report)?;
        }
        if !args.daemon || summaries.iter().any(|summary| summary.is_interrupted) {
            return Ok(());
        }
        let next = Instant::now() + args.every;
        while Instant::now() < next {
            if interrupted.load(Ordering::Relaxed) || stop_file(&args.state()).exists() {
                return Ok(());
            }
            manager.alive();
            std::thread::sleep(Duration::from_millis(200).min(args.every));
        }
    }
}

/// Why there is no summary.
enum SearchError {
    Tuner(TunerError),
    Failure(Failure),
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Tuner(error) => error.into(),
            SearchError::Failure(failure) => failure,
        }
    }
}

fn search(
    args: &Args,
    jobs: &[Job],
    live: &Live,
    interrupted: &AtomicBool,
    manager: &Notify,
) -> std::result::Result<Vec<Summary>, SearchError> {
    let Some(job) = jobs.first().cloned() else { return Ok(Vec::new()) };
    let program = std::env::current_exe()
        .map_err(|error| Failure::error(format!("cannot find the path of this program: {error}")))
        .map_err(SearchError::Failure)?;
    let mut guardian = Command::new(program);
    guardian.args(["tune", "guard"]);
    let setup = Setup {
        job,
        folder: args.state(),
        constants: live,
        guardian,
        build_id: live.build_id.clone(),
        afresh: args.afresh,
        compare: !args.daemon,
        interrupted,
        say: &|line| {
            println!("{line}");
            manager.status(line);
        },
        metrics: args.metrics.clone().map(Publisher::to),
        alive: &|| manager.alive(),
    };
    once(setup, jobs).map_err(SearchError::Tuner)
}

fn write_report(store: &Store, search: Option<i64>, file: &Path) -> Result {
    let Some(search) = store.search(search)? else { return Err(Failure::error("there is no such search")) };
    let page = report::html(&search, &store.history(search.id)?)
        .map_err(|error| Failure::error(format!("the report of search {}: {error}", search.id)))?;
    fs::write(file, page).map_err(|error| Failure::error(format!("{}: {error}", file.display())))?;
    println!("report of search {}: {}", search.id, file.display());
    Ok(())
}

/// How long a tuner may take to restore all knobs.
const ENDING: Duration = Duration::from_secs(60);

fn stop(state: &Path) -> Result {
    let file = stop_file(state);
    let failed = |error: std::io::Error| Failure::error(format!("{}: {error}", file.display()));
    fs::create_dir_all(state).map_err(failed)?;
    let who = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).unwrap_or_else(|_| "root".into());
    fs::write(&file, format!("by {who}, process {}\n", std::process::id())).map_err(failed)?;
    // The lock is free when the tuner and its guardian have ended.
    let _lock = Lock::take(state, ENDING)?;
    println!("stopped: no tuner is running, and none starts until `xk tune resume`");
    Ok(())
}

fn resume(state: &Path) -> Result {
    match fs::remove_file(stop_file(state)) {
        Ok(()) => println!("tuning is allowed again; the same command resumes the search"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => println!("tuning was not stopped"),
        Err(error) => return Err(Failure::error(format!("{}: {error}", stop_file(state).display()))),
    }
    Ok(())
}
