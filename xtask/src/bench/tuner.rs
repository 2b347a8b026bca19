//! Whether the tuner finds what there is to find: parallel grep on a disk that is slow to answer, in a deterministic
//! guest. The whole grid is measured once; beside it the paper's search, ours without a memory, and ours with one. Then
//! the recorded grid answers both engines again with noise put in, and a flat target shows how often noise alone is
//! promoted: that is arithmetic, and needs no machine.

use std::fmt::Write;
use std::path::Path;

use anyhow::{ensure, Context, Result as Fallible};
use serde::Serialize;
use xk_tuner::engine::{Engine, Orthogonal, Racing};
use xk_tuner::history::{Goal, Record};
use xk_tuner::replay::{play, Noise, Recorded, Source, Surface};
use xk_tuner::store::{Search, Store};
use xk_tuner::{Point, Space};

use super::{rounded, say};
use crate::lab;

/// Searches with noise put in, of each engine.
const NOISY_SEARCHES: u64 = 200;
/// Deviation of the noise that is put in, as a share.
const NOISE: f64 = 0.10;
/// Searches of a flat target.
const FLAT_SEARCHES: u64 = 1000;
/// What counts as found: this share of the grid's optimum.
const FOUND: f64 = 0.95;
/// Promotions by mistake, of all.
const MISTAKES: f64 = 0.01;

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    workloads: Vec<Workload>,
    /// Share of searches of a flat target, with [`NOISE`], in which something was promoted.
    false_promotion: f64,
    false_promotion_searches: u64,
    missed: Vec<String>,
}

/// One workload. Speeds are runs per second of the guest's clock.
#[derive(Debug, Serialize)]
struct Workload {
    name: &'static str,
    default: f64,
    cold: f64,
    warm: f64,
    grid_best: f64,
    orthogonal: f64,
    trials_cold: usize,
    trials_warm: usize,
    trials_grid: usize,
    trials_orthogonal: usize,
    settings: [String; 4],
    /// Mean share of the grid's optimum, by replay of the grid with [`NOISE`].
    noisy_racing: f64,
    noisy_orthogonal: f64,
}

/// Boots the guest, and replays what it recorded.
///
/// # Errors
/// When a search in the guest fails.
pub fn run() -> Fallible<Result> {
    let kernel = lab::kernel()?;
    let prepared = lab::output(lab::command("scripts/prepare")?.arg(lab::KERNEL))?;
    let [programs, module] = prepared.lines().take(2).collect::<Vec<_>>()[..] else {
        anyhow::bail!("scripts/prepare did not print the folder of xk and the module");
    };
    let xk = Path::new(programs).join("xk");
    let store = tempfile::tempdir()?;
    let root = kernel.root.display().to_string();
    lab::output(
        lab::command(&xk.display().to_string())?
            .args(["build", "--root", &root, "BLK_MAX_REQUEST_COUNT"])
            .env("XK_STORE", store.path()),
    )?;
    let out = tempfile::tempdir()?;
    say("parallel grep: the whole grid, the paper's search, ours, and ours again");
    let script = format!(
        "export XK_STORE={} XK_MODULE={module} PATH={programs}:$PATH; exec scripts/tuner-guest grep",
        store.path().display()
    );
    lab::output(
        lab::command("lab/lab")?
            .args(["run", "--kernel", lab::KERNEL, "--icount", "--cpus", "1", "--timeout", "3600", "--out"])
            .arg(out.path())
            .arg(&script),
    )?;
    let workload = workload("grep", &out.path().join("state"))?;
    let false_promotion = false_promotion(&workload.1)?;
    let missed = missed(&workload.0, false_promotion);
    Ok(Result {
        bench: "tuner",
        kernel: kernel.release,
        workloads: vec![workload.0],
        false_promotion,
        false_promotion_searches: FLAT_SEARCHES,
        missed,
    })
}

/// The searches that `scripts/tuner-guest` makes, in this order.
fn workload(name: &'static str, state: &Path) -> Fallible<(Workload, Space)> {
    let store = Store::open(state)?;
    let read = |id: i64| -> Fallible<(Search, Vec<Record>)> {
        let search = store.search(Some(id))?.with_context(|| format!("search {id} was not made"))?;
        Ok((search, store.history(id)?))
    };
    let (grid, orthogonal, cold, warm) = (read(1)?, read(2)?, read(3)?, read(4)?);
    let space = grid.0.begun.space.clone();
    ensure!(grid.1.len() + 1 == space.all().len(), "the grid is not complete");
    let recorded = Recorded::of(&space, &grid.1);
    let speed = |point: &Point| recorded.middle(point).map_or(0.0, |seconds| 1.0 / seconds);
    let best =
        |search: &Search| search.conclusion.as_ref().map_or_else(|| space.default_point(), |end| end.best.clone());
    let points = [best(&grid.0), best(&cold.0), best(&warm.0), best(&orthogonal.0)];
    let noisy = |engine: &dyn Fn(u64) -> Box<dyn Engine>| share(engine, &space, &recorded);
    let workload = Workload {
        name,
        default: rounded(speed(&space.default_point())),
        grid_best: rounded(speed(&points[0])),
        cold: rounded(speed(&points[1])),
        warm: rounded(speed(&points[2])),
        orthogonal: rounded(speed(&points[3])),
        trials_cold: cold.1.len(),
        trials_warm: warm.1.len(),
        trials_grid: grid.1.len(),
        trials_orthogonal: orthogonal.1.len(),
        settings: points.map(|point| space.describe(&point)),
        noisy_racing: rounded(noisy(&|seed| Box::new(Racing { seed, minimum: 0.02, warm: None }))?),
        noisy_orthogonal: rounded(noisy(&|_| Box::new(Orthogonal))?),
    };
    Ok((workload, space))
}

