//! Every point, once: what the others are measured by.

use super::{Conclusion, Engine, Ground, Stop, Trials};
use crate::history::Kind;
use crate::Space;

/// Tries every point, and takes the best.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exhaustive;

impl Engine for Exhaustive {
    fn name(&self) -> &'static str {
        "exhaustive"
    }

    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Stop> {
        let goal = trials.goal();
        let mut best = (space.default_point(), 0.0);
        for point in space.all().into_iter().filter(|point| *point != space.default_point()) {
            let effect = trials.sample(&point, Kind::Sandwich)?.map(|sample| sample.effect(goal));
            if let Some(effect) = effect.filter(|&effect| effect > best.1) {
                best = (point, effect);
            }
        }
        let ground = if best.1 > 0.0 { Ground::Seen } else { Ground::Nothing };
        Ok(Conclusion { best: best.0, ground })
    }
}
