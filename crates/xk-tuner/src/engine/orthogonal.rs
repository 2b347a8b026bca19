//! The modified orthogonal search of EOS (section 5).
//!
//! In: the space, and samples. Out: the best setting that was measured. It searches one parameter after the other, those
//! with the fewest levels first. It respects guards. It steps through the levels of a number as long as the target
//! improves, and measures each setting once. It refuses nothing: every measurement is believed.

use super::{Conclusion, Engine, Ground, Trials, Unfinished};
use crate::history::{Goal, Order};
use crate::{Point, Space};

/// The paper's engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Orthogonal;

impl Engine for Orthogonal {
    fn name(&self) -> &'static str {
        "orthogonal"
    }

    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Unfinished> {
        let default = space.default_point();
        let mut best = Best { value: measure(trials, &default)?, point: default.clone() };
        for dimension in space.limited_first() {
            if space.is_active(&best.point, dimension) {
                match space.dimensions()[dimension].ordered {
                    true => follow(space, trials, dimension, &mut best)?,
                    false => choose(space, trials, dimension, &mut best)?,
                }
            }
        }
        let ground = if best.point == default { Ground::Nothing } else { Ground::Seen };
        Ok(Conclusion { best: best.point, ground })
    }
}

struct Best {
    point: Point,
    value: f64,
}

impl Best {
    fn improved_by(&mut self, trials: &mut Trials<'_>, point: Point) -> Result<bool, Unfinished> {
        let value = measure(trials, &point)?;
        let better = value > self.value;
        if better {
            *self = Best { point, value };
        }
        Ok(better)
    }
}

/// The target in one window, with the sign such that more is better.
fn measure(trials: &mut Trials<'_>, point: &Point) -> Result<f64, Unfinished> {
    let sign = if trials.goal() == Goal::Maximise { 1.0 } else { -1.0 };
    Ok(trials.sample(point, Order::Bracketed)?.map_or(f64::NEG_INFINITY, |sample| sign * sample.value))
}

fn choose(space: &Space, trials: &mut Trials<'_>, dimension: usize, best: &mut Best) -> Result<(), Unfinished> {
    let start = best.point.clone();
    for level in 0..space.dimensions()[dimension].levels.len() {
        if level != start.0[dimension] {
            best.improved_by(trials, start.with(dimension, level))?;
        }
    }
    Ok(())
}

fn follow(space: &Space, trials: &mut Trials<'_>, dimension: usize, best: &mut Best) -> Result<(), Unfinished> {
    let levels = space.dimensions()[dimension].levels.len();
    let start = best.point.0[dimension];
    let mut level = start;
    while level + 1 < levels && best.improved_by(trials, best.point.with(dimension, level + 1))? {
        level += 1;
    }
    if level > start {
        return Ok(());
    }
    while level > 0 && best.improved_by(trials, best.point.with(dimension, level - 1))? {
        level -= 1;
    }
    Ok(())
}
