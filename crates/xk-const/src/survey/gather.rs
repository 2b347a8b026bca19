//! First pass over a file: what it includes, what it defines, and which of the definitions may be
//! perf-consts by their own looks. How they are used is asked later.

use super::evidence::{name_rules_out, name_speaks_against, of_name, Evidence};
use super::Written;
use crate::conditions::{Conditions, Config, Truth};
use crate::constant::Form;
use crate::find::{Candidate, Finder, Found};
use crate::id::ConstId;
use crate::inclusion;
use crate::index::Index;
use crate::scan::{Directive, Place, Region, Scan};
use crate::search_path::FileNo;
use crate::token::{integer_literal, Kind};
use crate::value::{CType, Operator};
use crate::witness::declared_type;

/// Files with more macros than this are register maps.
const REGISTER_MAP: usize = 2000;
/// Tokens that the body of a constant has at most.
const LONGEST_BODY: usize = 24;

/// A definition that may be a perf-const.
#[derive(Debug)]
pub(crate) struct Definition {
    pub written: Written,
    /// Macro, variable or enumerator; of a literal in a macro with parameters, that macro.
    pub name: String,
    pub id: ConstId,
    pub file: FileNo,
    /// The literal, when the body holds exactly one.
    pub only_literal: Option<ConstId>,
    pub tokens: Vec<(Kind, String)>,
    /// Of a variable.
    pub declared: Option<CType>,
    /// What the place of a literal in its macro says.
    pub evidence: Vec<Evidence>,
}

/// What a file contributes.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub includes: Vec<FileNo>,
    pub definitions: Vec<Definition>,
    /// Object-like macros with short bodies.
    pub macros: Vec<(String, String)>,
}

/// Reads a file.
pub(crate) fn gather(index: &Index, file: FileNo, source: &[u8], config: Option<&Config>) -> Gathered {
    let path = index.path(file);
    if memchr::memmem::find_iter(source, b"#define").take(REGISTER_MAP + 1).count() > REGISTER_MAP {
        return Gathered::default();
    }
    let scan = Scan::new(source);
    let nothing = Config::default();
    let conditions = Conditions::of(&scan, config.unwrap_or(&nothing));
    let left_in = |token: usize| config.is_none() || conditions.at(token) != Truth::No;
    let mut includes: Vec<FileNo> =
        inclusion::included(index, path, &scan, &conditions).into_iter().map(|(file, _)| file).collect();
    includes.sort_unstable();
    includes.dedup();
    let mut found = Gathered { includes, ..Gathered::default() };
    let finder = Finder { path, scan: &scan };
    let plain = in_a_row(&scan);
    for region in scan.directives() {
        let Place::Directive(Directive::Define { name, function, body }) = &region.place else { continue };
        if body.is_empty() || !left_in(region.tokens.start) {
            continue;
        }
        let text: Vec<&str> = body.clone().map(|i| scan.text(i)).collect();
        if !function && text.len() <= LONGEST_BODY {
            found.macros.push((name.clone(), text.join(" ")));
        }
        let row = plain.binary_search(&region.tokens.start).is_ok();
        if (*function || text.len() <= LONGEST_BODY) && !row {
            let mut here = Found::default();
            finder.define(region.tokens.start, &mut here);
            let written = if *function { Written::FunctionMacro } else { Written::Macro };
            found.definitions.extend(kept(&scan, file, here, written, name));
        }
    }
    for region in scan.code().iter().filter(|region| left_in(region.tokens.start)) {
        let mut here = Found::default();
        match &region.place {
            Place::Variable(name) if finder.is_const(region, name) => {
                finder.variable(region, name, &mut here);
                found.definitions.extend(kept(&scan, file, here, Written::Static, name));
            }
            Place::Enum => found.definitions.extend(enumerators(&finder, file, region)),
            _ => {}
        }
    }
    found
}

/// The candidates of one definition that look like perf-consts.
fn kept<'s>(
    scan: &'s Scan<'s>,
    file: FileNo,
    found: Found,
    written: Written,
    name: &'s str,
) -> impl Iterator<Item = Definition> + 's {
    found.candidates.into_iter().filter_map(move |candidate| {
        let definition = definition(scan, file, candidate, written, name);
        plausible(&definition).then_some(definition)
    })
}

