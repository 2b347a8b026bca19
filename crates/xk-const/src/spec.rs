//! What a user may write to mean a constant: a name, a file and line, or a full ID.

use crate::id::{ConstId, IdError};

/// A constant as a user names it, before it was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spec {
    /// A macro, `static const` or enumerator, e.g. `BLK_MAX_REQUEST_COUNT`.
    Name(String),
    /// The constant on a line, e.g. `net/ipv4/tcp.c:1162`.
    Line {
        /// File, relative to the root of the source tree.
        path: String,
        /// Line, counted from 1.
        line: u32,
    },
    /// A full ID, e.g. `block/blk.h:L335:32:0`.
    Id(ConstId),
}

/// Why a text does not name a constant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// It starts like an ID but is not one.
    #[error(transparent)]
    Id(#[from] IdError),
    /// It is neither a name, nor `file:line`, nor an ID.
    #[error("`{0}` names no constant; write a name (`BLK_MAX_REQUEST_COUNT`), a file and line (`net/ipv4/tcp.c:1162`) or a full ID (`block/blk.h:L335:32:0`)")]
    Shape(String),
}

impl Spec {
    /// Reads a name, a `file:line`, or a full ID.
    pub fn parse(text: &str) -> Result<Spec, SpecError> {
        let text = text.trim();
        let shape = || SpecError::Shape(text.to_owned());
        if text.contains(":L") {
            return Ok(Spec::Id(text.parse()?));
        }
        if let Some((path, line)) = text.rsplit_once(':') {
            let line = line.parse().ok().filter(|&line| line > 0).ok_or_else(shape)?;
            let inside = !path.is_empty() && !path.starts_with('/') && path.split('/').all(|part| part != "..");
            return if inside { Ok(Spec::Line { path: path.to_owned(), line }) } else { Err(shape()) };
        }
        let mut bytes = text.bytes();
        let starts = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if starts && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            Ok(Spec::Name(text.to_owned()))
        } else {
            Err(shape())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_three_ways() {
        assert_eq!(Spec::parse("SHRINK_BATCH"), Ok(Spec::Name("SHRINK_BATCH".into())));
        assert_eq!(Spec::parse("net/ipv4/tcp.c:1162"), Ok(Spec::Line { path: "net/ipv4/tcp.c".into(), line: 1162 }));
        assert!(matches!(Spec::parse("block/blk.h:L335:32:0"), Ok(Spec::Id(id)) if id.line == 335));
    }

    #[test]
    fn refuses_the_rest() {
        for text in
            ["", "a b", "3x", "net/ipv4/tcp.c:", "net/ipv4/tcp.c:0", "/abs.c:3", "x/../y.c:3", "a-b", "f.c:Lx:1:0"]
        {
            assert!(Spec::parse(text).is_err(), "{text}");
        }
    }
}
