//! Redis' protocol (RESP): where a request or a reply ends, and the words of a request. Source: the protocol's
//! specification, and `processInlineBuffer()` and `processMultibulkBuffer()` of Redis 7.0.

use std::ops::Range;

/// The longest request, as redis-server has it (`proto-max-bulk-len`, `client-query-buffer-limit`).
const MOST: usize = 512 << 20;

/// What begins in a buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A part of a request.
    More,
    /// No request; the server says what is wrong.
    Bad,
    /// A request of this length, and its words.
    Whole(usize, Vec<Vec<u8>>),
}

/// The line that begins here, and where the next one does.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[at..at + end], at + end + 2))
}

/// A number as Redis writes it: no plus, no zeros before it.
fn number(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

/// The request that begins here.
#[must_use]
pub fn request(bytes: &[u8]) -> Parsed {
    match bytes.first() {
        None => Parsed::More,
        Some(b'*') => words_of(bytes),
        Some(_) => match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => inline(&bytes[..end]).map_or(Parsed::Bad, |words| Parsed::Whole(end + 1, words)),
            None if bytes.len() > 65536 => Parsed::Bad,
            None => Parsed::More,
        },
    }
}

fn words_of(bytes: &[u8]) -> Parsed {
    let Some((count, mut at)) = line(bytes, 1) else { return Parsed::More };
    let Some(count) = number(count).filter(|count| *count <= i64::from(i32::MAX)) else { return Parsed::Bad };
    let mut words = Vec::new();
    for _ in 0..count {
        match bulk(bytes, at) {
            Some(Ok(range)) => {
                at = range.end + 2;
                words.push(bytes[range].to_vec());
            }
            Some(Err(())) => return Parsed::Bad,
            None => return Parsed::More,
        }
    }
    Parsed::Whole(at, words)
}

/// Where a word is.
fn bulk(bytes: &[u8], at: usize) -> Option<Result<Range<usize>, ()>> {
    if *bytes.get(at)? != b'$' {
        return Some(Err(()));
    }
    let (length, begin) = line(bytes, at + 1)?;
    let Some(length) = number(length).and_then(|length| usize::try_from(length).ok()).filter(|length| *length <= MOST)
    else {
        return Some(Err(()));
    };
    (begin + length + 2 <= bytes.len()).then_some(Ok(begin..begin + length))
}

/// The words of an inline request, with quotes: `sdssplitargs()`.
fn inline(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_space = |byte: u8| byte == 0 || byte == b' ' || (b'\t'..=b'\r').contains(&byte);
    let mut bytes = line.iter().copied().peekable();
    let mut words = Vec::new();
    loop {
        while bytes.next_if(|byte| is_space(*byte)).is_some() {}
        if bytes.peek().is_none() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(byte) = bytes.next_if(|byte| !is_space(*byte)) {
            if byte != b'"' && byte != b'\'' {
                word.push(byte);
                continue;
            }
            quoted(&mut bytes, byte, &mut word)?;
            // A quote ends its word.
            if bytes.peek().is_some_and(|byte| !is_space(*byte)) {
                return None;
            }
        }
        words.push(word);
    }
}

/// Reads up to the closing quote.
fn quoted(bytes: &mut impl Iterator<Item = u8>, quote: u8, word: &mut Vec<u8>) -> Option<()> {
    loop {
        match bytes.next()? {
            byte if byte == quote => return Some(()),
            b'\\' if quote == b'\'' => match bytes.next()? {
                b'\'' => word.push(b'\''),
                other => word.extend([b'\\', other]),
            },
            b'\\' => match bytes.next()? {
                b'n' => word.push(b'\n'),
                b'r' => word.push(b'\r'),
                b't' => word.push(b'\t'),
                b'b' => word.push(8),
                b'a' => word.push(7),
                b'x' => {
                    let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
                    word.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
                }
                other => word.push(other),
            },
            other => word.push(other),
        }
    }
}

/// A request of these words.
#[must_use]
pub fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend(word.as_ref());
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Where the reply that begins here ends, if it is whole.
#[must_use]
pub fn reply_end(bytes: &[u8], at: usize) -> Option<usize> {
    let (text, next) = line(bytes, at + 1)?;
    let count = |times: usize| {
        let count = number(text).and_then(|count| usize::try_from(count).ok()).unwrap_or(0) * times;
        (0..count).try_fold(next, |at, _| reply_end(bytes, at))
    };
    match bytes.get(at)? {
        b'$' | b'!' | b'=' => {
            let end =
                number(text).and_then(|length| usize::try_from(length).ok()).map_or(next, |length| next + length + 2);
            (end <= bytes.len()).then_some(end)
        }
        b'*' | b'~' | b'>' => count(1),
        b'%' => count(2),
        _ => Some(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Option<Vec<String>> {
        match request(text.as_bytes()) {
            Parsed::Whole(length, words) if length == text.len() => {
                Some(words.iter().map(|word| word.escape_ascii().to_string()).collect())
            }
            _ => None,
        }
    }

    #[test]
    fn inline_requests_have_quotes() {
        assert_eq!(words("SET  a \"b c\\x41\\n\" 'd\\'e'\r\n").unwrap(), ["SET", "a", "b cA\\n", "d\\'e"]);
        assert_eq!(words("\n").unwrap(), [""; 0]);
        for wrong in ["a \"b\n", "a \"b\"c\n", "a 'b\n"] {
            assert_eq!(request(wrong.as_bytes()), Parsed::Bad, "{wrong}");
        }
    }

    #[test]
    fn a_part_of_a_request_is_none() {
        let whole = encode(&["SET", "key", "a\r\nb"]);
        assert_eq!(words(std::str::from_utf8(&whole).unwrap()).unwrap(), ["SET", "key", "a\\r\\nb"]);
        for length in 0..whole.len() {
            assert_eq!(request(&whole[..length]), Parsed::More, "{length}");
        }
        for wrong in ["*x\r\n", "*1\r\nx", "*1\r\n$-1\r\n", "*1\r\n$x\r\n"] {
            assert_eq!(request(wrong.as_bytes()), Parsed::Bad, "{wrong}");
        }
    }

    #[test]
    fn replies_end_where_their_last_part_does() {
        for reply in
            ["+OK\r\n", "$-1\r\n", "*-1\r\n", "$3\r\na\r\n\r\n", "*2\r\n*1\r\n:1\r\n$1\r\na\r\n", "%1\r\n+a\r\n_\r\n"]
        {
            let more = format!("{reply}+x\r\n");
            assert_eq!(reply_end(more.as_bytes(), 0), Some(reply.len()), "{reply}");
            assert_eq!(reply_end(&reply.as_bytes()[..reply.len() - 1], 0), None, "{reply}");
        }
    }
}
