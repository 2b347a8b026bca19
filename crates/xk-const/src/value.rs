//! C integer types and values: which values a type can hold, how a value is written so that the
//! expression keeps its type, and which values make telling variants.

/// An integer type of C on x86-64 as the kernel compiles it (plain `char` is unsigned).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the variants are the types
pub enum CType {
    Bool,
    Char,
    SignedChar,
    UnsignedChar,
    Short,
    UnsignedShort,
    Int,
    UnsignedInt,
    Long,
    UnsignedLong,
    LongLong,
    UnsignedLongLong,
}

impl CType {
    /// Every type, with its spelling.
    pub const ALL: [(CType, &'static str); 12] = [
        (CType::Bool, "_Bool"),
        (CType::Char, "char"),
        (CType::SignedChar, "signed char"),
        (CType::UnsignedChar, "unsigned char"),
        (CType::Short, "short"),
        (CType::UnsignedShort, "unsigned short"),
        (CType::Int, "int"),
        (CType::UnsignedInt, "unsigned int"),
        (CType::Long, "long"),
        (CType::UnsignedLong, "unsigned long"),
        (CType::LongLong, "long long"),
        (CType::UnsignedLongLong, "unsigned long long"),
    ];

    /// As written in C.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(t, _)| *t == self).map_or("int", |(_, name)| name)
    }

    /// Width in bits; a `_Bool` holds one.
    pub fn bits(self) -> u32 {
        match self {
            CType::Bool => 1,
            CType::Char | CType::SignedChar | CType::UnsignedChar => 8,
            CType::Short | CType::UnsignedShort => 16,
            CType::Int | CType::UnsignedInt => 32,
            _ => 64,
        }
    }

    /// Holds negative values.
    pub fn signed(self) -> bool {
        matches!(self, CType::SignedChar | CType::Short | CType::Int | CType::Long | CType::LongLong)
    }

    /// Smallest and largest value.
    pub fn range(self) -> (i128, i128) {
        let bits = self.bits();
        if self.signed() {
            (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
        } else {
            (0, (1_i128 << bits) - 1)
        }
    }

    /// The value is one of the type's.
    pub fn fits(self, value: i64) -> bool {
        let (low, high) = self.range();
        (low..=high).contains(&i128::from(value))
    }

    /// The value as an expression of exactly this type, which also works in `#if`, case labels and
    /// static initialisers. Types narrower than `int` need a cast, and so did the original.
    pub fn literal(self, value: i64) -> Option<String> {
        if !self.fits(value) {
            return None;
        }
        let suffix = match self {
            CType::UnsignedInt => "U",
            CType::Long => "L",
            CType::UnsignedLong => "UL",
            CType::LongLong => "LL",
            CType::UnsignedLongLong => "ULL",
            _ => "",
        };
        if self.bits() < 32 {
            return Some(format!("(({})({value}))", self.name()));
        }
        // The smallest value has no literal: `-2147483648` negates a `long`.
        Some(if i128::from(value) == self.range().0 && self.signed() {
            format!("({}{suffix} - 1)", value + 1)
        } else if value < 0 {
            format!("({value}{suffix})")
        } else {
            format!("{value}{suffix}")
        })
    }

    /// The type of an integer literal (C11 6.4.4.1).
    pub fn of_literal(literal: crate::token::Literal) -> Option<CType> {
        let ladder: &[CType] = match literal.long {
            0 => &[CType::Int, CType::UnsignedInt, CType::Long, CType::UnsignedLong],
            1 => &[CType::Long, CType::UnsignedLong],
            _ => &[CType::LongLong, CType::UnsignedLongLong],
        };
        let allowed = |t: &&CType| if literal.unsigned { !t.signed() } else { t.signed() || !literal.decimal };
        ladder.iter().filter(allowed).find(|t| i128::from(literal.value) <= t.range().1).copied()
    }
}

/// How an expression uses the constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    /// Nothing of the kinds below, or not visible in the source.
    Other,
    /// One side of a comparison.
    Compare,
    /// A factor.
    Multiplier,
    /// What is divided by, also `%`.
    Divisor,
    /// What is shifted by.
    ShiftCount,
}

/// Values for variants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    /// To fit the mapping from value to machine code.
    pub fit: Vec<i64>,
    /// To test the fit: none of them is in `fit`.
    pub unseen: Vec<i64>,
}

/// Whether 0 and 1 are among the values: they often change the shape of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edges {
    /// Leave them out.
    Avoid,
    /// Append them to the unseen values where they are valid.
    Include,
}

