//! Every point: what the others are measured by.
//!
//! The best of many points that were measured once each is flattered: it is the one that had the most luck. So those
//! that lead are measured again, until one leads by what was measured of it often.

use super::{Conclusion, Engine, Ground, Stop, Trials};
use crate::history::Kind;
use crate::statistics::median;
use crate::{Point, Space};

/// How many of the points that lead are measured again, at most.
const LEADERS: usize = 8;

/// How often whoever leads in the end has been measured.
const REPEATS: usize = 5;

/// Tries every point, and takes the best.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exhaustive;

impl Engine for Exhaustive {
    fn name(&self) -> &'static str {
        "exhaustive"
    }

    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Stop> {
        let goal = trials.goal();
        let mut effect = |point: &Point| Ok(trials.sample(point, Kind::Sandwich)?.map(|sample| sample.effect(goal)));
        let mut measured: Vec<(Point, Vec<f64>)> = Vec::new();
        for point in space.all().into_iter().filter(|point| *point != space.default_point()) {
            if let Some(effect) = effect(&point)? {
                measured.push((point, vec![effect]));
            }
        }
        let middle = |effects: &[f64]| median(effects).unwrap_or(f64::NEG_INFINITY);
        measured.sort_by(|(_, a), (_, b)| middle(b).total_cmp(&middle(a)));
        measured.truncate(LEADERS);
        let leads = |(_, a): &&mut (Point, Vec<f64>), (_, b): &&mut (Point, Vec<f64>)| middle(a).total_cmp(&middle(b));
        while let Some((point, effects)) = measured.iter_mut().max_by(leads).filter(|(_, known)| middle(known) > 0.0) {
            if effects.len() >= REPEATS {
                return Ok(Conclusion { best: point.clone(), ground: Ground::Seen });
            }
            // A setting under which the workload fails now and then is no optimum.
            match effect(point)? {
                Some(effect) => effects.push(effect),
                None => effects.clear(),
            }
        }
        Ok(Conclusion { best: space.default_point(), ground: Ground::Nothing })
    }
}
