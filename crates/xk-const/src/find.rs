//! Constants in one file: definitions of a name, and what can be meant by a line. Pure: reads a
//! scanned file, knows nothing of the tree.

use crate::constant::{Form, SourceRange};
use crate::id::ConstId;
use crate::role::operator_at;
use crate::scan::{Directive, Place, Region, Scan};
use crate::token::{integer_literal, Kind};
use crate::value::Operator;
use std::ops::Range;

/// Something in a file that may be the constant that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub id: ConstId,
    pub name: Option<String>,
    pub form: Form,
    pub range: SourceRange,
    pub operator: Operator,
    /// End of the directive or declaration: from here on the constant can be used.
    pub after: usize,
}

/// What a line or definition holds instead of an integer constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// A string, character or floating constant.
    NotInteger(String),
    /// The size of an array or bit-field, or a member of a type.
    Layout(String),
    /// Decides what is compiled.
    Conditional,
    /// An enumerator without a value of its own, or one that others count on from.
    Enumerator(String),
    /// A macro without a body.
    Empty(String),
}

/// What was found: candidates, and what could not be one.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub candidates: Vec<Candidate>,
    pub unfit: Vec<Unfit>,
}

pub(crate) struct Finder<'s> {
    pub path: &'s str,
    pub scan: &'s Scan<'s>,
}

impl<'s> Finder<'s> {
    /// Every definition of `name` in the file.
    pub fn definitions(&self, name: &str) -> Found {
        let mut found = Found::default();
        for token in self.scan.mentions(name) {
            match self.scan.place(token) {
                Place::Directive(Directive::Define { name: defined, .. }) if defined == name => {
                    let hash = self.scan.tokens[token].directive.unwrap_or(token);
                    if token == hash + 2 {
                        self.define(hash, &mut found);
                    }
                }
                Place::Variable(defined) if defined == name => {
                    if let Some(region) = self.scan.region(token).filter(|r| self.is_const(r, name)) {
                        let equals = region.tokens.clone().find(|&i| self.scan.text(i) == "=");
                        if equals.is_some_and(|equals| token < equals) {
                            self.variable(region, name, &mut found);
                        }
                    }
                }
                Place::Enum if matches!(self.scan.text(token.wrapping_sub(1)), "," | "{") => {
                    self.enumerator(token, &mut found);
                }
                _ => {}
            }
        }
        found
    }

    /// What can be meant by a line.
    pub fn on_line(&self, line: u32) -> Found {
        let mut found = Found::default();
        let tokens = &self.scan.tokens;
        let on: Vec<usize> = (0..tokens.len()).filter(|&i| tokens[i].line == line).collect();
        let mut seen = Vec::new();
        for &token in &on {
            if let Some(hash) = tokens[token].directive {
                if !seen.contains(&hash) {
                    seen.push(hash);
                    self.directive(hash, line, &mut found);
                }
                continue;
            }
            let constant =
                self.scan.region(token).filter(|r| matches!(&r.place, Place::Variable(name) if self.is_const(r, name)));
            if let (Place::Variable(name), Some(region)) = (self.scan.place(token), constant) {
                if !seen.contains(&region.tokens.start) {
                    seen.push(region.tokens.start);
                    if !self.variable(region, name, &mut found) {
                        self.literals(&on, line, &mut found);
                    }
                }
                continue;
            }
            if *self.scan.place(token) == Place::Enum {
                let named =
                    tokens[token].kind == Kind::Ident && matches!(self.scan.text(token.wrapping_sub(1)), "," | "{");
                if named {
                    self.enumerator(token, &mut found);
                }
                continue;
            }
            self.literals(&[token], line, &mut found);
        }
        index_equal_tokens(&mut found.candidates);
        found
    }

    /// The integer literals on a line, also inside macro bodies and initialisers: what a full ID may mean.
    pub fn literals_on_line(&self, line: u32) -> Found {
        let mut found = Found::default();
        let on: Vec<usize> = (0..self.scan.tokens.len()).filter(|&i| self.scan.tokens[i].line == line).collect();
        self.literals(&on, line, &mut found);
        index_equal_tokens(&mut found.candidates);
        found
    }

    fn directive(&self, hash: usize, line: u32, found: &mut Found) {
        let Place::Directive(directive) = self.scan.place(hash) else { return };
        match directive {
            Directive::Define { .. } if self.scan.tokens[hash].line == line => self.define(hash, found),
            Directive::Define { body, .. } => {
                let on: Vec<usize> = body.clone().filter(|&i| self.scan.tokens[i].line == line).collect();
                self.literals(&on, line, found);
            }
            Directive::Conditional => found.unfit.push(Unfit::Conditional),
            Directive::Other => {}
        }
    }