/// A recorded grid, seen through noise.
struct Noisy<'a> {
    grid: &'a Recorded,
    noise: Surface<fn(&Point) -> f64>,
}

impl Source for Noisy<'_> {
    fn window(&mut self, point: &Point) -> Option<f64> {
        Some(self.grid.middle(point)? * self.noise.window(point)?)
    }
}

/// Mean speed of what is found, as a share of the grid's optimum.
fn share(engine: &dyn Fn(u64) -> Box<dyn Engine>, space: &Space, grid: &Recorded) -> Fallible<f64> {
    let seconds = |point: &Point| grid.middle(point).unwrap_or(f64::INFINITY);
    let optimum = space.all().iter().map(seconds).fold(f64::INFINITY, f64::min);
    let mut sum = 0.0;
    for seed in 0..NOISY_SEARCHES {
        let mut source = Noisy { grid, noise: Surface::new(|_| 1.0, Noise::Normal(NOISE), seed) };
        let (_, end) = play(&*engine(seed), space, Goal::Minimise, 200, &mut source)?;
        sum += optimum / seconds(&end.best);
    }
    Ok(sum / NOISY_SEARCHES as f64)
}

/// How often noise alone is promoted.
fn false_promotion(space: &Space) -> Fallible<f64> {
    let mut promoted = 0;
    for seed in 0..FLAT_SEARCHES {
        let mut flat = Surface::new(|_: &Point| 1.0, Noise::Normal(NOISE), seed);
        let engine = Racing { seed, minimum: 0.02, warm: None };
        let (_, end) = play(&engine, space, Goal::Minimise, 200, &mut flat)?;
        promoted += u32::from(end.best != space.default_point());
    }
    Ok(f64::from(promoted) / FLAT_SEARCHES as f64)
}

fn missed(workload: &Workload, false_promotion: f64) -> Vec<String> {
    let limits = [
        ("cold finds 95 % of the grid's optimum", workload.cold >= FOUND * workload.grid_best),
        ("warm finds 95 % of the grid's optimum", workload.warm >= FOUND * workload.grid_best),
        ("cold needs a quarter of the grid's trials", workload.trials_cold * 4 <= workload.trials_grid),
        ("warm needs one trial", workload.trials_warm <= 1),
        // What both found may differ by less than the minimum effect.
        ("no worse than the paper's search", workload.cold >= 0.98 * workload.orthogonal),
        ("better than the paper's search with noise", workload.noisy_racing > workload.noisy_orthogonal),
        ("noise is promoted once in a hundred searches at most", false_promotion <= MISTAKES),
    ];
    limits.iter().filter(|(_, holds)| !holds).map(|(limit, _)| (*limit).to_owned()).collect()
}

impl Result {
    /// For people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for w in &self.workloads {
            let _ = writeln!(text, "{} on {}, runs per second of the guest's clock", w.name, self.kernel);
            let rows = [
                ("default", w.default, 0, "the default"),
                ("whole grid", w.grid_best, w.trials_grid, &w.settings[0]),
                ("cold", w.cold, w.trials_cold, &w.settings[1]),
                ("warm", w.warm, w.trials_warm, &w.settings[2]),
                ("orthogonal", w.orthogonal, w.trials_orthogonal, &w.settings[3]),
            ];
            for (name, speed, trials, setting) in rows {
                let _ = writeln!(text, "  {name:<12} {speed:>8.3}  {trials:>4} trials  {setting}");
            }
            let _ = writeln!(
                text,
                "  with noise of {NOISE} put into the recorded grid: {} of the optimum, orthogonal {}",
                w.noisy_racing, w.noisy_orthogonal
            );
        }
        let _ = writeln!(text, "noise alone was promoted in {} of {} searches", self.false_promotion, FLAT_SEARCHES);
        text
    }

    /// Whether every limit holds.
    ///
    /// # Errors
    /// Those that do not.
    pub fn verdict(&self) -> Fallible<()> {
        ensure!(self.missed.is_empty(), "tuner: not so: {}", self.missed.join("; "));
        Ok(())
    }
}
