//! What one file contributes to the index: its identifiers, what it includes, and the macros that later questions need.
//!
//! In: the text of a file. Out: [`Facts`]. Reads lines, not tokens, so comments count as code: the index may name a file
//! that does not mention an identifier, and never leaves one out.

use crate::paste::pastes;
use crate::search_path::{FileNo, SearchPath};

/// Files with more macros than this hold register maps; their names are no help to a human.
const NAMED_FILE_LIMIT: usize = 2000;
/// Identifiers are hashed into this many buckets, as a power of two.
const BUCKET_BITS: u32 = 21;
pub(crate) const BUCKETS: usize = 1 << BUCKET_BITS;

/// What one file contributes to the index.
pub(crate) struct Facts {
    /// Buckets of its identifiers, sorted.
    pub buckets: Vec<u32>,
    /// Its include directives, in order.
    pub includes: Vec<Include>,
    /// Names of its macros; none if there are too many.
    pub names: Vec<String>,
    /// Its macros that complete a name, as [`crate::paste::Paste::parse`] reads them.
    pub pastes: Vec<String>,
    /// Macros that stand for a file: name and body.
    pub paths: Vec<(String, String)>,
}

/// What an include directive names.
pub(crate) enum Include {
    /// A file, `"like this"` or `<so>`.
    File { quoted: bool, target: String },
    /// A file that comes after the one that `#include` would take (`#include_next`).
    Next(String),
    /// What a macro stands for.
    Computed(String),
}

impl Include {
    /// The files that the directive may include, as far as it spells them out.
    pub fn files(&self, from: &str, search_path: &SearchPath<'_>) -> Vec<FileNo> {
        match self {
            Self::File { quoted, target } => search_path.resolve(from, *quoted, target),
            Self::Next(target) => search_path.like(target),
            Self::Computed(_) => Vec::new(),
        }
    }
}

/// Reads one file.
pub(crate) fn facts(source: &[u8]) -> Facts {
    let mut buckets = Vec::new();
    let mut at = 0;
    while at < source.len() {
        let start = at;
        while at < source.len() && (source[at].is_ascii_alphanumeric() || source[at] == b'_') {
            at += 1;
        }
        if at == start {
            at += 1;
        } else if !source[start].is_ascii_digit() {
            buckets.push(bucket(&source[start..at]));
        }
    }
    buckets.sort_unstable();
    buckets.dedup();
    let (mut includes, mut names, mut paths) = (Vec::new(), Vec::new(), Vec::new());
    for line in source.split(|&b| b == b'\n') {
        let Some(rest) = line.trim_ascii_start().strip_prefix(b"#") else { continue };
        let rest = rest.trim_ascii_start();
        if let Some(target) = rest.strip_prefix(b"include") {
            let next = target.starts_with(b"_next");
            let target = target.strip_prefix(b"_next").unwrap_or(target).trim_ascii_start();
            match named_file(target) {
                Some((_, target)) if next => includes.push(Include::Next(target)),
                Some((quoted, target)) => includes.push(Include::File { quoted, target }),
                None => {
                    let name = identifier(target);
                    if !name.is_empty() {
                        includes.push(Include::Computed(name));
                    }
                }
            }
        } else if let Some(name) = rest.strip_prefix(b"define") {
            let text = name.trim_ascii_start();
            let name = identifier(text);
            let body = text[name.len()..].trim_ascii();
            // It is not known what a macro with another body stands for; most are never used in `#include`.
            if named_file(body).is_some()
                || name.starts_with("TRACE_")
                || name.contains("INCLUDE")
                || name.contains("FILE")
            {
                paths.push((name.clone(), String::from_utf8_lossy(body).into_owned()));
            }
            names.push(name);
        }
    }
    if names.len() > NAMED_FILE_LIMIT {
        names.clear();
    }
    let pastes = pastes(source);
    Facts { buckets, includes, names, pastes, paths }
}

/// The identifier at the start of `text`.
fn identifier(text: &[u8]) -> String {
    let end = text.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end]).into_owned()
}

/// The file that `"text"` or `<text>` names, and whether it is in quotes.
pub(crate) fn named_file(text: &[u8]) -> Option<(bool, String)> {
    let close = match text.first()? {
        b'"' => b'"',
        b'<' => b'>',
        _ => return None,
    };
    let end = text[1..].iter().position(|&b| b == close)?;
    Some((close == b'"', String::from_utf8_lossy(&text[1..=end]).into_owned()))
}

/// The bucket of the index that holds an identifier.
pub(crate) fn bucket(identifier: &[u8]) -> u32 {
    let hash =
        identifier.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    (hash >> (64 - BUCKET_BITS)) as u32 ^ (hash as u32 & (BUCKETS as u32 - 1))
}
