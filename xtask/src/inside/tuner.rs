//! What a tuner leaves behind when it is killed, and what its sensors cost.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context, Result};
use rustix::time::{clock_gettime, ClockId};
use serde::{Deserialize, Serialize};
use xk_runtime::Device;
use xk_tuner::history::{Record, Trial};
use xk_tuner::random::Random;
use xk_tuner::store::{State, Store};
use xk_tuner::{description, Gauges, Sensor};

/// What is to be done.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The command
    #[arg(long)]
    xk: PathBuf,
    /// The search that is killed
    #[arg(long)]
    search: PathBuf,
    /// A file that it changes
    #[arg(long)]
    knob: PathBuf,
    /// Kills
    #[arg(long)]
    rounds: u32,
    /// Folders of the subsystems whose sensors are read
    #[arg(long)]
    subsystems: PathBuf,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Kills.
    pub rounds: u32,
    /// Trials that had ended before a kill, and were not there after it.
    pub lost_trials: usize,
    /// Knobs that were not as before, when the lease and the guardian had had their time.
    pub knobs_left: u32,
    /// Kills after which another trial was begun than the one that was killed.
    pub other_next: u32,
    /// Kills at which a knob was away from its default.
    pub changed: u32,
    /// Searches that came to their end between kills.
    pub searches: u32,
    /// Share of a processor that all sensors take when they are read once per second.
    pub sensor_cpu: f64,
    /// How many counters that are.
    pub counters: usize,
    /// Events per second that the sensors' own programs count, while two threads want one lock of the kernel.
    pub traced: Traced,
}

/// Events that are counted by programs that the threads themselves execute.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Traced {
    /// Calls of functions.
    pub functions: f64,
    /// Passes of tracepoints.
    pub tracepoints: f64,
}

/// Longer than any lease of the search.
const PATIENCE: Duration = Duration::from_secs(40);

/// Does both.
///
/// # Errors
/// When the tuner does not run, or a sensor cannot be read.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let sensors = all_sensors(&arguments.subsystems)?;
    let (sensor_cpu, counters) = cost(&sensors)?;
    let mut report = Report {
        rounds: arguments.rounds,
        lost_trials: 0,
        knobs_left: 0,
        other_next: 0,
        changed: 0,
        searches: 0,
        sensor_cpu,
        counters,
        traced: traced(&sensors)?,
    };
    kills(arguments, &mut report)?;
    Ok(report)
}

/// Where the search stands: its trials, and the one that was begun.
type Standing = (Vec<Record>, Option<Trial>);

fn kills(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let mut random = Random::new(1);
    let state = tempfile::tempdir()?;
    let untouched = knobs(&arguments.knob)?;
    let mut known: Standing = (Vec::new(), None);
    let mut longest = Duration::from_secs(1);
    let mut killed = 0;
    while killed < arguments.rounds {
        let started = Instant::now();
        let mut tuner = start(arguments, state.path())?;
        let went_on = wait_for_a_trial(&mut tuner, state.path())?;
        longest = longest.max(started.elapsed().min(4 * longest));
        if went_on {
            // Somewhere in this trial or the next.
            sleep(longest.mul_f64(random.unit()));
        }
        let before = standing(state.path())?;
        let away = knobs(&arguments.knob)? != untouched;
        let ended = tuner.try_wait()?.is_some();
        tuner.kill()?;
        tuner.wait()?;
        if ended {
            begin_anew(arguments, state.path())?;
            known = (Vec::new(), None);
            report.searches += 1;
            continue;
        }
        killed += 1;
        report.changed += u32::from(away);
        report.knobs_left += u32::from(!returns(&arguments.knob, &untouched)?);
        let after = standing(state.path())?;
        report.lost_trials += lost(&known, &before) + lost(&before, &after);
        report.other_next += u32::from(!same_next(&known, &after) || !same_next(&before, &after));
        known = after;
        // It was killed after its last word, and before it had ended.
        if concluded(state.path())? {
            begin_anew(arguments, state.path())?;
            known = (Vec::new(), None);
            report.searches += 1;
        }
        if killed % 10 == 0 {
            eprintln!("killed {killed} times, {} of them with a knob changed", report.changed);
        }
    }
    Ok(())
}

/// A search that came to its end leaves nothing to kill.
fn begin_anew(arguments: &Arguments, state: &Path) -> Result<()> {
    command(arguments, state).arg("revert").stdout(Stdio::null()).status()?;
    fs::remove_dir_all(state)?;
    fs::create_dir(state)?;
    Ok(())
}

fn concluded(state: &Path) -> Result<bool> {
    Ok(Store::open(state)?.search(None)?.is_some_and(|search| search.state == State::Done))
}

fn command(arguments: &Arguments, state: &Path) -> Command {
    let mut command = Command::new(&arguments.xk);
    command.arg("tune").env("XK_TUNER", state).env("XK_SUBSYSTEMS", &arguments.subsystems);
    command
}

fn start(arguments: &Arguments, state: &Path) -> Result<Child> {
    let mut command = command(arguments, state);
    command.arg(&arguments.search).stdout(Stdio::null()).spawn().context("xk tune")
}

