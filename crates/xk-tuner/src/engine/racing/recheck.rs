//! Recheck: tests the remembered setting.
//!
//! In: the remembered setting, and fresh pairs. Out: whether the search ends with it. It was confirmed once, but perhaps
//! by chance, on another machine, or with another workload that looks alike. So it is tested like a candidate, with a
//! part of the search's error level (`../level.rs`).
//!
//! **When it holds.** It holds if it is confirmed, and its effect is more than half of the remembered one. Half is a
//! compromise: noise should not discard a good setting, but one that lost most of its effect belongs to another
//! workload, where something else may be better. Then the search goes on, and ends with the better one of the two.
//!
//! A memory that nothing was better is not measured.

use super::{Racing, Recheck};
use crate::engine::confirm::{confirm, looks};
use crate::engine::{Conclusion, Ground, Trials, Unfinished};
use crate::random::Random;
use crate::Space;

impl Racing {
    pub(super) fn recheck(
        &self,
        space: &Space,
        trials: &mut Trials<'_>,
        random: &mut Random,
    ) -> Result<Recheck, Unfinished> {
        let Some(warm) = &self.warm else { return Ok(Recheck::Fails) };
        let best = warm.point.clone();
        if warm.is_default(space) {
            return Ok(Recheck::Ends(Conclusion { best, ground: Ground::Nothing }));
        }
        // Half of the trials are left for a search.
        let looks = looks(self.division().recheck, trials.left() / 2);
        let Some((interval, p)) = confirm(trials, &best, &looks, self.minimum, random)? else {
            return Ok(Recheck::Fails);
        };
        let effect = interval.middle;
        let ground = Ground::Remembered { effect, interval: Some(interval), p: Some(p) };
        let conclusion = Conclusion { best, ground };
        Ok(match effect > warm.effect / 2.0 {
            true => Recheck::Ends(conclusion),
            false => Recheck::Weaker(conclusion),
        })
    }
}
