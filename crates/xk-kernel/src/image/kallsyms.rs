//! The symbol tables that a kernel image carries for its own use.
//!
//! In: the read-only data of a linked but stripped image. Out: every symbol
//! with type and address. The tables have no header; they are found by their
//! structure, from the most unlikely part (256 growing token offsets) outwards,
//! and each part must agree with its neighbours. Layout of
//! `scripts/kallsyms.c` since Linux 6.4 ("kallsyms: change the output order"):
//! count, names, markers, token table, token index, offsets, relative base.

use thiserror::Error;

/// Alignment of every table.
const ALIGN: usize = 8;
/// Tokens in the compression table.
const TOKENS: usize = 256;
/// Symbols per marker.
const GROUP: usize = 256;
/// Longest expansion of a token, and of a name (`KSYM_NAME_LEN` is 512).
const MAX_NAME: usize = 512;
/// Longest compressed name that the format can state: two bytes of ULEB128.
const MAX_COMPRESSED: usize = 0x3fff;

/// Why no symbols were found.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum KallsymsError {
    /// No sequence looks like the token tables.
    #[error("no kallsyms token table: the kernel was built without CONFIG_KALLSYMS, or with a layout that is not known (Linux older than 6.4)")]
    NoTokens,
    /// The token tables are there, but what surrounds them does not fit.
    #[error("the kallsyms tables at offset {offset:#x} of the read-only data are damaged: {reason}")]
    Inconsistent {
        /// Offset of the token table.
        offset: usize,
        /// What does not fit.
        reason: &'static str,
    },
}

/// One decoded entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: char,
    pub(crate) name: String,
    pub(crate) address: u64,
}

/// Decodes the tables inside `data` (the image's read-only data, 8-byte aligned as in the image).
pub(crate) fn decode(data: &[u8]) -> Result<Vec<Entry>, KallsymsError> {
    let tables = TokenTables::find(data).ok_or(KallsymsError::NoTokens)?;
    let bad = |reason| KallsymsError::Inconsistent { offset: tables.table, reason };
    let markers = find_markers(data, tables.table).ok_or_else(|| bad("no markers before it"))?;
    let names = find_names(data, &markers).ok_or_else(|| bad("no names that agree with the markers"))?;

    let offsets_at = (tables.index + 2 * TOKENS).next_multiple_of(ALIGN);
    let base_at = (offsets_at + 4 * names.len()).next_multiple_of(ALIGN);
    let offsets = data.get(offsets_at..offsets_at + 4 * names.len()).ok_or_else(|| bad("the offsets are cut off"))?;
    let base = data.get(base_at..base_at + 8).ok_or_else(|| bad("the relative base is cut off"))?;
    let base = u64::from_le_bytes(base.try_into().map_err(|_| bad("the relative base is cut off"))?);

    let offsets: Vec<i32> = offsets.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    // With CONFIG_KALLSYMS_ABSOLUTE_PERCPU everything but per-CPU symbols has a negative offset.
    let per_cpu = offsets.iter().any(|&offset| offset < 0);
    let address = |offset: i32| match (per_cpu, offset >= 0) {
        (false, _) => base.wrapping_add(u64::from(offset as u32)),
        (true, true) => offset as u64,
        (true, false) => base.wrapping_sub(1).wrapping_sub(offset as i64 as u64),
    };
    let mut entries = Vec::with_capacity(names.len());
    for (compressed, &offset) in names.iter().zip(&offsets) {
        let text = tables.expand(compressed).ok_or_else(|| bad("a name does not expand to text"))?;
        let mut characters = text.chars();
        let kind = characters.next().ok_or_else(|| bad("an empty name"))?;
        entries.push(Entry { kind, name: characters.as_str().to_owned(), address: address(offset) });
    }
    Ok(entries)
}

/// The token table and its index.
struct TokenTables<'a> {
    /// Offset of the token table.
    table: usize,
    /// Offset of the token index.
    index: usize,
    tokens: Vec<&'a [u8]>,
}

impl<'a> TokenTables<'a> {
    fn find(data: &'a [u8]) -> Option<Self> {
        (0..data.len().saturating_sub(2 * TOKENS - 1)).step_by(ALIGN).find_map(|index| Self::at(data, index))
    }

