//! What a token that mentions a name does where it stands: defines it, asserts, sizes something,
//! counts on, or is the operand of an operator.
//!
//! In: a scanned file and a token in it. Nothing is refused; what is not known is a plain use.

use crate::scan::Scan;
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

/// The enumerators whose value depends on the expression that contains `token`: the one it
/// initialises and those that count on from it.
pub(crate) fn enumerators_from(scan: &Scan<'_>, token: usize) -> Vec<String> {
    let mut start = token;
    while start > 0 && !matches!(scan.text(start), "," | "{" | ";") {
        start -= 1;
    }
    let mut names = vec![scan.text(start + 1).to_owned()];
    let mut at = token;
    while let Some(text) = scan.tokens.get(at).map(|_| scan.text(at)) {
        match text {
            "}" | ";" => break,
            "," if scan.text(at + 2) == "=" => break,
            "," if scan.tokens.get(at + 1).is_some_and(|t| t.kind == crate::token::Kind::Ident) => {
                names.push(scan.text(at + 1).to_owned());
            }
            _ => {}
        }
        at += 1;
    }
    names
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

    #[test]
    fn enumerators_count_on() {
        let source = "enum e { A, B = X + 1, C, D, E = 9, F };";
        let scan = Scan::new(source.as_bytes());
        let at = scan.mentions("X").next().unwrap();
        assert_eq!(enumerators_from(&scan, at), ["B", "C", "D"]);
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
