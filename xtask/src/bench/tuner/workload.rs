//! One workload: a deterministic guest searches it with each engine (`scripts/tuner-guest`); what the tuner has recorded
//! there is read here. `noise.rs` replays it with noise.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_tuner::engine::{EngineName, OrthogonalFull};
use xk_tuner::history::{Goal, Record};
use xk_tuner::replay::{play, Recorded};
use xk_tuner::store::{Search, State, Store};
use xk_tuner::{Point, Space};

use super::noise::{shares, Shares, NOISE};
use super::Guest;
use crate::bench::rounded;
use crate::lab;

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
    /// What the paper's search found, by its section 5 alone.
    pub orthogonal: f64,
    /// What the paper's search found, by its sections 1 and 5.
    pub orthogonal_full: f64,
    pub trials_cold: usize,
    pub trials_warm: usize,
    pub trials_grid: usize,
    pub trials_orthogonal: usize,
    pub trials_orthogonal_full: usize,
    /// Of the grid's best, cold, warm, and the paper's search by section 5 and by sections 1 and 5.
    pub settings: [String; 5],
    /// What is found when the recorded grid answers with noise.
    pub noisy: Shares,
    /// Whether this is from the recording of an earlier run (`recording.rs`).
    pub reused: bool,
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
            .args(["run", "--kernel", lab::KERNEL, "--icount", "--cpus", "1", "--timeout", "14400", "--out"])
            .arg(folder)
            .arg(script),
    )?;
    read(name, folder)
}

/// The searches that `scripts/tuner-guest` makes.
///
/// # Errors
/// When they are not there, or not whole.
pub fn read(name: &str, folder: &Path) -> Result<(Workload, Space)> {
    judge(name, &folder.join("state")).with_context(|| format!("workload {name}"))
}

/// What one search came to.
struct Searched {
    best: Point,
    trials: usize,
}

/// All searches of a workload, in their order.
struct Searches(Vec<(Search, Vec<Record>)>);

impl Searches {
    fn read(state: &Path) -> Result<Self> {
        ensure!(state.is_dir(), "nothing is recorded in {}", state.display());
        let store = Store::open(state)?;
        let mut all = Vec::new();
        while let Some(search) = store.search(Some(all.len() as i64 + 1))? {
            let history = store.history(search.id)?;
            all.push((search, history));
        }
        Ok(Self(all))
    }

    /// The searches of an engine that came to an end. One waits for its workload if the first window of the default shows
    /// another; the command then makes a new one.
    fn of(&self, engine: EngineName) -> impl Iterator<Item = &(Search, Vec<Record>)> {
        let of = move |(search, _): &&(Search, Vec<Record>)| search.spec.engine == engine;
        self.0.iter().filter(of).filter(|(search, _)| search.state != State::Open)
    }

    /// The search `number` of an engine, from 0.
    fn find(&self, engine: EngineName, number: usize) -> Result<&(Search, Vec<Record>)> {
        self.of(engine).nth(number).with_context(|| format!("{engine:?} made less than {} searches", number + 1))
    }

    fn searched(&self, engine: EngineName, number: usize, space: &Space) -> Result<Searched> {
        let (search, history) = self.find(engine, number)?;
        let best = search.conclusion.as_ref().map_or_else(|| space.default_point(), |end| end.best.clone());
        Ok(Searched { best, trials: history.len() })
    }
}

fn judge(name: &str, state: &Path) -> Result<(Workload, Space)> {
    let searches = Searches::read(state)?;
    let (grid, windows) = searches.find(EngineName::Exhaustive, 0)?;
    let (space, goal) = (grid.spec.space.clone(), grid.spec.goal);
    ensure!(goal == Goal::Maximise, "the figures are made for what is to be maximised");
    let tried: BTreeSet<&Point> = windows.iter().map(|record| &record.trial.point).collect();
    ensure!(tried.len() + 1 == space.all().len(), "the grid is not complete");
    let recorded = Recorded::of(&space, windows);
    let best = searches.searched(EngineName::Exhaustive, 0, &space)?;
    let orthogonal = searches.searched(EngineName::Orthogonal, 0, &space)?;
    let full = match searches.of(EngineName::OrthogonalFull).next() {
        Some(_) => searches.searched(EngineName::OrthogonalFull, 0, &space)?,
        // Recordings from before this engine: the grid has a window of every point that it may want.
        None => replayed(&space, recorded.clone())?,
    };
    let cold = searches.searched(EngineName::Racing, 0, &space)?;
    let warm = searches.searched(EngineName::Racing, 1, &space)?;
    let done = |searched: &Searched| rounded(recorded.middle(&searched.best).unwrap_or(0.0));
    let workload = Workload {
        name: name.to_owned(),
        default: rounded(recorded.middle(&space.default_point()).unwrap_or(0.0)),
        grid_best: done(&best),
        cold: done(&cold),
        warm: done(&warm),
        orthogonal: done(&orthogonal),
        orthogonal_full: done(&full),
        trials_cold: cold.trials,
        trials_warm: warm.trials,
        // Those that lead are measured again: a search is not given more trials for that.
        trials_grid: tried.len(),
        trials_orthogonal: orthogonal.trials,
        trials_orthogonal_full: full.trials,
        settings: [&best, &cold, &warm, &orthogonal, &full].map(|searched| space.describe(&searched.best)),
        noisy: shares(&space, &recorded)?,
        reused: false,
    };
    Ok((workload, space))
}

fn replayed(space: &Space, mut recorded: Recorded) -> Result<Searched> {
    let (history, end) = play(&OrthogonalFull::default(), space, Goal::Maximise, usize::MAX, &mut recorded)?;
    Ok(Searched { best: end.best, trials: history.len() })
}

impl Workload {
    /// What was promised and does not hold.
    pub fn missed(&self) -> Vec<String> {
        let paper = self.orthogonal.max(self.orthogonal_full);
        let promises = [
            ("cold finds 95 % of the grid's optimum", self.cold >= FOUND * self.grid_best),
            ("warm finds 95 % of the grid's optimum", self.warm >= FOUND * self.grid_best),
            ("cold needs a third of the grid's trials", self.trials_cold * 3 <= self.trials_grid),
            ("warm needs the pairs of one look", self.trials_warm <= WARM),
            ("no worse than the paper's search", self.cold >= EQUAL * paper),
            ("better than the paper's search with noise and as many trials", self.noisy.ours_is_better()),
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
            ("section 5", self.orthogonal, self.trials_orthogonal, self.settings[3].as_str()),
            ("sections 1, 5", self.orthogonal_full, self.trials_orthogonal_full, self.settings[4].as_str()),
        ];
        let lines = rows
            .map(|(name, done, trials, setting)| format!("  {name:<14}{done:>14.3}{trials:>6} trials  {setting}\n"));
        format!(
            "{}, per second of the guest's clock\n{}  of the optimum, with noise of {NOISE}: {}\n",
            self.name,
            lines.concat(),
            self.noisy.line()
        )
    }
}
