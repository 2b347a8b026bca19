//! Format strings of `printk()` and its relatives.

/// How many arguments a format string of the kernel takes
/// (Documentation/core-api/printk-formats.rst): one for each conversion, one
/// more for each `*`.
#[must_use]
pub fn conversions(format: &str) -> usize {
    let mut count = 0;
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(literal) = after.strip_prefix('%') {
            rest = literal;
            continue;
        }
        let flags = after.len() - after.trim_start_matches(|c: char| "-+ #0123456789.*hlLzt".contains(c)).len();
        count += 1 + after[..flags].matches('*').count();
        rest = &after[flags..];
    }
    count
}
