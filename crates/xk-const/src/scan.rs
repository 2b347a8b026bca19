//! The coarse structure of a C file: which directive, function, type or declaration every token
//! stands in. Input is one file as written; nothing is preprocessed, so both arms of a conditional
//! are seen. Braces that do not balance across conditionals are repaired, never an error.

use crate::token::{tokenize, Kind, Token};

/// A preprocessor directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directive {
    /// `#define`.
    Define {
        /// Name of the macro.
        name: String,
        /// Has a parameter list.
        function: bool,
        /// Tokens of the body.
        body: std::ops::Range<usize>,
    },
    /// `#if`, `#elif`, `#ifdef`, `#ifndef`, `#else`, `#endif`.
    Conditional,
    /// Anything else.
    Other,
}

/// What a token stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A preprocessor directive.
    Directive(Directive),
    /// A function body or its head. `inline`: emitted only where it is called by name.
    Function {
        /// Name of the function.
        name: String,
        /// Declared `inline`.
        inline: bool,
    },
    /// The definition of a struct or union, or a declaration that uses the constant in brackets.
    Shape(String),
    /// An `enum` definition; enumerators are resolved from the tokens.
    Enum,
    /// A variable with an initialiser.
    Variable(String),
    /// Anything else at file scope, mostly macro invocations.
    FileScope,
}

/// A contiguous run of tokens with the same place.
#[derive(Debug, Clone)]
pub struct Region {
    /// Tokens of the region. Directives inside it have regions of their own.
    pub tokens: std::ops::Range<usize>,
    /// What it is.
    pub place: Place,
}

/// Whether a file can mention `name` at all. A search for bytes, which is much cheaper than a scan.
pub(crate) fn may_mention(source: &[u8], name: &str) -> bool {
    memchr::memmem::find(source, name.as_bytes()).is_some()
}

/// A tokenized file with its regions.
pub struct Scan<'s> {
    /// The file.
    pub source: &'s [u8],
    /// Its tokens.
    pub tokens: Vec<Token>,
    directives: Vec<Region>,
    code: Vec<Region>,
}

impl<'s> Scan<'s> {
    /// Tokenizes and structures a file.
    pub fn new(source: &'s [u8]) -> Self {
        let tokens = tokenize(source);
        let directives = directives(source, &tokens);
        let code = Outline::new(source, &tokens).run();
        Scan { source, tokens, directives, code }
    }

    /// Text of token `index`, empty when there is none.
    pub fn text(&self, index: usize) -> &'s str {
        self.tokens.get(index).map_or("", |t| t.text(self.source))
    }

    /// What token `index` stands in.
    pub fn place(&self, index: usize) -> &Place {
        let regions =
            if self.tokens.get(index).is_some_and(|t| t.directive.is_some()) { &self.directives } else { &self.code };
        let at = regions.partition_point(|r| r.tokens.end <= index);
        regions.get(at).filter(|r| r.tokens.contains(&index)).map_or(&Place::FileScope, |r| &r.place)
    }

    /// Every directive, in order.
    pub fn directives(&self) -> &[Region] {
        &self.directives
    }

    /// Everything that is no directive, in order.
    pub fn code(&self) -> &[Region] {
        &self.code
    }

    /// The tokens that spell `name`.
    pub fn mentions<'a>(&'a self, name: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.tokens
            .iter()
            .enumerate()
            .filter(move |(_, t)| t.kind == Kind::Ident && t.text(self.source) == name)
            .map(|(i, _)| i)
    }

    /// Tokens from the start of the code region around `index` to its end.
    pub fn region(&self, index: usize) -> Option<&Region> {
        let at = self.code.partition_point(|r| r.tokens.end <= index);
        self.code.get(at).filter(|r| r.tokens.contains(&index))
    }
}

