//! Confirmation: a candidate is promoted only if it also wins in fresh, randomly ordered pairs.
//!
//! In: a candidate, and pairs of windows. Out: its effect, and the probability that noise alone produces such a result; or
//! `None`. It refuses a candidate whose pairs do not show more than the minimum effect.
//!
//! **Why fresh pairs.** The candidate is the best of many noisy measurements. These prove nothing, because the best of
//! many is an overestimate. Here, one hypothesis ("it is better by more than the minimum effect") meets measurements
//! that had no part in choosing it.
//!
//! **Why random order.** A seeded coin decides which side of a pair is measured first. If the candidate is not better,
//! each difference is equally likely to have either sign, whatever the noise is. Wilcoxon's signed-rank test then gives
//! the probability by enumeration, without a model of the noise (`statistics.rs`). The invariant: the coin is independent
//! of the machine, and no pair is left out.
//!
//! **How many pairs.** That depends on the noise, which the pairs themselves show. The test is evaluated after 8, 16, 32
//! and 64 pairs (*looks*), and ends at the first look that suffices. Each look of each attempt has its own part of the error
//! probability, fixed beforehand. By the union bound, their sum bounds the probability of a wrong promotion, however the
//! looks depend on each other: 1/256 + 0.002 + 0.0015 + 0.001 + 0.0005 + 0.0005 < 1 %. Spending the error probability look
//! by look comes from clinical trials (K. K. G. Lan and D. L. DeMets, "Discrete sequential boundaries for clinical trials",
//! Biometrika 70, 1983). The first look has the largest part, the smallest that 8 pairs can reach: it is the only look if
//! there is hardly any noise.
//!
//! **Early rejection.** From `FUTILE` pairs on, a candidate whose median effect is no more than the minimum effect is
//! rejected. This promotes nothing, so it does not add to the error probability.

use super::{Trials, Unfinished};
use crate::history::Order;
use crate::random::Random;
use crate::statistics::{interval, signed_rank, Interval};
use crate::Point;

/// Numbers of pairs after which the test is evaluated, and the largest probability that promotes there.
type Looks = &'static [(usize, f64)];

/// The looks of each candidate, the best candidate first.
pub const ATTEMPTS: [Looks; 2] =
    [&[(8, 1.0 / 256.0), (16, 0.002), (32, 0.0015), (64, 0.001)], &[(16, 0.0005), (32, 0.0005)]];

/// Trials that exploration leaves for the first candidate: those of its second look, since few candidates need more.
pub const RESERVED: usize = ATTEMPTS[0][1].0;

/// The number of pairs from which on a candidate may be rejected early. With fewer, noise decides.
const FUTILE: usize = 8;

/// Whether `point` is better than the default by more than `minimum`: its effect, and the probability that noise alone
/// produces such a result.
///
/// # Errors
/// [`Unfinished`].
pub fn confirm(
    trials: &mut Trials<'_>,
    point: &Point,
    looks: Looks,
    minimum: f64,
    random: &mut Random,
) -> Result<Option<(Interval, f64)>, Unfinished> {
    let goal = trials.goal();
    let mut effects: Vec<f64> = Vec::new();
    for &(pairs, level) in looks {
        while effects.len() < pairs {
            let order = if random.coin() { Order::DefaultFirst } else { Order::DefaultLast };
            let Some(sample) = trials.sample(point, order)? else { return Ok(None) };
            effects.push(sample.effect(goal));
            if effects.len() >= FUTILE && interval(&effects).is_none_or(|effect| effect.middle <= minimum) {
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
