//! memcached's text protocol: where a command ends, its words, and its key.

use base64::prelude::{Engine as _, BASE64_STANDARD};

/// The longest key.
pub const KEY: usize = 250;
/// A line that is longer, and does not name keys, is no command.
const LINE: usize = 1 << 20;
/// A longer value is refused before it has arrived. memcached takes up to 1 MiB (with `-I`, up to 1 GiB).
const VALUE: usize = 8 << 20;
/// Commands behind whose line a value follows.
const STORES: [&[u8]; 6] = [b"set", b"add", b"replace", b"append", b"prepend", b"cas"];
/// Commands of the form `name key …`, whose key the kernel may have.
const META: [&[u8]; 5] = [b"mg", b"ms", b"md", b"ma", b"me"];

/// A command that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// The words of its line.
    pub words: Vec<&'a [u8]>,
}

/// What is at the beginning of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Less than a command.
    More,
    /// A command.
    Whole(Command<'a>),
    /// The line of a command with so long a value that it is not waited for; and its bytes, which follow.
    TooLarge(Command<'a>, usize),
    /// What has no line: a request of the binary protocol, or nothing that memcached knows.
    NoLine,
}

/// A number has no more digits, and no more spaces before them, as in the kernel (`MC_SLACK`).
const DIGITS: usize = 64;

/// A number as `strtoull()` reads it, and whether it is negative; nothing if it is none.
fn number(word: &[u8]) -> Option<(u64, bool)> {
    let is_space = |byte: &u8| *byte == b' ' || (b'\t'..=b'\r').contains(byte);
    let word = &word[word.iter().take(DIGITS).take_while(|byte| is_space(byte)).count()..];
    let (is_negative, digits) = match word.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, word),
    };
    let length = digits.iter().take(DIGITS).take_while(|byte| byte.is_ascii_digit()).count();
    if length == 0 || digits.get(length).is_some_and(|next| !is_space(next)) {
        return None;
    }
    let number = std::str::from_utf8(&digits[..length]).ok()?.parse::<u64>().ok()?;
    Some((if is_negative { number.wrapping_neg() } else { number }, is_negative))
}

/// One that memcached reads as `unsigned long`, and takes for too large if it is negative.
fn is_unsigned(word: &[u8]) -> bool {
    number(word).is_some_and(|(number, is_negative)| !(is_negative && (number as i64) < 0))
}

/// One that it reads as `long`, of which it keeps the lower half.
fn signed(word: &[u8]) -> Option<i32> {
    let (number, is_negative) = number(word)?;
    (number == 0 || ((number as i64) < 0) == is_negative).then_some(number as i32)
}

/// The length of the value that follows a line, if one does.
fn value(words: &[&[u8]]) -> Option<usize> {
    let name = *words.first()?;
    if words.get(1)?.len() > KEY {
        return None;
    }
    let length = if STORES.contains(&name) {
        let is_cas = name == b"cas";
        let least = if is_cas { 6 } else { 5 };
        let is_right = (least..=least + 1).contains(&words.len())
            && is_unsigned(words[2])
            && signed(words[3]).is_some()
            && (!is_cas || is_unsigned(words[5]));
        is_right.then(|| signed(words[4]))??
    } else if name == b"ms" {
        signed(words.get(2)?)?
    } else {
        return None;
    };
    usize::try_from(length).ok().filter(|length| *length <= 0x7fff_ffff - 2)
}

/// Finds the first command.
#[must_use]
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    if bytes.first() == Some(&0x80) {
        return Parsed::NoLine;
    }
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        let is_long = bytes.len() > LINE && !bytes.starts_with(b"get") && !bytes.starts_with(b"gat");
        return if is_long { Parsed::NoLine } else { Parsed::More };
    };
    let line = &bytes[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // memcached's lines are strings of C.
    let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
    let whole = |length| Command { bytes: &bytes[..length], words: words.clone() };
    match value(&words) {
        Some(length) if length > VALUE => Parsed::TooLarge(whole(end + 1), length + 2),
        Some(length) if end + 1 + length + 2 > bytes.len() => Parsed::More,
        Some(length) => Parsed::Whole(whole(end + 1 + length + 2)),
        None => Parsed::Whole(whole(end + 1)),
    }
}