/// Values that differ in encoding class, parity and power-of-two-ness and stay sensible for the
/// magnitude of the default. Never 0 for divisors; shift counts stay below 32, the width that
/// every promoted operand has.
pub fn choose_values(default: i64, c_type: CType, operator: Operator, edges: Edges) -> Values {
    let shift = operator == Operator::ShiftCount;
    let size = default.unsigned_abs().min(1 << 56);
    let sign = if default < 0 { -1 } else { 1 };
    let valid = |&value: &i64| {
        value != default && c_type.fits(value) && !(0..=1).contains(&value) && (!shift || (2..=31).contains(&value))
    };
    let take = |wanted: Vec<i64>, count: usize, not: &[i64]| {
        let mut taken: Vec<i64> = Vec::new();
        for value in wanted.into_iter().filter(valid).filter(|v| !not.contains(v)) {
            if taken.len() < count && !taken.contains(&value) {
                taken.push(value);
            }
        }
        taken
    };
    let of =
        |values: &[u64]| values.iter().filter_map(|&v| i64::try_from(v).ok()).map(|v| v * sign).collect::<Vec<_>>();
    let (near, far, wanted) = if shift {
        (vec![2, 5, 4, 7, 6], vec![11, 13, 9], vec![8, 12, 3, 15, 10, 6, 9, 16, 17])
    } else {
        let power = size.next_power_of_two().max(4);
        let step = (size / 5).max(1);
        // Odd; even but no power of two; a power of two; then one in the next encoding class.
        let odd = (size + step) | 1;
        let even = (size + 2 * step + 2) & !1;
        let even = if even.is_power_of_two() { even + 2 } else { even };
        let twin = if power == size { power * 2 } else { power };
        let near = [odd, even, twin, odd + 2, even + 4, even + 6, size + 3, size.saturating_sub(3), size / 2 + 1];
        let far = if size < 100 { [1000, 100, 50] } else { [size.saturating_mul(11) + 1, size / 7, 90] };
        let class = [100, 126, 127, 128, 129, 255, 256];
        let scaled = [
            size * 3 + 1,
            size / 3,
            size / 2,
            size.saturating_sub(1),
            size + 1,
            power * 4,
            size.saturating_mul(20) + 6,
        ];
        let large = [3, 5, 6, 7, 12, 1024, 4097];
        let order: Vec<u64> =
            [&class[2..4], &scaled[..3], &class[5..7], &scaled[3..], &large[..], &class[..2], &class[4..5]].concat();
        (of(&near), of(&far), of(&order))
    };
    let mut fit = take(near, 3, &[]);
    fit.extend(take(far, 1, &fit.clone()));
    let mut unseen = take(wanted, 9, &fit);
    if edges == Edges::Include {
        let low = i64::from(operator == Operator::Divisor);
        unseen.extend((low..=1).filter(|&v| v != default && c_type.fits(v)));
    }
    Values { fit, unseen }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::integer_literal;

    #[test]
    fn literals_keep_their_type() {
        let ty = |text| CType::of_literal(integer_literal(text).unwrap()).unwrap();
        assert_eq!(ty("3"), CType::Int);
        assert_eq!(ty("16000U"), CType::UnsignedInt);
        assert_eq!(ty("0x80000000"), CType::UnsignedInt);
        assert_eq!(ty("2147483648"), CType::Long);
        assert_eq!(ty("1ULL"), CType::UnsignedLongLong);
        assert_eq!(CType::UnsignedLong.literal(40).unwrap(), "40UL");
        assert_eq!(CType::Int.literal(-5).unwrap(), "(-5)");
        assert_eq!(CType::Int.literal(i64::from(i32::MIN)).unwrap(), "(-2147483647 - 1)");
        assert_eq!(CType::UnsignedChar.literal(7).unwrap(), "((unsigned char)(7))");
        assert_eq!(CType::UnsignedChar.literal(256), None);
        assert_eq!(CType::UnsignedInt.literal(-1), None);
        assert_eq!(CType::Int.literal(1 << 31), None);
    }

    #[test]
    fn values_differ_in_class_parity_and_powers() {
        for default in [2, 3, 8, 10, 14, 16, 32, 100, 128, 512, 1000, 10_000, 32_768, 300_000_000] {
            let values = choose_values(default, CType::Int, Operator::Other, Edges::Avoid);
            assert_eq!(values.fit.len(), 4, "{default}: {values:?}");
            assert!(values.unseen.len() >= 5, "{default}: {values:?}");
            let all: Vec<_> = values.fit.iter().chain(&values.unseen).copied().collect();
            assert!(all.iter().all(|&v| v > 1 && v != default), "{default}: {values:?}");
            let mut unique = all.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), all.len(), "{default}: {values:?}");
            let power = |v: &i64| v.count_ones() == 1;
            assert!(values.fit.iter().any(|v| v % 2 == 1) && values.fit.iter().any(|v| v % 2 == 0));
            assert!(values.fit.iter().any(power) && values.fit.iter().any(|v| !power(v)));
            assert!(values.unseen.iter().any(|&v| v <= 127) && values.unseen.iter().any(|&v| v >= 128));
        }
    }

    #[test]
    fn values_respect_the_operator_and_the_type() {
        let shift = choose_values(3, CType::Int, Operator::ShiftCount, Edges::Avoid);
        assert!(shift.fit.len() == 4 && shift.unseen.len() >= 5);
        assert!(shift.fit.iter().chain(&shift.unseen).all(|v| (2..32).contains(v)));
        let divisor = choose_values(16, CType::Int, Operator::Divisor, Edges::Include);
        assert!(!divisor.unseen.contains(&0) && divisor.unseen.contains(&1));
        let byte = choose_values(200, CType::UnsignedChar, Operator::Other, Edges::Avoid);
        assert!(byte.fit.iter().chain(&byte.unseen).all(|v| (2..256).contains(v)));
        let extreme = choose_values(i64::MIN, CType::Long, Operator::Other, Edges::Avoid);
        assert!(!extreme.fit.is_empty());
    }
}
