//! Statistics of a few noisy numbers, without an assumption about the distribution of the noise.

/// The median; `None` without numbers.
#[must_use]
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The standard deviation around 0, estimated from the median absolute value: outliers hardly change it.
#[must_use]
pub fn deviation_around_zero(numbers: &[f64]) -> Option<f64> {
    let distances: Vec<f64> = numbers.iter().map(|number| number.abs()).collect();
    // Half of a normal distribution lies within 0.6745 standard deviations.
    median(&distances).map(|middle| middle / 0.6745)
}

/// The number of standard deviations above the mean of a normal distribution beyond which this share of it lies, for a
/// share of at most one half. The error is at most 0.00045 (M. Abramowitz and I. A. Stegun, "Handbook of Mathematical
/// Functions", 1964, formula 26.2.23).
#[must_use]
pub fn normal_quantile(beyond: f64) -> f64 {
    let t = (-2.0 * beyond.ln()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328)) / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

/// Wilcoxon's signed-rank test, by enumeration: the probability of a sum of positive ranks that is at least as large, if
/// each sign is the result of a fair coin (F. Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1,
/// 1945). It relies on a random order within each pair, and on nothing about the noise.
#[must_use]
pub fn signed_rank(differences: &[f64]) -> f64 {
    let ranks = doubled_ranks(differences);
    let observed: usize = ranks.iter().zip(differences).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
    let total: usize = ranks.iter().sum();
    // How many of the 2^n combinations of signs give each sum.
    let mut ways = vec![0.0; total + 1];
    ways[0] = 1.0;
    for rank in ranks {
        for sum in (rank..=total).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let all: f64 = ways.iter().sum();
    ways[observed..].iter().sum::<f64>() / all
}

/// Twice the rank of each absolute value, so that the mean ranks of ties are whole numbers. A difference of 0 is not
/// positive, so its rank counts against.
fn doubled_ranks(differences: &[f64]) -> Vec<usize> {
    differences
        .iter()
        .map(|d| {
            let smaller = differences.iter().filter(|other| other.abs() < d.abs()).count();
            let equal = differences.iter().filter(|other| other.abs() == d.abs()).count();
            2 * smaller + equal + 1
        })
        .collect()
}

/// An estimate and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// The estimate.
    pub middle: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The Hodges-Lehmann estimate: the median of the means of all pairs of numbers. Its interval contains the values that
/// Wilcoxon's test does not reject (J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests", Annals of
/// Mathematical Statistics 34, 1963). With fewer than six numbers, it contains all means. `None` without numbers.
#[must_use]
pub fn interval(numbers: &[f64]) -> Option<Interval> {
    let mut means: Vec<f64> = Vec::new();
    for (index, a) in numbers.iter().enumerate() {
        means.extend(numbers[index..].iter().map(|b| (a + b) / 2.0));
    }
    means.sort_by(f64::total_cmp);
    let cut = if numbers.len() < 6 { 0 } else { rejected(numbers.len(), 0.025) };
    Some(Interval { middle: median(&means)?, low: means[cut], high: means[means.len() - 1 - cut] })
}

/// The number of rank sums at one end of the distribution whose total probability is at most `tail`.
fn rejected(n: usize, tail: f64) -> usize {
    let total = n * (n + 1) / 2;
    let mut ways = vec![0.0; total + 1];
    ways[0] = 1.0;
    for rank in 1..=n {
        for sum in (rank..=total).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let all: f64 = ways.iter().sum();
    let mut sum = 0.0;
    ways.iter()
        .take_while(|&&way| {
            sum += way / all;
            sum <= tail
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn quantiles_agree_with_the_tables() {
        for (beyond, deviations) in [(0.5, 0.0), (0.2, 0.841_62), (0.005, 2.575_83), (1e-6, 4.753_42)] {
            assert!((normal_quantile(beyond) - deviations).abs() < 0.0005, "{beyond}: {}", normal_quantile(beyond));
        }
    }

    #[test]
    fn signed_ranks_agree_with_the_tables() {
        let all_positive: Vec<f64> = (1..=8).map(f64::from).collect();
        assert_eq!(signed_rank(&all_positive), 1.0 / 256.0);
        // The smallest rank negative: two ways lead there.
        let mut one = all_positive.clone();
        one[0] = -1.0;
        assert_eq!(signed_rank(&one), 2.0 / 256.0);
        assert!(signed_rank(&all_positive.iter().map(|x| -x).collect::<Vec<_>>()) > 0.99);
        assert_eq!(signed_rank(&[0.0; 8]), 1.0);
        assert_eq!(signed_rank(&[]), 1.0);
    }

    #[test]
    fn noise_alone_is_significant_as_rarely_as_it_says() {
        let mut random = Random::new(3);
        let tests = 20_000;
        let hits = (0..tests).filter(|_| {
            // Heavy tails and outliers, but symmetric.
            let d: Vec<f64> = (0..8).map(|_| random.normal().powi(3)).collect();
            signed_rank(&d) <= 1.0 / 256.0
        });
        let rate = hits.count() as f64 / f64::from(tests);
        assert!((0.002..0.006).contains(&rate), "{rate}");
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut random = Random::new(4);
        let held = (0..2000).filter(|_| {
            let numbers: Vec<f64> = (0..10).map(|_| 5.0 + random.normal()).collect();
            let interval = interval(&numbers).unwrap();
            interval.low <= 5.0 && 5.0 <= interval.high
        });
        let rate = held.count() as f64 / 2000.0;
        assert!((0.93..0.98).contains(&rate), "{rate}");
    }

    #[test]
    fn outliers_hardly_move_the_estimate() {
        let numbers = [1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1.0, 50.0];
        let interval = interval(&numbers).unwrap();
        assert!((0.9..1.2).contains(&interval.middle), "{interval:?}");
        assert!(deviation_around_zero(&[0.01, -0.02, 0.01, 3.0]).unwrap() < 0.05);
    }
}
