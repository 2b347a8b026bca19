//! What a token that mentions a name does in its place: defines it, asserts, sizes something,
//! gives enumerators their values, or is the operand of an operator.
//!
//! In: a scanned file and a token in it. Nothing is refused; what is not known is a plain use.

use crate::scan::{Directive, Place, Scan};
use crate::value::Operator;

/// The token is the name being defined, undefined or tested for existence, not a use of its value.
pub(crate) fn declares(scan: &Scan<'_>, token: usize) -> bool {
    let Some(hash) = scan.tokens.get(token).and_then(|t| t.directive) else { return false };
    let word = scan.text(hash + 1);
    (token == hash + 2 && matches!(word, "define" | "undef" | "ifdef" | "ifndef"))
        || (matches!(word, "if" | "elif")
            && (scan.text(token.wrapping_sub(1)) == "defined"
                || (scan.text(token.wrapping_sub(1)) == "(" && scan.text(token.wrapping_sub(2)) == "defined")))
}

/// The token stands in a `static_assert` at file scope.
pub(crate) fn asserts(scan: &Scan<'_>, token: usize) -> bool {
    let first = scan.region(token).and_then(|r| r.tokens.clone().find(|&i| scan.tokens[i].directive.is_none()));
    first.is_some_and(|i| matches!(scan.text(i), "static_assert" | "_Static_assert"))
}

/// A mention inside a type is a use when it is in brackets or parentheses or gives a bit-field's
/// width; otherwise it is a member or type that has the same name.
pub(crate) fn sizes(scan: &Scan<'_>, token: usize) -> bool {
    let mut depth = 0_usize;
    for at in (0..token).rev() {
        match scan.text(at) {
            "]" | ")" => depth += 1,
            "[" | "(" if depth == 0 => return true,
            "[" | "(" => depth -= 1,
            ":" if depth == 0 => return true,
            ";" | "{" | "}" => return false,
            _ => {}
        }
    }
    false
}

/// The enumerators whose value may depend on the expression that contains `token`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Enumerators {
    /// The one that it initialises and those that count on from it.
    pub names: Vec<String>,
    /// A macro makes more of them, or their names.
    pub hidden: bool,
}

/// The token that opens the `enum` definition around `token`.
pub(crate) fn enum_around(scan: &Scan<'_>, token: usize) -> Option<usize> {
    let code = |at: &usize| scan.tokens[*at].directive.is_none();
    let mut depth = 0_usize;
    let brace = (0..token).rev().filter(code).find(|&at| match scan.text(at) {
        "}" => {
            depth += 1;
            false
        }
        "{" if depth > 0 => {
            depth -= 1;
            false
        }
        "{" => true,
        _ => false,
    })?;
    let head = (0..brace).rev().filter(code).map(|at| scan.text(at));
    head.take_while(|text| !matches!(*text, ";" | "{" | "}" | "=")).any(|text| text == "enum").then_some(brace)
}

/// The enumerators whose value depends on the expression that contains `token`, or that it
/// names: the one that it initialises and those that count on from it.
pub(crate) fn enumerators_from(scan: &Scan<'_>, token: usize) -> Enumerators {
    let mut found = Enumerators::default();
    let Some(brace) = enum_around(scan, token) else {
        return Enumerators { names: Vec::new(), hidden: true };
    };
    // Each enumerator follows a comma or the brace, outside of parentheses.
    let mut start = None;
    let (mut depth, mut begins, mut branches) = (0_usize, true, false);
    for at in brace + 1..scan.tokens.len() {
        if scan.tokens[at].directive.is_some() {
            let conditional = matches!(scan.place(at), Place::Directive(Directive::Conditional));
            branches |= conditional && at > token;
            continue;
        }
        match scan.text(at) {
            "(" | "[" | "{" => depth += 1,
            "}" if depth == 0 => break,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            "," if depth == 0 => begins = true,
            text if begins => {
                begins = false;
                let code = (at + 1..scan.tokens.len()).filter(|&at| scan.tokens[at].directive.is_none());
                let next = code.map(|at| scan.text(at)).next().unwrap_or_default();
                if at > token {
                    // Another configuration may leave it out, and then the enumerators after it depend on `token`.
                    if next == "=" && !branches {
                        break;
                    }
                    found.names.push(text.to_owned());
                    found.hidden |= next == "(";
                } else {
                    start = Some((text, next));
                }
            }
            _ => {}
        }
    }
    if let Some((name, next)) = start {
        found.hidden |= next == "(";
        found.names.insert(0, name.to_owned());
    }
    found
}

