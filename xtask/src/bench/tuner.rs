//! Whether the tuner finds what there is to find on real workloads, in deterministic guests: beside the whole grid, the
//! paper's search in both readings, ours without a memory, and ours with one. How often noise alone is promoted
//! (arithmetic, without a machine), what a hundred kills leave behind, and what the sensors cost.

mod live;
mod noise;
mod recording;
mod workload;

use std::path::{Path, PathBuf};

use anyhow::{ensure, Context, Result as Fallible};
use serde::Serialize;
use xk_tuner::engine::Racing;
use xk_tuner::history::Goal;
use xk_tuner::replay::{play, Noise, Surface};
use xk_tuner::simulation::{false_promotions_per_year, minimum, power};
use xk_tuner::{Point, Space};

use super::{rounded, say};
use crate::inside::traced;
use crate::inside::tuner::Report;
use crate::lab;
use crate::side_by_side::at_once;
pub use live::Live;
use noise::NOISE;
use workload::Workload;

/// Every workload of `bench/tuner`, the longest first.
const WORKLOADS: [&str; 13] = [
    "tpcb",
    "sweep",
    "sqlite",
    "sort",
    "hackbench",
    "redis",
    "map",
    "threads",
    "iperf3",
    "skip",
    "grep",
    "stream",
    "pages",
];
/// Those that no engine and no subsystem was developed with. They were written before any of them was searched, and
/// nothing may be changed because of what they show: then they would no longer be held out.
const HELD_OUT: [&str; 4] = ["iperf3", "redis", "sort", "sqlite"];
/// What `tpcb` runs.
const DATABASE: [&str; 2] = ["postgresql-15", "postgresql-client-15"];
/// Perf-consts among their parameters.
const CONSTANTS: [&str; 2] = ["BLK_MAX_REQUEST_COUNT", "TCP_INIT_CWND"];
/// Searches of a flat target.
const FLAT_SEARCHES: u64 = 1000;
/// Promotions by mistake, of all.
const MISTAKES: f64 = 0.01;
/// Years of a daemon that are simulated.
const DAEMONS: u64 = 400;
/// Share of the right candidates that must be confirmed.
const POWER: f64 = 0.8;
/// Share of a processor that sensors may take.
const SENSORS: f64 = 0.005;

/// What may be chosen.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// tuner: only this workload of bench/tuner; may be repeated
    #[arg(long = "workload", value_name = "NAME", value_parser = WORKLOADS)]
    workloads: Vec<String>,
    /// tuner: kills
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// tuner: minutes of searches of a live target with nothing to find, and of checks
    #[arg(long = "live-minutes", value_name = "MINUTES", default_value_t = 12)]
    live: u64,
    /// tuner: guests at once; one for each processor by default
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// tuner: leave what the searches of each workload have recorded in this folder; what is recorded there by the same xk,
    /// scripts, subsystems and workload is not searched again
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// tuner: judge what is recorded in this folder by `--keep`, and boot no guest: no kills, no sensors, nothing live
    #[arg(long, value_name = "FOLDER", conflicts_with = "keep")]
    recorded: Option<PathBuf>,
}

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    workloads: Vec<Workload>,
    /// Those that were held out of the development.
    heldout: Vec<Workload>,
    /// Share of searches of a flat target, with noise put in, in which something was promoted.
    false_promotion: f64,
    false_promotion_searches: u64,
    /// Share of first searches that confirm the right candidate, if it gains 5 % under 5 % of noise, in 120 trials.
    power_5_5: f64,
    /// Promotions in the first year of a daemon that searches each week, if every setting is better by exactly the minimum
    /// effect, which is where the tests err most.
    false_promotion_per_year: f64,
    /// Share of a processor that every sensor of every subsystem takes, read once per second; there are none of what
    /// is only judged, nor kills.
    sensor_cpu: Option<f64>,
    sensor_counters: Option<usize>,
    /// What counting costs the threads in which the events of sensors happen.
    sensor_traced: Option<Traced>,
    kill9: Option<Kills>,
    /// False promotions on a live target.
    aa_live: Option<Live>,
    missed: Vec<String>,
}

