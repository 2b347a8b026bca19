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
//! **How many pairs.** That depends on the noise, which the pairs themselves show. The test is evaluated after a few
//! numbers of pairs (*looks*), and ends at the first look that suffices. Each look has its own part of the error
//! probability ([`looks`]), fixed before the first pair. By the union bound, their sum bounds the probability of a wrong
//! promotion, however the looks depend on each other. Spending the error probability look by look comes from clinical
//! trials (K. K. G. Lan and D. L. DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70, 1983).
//! Most of it is left for the last look, as in the boundaries of P. C. O'Brien and T. R. Fleming ("A multiple testing
//! procedure for clinical trials", Biometrics 35, 1979): the early looks cost little power, and end a test early where
//! there is little noise.
//!
//! **Early rejection.** At every fourth pair from [`FUTILE`] on, a candidate is rejected if its median effect is more than
//! [`HOPE`] standard errors below the minimum effect. This promotes nothing, so it does not add to the error probability.
//! In simulations of a gain of 5 % under 5 % of noise, this loses 1 to 2 of 100 candidates that the pairs to come would
//! confirm. To reject any median below the minimum effect, after every pair, loses a tenth of them.

use super::{Trials, Unfinished};
use crate::history::Order;
use crate::random::Random;
use crate::statistics::{deviation_around_zero, interval, median, normal_quantile, signed_rank, Interval};
use crate::Point;

/// A number of pairs after which the test is evaluated, and the largest probability that promotes there.
pub type Look = (usize, f64);

/// The largest number of pairs of a confirmation. With the default number of trials, more would leave too few for
/// exploration; and they would find little more.
pub const MOST: usize = 96;

/// The parts of the error probability of the looks, the first look first.
const PARTS: [f64; 4] = [1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0, 9.0 / 16.0];

/// The number of pairs from which on a candidate may be rejected early. With fewer, noise decides.
const FUTILE: usize = 8;

/// A candidate is not rejected early while this many standard errors above its median are above the minimum effect.
const HOPE: f64 = 1.25;

/// The looks of a test with this error probability, and of at most `most` pairs; none if so few pairs cannot be
/// significant.
///
/// The first look is at the smallest number of pairs that its part of the error probability allows: n pairs that all
/// have the same sign have a probability of 2^-n. The others are at a quarter, a half, and all of the pairs. A look that
/// could not promote is left out, and its part is added to the next look.
#[must_use]
pub fn looks(level: f64, most: usize) -> Vec<Look> {
    let most = most.min(MOST);
    let fewest = (-(PARTS[0] * level).log2()).ceil().max(1.0) as usize;
    let mut looks: Vec<Look> = Vec::new();
    let mut passed_on = 0.0;
    for (pairs, part) in [fewest, most / 4, most / 2, most].into_iter().zip(PARTS) {
        let part = part * level + passed_on;
        let is_later = looks.last().is_none_or(|&(before, _)| before < pairs);
        let can_promote = pairs <= most && part >= 0.5f64.powi(pairs as i32);
        if is_later && can_promote {
            looks.push((pairs, part));
            passed_on = 0.0;
        } else {
            passed_on = part;
        }
    }
    // The last look is the one with all pairs: what could not be spent there belongs to the one before it.
    if let Some(last) = looks.last_mut() {
        last.1 += passed_on;
    }
    looks
}

/// The number of pairs that show, in 80 of 100 cases, an effect that is `beyond` the minimum effect, if the noise of a
/// window has this variance.
///
/// The formula is that for the test of a mean with normal noise. The signed-rank test needs π/3 times as many pairs.
#[must_use]
pub fn pairs_needed(noise: f64, beyond: f64, level: f64) -> usize {
    let deviations = normal_quantile(level) + normal_quantile(0.2);
    let pairs = std::f64::consts::FRAC_PI_3 * deviations.powi(2) * 2.0 * noise / beyond.powi(2);
    // A float beyond the range of an integer becomes the largest one.
    pairs.ceil() as usize
}

