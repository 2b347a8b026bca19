//! Preprocessed text without the functions that the compiler would drop first thing.
//!
//! In: preprocessed C. Out: the same without `static inline` functions that nothing reaches; lines keep
//! their numbers. Nine tenths of the inline functions that headers bring along are of this kind, and
//! reading them is a fifth of compiling. Whatever is not plainly such a function stays: the text is cut
//! into top-level items by brackets alone, and what does not look like a definition is a root.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Keeps a function, or something inside it, that nothing seems to use.
const KEEPS: [&str; 8] =
    ["used", "__used__", "retain", "__retain__", "constructor", "__constructor__", "destructor", "__destructor__"];
/// Followed by a parenthesis, but no function.
pub(crate) const NO_NAMES: [&str; 7] =
    ["__attribute__", "__attribute", "typeof", "__typeof__", "__typeof", "asm", "__asm__"];

/// The text without unreachable `static inline` functions; as it is when its brackets do not match.
pub(crate) fn prune(text: &str) -> String {
    let Some(items) = items(text) else { return text.to_owned() };
    let mut functions: HashMap<&str, Vec<&Item<'_>>> = HashMap::new();
    let mut waiting = Vec::new();
    for item in &items {
        match item.droppable() {
            Some(name) => functions.entry(name).or_default().push(item),
            None => waiting.push(item),
        }
    }
    let mut reached = HashSet::new();
    while let Some(item) = waiting.pop() {
        for word in &item.tokens {
            if let Some(named) = functions.get(word) {
                if reached.insert(*word) {
                    waiting.extend(named);
                }
            }
        }
    }
    let mut dead: Vec<Range<usize>> = Vec::new();
    for (name, definitions) in &functions {
        if !reached.contains(name) {
            dead.extend(definitions.iter().map(|item| item.place.clone()));
        }
    }
    dead.sort_by_key(|place| place.start);
    without(text, &dead)
}

/// The text with nothing but line ends and directives in `places`, which are sorted.
fn without(text: &str, places: &[Range<usize>]) -> String {
    let mut kept = String::with_capacity(text.len() / 2);
    let mut from = 0;
    for place in places {
        kept.push_str(&text[from..place.start]);
        for line in text[place.clone()].split_inclusive('\n') {
            let blank = if line.ends_with('\n') { "\n" } else { "" };
            kept.push_str(if line.starts_with('#') { line } else { blank });
        }
        from = place.end;
    }
    kept.push_str(&text[from..]);
    kept
}

/// A declaration or definition at the top level.
pub(crate) struct Item<'a> {
    pub place: Range<usize>,
    tokens: Vec<&'a str>,
    /// Where the body of a function begins among the tokens.
    pub body: Option<usize>,
}

impl<'a> Item<'a> {
    /// The name, if this is a `static inline` function without anything that keeps it.
    fn droppable(&self) -> Option<&'a str> {
        let header = &self.tokens[..self.body?];
        let mut depth = 0;
        let (mut is_static, mut is_inline, mut name) = (false, false, None);
        for (at, token) in header.iter().enumerate() {
            match *token {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ if depth > 0 => {}
                "static" => is_static = true,
                "inline" | "__inline" | "__inline__" => is_inline = true,
                // The first one; what follows the parameters are attributes.
                word if name.is_none()
                    && header.get(at + 1) == Some(&"(")
                    && is_word(word.as_bytes()[0])
                    && !NO_NAMES.contains(&word) =>
                {
                    name = Some(word);
                }
                _ => {}
            }
        }
        // Variables inside functions are numbered throughout the unit, `name.17`; the numbers have to stay.
        let numbers = || self.tokens[header.len()..].contains(&"static");
        let kept = || numbers() || self.tokens.iter().any(|token| KEEPS.contains(token));
        name.filter(|_| is_static && is_inline && !kept())
    }
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// The top-level items; `None` when brackets do not match.
pub(crate) fn items(text: &str) -> Option<Vec<Item<'_>>> {
    let mut items = Vec::new();
    let (mut braces, mut parentheses) = (0_usize, 0_usize);
    let mut tokens: Vec<&str> = Vec::new();
    let (mut start, mut body) = (None, None);
    for place in (Tokens { text, at: 0 }) {
        let token = &text[place.clone()];
        let from = *start.get_or_insert(place.start);
        match token {
            "(" | "[" => parentheses += 1,
            ")" | "]" => parentheses = parentheses.checked_sub(1)?,
            "{" => {
                if braces == 0 && parentheses == 0 && body.is_none() && tokens.last() == Some(&")") {
                    body = Some(tokens.len());
                }
                braces += 1;
            }
            "}" => braces = braces.checked_sub(1)?,
            _ => {}
        }
        tokens.push(token);
        let outside = braces == 0 && parentheses == 0;
        // An initialiser or a structure ends at its semicolon.
        if outside && (token == ";" || token == "}" && body.is_some()) {
            let body = body.take().filter(|_| token == "}");
            items.push(Item { place: from..place.end, tokens: std::mem::take(&mut tokens), body });
            start = None;
        }
    }
    (braces == 0 && parentheses == 0 && tokens.is_empty()).then_some(items)
}