/// The other side of `sensor_cpu`: threads execute the programs of sensors that count by eBPF. They do so during the first
/// window of a search only.
#[derive(Debug, Serialize)]
struct Traced {
    /// Instructions that a deterministic guest executes for each event.
    instructions: traced::Report,
    /// Events per second, in an ordinary guest in which two threads want one lock.
    calls_per_second: f64,
    tracepoints_per_second: f64,
    /// Instructions times rates: the share of a processor that executes a thousand million instructions per second.
    cpu: f64,
}

impl Traced {
    fn new(instructions: traced::Report, report: &Report) -> Self {
        let (calls, tracepoints) = (report.traced.functions, report.traced.tracepoints);
        Self {
            instructions,
            calls_per_second: rounded(calls),
            tracepoints_per_second: rounded(tracepoints),
            cpu: rounded((instructions.function * calls + instructions.tracepoint * tracepoints) / 1e9),
        }
    }

    fn line(&self) -> String {
        let traced::Report { function, tracepoint } = self.instructions;
        format!(
            "counting costs the thread {function:.0} instructions for each call of a function, {tracepoint:.0} for each \
             tracepoint; with {:.0} calls and {:.0} tracepoints per second, {:.4} % of a processor\n",
            self.calls_per_second,
            self.tracepoints_per_second,
            100.0 * self.cpu
        )
    }
}

#[derive(Debug, Serialize)]
struct Kills {
    rounds: u32,
    /// Rounds in which a knob was away from its default when the tuner was killed.
    changed: u32,
    lost_trials: usize,
    knobs_left: u32,
    /// Rounds after which another trial came than the one that was killed.
    other_next: u32,
}

impl Kills {
    fn line(&self) -> String {
        let Kills { rounds, changed, lost_trials, knobs_left, other_next } = self;
        format!(
            "{rounds} kills, {changed} with a knob changed: {lost_trials} trials lost, {knobs_left} knobs left, \
             {other_next} times another trial next\n"
        )
    }
}

/// What every guest needs.
struct Guest {
    /// Shell assignments.
    environment: String,
    module: String,
    programs: String,
    /// `workload.c` and `disk.c` of `bench/tuner`, compiled.
    compiled: [PathBuf; 2],
    /// Holds the scope tables until the last guest has ended.
    _store: tempfile::TempDir,
}

/// Builds what is needed, and boots a guest for each workload, and one to kill tuners in.
pub fn run(options: &Options) -> Fallible<Result> {
    let kernel = lab::kernel()?;
    let guest = options.recorded.is_none().then(|| prepare(&kernel)).transpose()?;
    let chosen = |name: &&str| options.workloads.is_empty() || options.workloads.iter().any(|wanted| wanted == name);
    let names: Vec<&str> = WORKLOADS.into_iter().filter(chosen).collect();
    // A guest is one processor's work, and its clock counts instructions: beside others it does the same.
    let jobs = options.jobs.map_or_else(|| std::thread::available_parallelism().map(usize::from), Ok)?;
    let searched = at_once(jobs, &names, |name| {
        say(&format!("{name}: the whole grid, the paper's search in both readings, ours, and ours again"));
        let (workload, space) = options.workload(guest.as_ref(), &kernel.release, name)?;
        eprint!("{}", workload.table());
        Ok((workload, space))
    })?;
    let (workloads, spaces): (Vec<Workload>, Vec<Space>) = searched.into_iter().unzip();
    let false_promotion = false_promotion(spaces.first().context("there is no workload")?)?;
    let simulated = Simulated::of(spaces.first().context("there is no workload")?)?;
    let report = guest.as_ref().map(|guest| kills(guest, options.kills)).transpose()?;
    let instructions = guest.as_ref().map(|_| per_event()).transpose()?;
    let live = guest.as_ref().map(|guest| Live::in_guest(Path::new(&guest.programs), options.live)).transpose()?;
    let mut missed: Vec<String> = workloads.iter().flat_map(Workload::missed).collect();
    missed.extend(beyond(false_promotion, &simulated, report.as_ref()));
    missed.extend(live.iter().flat_map(Live::missed));
    let (heldout, workloads) = workloads.into_iter().partition(|one| HELD_OUT.contains(&one.name.as_str()));
    Ok(Result {
        bench: "tuner",
        kernel: kernel.release,
        workloads,
        heldout,
        false_promotion,
        false_promotion_searches: FLAT_SEARCHES,
        power_5_5: simulated.power_5_5,
        false_promotion_per_year: simulated.false_promotion_per_year,
        sensor_cpu: report.as_ref().map(|report| (report.sensor_cpu * 1e6).round() / 1e6),
        sensor_counters: report.as_ref().map(|report| report.counters),
        sensor_traced: instructions.zip(report.as_ref()).map(|(each, report)| Traced::new(each, report)),
        kill9: report.map(|report| Kills {
            rounds: report.rounds,
            changed: report.changed,
            lost_trials: report.lost_trials,
            knobs_left: report.knobs_left,
            other_next: report.other_next,
        }),
        aa_live: live,
        missed,
    })
}

