//! From observed constants to `IV = a·V + b`.
//!
//! In: the constant of one instruction for several V, each known modulo a
//! power of two. Out: the [`Fit`] that agrees with all of them, or `None`:
//! then the mapping is not linear.

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
/// of powers of two, a power of two, a quotient. Two points with different V are
/// needed for the first, three for the others; the remaining ones confirm.
#[must_use]
pub fn fit(points: &[Point], width: u8) -> Option<Fit> {
    let forms = [linear, log2, power, quotient];
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

/// `(a·V + b) / d`, rounded down: what is left of `V / d + c`.
fn quotient(points: &[Point], width: u8) -> Option<Fit> {
    let whole = whole(points, width);
    if whole.len() < 3 {
        return None;
    }
    let bits = u32::from(width) * 8;
    let powers = (1..=20).map(|n| 1i64 << n);
    for by in powers.chain(DIVISORS) {
        let d = i128::from(by);
        for a in [1i64, -1, 2, 3, 4, 5, 7, 8, 9, 10] {
            // The offset that carries: c·d from the first point, and a rounding.
            let base = whole[0];
            let scaled = i128::from(a) * i128::from(base.v);
            for rounding in [0, d - 1, d / 2] {
                let c = signed(base.iv, bits) - (scaled + rounding).div_euclid(d);
                let Ok(b) = i64::try_from(c * d + rounding) else { continue };
                let fit = Fit { a, b, form: Form::Quotient(by), width };
                if points.iter().all(|p| agrees(&fit, p)) {
                    return Some(fit);
                }
            }
        }
    }
    None
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
