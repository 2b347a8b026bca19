//! A small tokenizer for C source as it is written: bytes in, tokens with their place out.
//!
//! It does not preprocess. Comments and line continuations vanish, but every token remembers the
//! physical line it stands on and the directive it belongs to, because constants are edited in
//! place and lines must not move. Never fails: an unknown byte becomes a one-byte punctuator.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Identifier or keyword.
    Ident,
    /// Preprocessing number: integer or floating.
    Number,
    /// String literal.
    Str,
    /// Character constant.
    Char,
    /// Operator or punctuator.
    Punct,
}

/// One token of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// Physical line, counted from 1.
    pub line: u32,
    /// Index of the `#` token of the directive it belongs to.
    pub directive: Option<usize>,
}

impl Token {
    /// The token as written.
    pub fn text<'s>(&self, source: &'s [u8]) -> &'s str {
        std::str::from_utf8(source.get(self.start..self.end).unwrap_or_default()).unwrap_or("\u{fffd}")
    }
}

const PUNCTUATORS: [&[u8]; 24] = [
    b"<<=", b">>=", b"...", b"->", b"++", b"--", b"<<", b">>", b"<=", b">=", b"==", b"!=", b"&&", b"||", b"*=", b"/=",
    b"%=", b"+=", b"-=", b"&=", b"^=", b"|=", b"##", b"::",
];

fn ident_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b == b'$' || b >= 0x80
}

fn ident_rest(b: u8) -> bool {
    ident_start(b) || b.is_ascii_digit()
}

/// Length of a backslash-newline at `at`, or 0.
fn splice(source: &[u8], at: usize) -> usize {
    match source.get(at..) {
        Some([b'\\', b'\n', ..]) => 2,
        Some([b'\\', b'\r', b'\n', ..]) => 3,
        _ => 0,
    }
}

/// Splits a file into tokens.
pub fn tokenize(source: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(source.len() / 5);
    let mut at = 0;
    let mut line = 1;
    let mut fresh = true;
    let mut directive = None;
    while let Some(&b) = source.get(at) {
        let next = source.get(at + 1).copied().unwrap_or(0);
        if b == b'\n' {
            (line, at, fresh, directive) = (line + 1, at + 1, true, None);
            continue;
        }
        let skipped = splice(source, at);
        if skipped > 0 {
            (line, at) = (line + 1, at + skipped);
            continue;
        }
        if b.is_ascii_whitespace() || b == 0x0b {
            at += 1;
            continue;
        }
        if b == b'/' && (next == b'/' || next == b'*') {
            let end = comment_end(source, at, next);
            line += newlines(&source[at..end]);
            at = end;
            continue;
        }
        let (kind, end) = if b == b'"' || b == b'\'' {
            (if b == b'"' { Kind::Str } else { Kind::Char }, quoted_end(source, at))
        } else if ident_start(b) {
            (Kind::Ident, run(source, at, ident_rest))
        } else if b.is_ascii_digit() || (b == b'.' && next.is_ascii_digit()) {
            (Kind::Number, number_end(source, at))
        } else {
            let rest = &source[at..];
            let long = PUNCTUATORS.iter().find(|p| rest.starts_with(p));
            (Kind::Punct, at + long.map_or(1, |p| p.len()))
        };
        if fresh && b == b'#' && end == at + 1 {
            directive = Some(tokens.len());
        }
        fresh = false;
        tokens.push(Token { kind, start: at, end, line, directive });
        line += newlines(&source[at..end]);
        at = end;
    }
    tokens
}

fn newlines(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.iter().filter(|&&b| b == b'\n').count()).unwrap_or(u32::MAX)
}

fn run(source: &[u8], at: usize, accept: fn(u8) -> bool) -> usize {
    source[at..].iter().position(|&b| !accept(b)).map_or(source.len(), |n| at + n)
}

fn number_end(source: &[u8], at: usize) -> usize {
    let mut end = at;
    while let Some(&b) = source.get(end) {
        let exponent = matches!(b, b'+' | b'-') && end > at && matches!(source[end - 1], b'e' | b'E' | b'p' | b'P');
        // In `0xe+1` the sign is an operator of the language's users, though not of its grammar.
        let exponent = exponent && !(source[at..].starts_with(b"0x") && matches!(source[end - 1], b'e' | b'E'));
        if !(ident_rest(b) || b == b'.' || exponent) {
            break;
        }
        end += 1;
    }
    end
}

