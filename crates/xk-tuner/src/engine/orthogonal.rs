//! The searches of EOS.
//!
//! In: the space, and samples. Out: the best setting that was measured. Both refuse nothing: every measurement is
//! believed. A killed search resumes with its next trial, because engines are functions of the history. Section 4 of the
//! paper wants this of the policy cache ("EOS stores the intermediate search result"). The other half of section 4,
//! that a similar workload reuses the setting without a measurement, is not part of a search.
//!
//! **The two readings.** Sections 1 and 5 of the paper describe the search within a subsystem differently:
//!
//! - Section 1: "Then, at the component level, it enumerates through the policies and, for each policy, it searches
//!   through different values of the parameters. For each policy and parameter setting, it measures the system's
//!   performance, and picks the best performing setting."
//! - Section 5: "Operationally, this algorithm iterates through the list of parameters and finds the best value for each
//!   parameter. It then combines these best values into the resultant parameter setting." And: "Our algorithm does not
//!   search a parameter if it is not active."
//!
//! By section 5 alone, a policy that helps only together with one of its own parameters is never found: when the search
//! comes to that parameter, the policy is already rejected. [`Orthogonal`] is section 5 alone. [`OrthogonalFull`] is
//! section 1, with the search of section 5 for the parameters of each policy. It costs as many searches as there are
//! policies. It is the stronger of the two, so comparisons with the paper use it.

use super::{Conclusion, Engine, Ground, Trials, Unfinished};
use crate::history::{Goal, Order};
use crate::{Point, Space};

/// The search of section 5 alone: one parameter after the other, those with the fewest levels first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Orthogonal;

impl Engine for Orthogonal {
    fn name(&self) -> &'static str {
        "orthogonal"
    }

    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Unfinished> {
        let mut search = Search { space, trials, repeats: 1 };
        let mut best = search.start(space.default_point())?;
        search.parameters(&space.limited_first(), &mut best)?;
        Ok(conclude(space, best))
    }
}

/// The search of sections 1 and 5: the same for each policy, and the best of all.
///
/// The paper's API does not tell policies from parameters (section 3: `scheduler` is a parameter with the values 0 to 2).
/// The only difference that it knows is the guard: "the quantum parameter in disk I/O subsystem is only active when the
/// scheduler parameter is set to CFQ". So a policy is a level of a parameter on which others depend. If there are several
/// such parameters, each combination of their levels is a policy. If there is none, there is one policy ("so EOS adjusted
/// the parameters of this policy only", section 7.2), and this is the search of section 5.
#[derive(Debug, Clone, Copy)]
pub struct OrthogonalFull {
    /// How often each setting is measured. The paper measures once. More than once means a longer measurement: the mean
    /// of all windows. A comparison with an engine that makes more trials can so give both the same number.
    pub repeats: usize,
}

impl Default for OrthogonalFull {
    fn default() -> Self {
        Self { repeats: 1 }
    }
}

impl Engine for OrthogonalFull {
    fn name(&self) -> &'static str {
        "orthogonal_full"
    }

    fn search(&self, space: &Space, trials: &mut Trials<'_>) -> Result<Conclusion, Unfinished> {
        let guards = space.guards();
        let parameters: Vec<usize> =
            space.limited_first().into_iter().filter(|dimension| !guards.contains(dimension)).collect();
        let mut search = Search { space, trials, repeats: self.repeats };
        let mut best: Option<Best> = None;
        for policy in policies(space, &guards) {
            let mut of_policy = search.start(policy)?;
            search.parameters(&parameters, &mut of_policy)?;
            if best.as_ref().is_none_or(|best| of_policy.value > best.value) {
                best = Some(of_policy);
            }
        }
        Ok(conclude(space, best.unwrap_or(Best { point: space.default_point(), value: 0.0 })))
    }
}

/// The default with each combination of levels of the parameters on which others depend; the default comes first.
fn policies(space: &Space, guards: &[usize]) -> Vec<Point> {
    let mut points = vec![space.default_point()];
    for &guard in guards {
        let dimension = &space.dimensions()[guard];
        let others = (0..dimension.levels.len()).filter(|&level| level != dimension.default);
        let active = points.iter().filter(|point| space.is_active(point, guard));
        let more: Vec<Point> =
            active.flat_map(|point| others.clone().map(move |level| point.with(guard, level))).collect();
        points.extend(more);
    }
    points
}

fn conclude(space: &Space, best: Best) -> Conclusion {
    let ground = if best.point == space.default_point() { Ground::Nothing } else { Ground::Seen };
    Conclusion { best: best.point, ground }
}

struct Best {
    point: Point,
    value: f64,
}

struct Search<'s, 't, 'h> {
    space: &'s Space,
    trials: &'t mut Trials<'h>,
    repeats: usize,
}

impl Search<'_, '_, '_> {
    fn start(&mut self, point: Point) -> Result<Best, Unfinished> {
        Ok(Best { value: self.measure(&point)?, point })
    }

    /// Finds the best level of each of these parameters that is active, and keeps it.
    fn parameters(&mut self, parameters: &[usize], best: &mut Best) -> Result<(), Unfinished> {
        for &dimension in parameters {
            if self.space.is_active(&best.point, dimension) {
                match self.space.dimensions()[dimension].ordered {
                    true => self.follow(dimension, best)?,
                    false => self.choose(dimension, best)?,
                }
            }
        }
        Ok(())
    }

    /// The target, with the sign such that more is better. A setting of which one window failed is worse than any other.
    fn measure(&mut self, point: &Point) -> Result<f64, Unfinished> {
        let sign = if self.trials.goal() == Goal::Maximise { 1.0 } else { -1.0 };
        let repeats = self.repeats.max(1);
        let mut sum = 0.0;
        for _ in 0..repeats {
            match self.trials.sample(point, Order::Bracketed)? {
                Some(sample) => sum += sign * sample.value,
                None => return Ok(f64::NEG_INFINITY),
            }
        }
        Ok(sum / repeats as f64)
    }

    fn improved(&mut self, best: &mut Best, point: Point) -> Result<bool, Unfinished> {
        let value = self.measure(&point)?;
        let better = value > best.value;
        if better {
            *best = Best { point, value };
        }
        Ok(better)
    }

    /// Tries all levels of a choice.
    fn choose(&mut self, dimension: usize, best: &mut Best) -> Result<(), Unfinished> {
        let start = best.point.clone();
        for level in 0..self.space.dimensions()[dimension].levels.len() {
            if level != start.0[dimension] {
                self.improved(best, start.with(dimension, level))?;
            }
        }
        Ok(())
    }

    /// Steps through the levels of a number as long as the target improves: "if increasing the value of a parameter
    /// improves performance, then we should keep increasing the value" (section 5).
    fn follow(&mut self, dimension: usize, best: &mut Best) -> Result<(), Unfinished> {
        let levels = self.space.dimensions()[dimension].levels.len();
        let start = best.point.0[dimension];
        let mut level = start;
        while level + 1 < levels && self.improved(best, best.point.with(dimension, level + 1))? {
            level += 1;
        }
        if level > start {
            return Ok(());
        }
        while level > 0 && self.improved(best, best.point.with(dimension, level - 1))? {
            level -= 1;
        }
        Ok(())
    }
}