impl Options {
    fn workload(&self, guest: Option<&Guest>, kernel: &str, name: &str) -> Fallible<(Workload, Space)> {
        let kept = self.recorded.as_ref().or(self.keep.as_ref()).map(|folder| folder.join(name));
        match (guest, kept) {
            (Some(guest), Some(folder)) => recording::read_or_make(guest, kernel, name, &folder),
            (Some(guest), None) => workload::run(guest, name, tempfile::tempdir()?.path()),
            (None, folder) => workload::read(name, &folder.context("there is no guest")?),
        }
    }
}

fn prepare(kernel: &lab::Kernel) -> Fallible<Guest> {
    let prepared = lab::output(lab::command("scripts/prepare")?.arg(lab::KERNEL))?;
    let [programs, module] = prepared.lines().take(2).collect::<Vec<_>>()[..] else {
        anyhow::bail!("scripts/prepare did not print the folder of xk and the module");
    };
    let store = tempfile::tempdir()?;
    lab::output(
        lab::command(&format!("{programs}/xk"))?
            .args(["build", "--root", &kernel.root.display().to_string()])
            .args(CONSTANTS)
            .env("XK_STORE", store.path()),
    )?;
    let [workload, disk] = [compile("workload")?, compile("disk")?];
    let database = lab::output(lab::command("scripts/unpack")?.args(DATABASE))?;
    let environment = format!(
        "export XK_STORE={} XK_MODULE={module} XK_WORKLOAD={} XK_DISK={} XK_POSTGRESQL={} PATH={programs}:$PATH;",
        store.path().display(),
        workload.display(),
        disk.display(),
        database.trim_end()
    );
    Ok(Guest {
        environment,
        module: module.to_owned(),
        programs: programs.to_owned(),
        compiled: [workload, disk],
        _store: store,
    })
}

/// A program of `bench/tuner`.
fn compile(name: &str) -> Fallible<PathBuf> {
    let program = lab::target()?.join(format!("tuner-{name}"));
    lab::output(
        lab::command("gcc-12")?
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", "-o"])
            .arg(&program)
            .arg(format!("bench/tuner/{name}.c"))
            .arg("-lm"),
    )?;
    Ok(program)
}

/// How often noise alone is promoted.
fn false_promotion(space: &Space) -> Fallible<f64> {
    let mut promoted = 0;
    for seed in 0..FLAT_SEARCHES {
        let mut flat = Surface::new(|_: &Point| 1.0, Noise::Normal(NOISE), seed);
        let (_, end) = play(&Racing::new(seed, minimum()), space, Goal::Maximise, 200, &mut flat)?;
        promoted += u32::from(end.best != space.default_point());
    }
    Ok(rounded(f64::from(promoted) / FLAT_SEARCHES as f64))
}

/// What the tuner finds, and promotes by mistake, in simulations (`xk_tuner::simulation`).
struct Simulated {
    power_5_5: f64,
    false_promotion_per_year: f64,
}

