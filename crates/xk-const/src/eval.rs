//! A small evaluator of C integer constant expressions: tokens in, value and type out.
//!
//! It knows literals, casts, operators and the usual arithmetic conversions of x86-64, and asks
//! [`Names`] for everything else. Exact where it answers; `None` wherever C leaves the result open
//! (overflow, division by zero, shifts out of range) or something is not known.

use crate::token::{integer_literal, Kind};
use crate::value::CType;

/// A value with its type. Of unsigned 64-bit types, the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Typed {
    pub value: i64,
    pub c_type: CType,
}

/// What identifiers and calls mean.
pub(crate) trait Names {
    /// The value of a name.
    fn name(&self, name: &str) -> Option<Typed>;
    /// The value of a call with one argument.
    fn call(&self, function: &str, argument: Typed) -> Option<Typed>;
}

/// Nothing has a name: only literals, casts and operators are evaluated.
pub(crate) struct Nameless;

impl Names for Nameless {
    fn name(&self, _: &str) -> Option<Typed> {
        None
    }

    fn call(&self, _: &str, _: Typed) -> Option<Typed> {
        None
    }
}

/// Nesting that is still an expression a person wrote.
const DEEPEST: usize = 40;

/// The value of an expression; `None` when it is not known.
pub(crate) fn evaluate(tokens: &[(Kind, &str)], names: &dyn Names) -> Option<Typed> {
    let mut parser = Parser { tokens, at: 0, depth: 0, names };
    let value = parser.conditional()?;
    (parser.at == tokens.len()).then_some(value)
}

/// The integer type that these words name.
pub(crate) fn type_of_words(words: &[&str]) -> Option<CType> {
    if let [one] = words {
        let fixed = match one.trim_start_matches("__") {
            "u8" | "uint8_t" => CType::UnsignedChar,
            "s8" | "int8_t" => CType::SignedChar,
            "u16" | "uint16_t" => CType::UnsignedShort,
            "s16" | "int16_t" => CType::Short,
            "u32" | "uint32_t" => CType::UnsignedInt,
            "s32" | "int32_t" => CType::Int,
            "u64" | "uint64_t" => CType::UnsignedLongLong,
            "s64" | "int64_t" | "ktime_t" => CType::LongLong,
            "size_t" | "sector_t" | "ulong" => return of_alias(one),
            "ssize_t" => CType::Long,
            "uint" => CType::UnsignedInt,
            "bool" | "_Bool" => CType::Bool,
            _ => return plain(words),
        };
        return Some(fixed);
    }
    plain(words)
}

fn of_alias(name: &str) -> Option<CType> {
    // `sector_t` is a `u64`, the other two are `unsigned long`.
    Some(if name == "sector_t" { CType::UnsignedLongLong } else { CType::UnsignedLong })
}

fn plain(words: &[&str]) -> Option<CType> {
    let count = |word: &str| words.iter().filter(|w| **w == word).count();
    let known = ["unsigned", "signed", "int", "long", "short", "char"];
    if words.is_empty() || !words.iter().all(|w| known.contains(w)) || count("unsigned") + count("signed") > 1 {
        return None;
    }
    let unsigned = count("unsigned") == 1;
    let pick = |signed_type, unsigned_type| Some(if unsigned { unsigned_type } else { signed_type });
    match (count("char"), count("short"), count("long")) {
        (1, 0, 0) if count("signed") == 0 && !unsigned => Some(CType::Char),
        (1, 0, 0) => pick(CType::SignedChar, CType::UnsignedChar),
        (0, 1, 0) => pick(CType::Short, CType::UnsignedShort),
        (0, 0, 0) => pick(CType::Int, CType::UnsignedInt),
        (0, 0, 1) => pick(CType::Long, CType::UnsignedLong),
        (0, 0, 2) => pick(CType::LongLong, CType::UnsignedLongLong),
        _ => None,
    }
}

impl Typed {
    pub fn int(value: i64) -> Typed {
        Typed { value, c_type: CType::Int }
    }

    /// The mathematical value.
    pub fn wide(self) -> i128 {
        if self.c_type.signed() {
            i128::from(self.value)
        } else {
            i128::from(self.value as u64)
        }
    }

    /// Converted as a cast does.
    pub fn cast(self, c_type: CType) -> Typed {
        if c_type == CType::Bool {
            return Typed { value: i64::from(self.value != 0), c_type };
        }
        let spare = 64 - c_type.bits();
        let value =
            if c_type.signed() { self.value << spare >> spare } else { ((self.value as u64) << spare >> spare) as i64 };
        Typed { value, c_type }
    }