fn directives(source: &[u8], tokens: &[Token]) -> Vec<Region> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].directive != Some(at) {
            at += 1;
            continue;
        }
        let end = tokens[at..].iter().position(|t| t.directive != Some(at)).map_or(tokens.len(), |n| at + n);
        let word = tokens.get(at + 1).filter(|_| at + 1 < end).map_or("", |t| t.text(source));
        let directive = match word {
            "define" if at + 2 < end => {
                let name = tokens[at + 2];
                let function = tokens.get(at + 3).is_some_and(|t| t.text(source) == "(" && t.start == name.end);
                let close = |t: &Token| t.text(source) == ")";
                let skip = if function { tokens[at + 3..end].iter().position(close).map_or(0, |n| n + 1) } else { 0 };
                Directive::Define { name: name.text(source).to_owned(), function, body: at + 3 + skip..end }
            }
            "if" | "elif" | "ifdef" | "ifndef" | "else" | "endif" => Directive::Conditional,
            _ => Directive::Other,
        };
        found.push(Region { tokens: at..end, place: Place::Directive(directive) });
        at = end;
    }
    found
}

/// Names before `(` in a declaration that are annotations rather than what is declared.
fn annotation(name: &str) -> bool {
    const KNOWN: [&str; 10] = [
        "__attribute__",
        "__acquires",
        "__releases",
        "__must_hold",
        "__printf",
        "__aligned",
        "__section",
        "typeof",
        "__typeof__",
        "__declspec",
    ];
    KNOWN.contains(&name)
}

struct Outline<'a> {
    source: &'a [u8],
    tokens: &'a [Token],
    regions: Vec<Region>,
    head: usize,
    depth: usize,
    parens: usize,
    open: Option<Place>,
    branches: Vec<(usize, usize)>,
}

impl<'a> Outline<'a> {
    fn new(source: &'a [u8], tokens: &'a [Token]) -> Self {
        Outline { source, tokens, regions: Vec::new(), head: 0, depth: 0, parens: 0, open: None, branches: Vec::new() }
    }

    fn text(&self, index: usize) -> &'a str {
        self.tokens.get(index).map_or("", |t| t.text(self.source))
    }

    fn run(mut self) -> Vec<Region> {
        for at in 0..self.tokens.len() {
            let token = self.tokens[at];
            if let Some(start) = token.directive {
                if at == start {
                    self.conditional(at);
                }
                continue;
            }
            if token.kind != Kind::Punct {
                continue;
            }
            match token.text(self.source) {
                "(" if self.depth == 0 => self.parens += 1,
                ")" if self.depth == 0 => self.parens = self.parens.saturating_sub(1),
                "{" => {
                    if self.depth == 0 {
                        let place = self.classify(at, true);
                        self.open = Some(place);
                        self.parens = 0;
                    }
                    self.depth += 1;
                }
                "}" => {
                    // In kernel style a brace in the first column ends what is at file scope,
                    // whatever conditionals did to the count.
                    let column = token.start == 0 || self.source[token.start - 1] == b'\n';
                    self.depth = if column { 0 } else { self.depth.saturating_sub(1) };
                    if self.depth == 0 && matches!(self.open, Some(Place::Function { .. })) {
                        self.close(at + 1);
                    }
                }
                ";" if self.depth == 0 && self.parens == 0 => self.close(at + 1),
                _ => {}
            }
        }
        self.close(self.tokens.len());
        self.regions
    }

    fn conditional(&mut self, at: usize) {
        match self.text(at + 1) {
            "if" | "ifdef" | "ifndef" => self.branches.push((self.depth, self.parens)),
            "else" | "elif" => {
                if let Some(&(depth, parens)) = self.branches.last() {
                    (self.depth, self.parens) = (depth, parens);
                }
            }
            "endif" => drop(self.branches.pop()),
            _ => {}
        }
    }

    fn close(&mut self, end: usize) {
        let place = self.open.take().unwrap_or_else(|| self.classify(end, false));
        if end > self.head {
            self.regions.push(Region { tokens: self.head..end, place });
        }
        self.head = end;
        self.parens = 0;
    }

    /// What the declaration from `head` to `end` is; `braced` when `end` is its opening brace.
    fn classify(&self, end: usize, braced: bool) -> Place {
        let code: Vec<usize> = (self.head..end).filter(|&i| self.tokens[i].directive.is_none()).collect();
        let mut parens = 0_usize;
        let (mut assigned, mut callee, mut bracketed) = (None, None, None);
        for (n, &i) in code.iter().enumerate() {
            match self.text(i) {
                "(" => {
                    let before = n.checked_sub(1).map(|n| code[n]).filter(|&b| self.tokens[b].kind == Kind::Ident);
                    let name = before.map(|b| self.text(b)).filter(|name| !annotation(name));
                    if parens == 0 && callee.is_none() {
                        callee = name;
                    }
                    parens += 1;
                }
                ")" => parens = parens.saturating_sub(1),
                "=" if parens == 0 && assigned.is_none() => assigned = Some(n),
                "[" if assigned.is_none() && bracketed.is_none() => {
                    bracketed = Some(n.checked_sub(1).map_or("", |n| self.text(code[n])));
                }
                _ => {}
            }
        }
        if let Some(n) = assigned {
            let names = code[..n].iter().take_while(|&&i| self.text(i) != "[");
            let name = names.filter(|&&i| self.tokens[i].kind == Kind::Ident).last();
            return Place::Variable(name.map_or_else(String::new, |&i| self.text(i).to_owned()));
        }
        let word = |w: &str| code.iter().any(|&i| self.text(i) == w);
        if let (true, Some(name)) = (braced, callee) {
            let inline = code.iter().map(|&i| self.text(i)).any(|w| w.contains("inline") && !w.contains("noinline"));
            return Place::Function { name: name.to_owned(), inline };
        }
        if braced && word("enum") {
            return Place::Enum;
        }
        if !braced && callee.is_none() {
            if let Some(name) = bracketed {
                return Place::Shape(format!("array {name}"));
            }
        }
        if braced && (word("struct") || word("union")) {
            let idents = code.iter().filter(|&&i| self.tokens[i].kind == Kind::Ident).map(|&i| self.text(i));
            return Place::Shape(idents.take(3).collect::<Vec<_>>().join(" "));
        }
        Place::FileScope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
#define A 1
#define F(x) ((x) << \\
	A)
