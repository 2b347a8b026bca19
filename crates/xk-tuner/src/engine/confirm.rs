//! Confirmation: a candidate is promoted only if it also wins in fresh, randomly ordered pairs.
//!
//! What made it a candidate was chosen among many noisy numbers and proves nothing. Here, one hypothesis
//! ("it is better by at least the minimum effect") meets numbers that had no part in choosing it. Under its
//! negation, and whatever the noise is, each difference is as likely to have the other sign, because a coin decided
//! which side came first; so the probability of a wrong promotion is counted out, not modelled.
//!
//! How many pairs that takes depends on how noisy the target is, which the pairs themselves show: the test is looked
//! at after 8, 16, 32 and 64 of them, and ends at the first look that suffices. Each look, and each attempt, has its
//! own part of what may go wrong, fixed beforehand (Lan and DeMets, "Discrete sequential boundaries for clinical
//! trials", Biometrika 70, 1983), so that their sum bounds it however they depend on each other:
//! 1/256 + 0.002 + 0.0015 + 0.001 + 0.0005 + 0.0005 < 1 %. The first look has the largest part, which is what its few
//! pairs can reach at all: where there is hardly any noise, it is the only one.

use super::{Stop, Trials};
use crate::history::Kind;
use crate::random::Random;
use crate::statistics::{interval, signed_rank, Interval};
use crate::Point;

/// After how many pairs the test is looked at, and how improbable the numbers must then be.
type Looks = &'static [(usize, f64)];

/// For each candidate, the best first.
pub const ATTEMPTS: [Looks; 2] =
    [&[(8, 1.0 / 256.0), (16, 0.002), (32, 0.0015), (64, 0.001)], &[(16, 0.0005), (32, 0.0005)]];

/// Trials that are not spent before the test of the first candidate: those of its second look, as few need more.
pub const RESERVED: usize = ATTEMPTS[0][1].0;

/// When this many pairs speak against it on the whole, the rest is spared: that never promotes anything. With fewer,
/// noise speaks.
const FUTILE: usize = 8;

/// Whether `point` is better than the default by more than `minimum`: how much, and how improbable it is that
/// noise did it.
///
/// # Errors
/// [`Stop`].
pub fn confirm(
    trials: &mut Trials<'_>,
    point: &Point,
    looks: Looks,
    minimum: f64,
    random: &mut Random,
) -> Result<Option<(Interval, f64)>, Stop> {
    let goal = trials.goal();
    let mut effects: Vec<f64> = Vec::new();
    for &(pairs, level) in looks {
        while effects.len() < pairs {
            let kind = if random.coin() { Kind::DefaultFirst } else { Kind::DefaultLast };
            let Some(sample) = trials.sample(point, kind)? else { return Ok(None) };
            effects.push(sample.effect(goal));
            let hopeless = effects.len() >= FUTILE && interval(&effects).is_none_or(|found| found.middle <= minimum);
            if hopeless {
                return Ok(None);
            }
        }
        let beyond: Vec<f64> = effects.iter().map(|effect| effect - minimum).collect();
        let p = signed_rank(&beyond);
        if p <= level {
            return Ok(interval(&effects).map(|effect| (effect, p)));
        }
    }
    Ok(None)
}
