//! From observed constants to `IV = a·V + b`.
//!
//! In: the constant of one instruction for several V, each known modulo a
//! power of two. Out: the [`Fit`] that agrees with all of them, or `None`:
//! then the mapping is not linear.

use std::ops::RangeInclusive;

pub use xk_table::fits_without_wrapping;
use xk_table::{Fit, Form};

/// One observation: for this V the instruction holds `iv`, of which `bits` low
/// bits are determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Value in the source.
    pub v: i64,
    /// Constant in the instruction.
    pub iv: u64,
    /// Low bits of it that count.
    pub bits: u32,
}

fn low(value: u64, bits: u32) -> u64 {
    if bits >= 64 {
        value
    } else {
        value & ((1 << bits) - 1)
    }
}

fn signed(value: u64, bits: u32) -> i128 {
    if bits >= 64 {
        i128::from(value as i64)
    } else {
        let shift = 64 - bits;
        i128::from(((value << shift) as i64) >> shift)
    }
}

/// Fits `points`, read at `width` bytes: linear if possible, else the logarithm
/// of powers of two, a power of two, a quotient by a number, one by V. Two points with different V are
/// needed for the first, three for the others; the remaining ones confirm.
#[must_use]
pub fn fit(points: &[Point], width: u8) -> Option<Fit> {
    let forms = [linear, log2, power, quotient, inverse];
    forms.iter().find_map(|form| form(points, width))
}

/// The points in which the whole width counts.
fn whole(points: &[Point], width: u8) -> Vec<&Point> {
    points.iter().filter(|p| p.bits >= u32::from(width) * 8).collect()
}

const READINGS: [fn(u64, u32) -> i128; 2] = [signed, |value, bits| low(value, bits) as i128];

fn linear(points: &[Point], width: u8) -> Option<Fit> {
    let bits = u32::from(width) * 8;
    let whole = whole(points, width);
    let base = whole.first()?;
    let other = whole.iter().filter(|p| p.v != base.v).min_by_key(|p| p.v.abs_diff(base.v))?;
    let dv = i128::from(other.v) - i128::from(base.v);
    READINGS.iter().find_map(|read| {
        let (x, y) = (read(base.iv, bits), read(other.iv, bits));
        if (y - x) % dv != 0 {
            return None;
        }
        let a = (y - x) / dv;
        let b = x - a * i128::from(base.v);
        let fit = Fit::linear(i64::try_from(a).ok()?, b as i64, width);
        points.iter().all(|p| agrees(&fit, p)).then_some(fit)
    })
}

/// `((a << V) >> n) + b`: two points give `a·(2^V1 - 2^V0)·2^-n`.
fn power(points: &[Point], width: u8) -> Option<Fit> {
    let bits = u32::from(width) * 8;
    let whole = whole(points, width);
    if whole.len() < 3 || points.iter().any(|p| !(0..=30).contains(&p.v)) {
        return None;
    }
    let (base, other) = (whole[0], whole[1]);
    let step = (1i128 << other.v) - (1i128 << base.v);
    READINGS.iter().find_map(|read| {
        let (x, y) = (read(base.iv, bits), read(other.iv, bits));
        (0..=base.v.min(other.v)).find_map(|n| {
            let difference = (y - x) << n;
            if step == 0 || difference % step != 0 {
                return None;
            }
            let a = difference / step;
            let b = x - ((a << base.v) >> n);
            let (a, b) = (i64::try_from(a).ok()?, i64::try_from(b).ok()?);
            let fit = Fit { a, b, form: Form::Power(n as u8), width };
            points.iter().all(|p| agrees(&fit, p)).then_some(fit)
        })
    })
}

/// `a·log2(V) + b`.
fn log2(points: &[Point], width: u8) -> Option<Fit> {
    if points.iter().any(|p| p.v < 1 || p.v.count_ones() != 1) {
        return None;
    }
    let logarithms: Vec<Point> = points.iter().map(|p| Point { v: p.v.ilog2().into(), ..*p }).collect();
    linear(&logarithms, width).filter(|_| whole(points, width).len() >= 3).map(|fit| Fit { form: Form::Log2, ..fit })
}

/// What the kernel divides by: units of time and size, small numbers.
const DIVISORS: [i64; 18] =
    [3, 5, 6, 7, 9, 10, 12, 24, 25, 60, 100, 1000, 1_000_000, 4_000_000, 1_000_000_000, 4000, 250, 10_000];

/// `(a·V + b) / d`, rounded down: what is left of `V / d + c`. Of several the one with the smallest numbers: a few points
/// lie on many.
fn quotient(points: &[Point], width: u8) -> Option<Fit> {
    let whole = whole(points, width);
    if whole.len() < 3 {
        return None;
    }
    let powers = (1..=20).map(|n| 1i64 << n);
    let size = |fit: &Fit, by: i64| u128::from(fit.a.unsigned_abs()) * u128::from(by.unsigned_abs());
    let found = powers.chain(DIVISORS).filter_map(|by| Some((by, quotient_by(points, &whole, width, by)?)));
    found.min_by_key(|(by, fit)| size(fit, *by)).map(|(_, fit)| fit)
}

