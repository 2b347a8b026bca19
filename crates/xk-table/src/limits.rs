//! Which values a table accepts, and why no others: sentences for messages.
//!
//! In: a table, and a number that was asked for. Out: the accepted values, and for each end of the proved range the
//! reason that it ends there: a value that was compiled and refused, or an instruction that is too narrow.

use thiserror::Error;

use crate::fit::{fit_words, fits_without_wrapping};
use crate::types::ScopeTable;
use crate::values::Range;

/// Maximum number of compiled values that a message lists.
const LISTED: usize = 16;

/// A table does not accept a number.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{}", sentence(table, *number))]
pub struct NotAccepted {
    /// The table.
    pub table: Box<ScopeTable>,
    /// The number that was asked for.
    pub number: i128,
}

impl NotAccepted {
    /// The refusal of `number` by `table`.
    #[must_use]
    pub fn new(table: &ScopeTable, number: i128) -> Self {
        Self { table: Box::new(table.clone()), number }
    }
}

fn sentence(table: &ScopeTable, number: i128) -> String {
    let name = table.constant.title();
    let values = &table.values;
    // A number beyond 128 bits was cut off.
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
            format!("{name}: {shown} is outside the proved range, {}{beside} ({end})", range_words(proved))
        }
        None => {
            let why = why_no_others(table).join("; ");
            format!("{name}: {shown} is none of the compiled values, {compiled} ({why})")
        }
    };
    let value = i64::try_from(number).ok();
    if let Some(why) = value.and_then(|value| values.refused.get(&value)).filter(|why| !sentence.contains(*why)) {
        sentence += &format!("; it was compiled and refused: {why}");
    }
    sentence
}

/// Why the table accepts no other values: one sentence for each end of the proved range, or for each refused neighbour.
#[must_use]
pub fn why_no_others(table: &ScopeTable) -> Vec<String> {
    let values = &table.values;
    let ends = |range: Range| {
        [format!("from {}: {}", range.min, below(table, range)), format!("to {}: {}", range.max, above(table, range))]
    };
    match (&values.unproved, values.proved) {
        (None, Some(range)) => ends(range).into(),
        (unproved, _) => {
            let unproved = unproved.as_deref().unwrap_or("no proof was tried");
            let Range { min, max } = values.hull();
            let below = values.refused.range(..min).next_back();
            let above = max.checked_add(1).and_then(|next| values.refused.range(next..).next());
            let refused = below.into_iter().chain(above).map(disagreement);
            [format!("others are not proved: {unproved}")].into_iter().chain(refused).collect()
        }
    }
}

/// Why nothing beyond the end of the proved range that is nearest to `value` is accepted.
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

/// The instruction or object that is too narrow for a value between `min` and `max`.
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

/// `1 to 100`. The bounds of the 64-bit type are shown as powers of two.
#[must_use]
pub fn range_words(range: Range) -> String {
    let bound = |value: i64| match value {
        i64::MAX => "2^63-1".to_owned(),
        i64::MIN => "-2^63".to_owned(),
        value => value.to_string(),
    };
    format!("{} to {}", bound(range.min), bound(range.max))
}

/// `4, 8, 16`. If there are more than `most`, those before the last are left out.
#[must_use]
pub fn listed(values: &[i64], most: usize) -> String {
    let words = |values: &[i64]| values.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    match values {
        [first @ .., last] if values.len() > most => {
            format!("{}, … {last}", words(&first[..most.saturating_sub(1).min(first.len())]))
        }
        _ => words(values),
    }
}
