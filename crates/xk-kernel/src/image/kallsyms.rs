//! The symbol tables that a kernel image carries for its own use.
//!
//! In: the read-only data of a linked but stripped image. Out: every symbol
//! with type and address. The tables have no header; they are found by their
//! structure, from the most unlikely part (256 growing token offsets) outwards,
//! and each part must agree with its neighbours. Layout of
//! `scripts/kallsyms.c` since Linux 6.4 ("kallsyms: change the output order"):
//! count, names, markers, token table, token index, offsets, relative base.
//! Newer kernels (7.3) align the tables to four bytes, and have no base: each
//! offset is relative to its own place.

use thiserror::Error;

/// Where the kernel's code and data are on x86-64.
const KERNEL: u64 = 0xffff_ffff_8000_0000;
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

/// How the tables are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Aligned to eight bytes, offsets from a base after them.
    Base,
    /// Aligned to four bytes, each offset from its own place.
    Place,
}

impl Layout {
    fn align(self) -> usize {
        match self {
            Self::Base => 8,
            Self::Place => 4,
        }
    }
}

/// Decodes the tables inside `data` (the image's read-only data, 8-byte aligned as in the image) at `address`.
pub(crate) fn decode(data: &[u8], address: u64) -> Result<Vec<Entry>, KallsymsError> {
    let first = decode_as(Layout::Base, data, address);
    match (&first, decode_as(Layout::Place, data, address)) {
        (Ok(_), _) => first,
        (Err(_), Ok(entries)) => Ok(entries),
        (Err(KallsymsError::NoTokens), Err(error)) => Err(error),
        (Err(_), Err(_)) => first,
    }
}

fn decode_as(layout: Layout, data: &[u8], address: u64) -> Result<Vec<Entry>, KallsymsError> {
    let tables = TokenTables::find(layout, data).ok_or(KallsymsError::NoTokens)?;
    let bad = |reason| KallsymsError::Inconsistent { offset: tables.table, reason };
    let markers = find_markers(layout, data, tables.table).ok_or_else(|| bad("no markers before it"))?;
    let names = find_names(layout, data, &markers).ok_or_else(|| bad("no names that agree with the markers"))?;
    let offsets_at = (tables.index + 2 * TOKENS).next_multiple_of(layout.align());
    let offsets = data.get(offsets_at..offsets_at + 4 * names.len()).ok_or_else(|| bad("the offsets are cut off"))?;
    let offsets: Vec<i32> = offsets.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let addresses = match layout {
        Layout::Base => from_base(data, offsets_at, &offsets),
        Layout::Place => from_places(address.wrapping_add(offsets_at as u64), &offsets),
    };
    let addresses = addresses.map_err(bad)?;
    let mut entries = Vec::with_capacity(names.len());
    for (compressed, address) in names.iter().zip(addresses) {
        let text = tables.expand(compressed).ok_or_else(|| bad("a name does not expand to text"))?;
        let mut characters = text.chars();
        let kind = characters.next().ok_or_else(|| bad("an empty name"))?;
        entries.push(Entry { kind, name: characters.as_str().to_owned(), address });
    }
    Ok(entries)
}

/// Addresses from offsets and the base after them.
fn from_base(data: &[u8], offsets_at: usize, offsets: &[i32]) -> Result<Vec<u64>, &'static str> {
    let base_at = (offsets_at + 4 * offsets.len()).next_multiple_of(Layout::Base.align());
    let base = data.get(base_at..base_at + 8).and_then(|bytes| bytes.try_into().ok());
    let base = base.map(u64::from_le_bytes).ok_or("the relative base is cut off")?;
    if base < KERNEL {
        return Err("the relative base is no address of a kernel");
    }
    // With CONFIG_KALLSYMS_ABSOLUTE_PERCPU everything but per-CPU symbols has a negative offset.
    let per_cpu = offsets.iter().any(|&offset| offset < 0);
    let address = |&offset: &i32| match (per_cpu, offset >= 0) {
        (false, _) => base.wrapping_add(u64::from(offset as u32)),
        (true, true) => offset as u64,
        (true, false) => base.wrapping_sub(1).wrapping_sub(offset as i64 as u64),
    };
    Ok(offsets.iter().map(address).collect())
}

