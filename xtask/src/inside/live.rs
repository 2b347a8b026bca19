//! How often a tuner promotes noise, or gives up what it keeps, on a live target: real windows, with the noise of the host.
//!
//! In: a search over knobs that cannot matter to its target, and one that keeps a setting. Out: counts. Searches are made
//! afresh as long as there is time, each with a database of its own, because the first search may spend most of the error
//! level. Then one daemon checks a target for which nothing was found, and another checks a kept setting.

mod service;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_tuner::engine::Ground;
use xk_tuner::history::Outcome;
use xk_tuner::statistics::deviation_around_zero;
use xk_tuner::store::Store;
use xk_tuner::Space;

use service::Service;

/// What is to be done.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The command
    #[arg(long)]
    xk: PathBuf,
    /// A search that has nothing to find
    #[arg(long)]
    idle: PathBuf,
    /// A search that keeps a setting
    #[arg(long)]
    kept: PathBuf,
    /// The file that it changes
    #[arg(long)]
    knob: PathBuf,
    /// The disk that the service reads
    #[arg(long)]
    disk: PathBuf,
    /// Seconds that all of it may take
    #[arg(long)]
    seconds: u64,
}

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Searches with nothing to find.
    pub searches: u32,
    /// Those of them that had a candidate, and tested it in pairs.
    pub tests: u32,
    /// Their trials.
    pub trials: usize,
    /// Their windows.
    pub windows: usize,
    /// Those that promoted something.
    pub promotions: u32,
    /// Noise: the standard deviation of one window of their target, as a difference of logarithms.
    pub noise: f64,
    /// Checks of a daemon for which nothing was found.
    pub idle_checks: usize,
    /// What it promoted.
    pub idle_promotions: usize,
    /// Checks of a daemon that keeps a setting.
    pub kept_checks: usize,
    /// Comparisons with the default in these checks, because the target seemed to have changed.
    pub comparisons: usize,
    /// Settings that the daemon gave up.
    pub given_up: usize,
    /// How often the default was seen in force outside of a comparison.
    pub unexplained: usize,
    /// Seconds of the guest's clock, for each of the four parts.
    pub seconds: [f64; 4],
    /// Rates in consecutive windows without a tuner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<f64>,
    /// The settings of the searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
}

/// The shares of the time of the searches, the series and the two daemons.
const SHARES: [f64; 4] = [0.5, 0.15, 0.05, 0.3];

/// A window of the series, as long as those of the searches.
const WINDOW: Duration = Duration::from_millis(50);

/// Where both searches ask for their target.
const SOCKET: &str = "/run/live.sock";

/// The read-ahead that the daemon improves, in KiB.
const SMALL: &str = "4";

/// The pause between two checks of a daemon.
const EVERY: &str = "50ms";

/// The pause between two looks at the knob.
const TICK: Duration = Duration::from_millis(10);

/// Longer than a search takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Does it.
///
/// # Errors
/// When the tuner does not run, or nothing is kept.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let service = Service::start(&arguments.disk, Path::new(SOCKET))?;
    let mut report = Report::default();
    for (part, share) in SHARES.iter().enumerate() {
        let (start, time) = (Instant::now(), Duration::from_secs(arguments.seconds).mul_f64(*share));
        match part {
            0 => make_searches(arguments, time, &mut report)?,
            1 => report.series = series(&service, time),
            2 => watch_nothing(arguments, time, &mut report)?,
            _ => watch_kept(arguments, time, &mut report)?,
        }
        report.seconds[part] = start.elapsed().as_secs_f64();
    }
    Ok(report)
}

/// The rate of the service in one window after the other.
fn series(service: &Service, time: Duration) -> Vec<f64> {
    let (begin, mut rates) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        let (start, before) = (Instant::now(), service.done());
        sleep(WINDOW);
        rates.push((service.done() - before) as f64 / start.elapsed().as_secs_f64());
    }
    rates
}

fn make_searches(arguments: &Arguments, time: Duration, report: &mut Report) -> Result<()> {
    let (start, mut drifts) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let state = tempfile::tempdir()?;
        let status = tune(arguments, &arguments.idle, state.path()).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "a search failed ({status})");
        let store = Store::open(state.path())?;
        let search = store.search(None)?.context("a search was not recorded")?;
        let history = store.history(search.id)?;
        report.searches += 1;
        report.trials += history.len();
        report.tests += u32::from(history.iter().any(|record| record.trial.order.confirms()));
        for record in &history {
            if let Outcome::Measured(sample) = &record.outcome {
                report.windows += sample.default.len() + 1;
                drifts.extend(sample.drift());
            }
        }
        let conclusion = search.conclusion.context("a search has no conclusion")?;
        report.space.get_or_insert(search.spec.space.clone());
        if conclusion.ground != Ground::Nothing {
            report.promotions += 1;
            eprintln!("promoted: {}: {:?}", search.spec.space.describe(&conclusion.best), conclusion.ground);
            revert(arguments, state.path())?;
        }
        if report.searches % 10 == 0 {
            eprintln!(
                "{} searches, {} with a candidate, {} promotions",
                report.searches, report.tests, report.promotions
            );
        }
    }
    report.noise = deviation_around_zero(&drifts).unwrap_or(0.0) / 2f64.sqrt();
    Ok(())
}

