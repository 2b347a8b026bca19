//! What the configuration leaves in: for every token of a file, whether its `#if`s hold.
//!
//! Configuration options are known, and a few macros of every kernel unit; everything else is not,
//! and then the answer is [`Truth::Maybe`]. Only the preprocessor has the last word.

use crate::scan::{Directive, Place, Scan};
use crate::token::{integer_literal, Kind};
use crate::tree::BuildTree;
use std::collections::HashMap;

/// An answer that may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    No,
    Maybe,
    Yes,
}

impl Truth {
    fn and(self, other: Truth) -> Truth {
        if self == Truth::No || other == Truth::No {
            Truth::No
        } else if self == Truth::Yes && other == Truth::Yes {
            Truth::Yes
        } else {
            Truth::Maybe
        }
    }

    fn not(self) -> Truth {
        match self {
            Truth::No => Truth::Yes,
            Truth::Maybe => Truth::Maybe,
            Truth::Yes => Truth::No,
        }
    }

    fn or(self, other: Truth) -> Truth {
        self.not().and(other.not()).not()
    }
}

/// The configuration of the deployed kernel, as the preprocessor sees it.
#[derive(Debug, Default)]
pub(crate) struct Config {
    values: HashMap<String, i64>,
}

/// Where Kconfig writes it.
const AUTOCONF: &str = "include/generated/autoconf.h";
/// Defined in every C file of the kernel, and in none.
const DEFINED: [&str; 4] = ["__KERNEL__", "__x86_64__", "__GNUC__", "__SIZEOF_INT128__"];
const UNDEFINED: [&str; 8] = [
    "__ASSEMBLY__",
    "__ASSEMBLER__",
    "__i386__",
    "__CHECKER__",
    "__cplusplus",
    "__GENKSYMS__",
    "__GENERATING_BOUNDS_H",
    "__DISABLE_EXPORTS",
];

impl Config {
    /// That of a tree. Without one nothing is known, and every answer that needs it is [`Truth::Maybe`].
    pub fn of(tree: &impl BuildTree) -> Option<Config> {
        let text = tree.read(AUTOCONF).ok()?;
        Some(Config::parse(&String::from_utf8_lossy(&text)))
    }

    fn parse(text: &str) -> Config {
        let define = |line: &str| {
            let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
            // A string or a symbol counts as defined; `#if` does not compare it.
            let value = integer_literal(value).map_or(0, |literal| literal.value as i64);
            Some((name.to_owned(), value))
        };
        Config { values: text.lines().filter_map(define).collect() }
    }

    fn defined(&self, name: &str) -> Truth {
        let yes = DEFINED.contains(&name) || self.values.contains_key(name);
        let no = UNDEFINED.contains(&name) || name.starts_with("CONFIG_");
        match (yes, no) {
            (true, _) => Truth::Yes,
            (_, true) => Truth::No,
            _ => Truth::Maybe,
        }
    }

    /// The value of an option, 0 when it is off, and of a few names that follow from options.
    pub fn value(&self, name: &str) -> Option<i64> {
        match name {
            "BITS_PER_LONG" | "__BITS_PER_LONG" => Some(64),
            "HZ" => self.values.get("CONFIG_HZ").copied(),
            _ if name.starts_with("CONFIG_") => Some(self.values.get(name).copied().unwrap_or(0)),
            _ if UNDEFINED.contains(&name) => Some(0),
            _ => None,
        }
    }
}

/// The conditions of one file.
pub(crate) struct Conditions {
    /// From this token on, this holds.
    steps: Vec<(usize, Truth)>,
}

struct Frame {
    around: Truth,
    taken: Truth,
    here: Truth,
}