/// The one with the smallest factor for a divisor.
fn quotient_by(points: &[Point], whole: &[&Point], width: u8, by: i64) -> Option<Fit> {
    let (bits, d, base) = (u32::from(width) * 8, i128::from(by), whole[0]);
    factors(whole, d, bits).into_iter().find_map(|a| {
        // The offset that carries: c·d from the first point, and a rounding.
        let scaled = i128::from(a) * i128::from(base.v);
        [0, d - 1, d / 2].into_iter().find_map(|rounding| {
            let c = signed(base.iv, bits) - (scaled + rounding).div_euclid(d);
            let b = i64::try_from(c * d + rounding).ok()?;
            let fit = Fit { a, b, form: Form::Quotient(by), width };
            points.iter().all(|p| agrees(&fit, p)).then_some(fit)
        })
    })
}

/// The factors that the two most distant points leave, if what follows V is divided by `d`: rounding moves each of them by
/// one at most. None if they are too many to tell anything.
fn factors(points: &[&Point], d: i128, bits: u32) -> Vec<i64> {
    const MOST: i128 = 16;
    let by_v = |point: &&&Point| point.v;
    let (Some(low), Some(high)) = (points.iter().min_by_key(by_v), points.iter().max_by_key(by_v)) else {
        return Vec::new();
    };
    let (dv, di) = (i128::from(high.v) - i128::from(low.v), signed(high.iv, bits) - signed(low.iv, bits));
    if dv == 0 {
        return Vec::new();
    }
    let (least, most) = (((di - 1) * d).div_euclid(dv), ((di + 1) * d).div_euclid(dv) + 1);
    let all = if most - least > MOST { -MOST..=MOST } else { least..=most };
    // Small ones first, and none that follows nothing.
    let mut all: Vec<i64> = all.filter(|a| *a != 0).filter_map(|a| i64::try_from(a).ok()).collect();
    all.sort_by_key(|a| (a.unsigned_abs(), *a < 0));
    all
}

/// `a / V + b`, rounded down. Each point leaves as many numerators as its V. Of those that all points leave, one that
/// programs divide is taken: the largest number of a type, or a unit of time or size, or a part of these.
fn inverse(points: &[Point], width: u8) -> Option<Fit> {
    let whole = whole(points, width);
    if whole.len() < 3 || points.iter().any(|point| point.v < 1) {
        return None;
    }
    let bits = u32::from(width) * 8;
    let offsets = [0i64, 1, -1].into_iter().filter_map(|b| Some((b, numerators(&whole, bits, b)?)));
    let offsets: Vec<(i64, RangeInclusive<u128>)> = offsets.collect();
    let usual = offsets.iter().find_map(|(b, left)| Some((*b, usual_numerators().find(|a| left.contains(a))?)));
    let (b, a) = usual.or_else(|| offsets.first().map(|(b, left)| (*b, *left.start())))?;
    let fit = Fit { a: u64::try_from(a).ok()? as i64, b, form: Form::Inverse, width };
    // Where nothing falls, nothing is divided.
    let falls = whole.iter().any(|point| fit.apply(point.v) != fit.apply(whole[0].v));
    (falls && points.iter().all(|point| agrees(&fit, point))).then_some(fit)
}

/// The numerators that all points leave, if `b` is added to the quotient.
fn numerators(points: &[&Point], bits: u32, b: i64) -> Option<RangeInclusive<u128>> {
    let (mut least, mut most) = (1, u128::from(u64::MAX));
    for point in points {
        let quotient = u128::from(low(point.iv.wrapping_sub(b as u64), bits));
        let v = u128::try_from(point.v).ok()?;
        least = least.max(quotient * v);
        most = most.min(quotient * v + (v - 1));
    }
    (least <= most).then_some(least..=most)
}

/// What is divided by constants.
fn usual_numerators() -> impl Iterator<Item = u128> {
    let largest = [64, 63, 32, 31, 16].map(|bits| (1u128 << bits) - 1);
    let units = [1_000_000_000, 1_000_000, 1000, 100];
    let powers = (4..64).map(|bits| 1u128 << bits);
    let parts = (1u128..=10).chain([100, 1000]);
    parts.flat_map(move |part| largest.into_iter().chain(units).chain(powers.clone()).map(move |whole| whole / part))
}

