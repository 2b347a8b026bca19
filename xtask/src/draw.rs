//! Values of a constant, drawn at random from those that its table accepts, and the numbers in its functions.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, OpKind};
use xk_table::{ScopeTable, Values};

/// One accepted value: of the compiled ones; anywhere in the proved range; near the default; small.
pub fn one(values: &Values, default: i64, random: &mut Random) -> Option<i64> {
    let value = match (values.proved, random.below(4)) {
        (None, _) => values.compiled.get(random.below(values.compiled.len() as u64) as usize).copied()?,
        (Some(range), 0) => {
            let width = range.max.abs_diff(range.min).saturating_add(1);
            range.min.wrapping_add(random.below(width) as i64)
        }
        (Some(_), 1) => default.wrapping_add(random.below(64) as i64 - 32),
        (Some(_), 2) => random.below(300) as i64,
        (Some(range), _) => {
            let bits = 64 - range.max.unsigned_abs().leading_zeros();
            (random.next() >> (64 - 1 - random.below(u64::from(bits.clamp(1, 62))))) as i64
        }
    };
    values.contains(value).then_some(value)
}

/// The numbers in the instructions of the table's functions that are no addresses.
pub fn numbers(table: &ScopeTable) -> BTreeSet<i64> {
    let with_spans: BTreeSet<usize> = table.spans.iter().map(|span| span.function).collect();
    let mut found = BTreeSet::new();
    for function in with_spans.into_iter().filter_map(|index| table.functions.get(index)) {
        let (Ok(text), Ok(mask)) = (function.text(), function.text_mask()) else { continue };
        let mut decoder = Decoder::new(64, &text, DecoderOptions::NONE);
        while decoder.can_decode() {
            let start = decoder.position();
            let insn = decoder.decode();
            let fixed = mask.get(start..decoder.position()).is_some_and(|mask| mask.iter().all(|byte| *byte == 0xff));
            for operand in (0..insn.op_count()).filter(|_| fixed && !insn.is_invalid()) {
                let immediate = matches!(
                    insn.op_kind(operand),
                    OpKind::Immediate8
                        | OpKind::Immediate32
                        | OpKind::Immediate8to32
                        | OpKind::Immediate8to64
                        | OpKind::Immediate32to64
                );
                if immediate {
                    found.insert(insn.immediate(operand) as i64);
                }
            }
        }
    }
    found
}

/// splitmix64.
pub struct Random(u64);

impl Random {
    /// For one constant: the same seed gives others for each.
    pub fn of(constant: &str, seed: u64) -> Self {
        Self(constant.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)))
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accepted_values_are_drawn() {
        let mut random = Random(1);
        let range = Values { compiled: vec![100, 200], ..Values::proved(-5, 50) };
        let many: BTreeSet<i64> = (0..2000).filter_map(|_| one(&range, 7, &mut random)).collect();
        assert!(many.iter().all(|value| range.contains(*value)) && many.len() > 40, "{many:?}");
        assert!(many.contains(&-5) && many.contains(&50), "{many:?}");
        let some = Values::compiled([3, 9, 27]);
        let all: BTreeSet<i64> = (0..100).filter_map(|_| one(&some, 9, &mut random)).collect();
        assert_eq!(all, BTreeSet::from([3, 9, 27]));
    }
}
