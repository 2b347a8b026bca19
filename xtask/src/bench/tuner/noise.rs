//! A recorded grid, searched with noise.
//!
//! In: the grid. Out: the share of its optimum that each engine finds on average. Our search decides how many trials it
//! makes. The paper's search measures each setting once, and would make far fewer: it would be compared with less
//! information. So it gets as many measurements of each setting as the trials of our search permit, with the same seed,
//! and believes their mean. A trial of ours has two or three windows, because it measures the default as well. The paper's
//! search does not, so it is also given as many trials as our search has windows: then both take the same time.

use anyhow::Result;
use serde::Serialize;
use xk_tuner::engine::{Orthogonal, Racing};
use xk_tuner::history::{Goal, Order, Record};
use xk_tuner::replay::{play, play_paper, Noise, Recorded, Source, Surface};
use xk_tuner::{Point, Space};

use crate::bench::rounded;

/// Searches of each engine.
const SEARCHES: u64 = 200;
/// Standard deviation of the noise, as a share.
pub const NOISE: f64 = 0.10;
/// The largest number of trials of a search.
const LIMIT: usize = 200;

/// Mean shares of the grid's optimum.
#[derive(Debug, Serialize)]
pub struct Shares {
    /// Our search.
    pub racing: f64,
    /// The paper's search by section 5 alone, which measures each setting once.
    pub orthogonal: f64,
    /// The paper's search by sections 1 and 5, with as many trials as ours.
    pub orthogonal_full: f64,
    /// The same, with as many trials as ours has windows.
    pub orthogonal_full_equal_time: f64,
    /// Mean number of trials of our search.
    pub trials: f64,
    /// Mean number of trials of the paper's search in `orthogonal_full`.
    pub trials_orthogonal_full: f64,
}

/// Searches the grid.
///
/// # Errors
/// When an engine depends on more than its history.
pub fn shares(space: &Space, grid: &Recorded) -> Result<Shares> {
    let done = |point: &Point| grid.middle(point).unwrap_or(0.0);
    let optimum = space.all().iter().map(done).fold(0.0, f64::max);
    let mut sums = [0.0; 6];
    for seed in 0..SEARCHES {
        let source = || Noisy { grid, noise: Surface::new(|_| 1.0, Noise::Normal(NOISE), seed) };
        let engine = Racing::new(seed, 0.02);
        let (history, ours) = play(&engine, space, Goal::Maximise, LIMIT, &mut source())?;
        let (_, once) = play(&Orthogonal, space, Goal::Maximise, LIMIT, &mut source())?;
        let (paper, full) = play_paper(space, Goal::Maximise, history.len(), source)?;
        let (_, equal_time) = play_paper(space, Goal::Maximise, windows(&history), source)?;
        let found = [&ours, &once, &full, &equal_time].map(|end| done(&end.best) / optimum);
        let figures = found.into_iter().chain([history.len() as f64, paper.len() as f64]);
        sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
    }
    let [racing, orthogonal, orthogonal_full, orthogonal_full_equal_time, trials, trials_orthogonal_full] =
        sums.map(|sum| rounded(sum / SEARCHES as f64));
    Ok(Shares { racing, orthogonal, orthogonal_full, orthogonal_full_equal_time, trials, trials_orthogonal_full })
}

/// The windows of a search.
fn windows(history: &[Record]) -> usize {
    let of_trial = |record: &Record| match record.trial.order {
        Order::Bracketed => 3,
        Order::DefaultFirst | Order::DefaultLast => 2,
        Order::Alone => 1,
    };
    history.iter().map(of_trial).sum()
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

impl Shares {
    /// Whether our search finds more than the paper's with as many trials.
    pub fn ours_is_better(&self) -> bool {
        self.racing > self.orthogonal.max(self.orthogonal_full)
    }

    /// For people.
    pub fn line(&self) -> String {
        let Shares { racing, orthogonal, orthogonal_full, orthogonal_full_equal_time, trials, trials_orthogonal_full } =
            self;
        format!(
            "ours {racing} ({trials} trials); the paper's, sections 1 and 5: {orthogonal_full} \
             ({trials_orthogonal_full} trials), in as much time {orthogonal_full_equal_time}; section 5 alone, measuring \
             once: {orthogonal}"
        )
    }
}