impl Command<'_> {
    /// Its first word.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.words.first().copied().unwrap_or_default()
    }

    /// Whether it is a meta command with a key.
    #[must_use]
    pub fn is_meta(&self) -> bool {
        META.contains(&self.name())
    }

    /// The key of a command that has one; nothing if it is no key.
    #[must_use]
    pub fn key(&self) -> Option<Vec<u8>> {
        let word = *self.words.get(1)?;
        if self.is_meta() && self.words.iter().skip(2).any(|flag| *flag == b"b") {
            return BASE64_STANDARD.decode(word).ok().filter(|key| key.len() <= KEY);
        }
        Some(word.to_vec()).filter(|key| key.len() <= KEY)
    }
}

/// Where the reply that begins here ends, of those that are not the mark of an end; nothing if it is not whole.
#[must_use]
pub fn reply_end(bytes: &[u8], at: usize) -> Option<usize> {
    let end = at + bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
    let words: Vec<&[u8]> = bytes[at..end].split(|byte| *byte == b' ').collect();
    let length = match words.as_slice() {
        [b"VALUE" | b"XKITEM", _, _, length, ..] | [b"VA", length, ..] => {
            std::str::from_utf8(length).ok()?.parse().ok()
        }
        _ => None,
    };
    let end = length.map_or(end + 2, |length: usize| end + 2 + length + 2);
    (end <= bytes.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> (usize, usize) {
        match parse(bytes) {
            Parsed::Whole(command) => (command.bytes.len(), command.words.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_follow_lines_that_memcached_takes() {
        assert_eq!(whole(b"set a 0 0 3\r\nabc\r\nget a\r\n"), (18, 5));
        assert_eq!(whole(b"cas a 0 0 1 77\r\nx\r\n"), (19, 6));
        assert_eq!(whole(b"ms a 2 T0\r\nab\r\nmn\r\n"), (15, 4));
        for no_value in
            ["set a 0 0\r\n", "set a x 0 1\r\n", "set a 0 0 -1\r\n", "set a 0 0 2147483647\r\n", "ms a S1\r\n"]
        {
            let bytes = format!("{no_value}x\r\n");
            assert_eq!(whole(bytes.as_bytes()).0, no_value.len(), "{no_value}");
        }
        let zeros = format!("set a 0 0 {}1\r\n", "0".repeat(64));
        assert_eq!(whole(zeros.as_bytes()).0, zeros.len());
        let long = format!("set {} 0 0 1\r\nx\r\n", "k".repeat(251));
        assert_eq!(whole(long.as_bytes()).0, long.len() - 3);
        assert_eq!(parse(b"set a 0 0 3\r\nabc\r"), Parsed::More);
        assert!(matches!(parse(b"set a 0 0 999999999\r\n"), Parsed::TooLarge(_, 1_000_000_001)));
        assert_eq!(parse(b"\x80\0"), Parsed::NoLine);
    }

    #[test]
    fn keys_may_be_encoded() {
        let key = |bytes: &'static [u8]| match parse(bytes) {
            Parsed::Whole(command) => command.key(),
            other => panic!("{other:?}"),
        };
        assert_eq!(key(b"mg Zm9v v b\r\n"), Some(b"foo".to_vec()));
        assert_eq!(key(b"mg Zm9v v\r\n"), Some(b"Zm9v".to_vec()));
        assert_eq!(key(b"mg !! b\r\n"), None);
        assert_eq!(key(b"get a\0b\r\n"), Some(b"a".to_vec()));
    }

    #[test]
    fn replies_end_behind_their_values() {
        let bytes = b"VALUE a 0 4\r\nEND\r\r\nEND\r\nVA 2 t\r\nMN\r\nMN\r\n";
        let ends: Vec<usize> = std::iter::successors(reply_end(bytes, 0), |end| reply_end(bytes, *end)).collect();
        assert_eq!(ends, [19, 24, 36, 40]);
        assert_eq!(reply_end(b"VALUE a 0 4\r\nEND", 0), None);
    }
}