    /// The object-like macro, or the literals of the function-like one, that begins with the token `hash`.
    pub fn define(&self, hash: usize, found: &mut Found) {
        let Place::Directive(Directive::Define { name, function, body }) = self.scan.place(hash) else { return };
        if *function {
            self.literals(&body.clone().collect::<Vec<_>>(), 0, found);
        } else if body.is_empty() {
            found.unfit.push(Unfit::Empty(name.clone()));
        } else if let Some(other) = self.other_constant(body.clone()) {
            found.unfit.push(Unfit::NotInteger(other));
        } else {
            let line = self.scan.tokens[hash].line;
            found.candidates.push(self.candidate(body.clone(), line, Form::Macro, Some(name.clone())));
        }
    }

    /// The initialiser of a constant variable; false when it is an array or structure.
    pub fn variable(&self, region: &Region, name: &str, found: &mut Found) -> bool {
        let code = region.tokens.clone().filter(|&i| self.scan.tokens[i].directive.is_none());
        let (mut equals, mut end, mut plain) = (None, region.tokens.end, true);
        for i in code {
            match self.scan.text(i) {
                "=" if equals.is_none() => equals = Some(i),
                "{" | "[" => plain = false,
                ";" => end = i,
                _ => {}
            }
        }
        let Some(equals) = equals.filter(|&e| plain && e + 1 < end) else { return false };
        if let Some(other) = self.other_constant(equals + 1..end) {
            found.unfit.push(Unfit::NotInteger(other));
            return true;
        }
        // A second declarator would be part of the replaced text.
        let mut depth = 0_i32;
        for i in equals + 1..end {
            match self.scan.text(i) {
                "(" => depth += 1,
                ")" => depth -= 1,
                "," if depth == 0 => return false,
                _ => {}
            }
        }
        let line = self.scan.tokens[equals + 1].line;
        found.candidates.push(self.candidate(equals + 1..end, line, Form::StaticConst, Some(name.to_owned())));
        true
    }

    /// The enumerator whose name is `token`.
    pub fn enumerator(&self, token: usize, found: &mut Found) {
        let name = self.scan.text(token);
        let mut end = token + 1;
        let mut depth = 0_i32;
        while end < self.scan.tokens.len() {
            match self.scan.text(end) {
                "(" => depth += 1,
                ")" => depth -= 1,
                "," | "}" if depth == 0 => break,
                _ => {}
            }
            end += 1;
        }
        if self.scan.text(token + 1) != "=" || end <= token + 2 {
            found.unfit.push(Unfit::Enumerator(format!(
                "{name} has no value of its own; it is one more than its predecessor"
            )));
            return;
        }
        let next = end + 1;
        let counted = self.scan.text(end) == ","
            && self.scan.tokens.get(next).is_some_and(|t| t.kind == Kind::Ident)
            && self.scan.text(next + 1) != "=";
        if counted {
            found.unfit.push(Unfit::Enumerator(format!("{} is one more than {name}", self.scan.text(next))));
            return;
        }
        let line = self.scan.tokens[token + 2].line;
        found.candidates.push(self.candidate(token + 2..end, line, Form::EnumValue, Some(name.to_owned())));
    }

    /// The literals among these tokens; `line` 0: each by its own line.
    pub fn literals(&self, tokens: &[usize], line: u32, found: &mut Found) {
        for &token in tokens {
            let t = self.scan.tokens[token];
            match t.kind {
                Kind::Number if integer_literal(t.text(self.scan.source)).is_some() => {
                    if let Some(what) = self.layout(token) {
                        found.unfit.push(Unfit::Layout(what));
                        continue;
                    }
                    let line = if line == 0 { t.line } else { line };
                    found.candidates.push(self.candidate(token..token + 1, line, Form::Literal, None));
                }
                Kind::Number | Kind::Str | Kind::Char => {
                    found.unfit.push(Unfit::NotInteger(t.text(self.scan.source).to_owned()));
                }
                _ => {}
            }
        }
        if line == 0 {
            index_equal_tokens(&mut found.candidates);
        }
    }