/// The operator applied to the tokens `range`, looking through parentheses that hold nothing else.
pub(crate) fn operator_at(scan: &Scan<'_>, mut range: std::ops::Range<usize>) -> Operator {
    let before = |at: usize, n: usize| at.checked_sub(n).map_or("", |i| scan.text(i));
    while before(range.start, 1) == "(" && scan.text(range.end) == ")" {
        // `f(X)` passes X on; only grouping parentheses are looked through.
        let callee = range.start.checked_sub(2).and_then(|i| scan.tokens.get(i));
        if callee.is_some_and(|t| t.kind == crate::token::Kind::Ident) {
            return Operator::Other;
        }
        range = range.start - 1..range.end + 1;
    }
    let (left, right) = (before(range.start, 1), scan.text(range.end));
    let operand = |at: Option<usize>| {
        at.and_then(|i| scan.tokens.get(i))
            .is_some_and(|t| t.kind != crate::token::Kind::Punct || matches!(t.text(scan.source), ")" | "]"))
    };
    let compares = |text: &str| matches!(text, "<" | ">" | "<=" | ">=" | "==" | "!=");
    match (left, right) {
        ("<<" | ">>" | "<<=" | ">>=", _) => Operator::ShiftCount,
        ("/" | "%" | "/=" | "%=", _) => Operator::Divisor,
        ("*=", _) | (_, "*") => Operator::Multiplier,
        ("*", _) if operand(range.start.checked_sub(2)) => Operator::Multiplier,
        (left, right) if compares(left) || compares(right) => Operator::Compare,
        _ => Operator::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(source: &str) -> Operator {
        let scan = Scan::new(source.as_bytes());
        let at = scan.mentions("X").next().unwrap();
        operator_at(&scan, at..at + 1)
    }

    #[test]
    fn operators() {
        assert_eq!(operator("a >> X;"), Operator::ShiftCount);
        assert_eq!(operator("a <<= ((X));"), Operator::ShiftCount);
        assert_eq!(operator("a / (X);"), Operator::Divisor);
        assert_eq!(operator("a * X"), Operator::Multiplier);
        assert_eq!(operator("X * a"), Operator::Multiplier);
        assert_eq!(operator("if (a >= X)"), Operator::Compare);
        assert_eq!(operator("f(X)"), Operator::Other);
        assert_eq!(operator("min(a, X)"), Operator::Other);
        assert_eq!(operator("= *X"), Operator::Other);
    }

    fn enumerators(source: &str) -> (Vec<String>, bool) {
        let scan = Scan::new(source.as_bytes());
        let at = scan.mentions("X").next().unwrap();
        let Enumerators { names, hidden } = enumerators_from(&scan, at);
        (names, hidden)
    }

    #[test]
    fn enumerators_count_on() {
        let names = |source: &str| {
            let (names, hidden) = enumerators(source);
            assert!(!hidden, "{source}");
            names
        };
        assert_eq!(names("enum e { A, B = X + 1, C, D, E = 9, F };"), ["B", "C", "D"]);
        assert_eq!(names("enum { A, B = GENMASK(31, X), C = 3, D };"), ["B"]);
        assert_eq!(names("enum { A = F(1, (2), X), B, C = G(4, 5), D };"), ["A", "B"]);
        assert_eq!(names("enum { A = F(X, 2), B = (1, 2) };"), ["A"]);
        assert_eq!(names("enum { A = X };"), ["A"]);
        assert_eq!(names("enum e { A __old(3) = X, B };"), ["A", "B"]);
    }

    #[test]
    fn directives_do_not_end_an_enum() {
        let source = "enum e {\n A = X,\n#define A A\n B,\n#define B B\n C = 5,\n D\n};";
        assert_eq!(enumerators(source).0, ["A", "B"]);
        let source = "enum e {\n A = X,\n#ifdef Y\n B = 5,\n#endif\n C,\n};";
        assert_eq!(enumerators(source).0, ["A", "B", "C"]);
    }

    #[test]
    fn what_a_macro_makes_is_hidden() {
        assert_eq!(enumerators("enum e { NAMED(A, X), B };"), (vec!["NAMED".into(), "B".into()], true));
        assert_eq!(enumerators("enum e { A = X, MORE(3) };"), (vec!["A".into(), "MORE".into()], true));
    }

    #[test]
    fn an_enum_in_a_structure_is_an_enum() {
        let around = |source: &str| {
            let scan = Scan::new(source.as_bytes());
            let at = scan.mentions("X").next().unwrap();
            enum_around(&scan, at).is_some()
        };
        assert!(around("struct s { int b; enum { A, B = X } e; };"));
        assert!(around("struct s { int b; enum __packed t { A = F(1, X) } e; };"));
        assert!(!around("struct s { enum { A } e; int b[X]; };"));
        assert!(!around("struct s { enum t e; struct { int b[X]; } c; };"));
    }

    #[test]
    fn members_of_the_same_name_are_no_use() {
        let sized = |source: &str| {
            let scan = Scan::new(source.as_bytes());
            let at = scan.mentions("X").next().unwrap();
            sizes(&scan, at)
        };
        assert!(sized("struct s { int a[2 * X]; };"));
        assert!(sized("struct s { int a : X; };"));
        assert!(sized("struct s { int a; } __aligned(X);"));
        assert!(!sized("struct s { int a[3]; int X; };"));
    }

    #[test]
    fn testing_for_a_name_is_no_use_of_its_value() {
        let source = "#ifdef X\n#elif defined(X) || defined X\n#undef X\n#define X 1\n#elif X > 2\n#endif\n";
        let scan = Scan::new(source.as_bytes());
        let used: Vec<_> = scan.mentions("X").filter(|&t| !declares(&scan, t)).map(|t| scan.tokens[t].line).collect();
        assert_eq!(used, [5]);
    }
}
