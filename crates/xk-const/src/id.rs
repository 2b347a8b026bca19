//! The name of a constant: where it is written, what is written there, and which of several equal
//! tokens on that line is meant. Text in, text out; refuses anything that does not name a file,
//! a line and a token.

use std::fmt;
use std::str::FromStr;

/// `path:Lline:value:index`, e.g. `block/blk.h:L335:32:0`.
///
/// The value is the token (or macro body) as written in the source and may contain colons, spaces
/// and parentheses; the last colon separates the index.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConstId {
    /// File, relative to the root of the source tree.
    pub path: String,
    /// Line of the token, or of the `#define`, counted from 1.
    pub line: u32,
    /// The token or macro body as written, white space collapsed.
    pub value: String,
    /// Index among equal tokens on that line, counted from 0.
    pub index: u32,
}

impl fmt::Display for ConstId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:L{}:{}:{}", self.path, self.line, self.value, self.index)
    }
}

/// Why a text is not a [`ConstId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a constant ID: {why}; write `path:Lline:value:index`, e.g. `block/blk.h:L335:32:0`")]
pub struct IdError {
    /// The text as given.
    pub text: String,
    /// The part that is wrong.
    pub why: &'static str,
}

impl FromStr for ConstId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let fail = |why| IdError { text: text.to_owned(), why };
        let (path, rest) = text.split_once(":L").ok_or_else(|| fail("there is no `:L` after the file"))?;
        let (line, rest) = rest.split_once(':').ok_or_else(|| fail("there is no value after the line"))?;
        let (value, index) = rest.rsplit_once(':').ok_or_else(|| fail("there is no index after the value"))?;
        if path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(fail("the file is not a path inside the source tree"));
        }
        let line = line.parse().ok().filter(|&line| line > 0).ok_or_else(|| fail("the line is not a number"))?;
        let index = index.parse().map_err(|_| fail("the index is not a number"))?;
        if value.trim().is_empty() {
            return Err(fail("the value is empty"));
        }
        Ok(ConstId { path: path.to_owned(), line, value: value.to_owned(), index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_a_round_trip() {
        for text in [
            "block/blk.h:L335:32:0",
            "include/net/tcp.h:L150:((unsigned)(HZ/25)):0",
            "a/b.c:L7:(x ? 1 : 2):3",
            "kernel/softirq.c:L500:msecs_to_jiffies(2):0",
        ] {
            let id: ConstId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
        }
        let id: ConstId = "a/b.c:L7:(x ? 1 : 2):3".parse().unwrap();
        assert_eq!((id.line, id.value.as_str(), id.index), (7, "(x ? 1 : 2)", 3));
    }

    #[test]
    fn refuses_what_is_not_an_id() {
        for text in ["", "block/blk.h", "block/blk.h:335", "block/blk.h:L335", "block/blk.h:L335:32", "b:Lx:3:0"] {
            assert!(text.parse::<ConstId>().is_err(), "{text}");
        }
        for text in ["b:L0:3:0", "b:L1:3:x", "b:L1::0", "/etc/passwd:L1:3:0", "../x.c:L1:3:0", ":L1:3:0"] {
            assert!(text.parse::<ConstId>().is_err(), "{text}");
        }
    }
}