    /// The literal sizes an array or bit-field: what is declared, for a human.
    pub fn layout(&self, token: usize) -> Option<String> {
        if let Place::Shape(what) = self.scan.place(token) {
            return Some(what.clone());
        }
        let mut depth = 0_usize;
        let mut at = token;
        while at > 0 && token - at < 64 {
            at -= 1;
            match self.scan.text(at) {
                "]" => depth += 1,
                "[" if depth > 0 => depth -= 1,
                "[" => {
                    // `type name[N]` declares, `name[N]` in an expression does not.
                    let (name, before) = (at.checked_sub(1)?, at.checked_sub(2)?);
                    let kind = self.scan.tokens[before].kind;
                    let word = self.scan.text(before);
                    let expression = matches!(word, "return" | "case" | "else" | "sizeof" | "do" | "goto");
                    let pointer = word == "*" && self.scan.text(before.wrapping_sub(2)) == ";";
                    let file_scope = !matches!(self.scan.place(token), Place::Function { .. } | Place::Directive(_));
                    let declares = (kind == Kind::Ident && !expression) || pointer || file_scope;
                    return declares.then(|| format!("array {}", self.scan.text(name)));
                }
                ";" | "{" | "}" => return None,
                _ => {}
            }
        }
        None
    }

    /// The variable has one value for ever: it is `const`, or `static` and only ever read.
    pub fn is_const(&self, region: &Region, name: &str) -> bool {
        let head = region.tokens.clone().filter(|&i| self.scan.tokens[i].directive.is_none());
        let head: Vec<&str> = head.map(|i| self.scan.text(i)).take_while(|&w| w != "=").collect();
        let plain = !head.contains(&"*") && !head.contains(&"struct") && !head.contains(&"union");
        if head.contains(&"const") {
            return plain;
        }
        let words = head.split_last().map_or(&head[..], |(_, before)| before);
        let words: Vec<&str> = words.iter().copied().filter(|word| *word != "static").collect();
        let typed = crate::eval::type_of_words(&words).is_some();
        head.first() == Some(&"static") && typed && self.scan.mentions(name).all(|token| self.only_reads(token))
    }

    /// Whether the mention of a variable neither writes it nor passes on its address.
    fn only_reads(&self, token: usize) -> bool {
        let declared = matches!(self.scan.place(token), Place::Variable(name) if name == self.scan.text(token));
        if declared {
            return true;
        }
        let before = self.scan.text(token.wrapping_sub(1));
        let written = matches!(
            self.scan.text(token + 1),
            "=" | "+=" | "-=" | "*=" | "/=" | "%=" | "<<=" | ">>=" | "&=" | "|=" | "^=" | "++" | "--"
        );
        let writer = matches!(self.scan.text(token.wrapping_sub(2)), "WRITE_ONCE" | "swap" | "get_user" | "xchg");
        // At file scope it is an argument of `module_param` and the like.
        let handed_out =
            matches!(self.scan.place(token), Place::FileScope) || before == "&" || (before == "(" && writer);
        !written && !handed_out && !matches!(before, "++" | "--")
    }

    fn other_constant(&self, tokens: Range<usize>) -> Option<String> {
        tokens.map(|i| self.scan.tokens[i]).find_map(|t| {
            let text = t.text(self.scan.source);
            let other = matches!(t.kind, Kind::Str) || (t.kind == Kind::Number && integer_literal(text).is_none());
            other.then(|| text.to_owned())
        })
    }

    fn candidate(&self, tokens: Range<usize>, line: u32, form: Form, name: Option<String>) -> Candidate {
        let (first, last) = (self.scan.tokens[tokens.start], self.scan.tokens[tokens.end - 1]);
        let written = String::from_utf8_lossy(&self.scan.source[first.start..last.end]).into_owned();
        let end = self.scan.source[last.end..].iter().position(|&b| b == b'\n').map_or(0, |n| n + 1);
        Candidate {
            id: ConstId { path: self.path.to_owned(), line, value: self.spelling(tokens.clone()), index: 0 },
            name,
            form,
            range: SourceRange {
                path: self.path.to_owned(),
                line: first.line,
                start: first.start,
                end: last.end,
                written,
            },
            operator: operator_at(self.scan, tokens),
            after: last.end + end,
        }
    }

    /// The tokens on one line, with a space where there was a gap.
    fn spelling(&self, tokens: Range<usize>) -> String {
        let mut text = String::new();
        let mut end = None;
        for token in &self.scan.tokens[tokens] {
            if end.is_some_and(|end| end < token.start) {
                text.push(' ');
            }
            text.push_str(token.text(self.scan.source));
            end = Some(token.end);
        }
        text
    }
}

