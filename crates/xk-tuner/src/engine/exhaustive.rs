//! Exhaustive search: every point, as a reference for the other engines.
//!
//! In: the space, and samples. Out: the point that leads after repeated measurement. The best of many points that were
//! measured once each is mostly lucky: its measurement exaggerates. So the leading points are measured again, until
//! the leader has been measured [`REPEATS`] times. A point that fails once is never the result.
//!
//! The first measurements only select those leaders. So [`SHARING`] of them in a row share their windows with the default,
//! which saves almost half of the windows. Every further measurement has windows with the default of its own.

use super::{Conclusion, Engine, Ground, Trials, Unfinished};
use crate::history::Order;
use crate::statistics::median;
use crate::{Point, Space};

/// The largest number of leading points that are measured again.
const LEADERS: usize = 8;

/// How often the final leader has been measured.
const REPEATS: usize = 5;

/// So many points in a row are compared with the same windows with the default.
const SHARING: usize = 12;

/// Tries every point, and takes the best.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exhaustive;

impl Engine for Exhaustive {
    fn name(&self) -> &'static str {
        "exhaustive"
    }

    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Unfinished> {
        let goal = trials.goal();
        let mut effect = |point: &Point, order| Ok(trials.sample(point, order)?.map(|sample| sample.effect(goal)));
        let mut measured: Vec<(Point, Vec<f64>)> = Vec::new();
        let points = space.all().into_iter().filter(|point| *point != space.default_point());
        for (number, point) in points.enumerate() {
            let order = if number % SHARING == 0 { Order::Bracketed } else { Order::Alone };
            if let Some(effect) = effect(&point, order)? {
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
            // A setting with which the workload sometimes fails is not an optimum.
            match effect(point, Order::Bracketed)? {
                Some(effect) => effects.push(effect),
                None => effects.clear(),
            }
        }
        Ok(Conclusion { best: space.default_point(), ground: Ground::Nothing })
    }
}
