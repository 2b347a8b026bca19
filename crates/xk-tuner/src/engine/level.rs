//! The error level: how probable it may be that a search promotes noise, now and over the whole life of a daemon.
//!
//! In: the number of tests since the last discovery. Out: the share of the error level that the next search may spend.
//!
//! A daemon searches again and again, for years. With a fixed probability per search, it would certainly promote noise
//! some day. So the shares get smaller: the n-th search after a discovery may spend [`LIFE`]/(n (n + 1)). All of them
//! together, however many, spend at most [`LIFE`], since 1/2 + 1/6 + 1/12 + … = 1. A discovery begins the sequence anew,
//! so that power does not die out. This is the rule LORD 1 (A. Javanmard and A. Montanari, "Online rules for control of
//! false discovery rate and false discovery exceedance", Annals of Statistics 46, 2018, pages 526 to 554), a form of
//! alpha-investing (D. P. Foster and R. A. Stine, "α-investing: a procedure for sequential control of expected false
//! discoveries", Journal of the Royal Statistical Society B 70, 2008, pages 429 to 444).
//!
//! **What it guarantees.** A share depends only on results of earlier searches, and each search tests fresh pairs. So the
//! expected number of false promotions V is at most the expected sum of the shares: [`LIFE`] before the first of R
//! discoveries, and as much after each. Hence E(V) ≤ LIFE (1 + E(R)). If there is nothing to discover, R = V, and
//! E(V) ≤ LIFE/(1 - LIFE) = 0.01. If there is something, at most one promotion of a hundred is false, in addition.
//!
//! **What counts.** A search that tested no candidate has spent nothing. A remembered setting that is confirmed again is
//! a result too, so its test gives back what it spent; but it is not a new discovery, so it does not begin the sequence
//! anew. `../store/error_level.rs` reads the count from the database.

/// What all searches until the first discovery may spend together, and what each discovery adds.
pub const LIFE: f64 = 0.0099;

/// The share of the first search.
pub const FIRST: f64 = LIFE / 2.0;

/// What a search may spend after this number of tests without a discovery.
#[must_use]
pub fn share(tests: u32) -> f64 {
    let number = f64::from(tests) + 1.0;
    LIFE / (number * (number + 1.0))
}

/// How a search divides its share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Division {
    /// For the remembered setting.
    pub recheck: f64,
    /// For each candidate, the best candidate first.
    pub candidates: [f64; 2],
}

impl Division {
    /// The division of a search with or without a remembered setting.
    #[must_use]
    pub fn of(share: f64, is_warm: bool) -> Self {
        let recheck = if is_warm { share / 2.0 } else { 0.0 };
        let rest = share - recheck;
        Self { recheck, candidates: [rest * 7.0 / 8.0, rest / 8.0] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_searches_together_spend_no_more_than_the_level() {
        let spent: f64 = (0..100_000).map(share).sum();
        assert!(spent <= LIFE && spent > 0.9999 * LIFE, "{spent}");
        const { assert!(LIFE / (1.0 - LIFE) <= 0.01) }
        assert_eq!(share(0), FIRST);
    }

    #[test]
    fn a_search_spends_its_share() {
        for is_warm in [false, true] {
            let division = Division::of(FIRST, is_warm);
            let sum = division.recheck + division.candidates.iter().sum::<f64>();
            assert!((sum - FIRST).abs() < 1e-15, "{division:?}");
            assert_eq!(division.recheck > 0.0, is_warm);
        }
    }
}
