//! Sham switches before the first trial of a session: measures what switching costs, and lengthens the settle time
//! (`../switching.rs`).
//!
//! In: the search. Out: the settle time of the runner, a line, and an entry in the journal for each verdict. A sham switch
//! moves each parameter to a neighbour of its default and back, one after the other. That is more than any trial does at
//! once, and the smallest steps that there are. No window is measured there. It refuses settings that are beyond a limit.

use serde_json::json;

use super::open::OpenSearch;
use super::{who, Keeper, Setup};
use crate::history::{Outcome, Record};
use crate::measure::{TrialError, TrialRunner};
use crate::switching::Switching;
use crate::{Point, Space};

/// Measures what switching costs.
pub(super) fn measure(
    setup: &Setup<'_>,
    runner: &mut TrialRunner<'_, Keeper<'_>>,
    open: &OpenSearch,
    history: &[Record],
) -> Result<(), TrialError> {
    let neighbours = neighbours(&open.spec.space, history);
    if neighbours.is_empty() {
        return Ok(());
    }
    let mut shams = Switching::new(open.spec.minimum, open.spec.goal, runner.settle);
    let mut before = runner.default_window()?.value;
    while shams.is_open() {
        let sham = runner.window_after(&neighbours)?.value;
        runner.wait(Switching::longest(runner.window()));
        let after = runner.default_window()?.value;
        if let Some(verdict) = shams.add([before, sham, after], runner.window()) {
            runner.settle = shams.settle();
            (setup.say)(&verdict.sentence());
            let event = json!({ "event": "switching", "search": open.id, "evidence": verdict });
            runner.keeper.store.note(&who(), &event)?;
        }
        before = after;
    }
    Ok(())
}

/// A neighbour of the default for each parameter that is active there, without those beyond a limit.
fn neighbours(space: &Space, history: &[Record]) -> Vec<Point> {
    let default = space.default_point();
    let violated = |record: &&Record| matches!(record.outcome, Outcome::Violated { .. });
    let mut beyond: Vec<Point> = space.forbidden.iter().cloned().collect();
    beyond.extend(history.iter().filter(violated).map(|record| record.trial.point.clone()));
    let is_allowed = |point: &Point| !beyond.iter().any(|known| known == point || space.is_beyond(point, known));
    let neighbour = |index: usize| {
        let (last, now) = (space.dimensions()[index].levels.len() - 1, default.0[index]);
        let levels = [now + 1, now.wrapping_sub(1)].into_iter().filter(|level| *level <= last);
        let points = levels.map(|level| space.canonical(&default.with(index, level)));
        points.into_iter().find(|point| *point != default && is_allowed(point))
    };
    (0..default.0.len()).filter(|index| space.is_active(&default, *index)).filter_map(neighbour).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Order, Trial};
    use crate::space::tests::dimension;

    #[test]
    fn a_sham_switch_goes_to_neighbours_within_limits() {
        let dimensions = vec![dimension("a", &[1, 2, 3], 1, None), dimension("b", &[1, 2], 1, None)];
        let mut space = Space::new(dimensions).unwrap();
        let point = |a, b| Point(vec![a, b]);
        assert_eq!(neighbours(&space, &[]), [point(2, 1), point(1, 0)]);
        let outcome = Outcome::Violated { constraint: "p99".into() };
        let violated = [Record { trial: Trial { point: point(2, 1), order: Order::Bracketed }, outcome }];
        assert_eq!(neighbours(&space, &violated), [point(0, 1), point(1, 0)]);
        space.forbidden = [point(0, 1), point(1, 0)].into();
        assert_eq!(neighbours(&space, &violated), []);
    }
}
