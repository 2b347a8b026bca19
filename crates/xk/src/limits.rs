//! Why the range of a constant ends where it ends, in words.

use xk_sie::fit::fits_without_wrapping;
use xk_sie::words::fit_words;
use xk_table::ScopeTable;

/// Why nothing larger.
pub fn above(table: &ScopeTable) -> String {
    let range = table.range;
    let next = if range.powers_of_two { range.max.checked_mul(2) } else { range.max.checked_add(1) };
    let Some(next) = next else { return "the largest 64-bit number".into() };
    let open = table.validation.open.range(next..).next();
    open.map(disagreement)
        .or_else(|| overflow(table, range.min, next))
        .unwrap_or_else(|| format!("no larger {} was compiled and compared", kind(table)))
}

/// Why nothing smaller.
pub fn below(table: &ScopeTable) -> String {
    let range = table.range;
    let next = if range.powers_of_two { Some(range.min / 2) } else { range.min.checked_sub(1) };
    let Some(next) = next else { return "the smallest 64-bit number".into() };
    let open = table.validation.open.range(..=next).next_back();
    open.map(disagreement)
        .or_else(|| overflow(table, next, range.max))
        .unwrap_or_else(|| format!("no smaller {} was compiled and compared", kind(table)))
}

fn kind(table: &ScopeTable) -> &'static str {
    if table.range.powers_of_two {
        "power of two"
    } else {
        "value"
    }
}

/// The nearest value beyond the range that was tried.
fn disagreement((value, why): (&i64, &String)) -> String {
    format!("{value} was compiled and could not be shown to agree: {why}")
}

/// The instruction that cannot hold what the constant would become.
fn overflow(table: &ScopeTable, min: i64, max: i64) -> Option<String> {
    let span = table.spans.iter().find_map(|span| {
        let (slot, fit) = span.ivs.iter().enumerate().find(|(_, fit)| !fits_without_wrapping(fit, min, max))?;
        let line = span.assembly.iter().find(|line| line.iv == Some(slot));
        let function = table.functions.get(span.function).map_or("?", |function| function.symbol.as_str());
        let offset = line.map_or(span.start, |line| line.offset);
        let bytes = if fit.width == 1 { "byte".into() } else { format!("{} bytes", fit.width) };
        Some(format!("beyond it, {} does not fit the {bytes} that {function}+{offset:#x} has for it", fit_words(fit)))
    });
    let data = table.data.iter().find(|data| !fits_without_wrapping(&data.fit, min, max));
    span.or_else(|| {
        let data = data?;
        let words = fit_words(&data.fit);
        Some(format!("beyond it, {words} does not fit the {} bytes at {}+{:#x}", data.width, data.symbol, data.offset))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn bounds_are_explained() {
        let mut table = fixture::table();
        assert_eq!(above(&table), "no larger value was compiled and compared");
        assert!(below(&table).starts_with("0 was compiled and could not be shown to agree: "));
        table.validation.open.clear();
        assert_eq!(below(&table), "no smaller value was compiled and compared");
        table.range.max = i64::from(i32::MAX);
        assert_eq!(above(&table), "beyond it, 2·V does not fit the 4 bytes that blk_add_rq_to_plug+0x56 has for it");
        table.range.max = i64::MAX;
        assert_eq!(above(&table), "the largest 64-bit number");
        let mut table = fixture::data_table();
        table.range.max = i64::from(u32::MAX);
        assert_eq!(above(&table), "beyond it, V does not fit the 4 bytes at net_hotdata+0x38");
        let powers = fixture::powers_table();
        assert_eq!(above(&powers), "no larger power of two was compiled and compared");
        assert!(below(&powers).starts_with("2 was compiled"), "{}", below(&powers));
    }
}