/// Whether a trial was begun by this tuner, and not just its end.
fn wait_for_a_trial(tuner: &mut Child, state: &Path) -> Result<bool> {
    let who = format!("process {},", tuner.id());
    let begun = |store: Store| -> Result<bool> {
        let (journal, broken) = store.journal()?;
        ensure!(broken.is_none(), "the journal is broken");
        Ok(journal.iter().any(|entry| entry.what["event"] == "trial" && entry.who.contains(&who)))
    };
    let start = Instant::now();
    while start.elapsed() < 4 * PATIENCE {
        if tuner.try_wait()?.is_some() {
            return Ok(false);
        }
        if state.join("tuner.sqlite").exists()
            && Store::open(state).ok().is_some_and(|store| begun(store).unwrap_or(false))
        {
            return Ok(true);
        }
        sleep(Duration::from_millis(20));
    }
    bail!("the tuner begins no trial")
}

fn standing(state: &Path) -> Result<Standing> {
    let store = Store::open(state)?;
    let Some(search) = store.search(None)? else { return Ok((Vec::new(), None)) };
    if search.id != 1 {
        let first = store.search(Some(1))?.map(|first| first.state);
        bail!("a killed search was not gone on with: there is a search {}, and the first is {first:?}", search.id);
    }
    let next = if search.state == State::Open { store.unfinished(1)? } else { None };
    Ok((store.history(1)?, next))
}

/// Trials of `before` that are not in `after`.
fn lost(before: &Standing, after: &Standing) -> usize {
    let agree = before.0.iter().zip(&after.0).take_while(|(a, b)| a == b).count();
    before.0.len() - agree
}

/// Whether what had been begun is what was, or is, tried then.
fn same_next(before: &Standing, after: &Standing) -> bool {
    let Some(begun) = &before.1 else { return true };
    match after.0.get(before.0.len()) {
        Some(record) => record.trial == *begun,
        None => after.1.as_ref() == Some(begun),
    }
}

/// The file, and the tunes of xk.ko.
fn knobs(file: &Path) -> Result<(String, Vec<i64>)> {
    let tunes = Device::open()?.tunes()?;
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Ok((text, tunes.iter().map(|tune| tune.value).collect()))
}

fn returns(file: &Path, untouched: &(String, Vec<i64>)) -> Result<bool> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if knobs(file)? == *untouched {
            return Ok(true);
        }
        sleep(Duration::from_millis(20));
    }
    Ok(false)
}

/// Readings of all sensors.
const READINGS: u32 = 200;

/// The sensors of every subsystem.
fn all_sensors(folder: &Path) -> Result<Vec<Sensor>> {
    let with = [("disk".to_owned(), "nullb0".to_owned())].into();
    let mut sensors = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let file = entry?.path();
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        sensors.extend(description::sensors_of(&name, &with, &[folder.to_owned()])?);
    }
    Ok(sensors)
}

/// Seconds of a processor that one reading of these sensors takes, and their counters.
fn cost(sensors: &[Sensor]) -> Result<(f64, usize)> {
    let mut gauges = Gauges::of(sensors);
    let readable = gauges.read().readable();
    ensure!(readable > 0, "no counter can be read");
    let before = processor()?;
    for _ in 0..READINGS {
        ensure!(gauges.read().readable() == readable, "a counter vanished");
    }
    let used = processor()?.saturating_sub(before).as_secs_f64();
    ensure!(used > 0.0, "reading {readable} counters {READINGS} times took no time at all");
    Ok((used / f64::from(READINGS), readable))
}

/// How long the events of sensors are counted.
const WINDOW: Duration = Duration::from_secs(5);

/// Events per second that sensors count in the threads themselves. The load is the worst that is easily made: two threads
/// write to the same file, and each write wants the same lock.
fn traced(sensors: &[Sensor]) -> Result<Traced> {
    let counters: BTreeSet<&String> = sensors.iter().flat_map(|sensor| sensor.of.iter().chain(&sensor.per)).collect();
    let of_kind = |kind: &str| -> Vec<Sensor> {
        let one = |name: &&&String| name.starts_with(kind);
        let sensor = |name: &&String| Sensor {
            name: (*name).clone(),
            of: vec![(*name).clone()],
            per: vec![],
            similar: 0.0,
            within: 0.0,
        };
        counters.iter().filter(one).map(sensor).collect()
    };
    let kinds = [of_kind("calls:"), of_kind("tracepoint:")];
    let mut gauges = kinds.each_ref().map(|sensors| Gauges::of(sensors));
    let before = gauges.each_mut().map(Gauges::read);
    let file = tempfile::tempfile()?;
    let end = Instant::now() + WINDOW;
    std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| write_until(end, &file)));
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    let mut rates = [0.0; 2];
    for (kind, gauges) in gauges.iter_mut().enumerate() {
        let after = gauges.read();
        rates[kind] = gauges.between(&before[kind], &after).0.values().sum();
    }
    let [functions, tracepoints] = rates;
    Ok(Traced { functions, tracepoints })
}

fn write_until(end: Instant, file: &File) -> Result<()> {
    while Instant::now() < end {
        file.write_all_at(&[0; 4096], 0)?;
    }
    Ok(())
}

/// What this process has used of its processor.
fn processor() -> Result<Duration> {
    Ok(Duration::try_from(clock_gettime(ClockId::ProcessCPUTime))?)
}