impl Conditions {
    /// Reads the directives of a file.
    pub fn of(scan: &Scan<'_>, config: &Config) -> Conditions {
        let mut steps = vec![(0, Truth::Yes)];
        let mut frames: Vec<Frame> = Vec::new();
        let directives = scan.directives();
        for (n, region) in directives.iter().enumerate() {
            if !matches!(region.place, Place::Directive(Directive::Conditional)) {
                continue;
            }
            let word = scan.text(region.tokens.start + 1);
            let body: Vec<(Kind, &str)> = (region.tokens.start + 2..region.tokens.end)
                .filter_map(|i| Some((scan.tokens.get(i)?.kind, scan.text(i))))
                .collect();
            let name = body.first().map_or("", |(_, text)| text);
            let holds = match word {
                "ifdef" => config.defined(name),
                "ifndef" if guards(scan, directives.get(n + 1), name) => Truth::Yes,
                "ifndef" => config.defined(name).not(),
                "if" | "elif" => condition(&body, config),
                _ => Truth::Yes,
            };
            let around = frames.last().map_or(Truth::Yes, |frame| frame.here);
            match (word, frames.last_mut()) {
                ("if" | "ifdef" | "ifndef", _) => frames.push(Frame { around, taken: holds, here: around.and(holds) }),
                ("elif" | "else", Some(frame)) => {
                    frame.here = frame.around.and(frame.taken.not()).and(holds);
                    frame.taken = frame.taken.or(holds);
                }
                ("endif", _) => drop(frames.pop()),
                _ => {}
            }
            steps.push((region.tokens.end, frames.last().map_or(Truth::Yes, |frame| frame.here)));
        }
        Conditions { steps }
    }

    /// Whether the token is compiled.
    pub fn at(&self, token: usize) -> Truth {
        let after = self.steps.partition_point(|(from, _)| *from <= token);
        after.checked_sub(1).map_or(Truth::Yes, |n| self.steps[n].1)
    }
}

/// `#ifndef NAME`, `#define NAME` without a body: the guard of a header.
fn guards(scan: &Scan<'_>, next: Option<&crate::scan::Region>, guard: &str) -> bool {
    let Some(Place::Directive(Directive::Define { name, function: false, body })) = next.map(|r| &r.place) else {
        return false;
    };
    name == guard && (body.is_empty() || (body.len() == 1 && scan.text(body.start) == "1"))
}

fn condition(tokens: &[(Kind, &str)], config: &Config) -> Truth {
    let mut parser = Parser { tokens, at: 0, depth: 0, config };
    let value = parser.binary(0);
    match value {
        Some(value) if parser.at == tokens.len() => truth(value),
        _ => Truth::Maybe,
    }
}

/// A value, or nothing if it is not known.
type Known = Option<i64>;

fn truth(value: Known) -> Truth {
    match value {
        None => Truth::Maybe,
        Some(0) => Truth::No,
        Some(_) => Truth::Yes,
    }
}

fn known(truth: Truth) -> Known {
    match truth {
        Truth::No => Some(0),
        Truth::Maybe => None,
        Truth::Yes => Some(1),
    }
}

/// Nesting that a person still writes.
const DEEPEST: usize = 40;

struct Parser<'a> {
    tokens: &'a [(Kind, &'a str)],
    at: usize,
    depth: usize,
    config: &'a Config,
}