impl Simulated {
    fn of(space: &Space) -> Fallible<Self> {
        say(&format!("simulating {DAEMONS} years of a daemon"));
        let (power_5_5, _) = power(space, 0.05, Noise::Normal(0.05), FLAT_SEARCHES)?;
        let per_year = false_promotions_per_year(space, minimum().exp_m1(), Noise::Normal(NOISE), DAEMONS)?;
        Ok(Self { power_5_5: rounded(power_5_5), false_promotion_per_year: rounded(per_year) })
    }
}

/// A guest with two processors and an ordinary clock: the moment at which a tuner is killed is not planned.
fn kills(guest: &Guest, rounds: u32) -> Fallible<Report> {
    say(&format!("killing {rounds} tuners, and reading sensors"));
    let script = format!(
        "{} insmod {} && modprobe null_blk nr_devices=1 gb=1 && exec {} inside tuner --xk {}/xk --search \
         bench/tuner/kill9.toml --knob /sys/block/nullb0/queue/read_ahead_kb --subsystems {} --rounds {rounds}",
        guest.environment,
        guest.module,
        std::env::current_exe()?.display(),
        guest.programs,
        Path::new("subsystems").display()
    );
    let printed = lab::run_guest(&script, &["--timeout", "7200"])?;
    let last = printed.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))
}

/// What counting an event costs the thread in which it happens.
fn per_event() -> Fallible<traced::Report> {
    say("counting events in a deterministic guest");
    let printed = lab::run_deterministic(&format!("exec {} inside traced", std::env::current_exe()?.display()))?;
    let last = printed.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))
}

fn beyond(false_promotion: f64, simulated: &Simulated, report: Option<&Report>) -> Vec<String> {
    let of_report = report.map(|report| {
        [
            ("sensors take half a hundredth of a processor at most", report.sensor_cpu <= SENSORS),
            ("no trial is lost by a kill", report.lost_trials == 0),
            ("no knob stays changed after a kill", report.knobs_left == 0),
            ("a killed trial comes again", report.other_next == 0),
            ("a third of the kills hit a tuner that has changed something", report.changed * 3 >= report.rounds),
        ]
    });
    let noise = ("noise is promoted once in a hundred searches at most", false_promotion <= MISTAKES);
    let power = ("a gain of 5 % under 5 % of noise is confirmed in 80 of 100 searches", simulated.power_5_5 >= POWER);
    let years = ("noise is promoted once in 100 years at most", simulated.false_promotion_per_year <= MISTAKES);
    let promises: Vec<(&str, bool)> = of_report.into_iter().flatten().chain([noise, power, years]).collect();
    promises.iter().filter(|(_, holds)| !holds).map(|(promise, _)| (*promise).to_owned()).collect()
}

impl Result {
    /// For people.
    pub fn table(&self) -> String {
        let workloads: String = self.workloads.iter().map(Workload::table).collect();
        let heldout: String = self.heldout.iter().map(Workload::table).collect();
        let sensors = self.sensor_counters.zip(self.sensor_cpu).map_or_else(String::new, |(counters, cpu)| {
            format!("{counters} counters, read once per second, take {:.4} % of a processor\n", 100.0 * cpu)
        });
        let traced = self.sensor_traced.as_ref().map_or_else(String::new, Traced::line);
        let kills = self.kill9.as_ref().map_or_else(String::new, Kills::line);
        let live = self.aa_live.as_ref().map_or_else(String::new, Live::table);
        format!(
            "{workloads}held out:\n{heldout}noise alone was promoted in {:.1} % of {FLAT_SEARCHES} searches, and {:.3} times per year of a \
             daemon\n5 % under 5 % of noise is confirmed in {:.0} of 100 searches\n{sensors}{traced}{kills}{live}",
            100.0 * self.false_promotion,
            self.false_promotion_per_year,
            100.0 * self.power_5_5,
        )
    }

    /// Whether every promise holds.
    ///
    /// # Errors
    /// Those that do not.
    pub fn verdict(&self) -> Fallible<()> {
        ensure!(self.missed.is_empty(), "tuner: not so: {}", self.missed.join("; "));
        Ok(())
    }
}