/// Whether `point` is better than the default by more than `minimum`: its effect, and the probability that noise alone
/// produces such a result.
///
/// # Errors
/// [`Unfinished`].
pub fn confirm(
    trials: &mut Trials<'_>,
    point: &Point,
    looks: &[Look],
    minimum: f64,
    random: &mut Random,
) -> Result<Option<(Interval, f64)>, Unfinished> {
    let goal = trials.goal();
    let mut beyond: Vec<f64> = Vec::new();
    for &(pairs, level) in looks {
        while beyond.len() < pairs {
            let order = if random.coin() { Order::DefaultFirst } else { Order::DefaultLast };
            let Some(sample) = trials.sample(point, order)? else { return Ok(None) };
            beyond.push(sample.effect(goal) - minimum);
            if is_hopeless(&beyond) {
                return Ok(None);
            }
        }
        let p = signed_rank(&beyond);
        if p <= level {
            let effects: Vec<f64> = beyond.iter().map(|effect| effect + minimum).collect();
            return Ok(interval(&effects).map(|effect| (effect, p)));
        }
    }
    Ok(None)
}

/// Whether a candidate is rejected early.
fn is_hopeless(beyond: &[f64]) -> bool {
    if beyond.len() < FUTILE || beyond.len() % 4 != 0 {
        return false;
    }
    let Some(middle) = median(beyond) else { return false };
    let distances: Vec<f64> = beyond.iter().map(|effect| effect - middle).collect();
    let deviation = deviation_around_zero(&distances).unwrap_or(0.0);
    // The standard error of a median is 1.25 times that of a mean, if the noise is normal.
    middle + HOPE * 1.25 * deviation / (beyond.len() as f64).sqrt() <= 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::level::{share, Division, FIRST};

    #[test]
    fn the_looks_spend_the_level_and_each_can_promote() {
        for tests in 0..200 {
            for most in 0..=120 {
                let level = Division::of(share(tests), false).candidates[0];
                let looks = looks(level, most);
                let sum: f64 = looks.iter().map(|look| look.1).sum();
                assert!(looks.is_empty() || (sum - level).abs() < 1e-12 * level, "{tests} {most}: {looks:?}");
                assert!(looks
                    .iter()
                    .all(|&(pairs, part)| part >= 0.5f64.powi(pairs as i32) && pairs <= most.min(MOST)));
                assert!(looks.windows(2).all(|pair| pair[0].0 < pair[1].0), "{looks:?}");
                // Nothing is lost while a look can promote at all.
                assert_eq!(looks.is_empty(), 0.5f64.powi(most as i32) > level, "{tests} {most}");
            }
        }
    }

    #[test]
    fn a_part_that_cannot_promote_is_passed_on() {
        let first = |level, most| looks(level, most).into_iter().map(|look| look.0).collect::<Vec<_>>();
        assert_eq!(first(FIRST, 96), [12, 24, 48, 96]);
        // A later search: 24 pairs would be a look of the first, and are the fewest that its level allows.
        assert_eq!(first(share(50), 80), [23, 40, 80]);
        assert_eq!(first(FIRST, 10), [10]);
        assert_eq!(looks(FIRST, 10)[0].1, FIRST);
        assert_eq!(first(FIRST, 7), [0; 0]);
    }

    #[test]
    fn a_candidate_is_rejected_early_only_without_hope() {
        let effects =
            |middle: f64| -> Vec<f64> { (-6..6).map(|step| middle + 0.02 * (f64::from(step) + 0.5)).collect() };
        assert!(is_hopeless(&effects(-0.05)) && !is_hopeless(&effects(-0.02)) && !is_hopeless(&effects(0.01)));
        assert!(!is_hopeless(&[-1.0; 4]) && is_hopeless(&[0.0; 8]));
    }

    #[test]
    fn the_pairs_that_are_needed_are_those_of_the_textbook() {
        // 5 % under 5 % of noise at 0.005: (2.576 + 0.842)^2 * 2 * 0.0025 / 0.029^2, times pi / 3.
        assert_eq!(pairs_needed(0.0025, 1.05f64.ln() - 1.02f64.ln(), 0.005), 73);
        assert_eq!((pairs_needed(0.0, 0.0, 0.005), pairs_needed(0.1, 0.0, 0.005)), (0, usize::MAX));
    }
}
