//! Why the range of a constant ends where it ends, in words.

use xk_sie::fit::fits_without_wrapping;
use xk_sie::words::fit_words;
use xk_table::ScopeTable;

/// Why nothing larger.
pub fn above(table: &ScopeTable) -> String {
    match table.range.max.checked_add(1) {
        Some(next) => overflow(table, table.range.min, next)
            .unwrap_or_else(|| "no larger value was both compiled and found to agree".into()),
        None => "the largest 64-bit number".into(),
    }
}

/// Why nothing smaller.
pub fn below(table: &ScopeTable) -> String {
    match table.range.min.checked_sub(1) {
        Some(next) => overflow(table, next, table.range.max)
            .unwrap_or_else(|| "no smaller value was both compiled and found to agree".into()),
        None => "the smallest 64-bit number".into(),
    }
}

/// The instruction that cannot hold what the constant would become.
fn overflow(table: &ScopeTable, min: i64, max: i64) -> Option<String> {
    table.spans.iter().find_map(|span| {
        let (slot, fit) = span.ivs.iter().enumerate().find(|(_, fit)| !fits_without_wrapping(fit, min, max))?;
        let line = span.assembly.iter().find(|line| line.iv == Some(slot));
        let function = table.functions.get(span.function).map_or("?", |function| function.symbol.as_str());
        let offset = line.map_or(span.start, |line| line.offset);
        let bytes = if fit.width == 1 { "byte".into() } else { format!("{} bytes", fit.width) };
        Some(format!("beyond it, {} does not fit the {bytes} that {function}+{offset:#x} has for it", fit_words(fit)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn bounds_are_explained() {
        let mut table = fixture::table();
        assert!(above(&table).contains("no larger value"), "{}", above(&table));
        table.range.max = i64::from(i32::MAX);
        assert_eq!(above(&table), "beyond it, -V does not fit the 4 bytes that blk_add_rq_to_plug+0x53 has for it");
        table.range.max = i64::MAX;
        assert!(above(&table).contains("largest"));
        assert!(below(&table).contains("no smaller value"));
    }
}