impl<'a> Parser<'a> {
    fn text(&self) -> &'a str {
        self.tokens.get(self.at).map_or("", |(_, text)| text)
    }

    fn take(&mut self, text: &str) -> bool {
        let here = self.text() == text;
        self.at += usize::from(here);
        here
    }

    /// The outer `None`: not understood at all.
    fn binary(&mut self, lowest: u8) -> Option<Known> {
        let mut left = self.unary()?;
        loop {
            let operator = self.text();
            let precedence = match operator {
                "||" => 1,
                "&&" => 2,
                "|" | "^" | "&" => 3,
                "==" | "!=" => 4,
                "<" | ">" | "<=" | ">=" => 5,
                "+" | "-" => 6,
                "*" => 7,
                _ => return Some(left),
            };
            if precedence <= lowest {
                return Some(left);
            }
            self.at += 1;
            let right = self.binary(precedence)?;
            left = apply(operator, left, right);
        }
    }

    fn unary(&mut self) -> Option<Known> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let value = if self.take("!") {
            known(truth(self.unary()?).not())
        } else if self.take("(") {
            let value = self.binary(0)?;
            if !self.take(")") {
                return None;
            }
            value
        } else {
            self.primary()?
        };
        self.depth -= 1;
        Some(value)
    }

    fn primary(&mut self) -> Option<Known> {
        let &(kind, text) = self.tokens.get(self.at)?;
        self.at += 1;
        if kind == Kind::Number {
            return Some(integer_literal(text).map(|literal| literal.value as i64));
        }
        if kind != Kind::Ident {
            return None;
        }
        if text == "defined" {
            let parenthesis = self.take("(");
            let name = self.text();
            self.at += 1;
            if parenthesis && !self.take(")") {
                return None;
            }
            return Some(known(self.config.defined(name)));
        }
        if !self.take("(") {
            return Some(self.config.value(text));
        }
        let name = self.text();
        self.at += 1;
        if !self.take(")") {
            return None;
        }
        let module = || self.config.defined(&format!("{name}_MODULE"));
        Some(match text {
            "IS_ENABLED" => known(self.config.defined(name).or(module())),
            "IS_BUILTIN" => known(self.config.defined(name)),
            "IS_MODULE" => known(module()),
            _ => None,
        })
    }
}

fn apply(operator: &str, left: Known, right: Known) -> Known {
    match operator {
        "||" => return known(truth(left).or(truth(right))),
        "&&" => return known(truth(left).and(truth(right))),
        _ => {}
    }
    let (a, b) = (left?, right?);
    let yes = |yes: bool| Some(i64::from(yes));
    match operator {
        "==" => yes(a == b),
        "!=" => yes(a != b),
        "<" => yes(a < b),
        ">" => yes(a > b),
        "<=" => yes(a <= b),
        ">=" => yes(a >= b),
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truths(source: &str) -> Vec<Truth> {
        let config = Config::parse("#define CONFIG_A 1\n#define CONFIG_M_MODULE 1\n#define CONFIG_HZ 250\n");
        let scan = Scan::new(source.as_bytes());
        let conditions = Conditions::of(&scan, &config);
        scan.mentions("x").map(|token| conditions.at(token)).collect()
    }

    #[test]
    fn options_decide() {
        use Truth::{Maybe, No, Yes};
        assert_eq!(truths("#ifdef CONFIG_A\nx\n#else\nx\n#endif\nx"), [Yes, No, Yes]);
        assert_eq!(truths("#if IS_ENABLED(CONFIG_M) && !defined(CONFIG_B)\nx\n#elif 1\nx\n#endif"), [Yes, No]);
        assert_eq!(truths("#ifdef CONFIG_M\nx\n#elif CONFIG_HZ >= 250\nx\n#else\nx\n#endif"), [No, Yes, No]);
        assert_eq!(truths("#if defined CONFIG_A || WHAT\nx\n#endif"), [Yes]);
        assert_eq!(truths("#if WHAT && CONFIG_A\nx\n#else\nx\n#endif"), [Maybe, Maybe]);
        assert_eq!(truths("#if 0\n#ifdef CONFIG_A\nx\n#endif\n#endif"), [No]);
    }

    #[test]
    fn guards_hold_and_defaults_may() {
        assert_eq!(truths("#ifndef H_\n#define H_\nx\n#endif"), [Truth::Yes]);
        assert_eq!(truths("#ifndef SIZE\n#define SIZE 128\nx\n#endif"), [Truth::Maybe]);
    }

    #[test]
    fn any_text_ends() {
        let deep = format!("#if {}1\nx\n#endif", "(!".repeat(50_000));
        assert_eq!(truths(&deep), [Truth::Maybe]);
        for source in ["#if\nx", "#endif\nx", "#else\nx", "#if defined(\nx", "#if IS_ENABLED\nx", "#elif 1\nx"] {
            assert_eq!(truths(source).len(), 1, "{source}");
        }
    }
}