#if A > 3
#endif
static inline int f(int x)
{
	return x + A;
}
int __must_check g(void) __releases(lock)
{
#ifdef X
	if (x) {
#else
	if (y) {
#endif
		return A;
	}
}
struct s {
	int a[A];
} __packed;
enum e { ONE = A, TWO };
static const int v = A;
static const struct ops o = { .n = A, };
extern char buffer[A];
TRACE(A);
";

    #[test]
    fn places() {
        let scan = Scan::new(SOURCE.as_bytes());
        let function = |name: &str, inline| Place::Function { name: name.into(), inline };
        let places: Vec<_> = scan.mentions("A").map(|i| scan.place(i).clone()).collect();
        assert!(matches!(&places[0], Place::Directive(Directive::Define { name, function: false, .. }) if name == "A"));
        assert!(matches!(&places[1], Place::Directive(Directive::Define { name, function: true, .. }) if name == "F"));
        assert_eq!(places[2], Place::Directive(Directive::Conditional));
        assert_eq!(places[3], function("f", true));
        assert_eq!(places[4], function("g", false));
        assert_eq!(places[5], Place::Shape("struct s".into()));
        assert_eq!(places[6], Place::Enum);
        assert_eq!(places[7], Place::Variable("v".into()));
        assert_eq!(places[8], Place::Variable("o".into()));
        assert_eq!(places[9], Place::Shape("array buffer".into()));
        assert_eq!(places[10], Place::FileScope);
    }

    #[test]
    fn bodies_of_macros() {
        let scan = Scan::new(SOURCE.as_bytes());
        let Place::Directive(Directive::Define { body, .. }) = &scan.directives()[1].place else { panic!() };
        let text: Vec<_> = body.clone().map(|i| scan.text(i)).collect();
        assert_eq!(text, ["(", "(", "x", ")", "<<", "A", ")"]);
    }
}
