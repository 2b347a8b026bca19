//! From observed constants to `IV = a·V + b`.
//!
//! In: the constant of one instruction for several V, each known modulo a
//! power of two. Out: the [`Fit`] that agrees with all of them, or `None`:
//! then the mapping is not linear.

use xk_table::Fit;

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

/// Fits `points`, read at `width` bytes. Two points with different V are
/// needed; the remaining ones confirm.
#[must_use]
pub fn fit(points: &[Point], width: u8) -> Option<Fit> {
    let bits = u32::from(width) * 8;
    let whole: Vec<&Point> = points.iter().filter(|p| p.bits >= bits).collect();
    let base = whole.first()?;
    let other = whole.iter().filter(|p| p.v != base.v).min_by_key(|p| p.v.abs_diff(base.v))?;
    let dv = i128::from(other.v) - i128::from(base.v);
    let readings: [fn(u64, u32) -> i128; 2] = [signed, |value, bits| i128::from(low(value, bits))];
    readings.iter().find_map(|read| {
        let (x, y) = (read(base.iv, bits), read(other.iv, bits));
        if (y - x) % dv != 0 {
            return None;
        }
        let a = (y - x) / dv;
        let b = x - a * i128::from(base.v);
        let fit = Fit { a: i64::try_from(a).ok()?, b: b as i64, width };
        points.iter().all(|p| agrees(&fit, p)).then_some(fit)
    })
}

/// Whether `fit` predicts `point`, in the bits that count.
#[must_use]
pub fn agrees(fit: &Fit, point: &Point) -> bool {
    let bits = point.bits.min(u32::from(fit.width) * 8);
    low(fit.apply(point.v), bits) == low(point.iv, bits)
}

/// Whether the IV of every V between `min` and `max` fits `width` bytes without
/// wrapping around, in one reading (signed or unsigned).
#[must_use]
pub fn fits_without_wrapping(fit: &Fit, min: i64, max: i64) -> bool {
    let at = |v: i64| i128::from(fit.a) * i128::from(v) + i128::from(fit.b);
    let (low, high) = (at(min).min(at(max)), at(min).max(at(max)));
    let bits = u32::from(fit.width) * 8;
    let half = 1i128 << (bits - 1);
    (-half <= low && high < half) || (0 <= low && high < 2 * half)
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
        assert_eq!(fit(&negated, 4), Some(Fit { a: -1, b: 0, width: 4 }));
        let high = points(&[(10, 0xa_0000_0218), (7, 0x7_0000_0218), (300, 0x12c_0000_0218)], 64);
        assert_eq!(fit(&high, 8), Some(Fit { a: 1 << 32, b: 0x218, width: 8 }));
    }

    #[test]
    fn a_square_is_not_linear() {
        assert_eq!(fit(&points(&[(3, 9), (4, 16), (5, 25)], 32), 4), None);
    }

    #[test]
    fn a_narrower_observation_confirms_but_does_not_define() {
        let mut observed = points(&[(32, 64), (10, 20)], 32);
        observed.push(Point { v: 40_000, iv: 80_000 & 0xffff, bits: 16 });
        assert_eq!(fit(&observed, 4), Some(Fit { a: 2, b: 0, width: 4 }));
        observed.push(Point { v: 5, iv: 11, bits: 16 });
        assert_eq!(fit(&observed, 4), None);
    }

    #[test]
    fn wrapping_is_noticed() {
        let minus_one = Fit { a: 1, b: -1, width: 4 };
        assert!(fits_without_wrapping(&minus_one, 0, 1 << 30));
        assert!(!fits_without_wrapping(&minus_one, 0, 1 << 33));
    }
}