fn definition(scan: &Scan<'_>, file: FileNo, candidate: Candidate, written: Written, name: &str) -> Definition {
    let at = |byte| scan.tokens.partition_point(|token| token.start < byte);
    let range = at(candidate.range.start)..at(candidate.range.end);
    let mut evidence = Vec::new();
    if candidate.form == Form::Literal {
        match candidate.operator {
            Operator::Compare | Operator::Multiplier | Operator::Divisor | Operator::ShiftCount => {
                evidence = super::evidence::of_use(scan, range.start).evidence;
                evidence.retain(|e| e.computes());
            }
            Operator::Other => {}
        }
    }
    let mut numbers = range.clone().filter(|&i| scan.tokens[i].kind == Kind::Number);
    let only_literal = numbers.next().filter(|_| numbers.next().is_none()).map(|i| ConstId {
        path: candidate.id.path.clone(),
        line: scan.tokens[i].line,
        value: scan.text(i).to_owned(),
        index: 0,
    });
    Definition {
        written,
        name: name.to_owned(),
        id: candidate.id,
        file,
        only_literal,
        declared: if written == Written::Static { declared_type(scan, range.start) } else { None },
        tokens: range.map(|i| (scan.tokens[i].kind, scan.text(i).to_owned())).collect(),
        evidence,
    }
}

/// What can be said against a definition without looking at its uses.
fn plausible(definition: &Definition) -> bool {
    let strong = of_name(&definition.name).iter().any(|e| e.strong());
    if name_rules_out(&definition.name) {
        return false;
    }
    if name_speaks_against(&definition.name) && !strong {
        return false;
    }
    let tokens = &definition.tokens;
    let text = |n: usize| tokens.get(n).map_or("", |(_, text)| text.as_str());
    if definition.written == Written::FunctionMacro {
        let trivial = literal(text(0)).is_none_or(|value| value < 2 || is_conversion(value));
        return !trivial && !hexadecimal(text(0)) && !definition.evidence.is_empty();
    }
    let odd = |text: &str| {
        matches!(
            text,
            "{" | ";" | "->" | "." | "&" | "|" | "^" | "~" | "=" | "&&" | "||" | "==" | "[" | "#" | "##" | ","
        )
    };
    if tokens.iter().any(|(kind, text)| matches!(kind, Kind::Str | Kind::Char) || odd(text)) {
        return false;
    }
    let numbers: Vec<u64> =
        tokens.iter().filter(|(kind, _)| *kind == Kind::Number).filter_map(|(_, t)| literal(t)).collect();
    let names = tokens.iter().filter(|(kind, _)| *kind == Kind::Ident).count();
    if tokens.iter().any(|(_, text)| hexadecimal(text)) && !strong {
        return false;
    }
    match (&numbers[..], names) {
        ([], 0) => false,
        ([], 1)
            if tokens.iter().any(|(_, text)| {
                matches!(text.as_str(), "INT_MAX" | "U16_MAX" | "U32_MAX" | "U64_MAX" | "UINT_MAX" | "ULONG_MAX")
            }) =>
        {
            false
        }
        ([], _) if strong && tokens.iter().any(|(_, text)| text == "sizeof") => true,
        // An alias: of another constant, or of a function, a type, a variable.
        ([], _) => {
            tokens.iter().all(|(kind, text)| *kind != Kind::Ident || text.chars().all(|c| !c.is_ascii_lowercase()))
        }
        ([0], 0) => false,
        // `1 << 5` is a bit; `1U << 10` may be a kilo of something.
        ([1, count], 0) if tokens.iter().any(|(_, t)| t == "<<") => *count >= 6 || strong,
        ([1], 0) => strong,
        _ => true,
    }
}

fn literal(text: &str) -> Option<u64> {
    integer_literal(text).map(|literal| literal.value)
}

fn hexadecimal(text: &str) -> bool {
    text.starts_with("0x") || text.starts_with("0X")
}

/// Factors between units. They cannot be tuned.
pub(crate) fn is_conversion(value: u64) -> bool {
    matches!(value, 100 | 1000 | 10_000 | 1_000_000 | 1_000_000_000)
}