/// A daemon, with its database and what it prints.
struct Daemon {
    process: Child,
    state: tempfile::TempDir,
}

impl Daemon {
    fn start(arguments: &Arguments, search: &Path) -> Result<Self> {
        let state = tempfile::tempdir()?;
        let said = fs::File::create(state.path().join("said"))?;
        let process =
            tune(arguments, search, state.path()).args(["--daemon", "--every", EVERY]).stdout(said).spawn()?;
        let mut daemon = Self { process, state };
        daemon.wait_for_a_result()?;
        Ok(daemon)
    }

    fn said(&self) -> Result<String> {
        Ok(fs::read_to_string(self.state.path().join("said"))?)
    }

    /// The results of searches and checks.
    fn results(&self) -> Result<usize> {
        Ok(self.said()?.lines().filter(|line| line.starts_with("search ")).count())
    }

    fn wait_for_a_result(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.results()? == 0 {
            ensure!(start.elapsed() < PATIENCE, "a daemon does not end its search");
            self.check_alive()?;
            sleep(TICK);
        }
        Ok(())
    }

    fn check_alive(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("a daemon ended ({status}): {}", self.said()?),
        }
    }

    /// The journal's events of this name.
    fn events(&self, name: &str) -> Result<usize> {
        let (journal, broken) = Store::open(self.state.path())?.journal()?;
        ensure!(broken.is_none(), "the journal is broken");
        Ok(journal.iter().filter(|entry| entry.what["event"] == name).count())
    }

    /// Ends the daemon, and reverts what it keeps.
    fn end(mut self, arguments: &Arguments) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = self.process.wait()?;
        ensure!(status.success(), "a daemon failed at its end ({status})");
        revert(arguments, self.state.path())
    }
}

/// A daemon remembers that nothing was found, and looks at the workload in each check.
fn watch_nothing(arguments: &Arguments, time: Duration, report: &mut Report) -> Result<()> {
    let mut daemon = Daemon::start(arguments, &arguments.idle)?;
    let start = Instant::now();
    while start.elapsed() < time {
        daemon.check_alive()?;
        sleep(TICK);
    }
    report.idle_checks = daemon.results()? - 1;
    report.idle_promotions = daemon.said()?.matches(" is better than the default by ").count();
    daemon.end(arguments)
}

/// A daemon keeps a setting, and checks it.
fn watch_kept(arguments: &Arguments, time: Duration, report: &mut Report) -> Result<()> {
    let value = || Ok::<_, anyhow::Error>(fs::read_to_string(&arguments.knob)?.trim().to_owned());
    let usual = value()?;
    fs::write(&arguments.knob, SMALL)?;
    let default = value()?;
    let mut daemon = Daemon::start(arguments, &arguments.kept)?;
    let kept = value()?;
    ensure!(kept != default, "nothing is kept: {}", daemon.said()?);
    let (start, mut away) = (Instant::now(), false);
    while start.elapsed() < time {
        daemon.check_alive()?;
        let was_away = std::mem::replace(&mut away, value()? != kept);
        if away && !was_away && !is_in_comparison(&daemon.said()?) {
            report.unexplained += 1;
        }
        sleep(TICK);
    }
    report.kept_checks = daemon.results()? - 1;
    report.comparisons = daemon.events("compared")?;
    report.given_up = daemon.events("over")?;
    daemon.end(arguments)?;
    ensure!(value()? == default, "the knob was not reverted");
    fs::write(&arguments.knob, usual).with_context(|| arguments.knob.display().to_string())
}

/// Whether the daemon has begun a comparison, and not said how it ended.
fn is_in_comparison(said: &str) -> bool {
    let told = |line: &&str| line.starts_with("search ") || line.contains("is compared with the default:");
    said.lines().rfind(told).is_some_and(|line| !line.starts_with("search "))
}

fn tune(arguments: &Arguments, search: &Path, state: &Path) -> Command {
    let mut command = Command::new(&arguments.xk);
    command.arg("tune").arg(search).env("XK_TUNER", state);
    command
}

fn revert(arguments: &Arguments, state: &Path) -> Result<()> {
    let mut command = Command::new(&arguments.xk);
    let status = command.args(["tune", "revert"]).env("XK_TUNER", state).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "nothing was reverted ({status})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_lasts_until_its_result() {
        let begun =
            "search 1: a = 2 is better\na = 2 is compared with the default: the target has changed\ntrial 1: a = 2\n";
        assert!(is_in_comparison(begun));
        assert!(!is_in_comparison(&format!("{begun}search 2: a = 2 is better than the default again\n")));
        assert!(!is_in_comparison(""));
    }
}