fn comment_end(source: &[u8], at: usize, second: u8) -> usize {
    let mut end = at + 2;
    while let Some(&b) = source.get(end) {
        if second == b'*' && b == b'*' && source.get(end + 1) == Some(&b'/') {
            return end + 2;
        }
        if second == b'/' && b == b'\n' {
            return end;
        }
        end += if second == b'/' { splice(source, end).max(1) } else { 1 };
    }
    source.len()
}

fn quoted_end(source: &[u8], at: usize) -> usize {
    let quote = source[at];
    let mut end = at + 1;
    while let Some(&b) = source.get(end) {
        match b {
            b'\\' => end += splice(source, end).max(2),
            b'\n' => return end,
            _ if b == quote => return end + 1,
            _ => end += 1,
        }
    }
    source.len()
}

/// The value of a C integer literal and whether it is written in decimal; `None` for floating numbers.
pub fn integer_literal(text: &str) -> Option<Literal> {
    let lower = text.to_ascii_lowercase();
    let digits_end = |s: &str, radix| s.find(|c: char| !c.is_digit(radix)).unwrap_or(s.len());
    let (digits, radix, skip) = if let Some(rest) = lower.strip_prefix("0x") {
        (rest, 16, 2)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (rest, 2, 2)
    } else if lower.len() > 1 && lower.starts_with('0') && lower.as_bytes()[1].is_ascii_digit() {
        (&lower[1..], 8, 1)
    } else {
        (lower.as_str(), 10, 0)
    };
    let end = digits_end(digits, radix);
    let value = u64::from_str_radix(&digits[..end], radix).ok()?;
    let suffix = &lower[skip + end..];
    let (unsigned, long) = match suffix {
        "" => (false, 0),
        "u" => (true, 0),
        "l" => (false, 1),
        "ul" | "lu" => (true, 1),
        "ll" => (false, 2),
        "ull" | "llu" => (true, 2),
        _ => return None,
    };
    Some(Literal { value, decimal: radix == 10, unsigned, long })
}

/// A C integer literal, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Literal {
    /// Its value.
    pub value: u64,
    /// Written in decimal: such literals never become unsigned by their size.
    pub decimal: bool,
    /// Has a `u` suffix.
    pub unsigned: bool,
    /// Number of `l` in the suffix.
    pub long: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokenize(source.as_bytes()).iter().map(|t| t.text(source.as_bytes())).collect()
    }

    #[test]
    fn splits_operators_and_numbers() {
        assert_eq!(texts("a>>=3;b->c<<0x1F"), ["a", ">>=", "3", ";", "b", "->", "c", "<<", "0x1F"]);
        assert_eq!(texts("1.5e+3 0xe+1 x.y"), ["1.5e+3", "0xe", "+", "1", "x", ".", "y"]);
    }

    #[test]
    fn comments_strings_and_continuations_keep_lines() {
        let source = "/* a\n b */ x \"s\\\"t\" 'c' // 5 \\\n6\n#define A \\\n  7\ny";
        let tokens = tokenize(source.as_bytes());
        let seen: Vec<_> = tokens.iter().map(|t| (t.text(source.as_bytes()), t.line, t.directive.is_some())).collect();
        assert_eq!(
            seen,
            [
                ("x", 2, false),
                ("\"s\\\"t\"", 2, false),
                ("'c'", 2, false),
                ("#", 4, true),
                ("define", 4, true),
                ("A", 4, true),
                ("7", 5, true),
                ("y", 6, false)
            ]
        );
    }

    #[test]
    fn unterminated_input_ends() {
        for source in ["\"abc", "/* abc", "'", "a \\", "\\\n", "0x", "'\\"] {
            tokenize(source.as_bytes());
        }
    }

    #[test]
    fn integer_literals() {
        let value = |text| integer_literal(text).map(|l| (l.value, l.decimal, l.unsigned, l.long));
        assert_eq!(value("16000U"), Some((16000, true, true, 0)));
        assert_eq!(value("0x7fUL"), Some((127, false, true, 1)));
        assert_eq!(value("0755"), Some((493, false, false, 0)));
        assert_eq!(value("0"), Some((0, true, false, 0)));
        assert_eq!(value("18446744073709551615ull"), Some((u64::MAX, true, true, 2)));
        for text in ["1.5", "1e3", "0x", "12abc", "08", "99999999999999999999", "1f"] {
            assert_eq!(value(text), None, "{text}");
        }
    }
}