/// Words, strings and single characters; directives are left out.
pub(crate) struct Tokens<'a> {
    pub text: &'a str,
    pub at: usize,
}

impl Iterator for Tokens<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let bytes = self.text.as_bytes();
        loop {
            let first = *bytes.get(self.at)?;
            let line_start = self.at == 0 || bytes[self.at - 1] == b'\n';
            if first == b'#' && line_start {
                let rest = &bytes[self.at..];
                self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            } else if first.is_ascii_whitespace() {
                self.at += 1;
            } else {
                break;
            }
        }
        let start = self.at;
        let rest = &bytes[start..];
        self.at += match rest[0] {
            quote @ (b'"' | b'\'') => quoted(rest, quote),
            byte if is_word(byte) => rest.iter().position(|&b| !is_word(b)).unwrap_or(rest.len()),
            _ => 1,
        };
        Some(start..self.at)
    }
}

/// Length of a string or character.
fn quoted(text: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        at += if byte == b'\\' { 2 } else { 1 };
        if byte == quote {
            break;
        }
    }
    at.min(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pruned(text: &str) -> String {
        let pruned = prune(text);
        assert_eq!(pruned.matches('\n').count(), text.matches('\n').count(), "{text}");
        pruned
    }

    #[test]
    fn what_nothing_reaches_goes_and_lines_stay() {
        let text = "static inline int dead(int a)\n{\n# 7 \"x.h\"\n return \"}\"[a]; }\nint x;\n\
            static inline int deep(void) { return '}'; }\n\
            static __inline__ __attribute__((always_inline)) int near(void) { return deep(); }\n\
            int f(void) { return near(); }\n";
        let expected = "\n\n# 7 \"x.h\"\n\nint x;\n\
            static inline int deep(void) { return '}'; }\n\
            static __inline__ __attribute__((always_inline)) int near(void) { return deep(); }\n\
            int f(void) { return near(); }\n";
        assert_eq!(pruned(text), expected);
    }

    #[test]
    fn functions_that_only_call_each_other_go() {
        let text = "static inline int b(void);\nstatic inline int a(void) { return b(); }\n";
        assert_eq!(pruned(text), "static inline int b(void);\n\n");
        let ring = "static inline int a(void) { return 0; }\nstatic inline int c(void) { return a(); }\n";
        assert_eq!(pruned(ring), "\n\n");
    }

    #[test]
    fn whatever_is_not_plainly_unused_stays() {
        for text in [
            "static inline __attribute__((used)) int f(void) { return 1; }\n",
            "static inline int f(void) { static int __attribute__((__used__)) x; return x; }\n",
            "static inline int f(void) { static int once; return once++; }\n",
            "static int f(void) { return 1; }\n",
            "inline int f(void) { return 1; }\n",
            "struct s { int (*f)(void); } v = { 0 };\nint y;\n",
            "static inline int (*f(void))(int) { return 0; }\nint x;\n",
            "static inline int f(void) { return 1; }\nint (*p)(void) = f;\n",
            "static inline int f(void) { return 1; }\nint g(void) { return ({ f(); }); }\n",
            "static inline int f(void) { return 1; } }\n",
            "static inline int f(void) { return (1; }\n",
            "static inline int f(void) { return 1; }\nint open\n",
            "char *s = \"\\\"{\";\nint x;\n",
        ] {
            assert_eq!(pruned(text), text);
        }
    }
}
