//! Why no other values of a constant may be set, in words.

use xk_analysis::fit::fits_without_wrapping;
use xk_analysis::words::fit_words;
use xk_table::{Range, ScopeTable};

use crate::exit::{Exit, Failure};
use crate::output::{listed, range};
use crate::tunes::title;

/// Most compiled values that a message lists.
const LISTED: usize = 16;

/// That a table does not accept a number, and what it accepts.
pub fn not_accepted(table: &ScopeTable, number: i128) -> Failure {
    let name = title(&table.constant);
    let values = &table.values;
    // Numbers beyond 128 bits are not kept.
    let shown = if number.unsigned_abs() < i128::MAX.unsigned_abs() { number.to_string() } else { "the value".into() };
    let compiled = listed(&values.compiled, LISTED);
    let mut sentence = match values.proved {
        Some(proved) => {
            let beside = if compiled.is_empty() {
                String::new()
            } else {
                format!(", and none of the compiled values {compiled}")
            };
            let end = beyond(table, proved, number);
            format!("{name}: {shown} is outside the proved range, {}{beside} ({end})", range(proved))
        }
        None => {
            let why = why(table).join("; ");
            format!("{name}: {shown} is none of the compiled values, {compiled} ({why})")
        }
    };
    let value = i64::try_from(number).ok();
    if let Some(why) = value.and_then(|value| values.refused.get(&value)).filter(|why| !sentence.contains(*why)) {
        sentence += &format!("; it was compiled and refused: {why}");
    }
    Failure::new(Exit::Refused, sentence)
}

/// Why not more values may be set: a line each.
pub fn why(table: &ScopeTable) -> Vec<String> {
    let values = &table.values;
    let ends = |range: Range| {
        [format!("from {}: {}", range.min, below(table, range)), format!("to {}: {}", range.max, above(table, range))]
    };
    match (&values.unproved, values.proved) {
        (None, Some(range)) => ends(range).into(),
        (unproved, _) => {
            let unproved = unproved.as_deref().unwrap_or("nobody has tried");
            let Range { min, max } = values.hull();
            let below = values.refused.range(..min).next_back();
            let above = max.checked_add(1).and_then(|next| values.refused.range(next..).next());
            let refused = below.into_iter().chain(above).map(disagreement);
            [format!("others are not proved: {unproved}")].into_iter().chain(refused).collect()
        }
    }
}

/// Why nothing beyond the end of the proved range that is nearest to `value`.
fn beyond(table: &ScopeTable, range: Range, value: i128) -> String {
    if value < i128::from(range.min) {
        format!("from {}: {}", range.min, below(table, range))
    } else {
        format!("to {}: {}", range.max, above(table, range))
    }
}

fn above(table: &ScopeTable, range: Range) -> String {
    let Some(next) = range.max.checked_add(1) else { return "the largest 64-bit number".into() };
    let refused = table.values.refused.range(next..).next();
    refused
        .map(disagreement)
        .or_else(|| overflow(table, range.min, next))
        .unwrap_or_else(|| "no larger value is proved".into())
}

fn below(table: &ScopeTable, range: Range) -> String {
    let Some(next) = range.min.checked_sub(1) else { return "the smallest 64-bit number".into() };
    let refused = table.values.refused.range(..=next).next_back();
    refused
        .map(disagreement)
        .or_else(|| overflow(table, next, range.max))
        .unwrap_or_else(|| "no smaller value is proved".into())
}

fn disagreement((value, why): (&i64, &String)) -> String {
    format!("{value} was compiled and is refused: {why}")
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
    use xk_table::Values;

    #[test]
    fn what_was_not_compiled_is_refused_with_what_was() {
        let table = fixture::powers_table();
        let message = |number: i128| not_accepted(&table, number).message;
        assert_eq!(
            message(48),
            "BLK_MAX_REQUEST_COUNT: 48 is none of the compiled values, 4, 8, 16, 32, 64, 128 (others are not proved: \
             the code divides or masks by shifting: only powers of two were compiled; 2 was compiled and is refused: \
             blk_add_rq_to_plug+0x4e is `add %eax,%eax` there)"
        );
        assert!(message(2).ends_with("is `add %eax,%eax` there)"), "it is said once");
        let mut table = fixture::table();
        table.values.compiled = vec![1 << 30, 1 << 31];
        let message = |number: i128| not_accepted(&table, number).message;
        assert_eq!(
            message((1 << 30) + 1),
            "BLK_MAX_REQUEST_COUNT: 1073741825 is outside the proved range, 1 to 1073741823, and none of the compiled \
             values 1073741824, 2147483648 (to 1073741823: no larger value is proved)"
        );
    }

    #[test]
    fn bounds_are_explained() {
        let mut table = fixture::table();
        let ends = |table: &ScopeTable| {
            let [below, above] = <[String; 2]>::try_from(why(table)).unwrap();
            (below, above)
        };
        let (below, above) = ends(&table);
        assert_eq!(above, "to 1073741823: no larger value is proved");
        assert!(below.starts_with("from 1: 0 was compiled and is refused: "), "{below}");
        table.values.refused.clear();
        assert_eq!(ends(&table).0, "from 1: no smaller value is proved");
        table.values = Values::proved(1, i64::from(i32::MAX));
        let beyond = "beyond it, 2·V does not fit the 4 bytes that blk_add_rq_to_plug+0x56 has for it";
        assert_eq!(ends(&table).1, format!("to 2147483647: {beyond}"));
        table.values = Values::proved(1, i64::MAX);
        assert!(ends(&table).1.ends_with(": the largest 64-bit number"));
        let mut table = fixture::data_table();
        table.values = Values::proved(1, i64::from(u32::MAX));
        assert!(ends(&table).1.ends_with(": beyond it, V does not fit the 4 bytes at net_hotdata+0x38"));
    }

    #[test]
    fn what_is_not_proved_is_said_and_what_was_refused() {
        let mut powers = fixture::powers_table();
        let [unproved, refused] = <[String; 2]>::try_from(why(&powers)).unwrap();
        assert!(unproved.starts_with("others are not proved: the code divides"), "{unproved}");
        assert!(refused.starts_with("2 was compiled and is refused: "), "{refused}");
        powers.values.refused.clear();
        powers.values.unproved = None;
        assert_eq!(why(&powers), ["others are not proved: nobody has tried"]);
    }
}