    fn promoted(self) -> Typed {
        if self.c_type.bits() < 32 {
            self.cast(CType::Int)
        } else {
            self
        }
    }
}

/// A result that fits its type, wrapped if the type is unsigned.
fn result(value: i128, c_type: CType) -> Option<Typed> {
    if c_type.signed() {
        let (low, high) = c_type.range();
        return (low..=high).contains(&value).then_some(Typed { value: value as i64, c_type });
    }
    Some(Typed { value: value as i64, c_type: CType::UnsignedLong }.cast(c_type))
}

/// The usual arithmetic conversions.
fn common(a: Typed, b: Typed) -> (Typed, Typed) {
    const RANKS: [CType; 6] =
        [CType::Int, CType::UnsignedInt, CType::Long, CType::UnsignedLong, CType::LongLong, CType::UnsignedLongLong];
    let (a, b) = (a.promoted(), b.promoted());
    let rank = |t: Typed| RANKS.iter().position(|r| *r == t.c_type).unwrap_or(0);
    let mut wider = rank(a).max(rank(b));
    // `unsigned long` with `long long`: the signed type cannot hold the values of the unsigned one.
    if RANKS[wider] == CType::LongLong && (a.c_type == CType::UnsignedLong || b.c_type == CType::UnsignedLong) {
        wider += 1;
    }
    (a.cast(RANKS[wider]), b.cast(RANKS[wider]))
}

struct Parser<'a> {
    tokens: &'a [(Kind, &'a str)],
    at: usize,
    depth: usize,
    names: &'a dyn Names,
}

impl Parser<'_> {
    fn text(&self) -> &str {
        self.tokens.get(self.at).map_or("", |(_, text)| text)
    }

    fn take(&mut self, text: &str) -> bool {
        let here = self.text() == text && self.tokens.get(self.at).is_some_and(|(kind, _)| *kind == Kind::Punct);
        self.at += usize::from(here);
        here
    }

    fn conditional(&mut self) -> Option<Typed> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let condition = self.binary(0)?;
        let value = if self.take("?") {
            // GNU's `a ?: b` is rare in constants.
            let yes = self.conditional()?;
            if !self.take(":") {
                return None;
            }
            let no = self.conditional()?;
            let (yes, no) = common(yes, no);
            if condition.value != 0 {
                yes
            } else {
                no
            }
        } else {
            condition
        };
        self.depth -= 1;
        Some(value)
    }

    fn binary(&mut self, lowest: u8) -> Option<Typed> {
        let mut left = self.unary()?;
        loop {
            let operator = self.text().to_owned();
            let precedence = match operator.as_str() {
                "||" => 1,
                "&&" => 2,
                "|" => 3,
                "^" => 4,
                "&" => 5,
                "==" | "!=" => 6,
                "<" | ">" | "<=" | ">=" => 7,
                "<<" | ">>" => 8,
                "+" | "-" => 9,
                "*" | "/" | "%" => 10,
                _ => return Some(left),
            };
            if precedence <= lowest {
                return Some(left);
            }
            self.at += 1;
            let right = self.binary(precedence)?;
            left = apply(&operator, left, right)?;
        }
    }

    fn unary(&mut self) -> Option<Typed> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let value = if self.take("-") {
            let operand = self.unary()?.promoted();
            result(-operand.wide(), operand.c_type)
        } else if self.take("+") {
            Some(self.unary()?.promoted())
        } else if self.take("~") {
            let operand = self.unary()?.promoted();
            Some(Typed { value: !operand.value, ..operand }.cast(operand.c_type))
        } else if self.take("!") {
            Some(Typed::int(i64::from(self.unary()?.value == 0)))
        } else if let Some(c_type) = self.cast_type() {
            Some(self.unary()?.cast(c_type))
        } else {
            self.primary()
        };
        self.depth -= 1;
        value
    }

    /// The type of a cast, consumed with its parentheses.
    fn cast_type(&mut self) -> Option<CType> {
        if self.text() != "(" {
            return None;
        }
        let rest = self.tokens.get(self.at + 1..)?;
        let words = rest.iter().take_while(|(kind, _)| *kind == Kind::Ident).map(|(_, text)| *text);
        let words: Vec<&str> = words.collect();
        let c_type = type_of_words(&words)?;
        rest.get(words.len()).filter(|(_, text)| *text == ")")?;
        self.at += words.len() + 2;
        Some(c_type)
    }

    fn primary(&mut self) -> Option<Typed> {
        if self.take("(") {
            let value = self.conditional()?;
            return self.take(")").then_some(value);
        }
        let &(kind, text) = self.tokens.get(self.at)?;
        self.at += 1;
        match kind {
            Kind::Number => {
                let literal = integer_literal(text)?;
                Some(Typed { value: literal.value as i64, c_type: CType::of_literal(literal)? })
            }
            Kind::Ident if self.take("(") => {
                let argument = self.conditional()?;
                if !self.take(")") {
                    return None;
                }
                self.names.call(text, argument)
            }
            Kind::Ident => self.names.name(text),
            _ => None,
        }
    }
}