/// The enumerators of an enumeration whose values are amounts: not counted, not bits.
fn enumerators(finder: &Finder<'_>, file: FileNo, region: &Region) -> Vec<Definition> {
    let scan = finder.scan;
    let names = region.tokens.clone().filter(|&i| {
        scan.tokens[i].directive.is_none()
            && scan.tokens[i].kind == Kind::Ident
            && matches!(scan.text(i.wrapping_sub(1)), "," | "{")
    });
    let names: Vec<usize> = names.collect();
    let valued: Vec<usize> = names.iter().copied().filter(|&i| scan.text(i + 1) == "=").collect();
    let end = |from: usize| (from..region.tokens.end).find(|&i| matches!(scan.text(i), "," | "}")).unwrap_or(from);
    let values: Vec<Option<u64>> = valued.iter().map(|&i| counted(scan, i + 2..end(i + 2))).collect();
    if 2 * valued.len() < names.len() || sequence(&values) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for token in valued {
        let mut here = Found::default();
        finder.enumerator(token, &mut here);
        found.extend(kept(scan, file, here, Written::Enumerator, scan.text(token)));
    }
    found
}

/// Three values or more that count on or double: states and bits.
fn sequence(values: &[Option<u64>]) -> bool {
    let follows = |a: u64, b: u64| a.checked_add(1) == Some(b);
    let doubles = |a: u64, b: u64| a > 0 && a.checked_mul(2) == Some(b);
    let step = |w: &[Option<u64>]| match w {
        [Some(a), Some(b), Some(c)] => (follows(*a, *b) && follows(*b, *c)) || (doubles(*a, *b) && doubles(*b, *c)),
        _ => false,
    };
    values.windows(3).any(step)
}

/// The value of a literal or of a bit, to see whether it continues a row.
fn counted(scan: &Scan<'_>, tokens: std::ops::Range<usize>) -> Option<u64> {
    let tokens: Vec<&str> = tokens.map(|i| scan.text(i)).filter(|t| !matches!(*t, "(" | ")")).collect();
    let bit = |count| 1_u64.checked_shl(u32::try_from(literal(count)?).ok()?);
    match tokens[..] {
        [one] => literal(one),
        [one, "<<", count] if literal(one) == Some(1) => bit(count),
        ["BIT", count] => bit(count),
        _ => None,
    }
}

/// The directives that stand in a row of macros which count on or double: an enumeration.
fn in_a_row(scan: &Scan<'_>) -> Vec<usize> {
    let mut rows: Vec<(usize, u32, Option<u64>, &str)> = Vec::new();
    for region in scan.directives() {
        let Place::Directive(Directive::Define { name, function: false, body }) = &region.place else { continue };
        let value = counted(scan, body.clone());
        let prefix = name.split('_').next().unwrap_or_default();
        rows.push((region.tokens.start, scan.tokens[region.tokens.start].line, value, prefix));
    }
    let mut found = Vec::new();
    for window in rows.windows(3) {
        let near = window.windows(2).all(|w| w[1].1 - w[0].1 <= 3 && w[0].3 == w[1].3);
        if near && sequence(&window.iter().map(|(_, _, value, _)| *value).collect::<Vec<_>>()) {
            found.extend(window.iter().map(|(start, ..)| *start));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enumerators_that_count_or_are_bits_are_left_out() {
        let names = |source: &str| -> Vec<String> {
            let scan = Scan::new(source.as_bytes());
            let finder = Finder { path: "x.c", scan: &scan };
            enumerators(&finder, 0, &scan.code()[0]).into_iter().map(|definition| definition.name).collect()
        };
        assert!(names("enum { A_MAX = 1U << 5, B_MAX = 1U << 6, C_MAX = (1U << 7) };").is_empty());
        assert!(names("enum { A_MAX = 4, B_MAX = 5, C_MAX = 6 };").is_empty());
        assert_eq!(names("enum { A_MAX = 256, B_MAX = 128, C_MAX = 64 };"), ["A_MAX", "B_MAX", "C_MAX"]);
    }

    #[test]
    fn rows_are_enumerations() {
        let row = |source: &str| in_a_row(&Scan::new(source.as_bytes())).len();
        assert_eq!(row("#define A_X 1\n#define A_Y 2\n#define A_Z 3\n"), 3);
        assert_eq!(row("#define A_X (1 << 0)\n#define A_Y (1<<1)\n#define A_Z BIT(2)\n"), 3);
        let largest = u64::MAX;
        assert_eq!(row(&format!("#define A_X {largest}\n#define A_Y 0\n#define A_Z {largest}\n")), 0);
        assert_eq!(row("#define A_X 8\n#define A_Y 32\n#define A_Z 33\n"), 0);
        assert_eq!(row("#define A_X 1\n#define B_Y 2\n#define C_Z 3\n"), 0);
    }
}
