//! The last word: a candidate is promoted only if it wins in fresh pairs whose order was tossed.
//!
//! What made it a candidate was chosen among many noisy numbers and proves nothing. Here, one hypothesis
//! ("it is better by at least the minimum effect") meets numbers that had no part in choosing it. Under its
//! negation, and whatever the noise is, each difference is as likely to have the other sign, because a coin decided
//! which side came first; so the probability of a wrong promotion is counted out, not modelled. Looks and
//! attempts share what may go wrong: 1/256 + 0.002 + 0.001 + 0.001 < 1 %.

use super::{Stop, Trials};
use crate::history::Kind;
use crate::random::Random;
use crate::statistics::{interval, signed_rank, Interval};
use crate::Point;

/// After how many pairs the test is looked at, and how improbable the numbers must then be.
type Looks = [(usize, f64); 2];

/// For each candidate, the best first.
pub const ATTEMPTS: [Looks; 2] = [[(8, 1.0 / 256.0), (16, 0.002)], [(10, 1.0 / 1024.0), (20, 0.001)]];

/// Trials that the test of the first candidate may need.
pub const RESERVED: usize = ATTEMPTS[0][1].0;

/// When this many pairs speak against it on the whole, the rest is spared: that never promotes anything.
const FUTILE: usize = 4;

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
    for (pairs, level) in looks {
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