fn apply(operator: &str, left: Typed, right: Typed) -> Option<Typed> {
    if matches!(operator, "<<" | ">>") {
        let (left, count) = (left.promoted(), u32::try_from(right.wide()).ok()?);
        if count >= left.c_type.bits() {
            return None;
        }
        let wide = left.wide();
        return if operator == ">>" { result(wide >> count, left.c_type) } else { result(wide << count, left.c_type) };
    }
    let truth = |yes: bool| Some(Typed::int(i64::from(yes)));
    match operator {
        "&&" => return truth(left.value != 0 && right.value != 0),
        "||" => return truth(left.value != 0 || right.value != 0),
        _ => {}
    }
    let (a, b) = common(left, right);
    let (x, y) = (a.wide(), b.wide());
    match operator {
        "==" => truth(x == y),
        "!=" => truth(x != y),
        "<" => truth(x < y),
        ">" => truth(x > y),
        "<=" => truth(x <= y),
        ">=" => truth(x >= y),
        "+" => result(x + y, a.c_type),
        "-" => result(x - y, a.c_type),
        "*" => result(x.checked_mul(y)?, a.c_type),
        "/" => result(x.checked_div(y)?, a.c_type),
        "%" => result(x.checked_rem(y)?, a.c_type),
        "&" => result(x & y, a.c_type),
        "|" => result(x | y, a.c_type),
        "^" => result(x ^ y, a.c_type),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokenize;

    fn of(text: &str) -> Option<(i64, &'static str)> {
        struct Hz;
        impl Names for Hz {
            fn name(&self, name: &str) -> Option<Typed> {
                (name == "HZ").then_some(Typed::int(250))
            }
            fn call(&self, function: &str, argument: Typed) -> Option<Typed> {
                (function == "twice").then_some(Typed { value: 2 * argument.value, ..argument })
            }
        }
        let tokens = tokenize(text.as_bytes());
        let tokens: Vec<_> = tokens.iter().map(|t| (t.kind, t.text(text.as_bytes()))).collect();
        evaluate(&tokens, &Hz).map(|t| (t.value, t.c_type.name()))
    }

    #[test]
    fn values_have_the_types_of_c() {
        assert_eq!(of("128"), Some((128, "int")));
        assert_eq!(of("(128 * 1024)"), Some((131_072, "int")));
        assert_eq!(of("1U << 10"), Some((1024, "unsigned int")));
        assert_eq!(of("((unsigned)(HZ/25))"), Some((10, "unsigned int")));
        assert_eq!(of("2 * 1000000L"), Some((2_000_000, "long")));
        assert_eq!(of("-1"), Some((-1, "int")));
        assert_eq!(of("~0UL"), Some((-1, "unsigned long")));
        assert_eq!(of("(u8)300 + 0"), Some((44, "int")));
        assert_eq!(of("-1 < 0U"), Some((0, "int")));
        assert_eq!(of("1 ? 2 : 3L"), Some((2, "long")));
        assert_eq!(of("7 - 2 - 1 << 1"), Some((8, "int")));
        assert_eq!(of("twice(HZ) + 1"), Some((501, "int")));
    }

    #[test]
    fn what_c_leaves_open_has_no_value() {
        for text in ["", "1 +", "X", "f(1)", "1 / 0", "1 << 32", "2147483647 + 1", "(1", "1 2", "\"a\"", "sizeof(int)"]
        {
            assert_eq!(of(text), None, "{text}");
        }
        let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(of(&deep), None);
        assert_eq!(of(&"-".repeat(100_000)), None);
    }
}