/// Whether `fit` predicts `point`, in the bits that count.
#[must_use]
pub fn agrees(fit: &Fit, point: &Point) -> bool {
    let bits = point.bits.min(u32::from(fit.width) * 8);
    low(fit.apply(point.v), bits) == low(point.iv, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[(i64, u64)], bits: u32) -> Vec<Point> {
        values.iter().map(|&(v, iv)| Point { v, iv, bits }).collect()
    }

    #[test]
    fn negated_and_scaled_constants_are_linear() {
        let negated = points(&[(32, 0xffff_ffe0), (10, 0xffff_fff6), (17, 0xffff_ffef)], 32);
        assert_eq!(fit(&negated, 4), Some(Fit::linear(-1, 0, 4)));
        let high = points(&[(10, 0xa_0000_0218), (7, 0x7_0000_0218), (300, 0x12c_0000_0218)], 64);
        assert_eq!(fit(&high, 8), Some(Fit::linear(1 << 32, 0x218, 8)));
    }

    #[test]
    fn powers_and_halves_have_their_forms() {
        let power = points(&[(14, 0x3fff_c000), (11, 0x07ff_f800), (13, 0x1fff_e000)], 32);
        let found = fit(&power, 4).unwrap();
        assert_eq!((found.form, found.a, found.b), (Form::Power(0), 65535, 0));
        assert!(fits_without_wrapping(&found, 1, 15) && !fits_without_wrapping(&found, 1, 17));
        let less = points(&[(12, 2049), (13, 4097), (11, 1025)], 64);
        assert_eq!(fit(&less, 8).map(|f| (f.form, f.a, f.b)), Some((Form::Power(1), 1, 1)));
        let half = points(&[(128, 63), (256, 127), (127, 62)], 64);
        let found = fit(&half, 8).unwrap();
        assert_eq!((found.form, found.a), (Form::Quotient(2), 1));
        assert!([(128, 63), (256, 127), (127, 62), (3, 0), (5, 1)].iter().all(|&(v, iv)| found.apply(v) == iv));
        let shifts = points(&[(16, 4), (64, 6), (8, 3)], 8);
        assert_eq!(fit(&shifts, 1).map(|f| (f.form, f.a, f.b)), Some((Form::Log2, 1, 0)));
        let jiffies = points(&[(300_000_000, 75), (360_000_000, 90), (420_000_003, 105)], 64);
        assert!(fit(&jiffies, 8).is_some_and(|f| f.apply(303_999_999) == 75));
        let up = points(&[(128, 32), (129, 33), (132, 33), (133, 34)], 64);
        assert_eq!(fit(&up, 8).map(|f| (f.form, f.b)), Some((Form::Quotient(4), 3)));
    }

    #[test]
    fn what_is_divided_by_v_has_its_numerator() {
        // shmem_show_options() and tcp_illinois_acked().
        let of_type = points(&[(1024, (1 << 54) - 1), (2048, (1 << 53) - 1), (512, (1 << 55) - 1)], 64);
        let found = fit(&of_type, 8).unwrap();
        assert_eq!((found.form, found.a as u64, found.b), (Form::Inverse, u64::MAX, 0));
        let tenth = points(&[(128, 3_355_443), (256, 1_677_721), (127, 3_381_864)], 32);
        assert_eq!(fit(&tenth, 4).map(|f| (f.form, f.a, f.b)), Some((Form::Inverse, 429_496_729, 0)));
        let less = points(&[(250, 3_999_999), (100, 9_999_999), (1000, 999_999)], 32);
        let found = fit(&less, 4).unwrap();
        assert!([(250, 3_999_999), (1, 999_999_999), (3, 333_333_332)].iter().all(|&(v, iv)| found.apply(v) == iv));
        assert!(!fits_without_wrapping(&found, 0, 1000) && fits_without_wrapping(&found, 1, 1000));
        // Ten times V, less three tenths of it.
        let most = points(&[(128, 1242), (256, 2484), (127, 1232)], 32);
        let found = fit(&most, 4).unwrap();
        assert!(
            [(128, 1242), (1, 10), (1001, 9710), (33, 321)].iter().all(|&(v, iv)| found.apply(v) == iv),
            "{found:?}"
        );
        // One that disagrees.
        let other = points(&[(128, 3_355_443), (256, 1_677_721), (127, 3_381_865)], 32);
        assert_eq!(fit(&other, 4), None);
    }

    #[test]
    fn a_square_is_not_linear() {
        assert_eq!(fit(&points(&[(3, 9), (4, 16), (5, 25)], 32), 4), None);
    }

    #[test]
    fn a_narrower_observation_confirms_but_does_not_define() {
        let mut observed = points(&[(32, 64), (10, 20)], 32);
        observed.push(Point { v: 40_000, iv: 80_000 & 0xffff, bits: 16 });
        assert_eq!(fit(&observed, 4), Some(Fit::linear(2, 0, 4)));
        observed.push(Point { v: 5, iv: 11, bits: 16 });
        assert_eq!(fit(&observed, 4), None);
    }

    #[test]
    fn wrapping_is_noticed() {
        let minus_one = Fit::linear(1, -1, 4);
        assert!(fits_without_wrapping(&minus_one, 0, 1 << 30));
        assert!(!fits_without_wrapping(&minus_one, 0, 1 << 33));
    }
}
