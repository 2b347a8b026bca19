//! Second pass over a file: who mentions which definition, and what is done with it there. With the
//! uses come the literals in functions, because they are judged by the same looks.

use super::evidence::{of_use, Evidence, Use};
use super::gather::is_conversion;
use crate::find::Finder;
use crate::id::ConstId;
use crate::scan::{Directive, Place, Scan};
use crate::search_path::FileNo;
use crate::token::{integer_literal, Kind};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is known of the uses of one definition.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub mentions: u32,
    pub evidence: BTreeMap<Evidence, u32>,
    pub flags: u32,
    pub names: u32,
    pub equals: u32,
    pub sizes: u32,
    /// Decides what is compiled.
    pub conditionals: u32,
    /// Units that mention it in code.
    pub units: BTreeSet<FileNo>,
    /// Macros and inline functions of headers that mention it.
    pub through: BTreeSet<(FileNo, String)>,
}

impl Usage {
    pub fn merge(&mut self, other: Usage) {
        self.mentions += other.mentions;
        for (evidence, count) in other.evidence {
            *self.evidence.entry(evidence).or_default() += count;
        }
        self.flags += other.flags;
        self.names += other.names;
        self.equals += other.equals;
        self.sizes += other.sizes;
        self.conditionals += other.conditionals;
        self.units.extend(other.units);
        self.through.extend(other.through);
    }

    fn add(&mut self, seen: &Use) {
        self.mentions += 1;
        self.flags += u32::from(seen.flag);
        self.names += u32::from(seen.names);
        self.equals += u32::from(seen.equals);
        self.sizes += u32::from(seen.sizes);
        for &evidence in &seen.evidence {
            *self.evidence.entry(evidence).or_default() += 1;
        }
    }
}

/// A literal in a function.
#[derive(Debug)]
pub(crate) struct FunctionLiteral {
    pub id: ConstId,
    pub evidence: Vec<Evidence>,
    pub function: String,
    pub inline: bool,
}

/// Finds the definition that a mention in a file means.
pub(crate) trait Meaning {
    /// The definitions that `name` may mean in the file that is read.
    fn of(&mut self, name: &str) -> Vec<usize>;
}

/// The uses in one file, by definition.
pub(crate) fn uses(
    scan: &Scan<'_>,
    path: &str,
    file: FileNo,
    meaning: &mut dyn Meaning,
    found: &mut HashMap<usize, Usage>,
) {
    let unit = path.ends_with(".c");
    let mut known: HashMap<&str, Vec<usize>> = HashMap::new();
    for (token, t) in scan.tokens.iter().enumerate() {
        if t.kind != Kind::Ident {
            continue;
        }
        let name = t.text(scan.source);
        let meant = known.entry(name).or_insert_with(|| meaning.of(name));
        if meant.is_empty() {
            continue;
        }
        let place = scan.place(token);
        let hash = t.directive;
        if hash.is_some_and(|hash| token == hash + 2 && scan.text(hash + 1) != "if" && scan.text(hash + 1) != "elif")
            || declares(scan, token, place)
        {
            continue;
        }
        let seen = of_use(scan, token);
        for &definition in meant.iter() {
            let usage = found.entry(definition).or_default();
            match place {
                Place::Directive(Directive::Conditional) => usage.conditionals += 1,
                Place::Directive(Directive::Other) => {}
                Place::Directive(Directive::Define { name: outer, .. }) => {
                    usage.add(&seen);
                    usage.through.insert((file, outer.clone()));
                }
                place => {
                    usage.add(&seen);
                    match place {
                        _ if unit => drop(usage.units.insert(file)),
                        Place::Function { name: outer, .. } => drop(usage.through.insert((file, outer.clone()))),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// The mention is the variable or enumerator itself where it is defined.
fn declares(scan: &Scan<'_>, token: usize, place: &Place) -> bool {
    match place {
        Place::Variable(name) => name == scan.text(token) && scan.text(token + 1) == "=",
        Place::Enum => matches!(scan.text(token.wrapping_sub(1)), "," | "{"),
        _ => false,
    }
}

/// The literals in the functions of a file that are computed or compared with.
pub(crate) fn literals_in_functions(
    scan: &Scan<'_>,
    path: &str,
    left_in: impl Fn(usize) -> bool,
) -> Vec<FunctionLiteral> {
    let finder = Finder { path, scan };
    let mut found = Vec::new();
    for (token, t) in scan.tokens.iter().enumerate().filter(|(_, t)| t.kind == Kind::Number && t.directive.is_none()) {
        let Place::Function { name, inline } = scan.place(token) else { continue };
        let text = t.text(scan.source);
        let Some(literal) = integer_literal(text).filter(|l| l.value >= 2 && l.decimal && !is_conversion(l.value))
        else {
            continue;
        };
        let seen = of_use(scan, token);
        if seen.flag || seen.names || seen.equals || seen.sizes || !left_in(token) {
            continue;
        }
        let bytes = literal.value % 8 == 0 && literal.value <= 64;
        let packs = bytes && seen.evidence.contains(&Evidence::Shifts);
        let bits = literal.value == 8
            && seen.evidence.iter().all(|e| matches!(e, Evidence::Multiplies | Evidence::Divides | Evidence::Added));
        let mut evidence = seen.evidence;
        evidence.retain(|e| e.computes());
        if evidence.is_empty() || packs || bits {
            continue;
        }
        let before = scan.tokens[..token].iter().rev().take_while(|other| other.line == t.line);
        let index = before.filter(|other| other.kind == Kind::Number && other.text(scan.source) == text).count();
        let id = ConstId { path: finder.path.to_owned(), line: t.line, value: text.to_owned(), index: index as u32 };
        found.push(FunctionLiteral { id, evidence, function: name.clone(), inline: *inline });
    }
    found
}