/// Numbers equal tokens on the same line in the order in which they stand there.
fn index_equal_tokens(candidates: &mut [Candidate]) {
    for at in 0..candidates.len() {
        let (before, rest) = candidates.split_at_mut(at);
        let same = before.iter().filter(|c| c.id.value == rest[0].id.value && c.id.line == rest[0].id.line);
        rest[0].id.index = same.count() as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
#define PLAIN 32 /* thirty-two */
#define SUM (A + \\
	     3)
#define NAME \"text\"
#define PI 3.14
#define EMPTY
#define fits(a, b) ((a) * 1280 < (b) * 1024)
static const int limit = 16 * 1024;
static const int table[] = { 1, 2 };
enum { RED = 5, GREEN = 9, BLUE };
struct s { int field[4]; int bits:3; };
int f(int x)
{
	char buffer[16];
	x = buffer[7];
	x += 2 * x + 2;
	g(\"abc\");
	return x >> 3;
}
#if PLAIN > 4
#endif
static int steps = 6;
static int knob = 7;
module_param(knob, int, 0644);
static unsigned long count = 8;
static int g(void)
{
	count += 1;
	return steps < knob;
}
";

    fn with<R>(act: impl Fn(&Finder<'_>) -> R) -> R {
        let scan = Scan::new(SOURCE.as_bytes());
        act(&Finder { path: "x.c", scan: &scan })
    }

    fn ids(found: &Found) -> Vec<String> {
        found.candidates.iter().map(|c| c.id.to_string()).collect()
    }

    #[test]
    fn definitions_by_name() {
        with(|finder| {
            assert_eq!(ids(&finder.definitions("PLAIN")), ["x.c:L1:32:0"]);
            assert_eq!(ids(&finder.definitions("SUM")), ["x.c:L2:(A + 3):0"]);
            assert_eq!(ids(&finder.definitions("limit")), ["x.c:L8:16 * 1024:0"]);
            assert_eq!(ids(&finder.definitions("steps")), ["x.c:L22:6:0"]);
            assert!(ids(&finder.definitions("knob")).is_empty() && ids(&finder.definitions("count")).is_empty());
            assert_eq!(ids(&finder.definitions("RED")), ["x.c:L10:5:0"]);
            assert_eq!(ids(&finder.definitions("fits")), ["x.c:L7:1280:0", "x.c:L7:1024:0"]);
            assert!(matches!(finder.definitions("NAME").unfit[..], [Unfit::NotInteger(_)]));
            assert!(matches!(finder.definitions("PI").unfit[..], [Unfit::NotInteger(_)]));
            assert!(matches!(finder.definitions("EMPTY").unfit[..], [Unfit::Empty(_)]));
            assert!(matches!(finder.definitions("GREEN").unfit[..], [Unfit::Enumerator(_)]));
            assert!(matches!(finder.definitions("BLUE").unfit[..], [Unfit::Enumerator(_)]));
        });
    }

    #[test]
    fn constants_by_line() {
        with(|finder| {
            assert_eq!(ids(&finder.on_line(1)), ["x.c:L1:32:0"]);
            assert_eq!(ids(&finder.on_line(8)), ["x.c:L8:16 * 1024:0"]);
            assert_eq!(ids(&finder.on_line(15)), ["x.c:L15:7:0"]);
            assert_eq!(ids(&finder.on_line(16)), ["x.c:L16:2:0", "x.c:L16:2:1"]);
            let shift = finder.on_line(18);
            assert_eq!(ids(&shift), ["x.c:L18:3:0"]);
            assert_eq!(shift.candidates[0].operator, Operator::ShiftCount);
            assert_eq!(finder.on_line(16).candidates[0].operator, Operator::Multiplier);
        });
    }

    #[test]
    fn what_is_no_constant() {
        with(|finder| {
            assert!(matches!(finder.on_line(14).unfit[..], [Unfit::Layout(_)]));
            assert!(matches!(finder.on_line(11).unfit[..], [Unfit::Layout(_), Unfit::Layout(_)]));
            assert!(matches!(finder.on_line(17).unfit[..], [Unfit::NotInteger(_)]));
            assert!(matches!(finder.on_line(20).unfit[..], [Unfit::Conditional]));
            let empty = finder.on_line(12);
            assert!(empty.candidates.is_empty() && empty.unfit.is_empty());
        });
    }
}