/// Addresses from offsets of which each is relative to its place; `first` is the place of the first one.
fn from_places(first: u64, offsets: &[i32]) -> Result<Vec<u64>, &'static str> {
    let place = |index: usize| first.wrapping_add(4 * index as u64);
    let address = |(index, &offset): (usize, &i32)| place(index).wrapping_add(offset as i64 as u64);
    let addresses: Vec<u64> = offsets.iter().enumerate().map(address).collect();
    // The tables are sorted. This shows that the places are understood.
    if addresses.is_sorted() {
        Ok(addresses)
    } else {
        Err("the offsets from their places do not ascend")
    }
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
    fn find(layout: Layout, data: &'a [u8]) -> Option<Self> {
        let indices = (0..data.len().saturating_sub(2 * TOKENS - 1)).step_by(layout.align());
        indices.into_iter().find_map(|index| Self::at(layout, data, index))
    }

    /// The tables whose index is at this offset.
    fn at(layout: Layout, data: &'a [u8], index: usize) -> Option<Self> {
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
        let align = layout.align();
        let longest = (previous + MAX_NAME).next_multiple_of(align);
        let shortest = (previous + 2).next_multiple_of(align);
        let candidates = (shortest..=longest).step_by(align).filter_map(|size| index.checked_sub(size));
        candidates.filter_map(|table| Self::tokens(layout, data, table, index, &all)).next()
    }

    fn tokens(layout: Layout, data: &'a [u8], table: usize, index: usize, starts: &[usize]) -> Option<Self> {
        let mut tokens = Vec::with_capacity(TOKENS);
        let text = data.get(table..index)?;
        for (at, &start) in starts.iter().enumerate() {
            let rest = text.get(start..)?;
            let end = rest.iter().position(|&byte| byte == 0)?;
            let token = &rest[..end];
            let next = start + end + 1;
            let fits = match starts.get(at + 1) {
                Some(&following) => following == next,
                None => index - (table + next) < layout.align() && text[next..].iter().all(|&byte| byte == 0),
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
fn find_markers(layout: Layout, data: &[u8], table: usize) -> Option<Markers> {
    let word = |at: usize| data.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    // An odd number of markers may be followed by four bytes of padding.
    let ends = (0..layout.align()).step_by(4).filter_map(|padding| table.checked_sub(padding));
    ends.into_iter().find_map(|end| {
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
        (at % layout.align() == 0).then_some(Markers { at, values })
    })
}

/// The compressed names, found from the markers that follow them.
fn find_names<'a>(layout: Layout, data: &'a [u8], markers: &Markers) -> Option<Vec<&'a [u8]>> {
    let last = *markers.values.last()? as usize;
    let latest = markers.at.checked_sub(last)?;
    let earliest = latest.saturating_sub(GROUP * (MAX_COMPRESSED + 2));
    let align = layout.align();
    let mut start = latest - latest % align;
    while start >= earliest.max(align) {
        let count = data
            .get(start - align..start - align + 4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)?;
        if count.div_ceil(GROUP) == markers.values.len() {
            if let Some(names) = names_at(layout, data, start, count, markers) {
                return Some(names);
            }
        }
        start -= align;
    }
    None
}

fn names_at<'a>(
    layout: Layout,
    data: &'a [u8],
    start: usize,
    count: usize,
    markers: &Markers,
) -> Option<Vec<&'a [u8]>> {
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
    (at.next_multiple_of(layout.align()) == markers.at).then_some(names)
}

#[cfg(test)]
#[path = "kallsyms_tests.rs"]
mod tests;