    /// The tables whose index is at this offset.
    fn at(data: &'a [u8], index: usize) -> Option<Self> {
        let starts = data.get(index..index + 2 * TOKENS)?.chunks_exact(2);
        let mut starts = starts.map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
        let mut previous = starts.next().filter(|&first| first == 0)?;
        let mut all = vec![previous];
        for start in starts {
            // Every token has at least one character and its terminator.
            if start < previous + 2 || start > previous + MAX_NAME {
                return None;
            }
            all.push(start);
            previous = start;
        }
        // The table ends with the last token, somewhere in the padding before the index.
        let longest = (previous + MAX_NAME).next_multiple_of(ALIGN);
        let shortest = (previous + 2).next_multiple_of(ALIGN);
        let candidates = (shortest..=longest).step_by(ALIGN).filter_map(|size| index.checked_sub(size));
        candidates.filter_map(|table| Self::tokens(data, table, index, &all)).next()
    }

    fn tokens(data: &'a [u8], table: usize, index: usize, starts: &[usize]) -> Option<Self> {
        let mut tokens = Vec::with_capacity(TOKENS);
        let text = data.get(table..index)?;
        for (at, &start) in starts.iter().enumerate() {
            let rest = text.get(start..)?;
            let end = rest.iter().position(|&byte| byte == 0)?;
            let token = &rest[..end];
            let next = start + end + 1;
            let fits = match starts.get(at + 1) {
                Some(&following) => following == next,
                None => index - (table + next) < ALIGN && text[next..].iter().all(|&byte| byte == 0),
            };
            if !fits || token.is_empty() || !token.iter().all(|byte| byte.is_ascii_graphic()) {
                return None;
            }
            tokens.push(token);
        }
        Some(Self { table, index, tokens })
    }

    fn expand(&self, compressed: &[u8]) -> Option<String> {
        let bytes: Vec<u8> = compressed.iter().flat_map(|&code| self.tokens[usize::from(code)]).copied().collect();
        String::from_utf8(bytes).ok().filter(|name| name.len() <= MAX_NAME)
    }
}

/// The offsets, within the names, of every 256th symbol.
struct Markers {
    at: usize,
    values: Vec<u32>,
}

/// Reads the markers backwards from the token table that follows them.
fn find_markers(data: &[u8], table: usize) -> Option<Markers> {
    let word = |at: usize| data.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    // An odd number of markers is followed by four bytes of padding.
    [table, table.checked_sub(4)?].into_iter().find_map(|end| {
        let mut values = Vec::new();
        let mut at = end;
        loop {
            at = at.checked_sub(4)?;
            let value = word(at)?;
            let apart = values.last().map(|&next: &u32| next.saturating_sub(value) as usize);
            if apart.is_some_and(|apart| apart == 0 || apart > GROUP * (MAX_COMPRESSED + 2)) {
                return None;
            }
            values.push(value);
            if value == 0 {
                break;
            }
        }
        values.reverse();
        (at % ALIGN == 0).then_some(Markers { at, values })
    })
}

/// The compressed names, found from the markers that follow them.
fn find_names<'a>(data: &'a [u8], markers: &Markers) -> Option<Vec<&'a [u8]>> {
    let last = *markers.values.last()? as usize;
    let latest = markers.at.checked_sub(last)?;
    let earliest = latest.saturating_sub(GROUP * (MAX_COMPRESSED + 2));
    let mut start = latest - latest % ALIGN;
    while start >= earliest.max(ALIGN) {
        let count =
            data.get(start - ALIGN..start - 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)?;
        if count.div_ceil(GROUP) == markers.values.len() {
            if let Some(names) = names_at(data, start, count, markers) {
                return Some(names);
            }
        }
        start -= ALIGN;
    }
    None
}

fn names_at<'a>(data: &'a [u8], start: usize, count: usize, markers: &Markers) -> Option<Vec<&'a [u8]>> {
    let mut names = Vec::with_capacity(count);
    let mut at = start;
    for symbol in 0..count {
        if symbol % GROUP == 0 && at - start != *markers.values.get(symbol / GROUP)? as usize {
            return None;
        }
        let first = usize::from(*data.get(at)?);
        at += 1;
        let length = if first & 0x80 == 0 {
            first
        } else {
            let second = usize::from(*data.get(at)?);
            at += 1;
            (first & 0x7f) | (second << 7)
        };
        if length == 0 || at + length > markers.at {
            return None;
        }
        names.push(&data[at..at + length]);
        at += length;
    }
    (at.next_multiple_of(ALIGN) == markers.at).then_some(names)
}

#[cfg(test)]
#[path = "kallsyms_tests.rs"]
mod tests;
