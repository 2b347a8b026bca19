//! One workload: a deterministic guest searches it four times (`scripts/tuner-guest`); what the tuner has recorded
//! there is read here, and replayed with noise put in.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_tuner::engine::{Engine, Orthogonal, Racing};
use xk_tuner::history::{Goal, Record};
use xk_tuner::replay::{play, Noise, Recorded, Source, Surface};
use xk_tuner::store::{Search, Store};
use xk_tuner::{Point, Space};

use super::Guest;
use crate::bench::rounded;
use crate::lab;

/// Searches with noise put in, of each engine.
const NOISY_SEARCHES: u64 = 200;
/// Deviation of the noise that is put in, as a share.
pub const NOISE: f64 = 0.10;
/// What counts as found: this share of the grid's optimum.
const FOUND: f64 = 0.95;
/// The pairs that confirm a remembered setting at the first look, where there is no noise.
const WARM: usize = 13;
/// What is no difference: the minimum effect.
const EQUAL: f64 = 0.98;

/// One workload. Figures are how much was done per second of the guest's clock, as the whole grid's run measured it.
#[derive(Debug, Serialize)]
pub struct Workload {
    pub name: String,
    pub default: f64,
    pub cold: f64,
    pub warm: f64,
    pub grid_best: f64,
    /// What the paper's search found.
    pub orthogonal: f64,
    pub trials_cold: usize,
    pub trials_warm: usize,
    pub trials_grid: usize,
    pub trials_orthogonal: usize,
    /// Of the grid's best, cold, warm, and the paper's search.
    pub settings: [String; 4],
    /// Mean share of the grid's optimum that is found when the recorded grid answers with [`NOISE`]: ours, and the
    /// paper's search.
    pub noisy: [f64; 2],
}

/// Lets the guest search; what the tuner records is left in `folder`.
///
/// # Errors
/// When a search fails.
pub fn run(guest: &Guest, name: &str, folder: &Path) -> Result<(Workload, Space)> {
    fs::create_dir_all(folder)?;
    let script = format!("{} exec scripts/tuner-guest {name}", guest.environment);
    lab::output(
        lab::command("lab/lab")?
            .args(["run", "--kernel", lab::KERNEL, "--icount", "--cpus", "1", "--timeout", "7200", "--out"])
            .arg(folder)
            .arg(script),
    )?;
    read(name, folder)
}

/// The searches that `scripts/tuner-guest` makes, in its order.
///
/// # Errors
/// When they are not there, or not whole.
pub fn read(name: &str, folder: &Path) -> Result<(Workload, Space)> {
    judge(name, &folder.join("state")).with_context(|| format!("workload {name}"))
}

fn judge(name: &str, state: &Path) -> Result<(Workload, Space)> {
    ensure!(state.is_dir(), "nothing is recorded in {}", state.display());
    let store = Store::open(state)?;
    let search = |id: i64| -> Result<(Search, Vec<Record>)> {
        let search = store.search(Some(id))?.with_context(|| format!("search {id} was not made"))?;
        Ok((search, store.history(id)?))
    };
    let (grid, orthogonal, cold, warm) = (search(1)?, search(2)?, search(3)?, search(4)?);
    let (space, goal) = (grid.0.spec.space.clone(), grid.0.spec.goal);
    ensure!(goal == Goal::Maximise, "the figures are made for what is to be maximised");
    let tried: BTreeSet<&Point> = grid.1.iter().map(|record| &record.trial.point).collect();
    ensure!(tried.len() + 1 == space.all().len(), "the grid is not complete");
    let recorded = Recorded::of(&space, &grid.1);
    let best = |(search, _): &(Search, Vec<Record>)| {
        search.conclusion.as_ref().map_or_else(|| space.default_point(), |end| end.best.clone())
    };
    let points = [&grid, &cold, &warm, &orthogonal].map(best);
    let done = |point: &Point| rounded(recorded.middle(point).unwrap_or(0.0));
    let workload = Workload {
        name: name.to_owned(),
        default: done(&space.default_point()),
        grid_best: done(&points[0]),
        cold: done(&points[1]),
        warm: done(&points[2]),
        orthogonal: done(&points[3]),
        trials_cold: cold.1.len(),
        trials_warm: warm.1.len(),
        // Those that lead are measured again: a search is not given more trials for that.
        trials_grid: tried.len(),
        trials_orthogonal: orthogonal.1.len(),
        settings: points.map(|point| space.describe(&point)),
        noisy: [
            rounded(share(&|seed| Box::new(Racing::new(seed, 0.02)), &space, &recorded)?),
            rounded(share(&|_| Box::new(Orthogonal), &space, &recorded)?),
        ],
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

/// Mean of what is found, as a share of the grid's optimum.
fn share(engine: &dyn Fn(u64) -> Box<dyn Engine>, space: &Space, grid: &Recorded) -> Result<f64> {
    let done = |point: &Point| grid.middle(point).unwrap_or(0.0);
    let optimum = space.all().iter().map(done).fold(0.0, f64::max);
    let mut sum = 0.0;
    for seed in 0..NOISY_SEARCHES {
        let mut source = Noisy { grid, noise: Surface::new(|_| 1.0, Noise::Normal(NOISE), seed) };
        let (_, end) = play(&*engine(seed), space, Goal::Maximise, 200, &mut source)?;
        sum += done(&end.best) / optimum;
    }
    Ok(sum / NOISY_SEARCHES as f64)
}

impl Workload {
    /// What was promised and does not hold.
    pub fn missed(&self) -> Vec<String> {
        let promises = [
            ("cold finds 95 % of the grid's optimum", self.cold >= FOUND * self.grid_best),
            ("warm finds 95 % of the grid's optimum", self.warm >= FOUND * self.grid_best),
            ("cold needs a third of the grid's trials", self.trials_cold * 3 <= self.trials_grid),
            ("warm needs the pairs of one look", self.trials_warm <= WARM),
            ("no worse than the paper's search", self.cold >= EQUAL * self.orthogonal),
            ("better than the paper's search with noise", self.noisy[0] > self.noisy[1]),
        ];
        let missed = promises.iter().filter(|(_, holds)| !holds);
        missed.map(|(promise, _)| format!("{}: {promise}", self.name)).collect()
    }

    /// For people.
    pub fn table(&self) -> String {
        let rows = [
            ("default", self.default, 0, "the default"),
            ("whole grid", self.grid_best, self.trials_grid, self.settings[0].as_str()),
            ("cold", self.cold, self.trials_cold, self.settings[1].as_str()),
            ("warm", self.warm, self.trials_warm, self.settings[2].as_str()),
            ("orthogonal", self.orthogonal, self.trials_orthogonal, self.settings[3].as_str()),
        ];
        let lines = rows
            .map(|(name, done, trials, setting)| format!("  {name:<12}{done:>14.3}{trials:>6} trials  {setting}\n"));
        let [ours, theirs] = self.noisy;
        format!(
            "{}, per second of the guest's clock\n{}  with noise of {NOISE} put in: {ours} of the optimum, orthogonal \
             {theirs}\n",
            self.name,
            lines.concat()
        )
    }
}
