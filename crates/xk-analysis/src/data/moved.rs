//! Data of a build in which some objects are weak: the compiler may put it elsewhere.
//!
//! In: the deployed build, and the opaque one, whose initialised objects are weak (`initialisers.rs` of `xk-const`). Out:
//! both with the same names for the same objects, after everything that they hold was compared.
//!
//! An object that is weak in the other build only is known by its name, which must be the only one of its kind. All other
//! objects of the same sections stand in the same order in both builds, with the same sizes. A reference is one to the
//! object in which it lies.

use std::collections::BTreeSet;

use xk_lift::insn::SymbolRef;
use xk_lift::object::{DataNames, DataSymbol, Object, Section};
use xk_table::Refusal;

use super::unnumbered;

/// The two builds, as in [`pair`].
const BASE: usize = 0;
const OTHER: usize = 1;

/// An object in both builds.
type Both<'a> = [&'a DataSymbol; 2];

/// Both builds with the same names for the same objects.
#[derive(Debug)]
pub struct Renamed {
    /// The deployed build.
    pub base: Object,
    /// The other.
    pub other: Object,
    /// Sections whose objects were compared one by one.
    pub sections: BTreeSet<String>,
    /// The objects that are weak in the other build only, by their names in the source.
    pub weakened: Vec<(String, DataSymbol)>,
}

/// Finds the objects of two builds of `unit` in each other, and compares what those of the affected sections hold. Nothing if
/// no object is weak in one build only.
///
/// # Errors
/// [`Refusal::LayoutChange`] when an object has no counterpart, or holds something else.
pub fn renamed(base: &Object, other: &Object, unit: &str) -> Result<Option<Renamed>, Refusal> {
    let changed = |what: String| Refusal::LayoutChange { unit: unit.into(), what };
    let mut pairs = weakened(base, other).map_err(changed)?;
    if pairs.is_empty() {
        return Ok(None);
    }
    let weakened = pairs.iter().map(|(name, both)| (name.clone(), both[BASE].clone())).collect();
    let sections: BTreeSet<String> =
        pairs.iter().flat_map(|(_, both)| both.map(|symbol| symbol.section.clone())).collect();
    for section in &sections {
        let known: Vec<Both<'_>> = pairs.iter().map(|(_, both)| *both).collect();
        let rest = [(BASE, base), (OTHER, other)].map(|(side, object)| rest(object, section, &known, side));
        let same = |(x, y): (&(&str, &DataSymbol), &(&str, &DataSymbol))| x.0 == y.0 && x.1.size == y.1.size;
        if rest[BASE].len() != rest[OTHER].len() || !rest[BASE].iter().zip(&rest[OTHER]).all(same) {
            return Err(changed(format!("the objects of section {section}")));
        }
        let named = rest[BASE].iter().zip(&rest[OTHER]).enumerate();
        pairs.extend(named.map(|(number, (x, y))| (format!("{} ({section}, {number})", x.0), [x.1, y.1])));
    }
    let [base, other] = [(BASE, base), (OTHER, other)].map(|(side, object)| {
        let names = names(object, &pairs, &sections, side);
        object.renamed(names).map_err(|error| changed(error.to_string()))
    });
    let (base, other) = (base?, other?);
    for (name, both) in &pairs {
        let (ours, theirs) = (content(&base, both[BASE]), content(&other, both[OTHER]));
        if ours.is_none() || ours != theirs {
            return Err(changed(format!("what object {name} holds")));
        }
    }
    for section in &sections {
        let here =
            |side: usize| pairs.iter().map(move |(_, both)| both[side]).filter(|symbol| symbol.section == *section);
        if !only_objects(&base, section, here(BASE)) || !only_objects(&other, section, here(OTHER)) {
            return Err(changed(format!("data without a name in section {section}")));
        }
    }
    Ok(Some(Renamed { base, other, sections, weakened }))
}

/// The objects that are weak in `other` only, by their names in the source.
fn weakened<'a>(base: &'a Object, other: &'a Object) -> Result<Vec<(String, Both<'a>)>, String> {
    let mut pairs: Vec<(String, Both<'a>)> = Vec::new();
    for (name, theirs) in other.data_symbols.iter().filter(|(_, symbol)| symbol.weak) {
        if base.data_symbols.get(name).is_some_and(|symbol| symbol.weak) {
            continue;
        }
        let name = unnumbered(name);
        let mut ours = base.data_symbols.iter().filter(|(ours, _)| unnumbered(ours) == name);
        let (Some((_, ours)), None) = (ours.next(), ours.next()) else {
            return Err(format!("object {name}, which has not exactly one counterpart"));
        };
        if ours.size != theirs.size || pairs.iter().any(|(known, _)| known == name) {
            return Err(format!("object {name}"));
        }
        pairs.push((name.to_owned(), [ours, theirs]));
    }
    Ok(pairs)
}

/// The objects of a section that are not among `known`, in the order of their places.
fn rest<'a>(object: &'a Object, section: &str, known: &[Both<'a>], side: usize) -> Vec<(&'a str, &'a DataSymbol)> {
    let mut rest: Vec<(&str, &DataSymbol)> = object
        .data_symbols
        .iter()
        .filter(|(_, symbol)| symbol.section == section && symbol.size > 0)
        .filter(|(_, symbol)| !known.iter().any(|both| both[side] == *symbol))
        .map(|(name, symbol)| (unnumbered(name), symbol))
        .collect();
    rest.sort_by_key(|(_, symbol)| symbol.offset);
    rest
}

fn names(object: &Object, pairs: &[(String, Both<'_>)], sections: &BTreeSet<String>, side: usize) -> DataNames {
    let mut names = DataNames {
        sections: sections.iter().cloned().collect(),
        build: ["the deployed build", "the other build"][side].to_owned(),
        ..DataNames::default()
    };
    for (name, both) in pairs {
        let symbol = both[side];
        let agreed = format!("object {name}");
        let place = (symbol.section.clone(), symbol.offset);
        names.objects.insert(place, (symbol.offset + symbol.size, agreed.clone()));
        // A weak object is referred to by its own name.
        let own = object.data_symbols.iter().filter(|(_, own)| own.weak && *own == symbol);
        names.symbols.extend(own.map(|(own, _)| (own.clone(), agreed.clone())));
    }
    names
}

/// What an object holds.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    bytes: Vec<u8>,
    /// By offset in the object: the kind of relocation, and to what.
    references: Vec<(u64, u32, SymbolRef)>,
}

/// What an object holds. Objects without bytes are zero.
fn content(object: &Object, symbol: &DataSymbol) -> Option<Content> {
    let section = section(object, &symbol.section)?;
    let end = symbol.offset.checked_add(symbol.size).filter(|end| *end <= section.size)?;
    let bytes = if section.data.is_empty() {
        vec![0; symbol.size as usize]
    } else {
        section.data.get(symbol.offset as usize..end as usize)?.to_vec()
    };
    let references = section.relocations.range(symbol.offset..end);
    let references = references.map(|(at, found)| (at - symbol.offset, found.kind, object.symbol_ref(&found.target)));
    Some(Content { bytes, references: references.collect() })
}

fn section<'a>(object: &'a Object, name: &str) -> Option<&'a Section> {
    let mut all = object.sections.iter().filter(|section| section.name == name && section.allocated);
    all.next().filter(|_| all.next().is_none())
}

/// Whether a section holds nothing but zeros outside of `objects`.
fn only_objects<'a>(object: &Object, name: &str, objects: impl Iterator<Item = &'a DataSymbol>) -> bool {
    let Some(section) = section(object, name) else { return false };
    let mut data = section.data.clone();
    let mut references: BTreeSet<u64> = section.relocations.keys().copied().collect();
    for symbol in objects {
        let end = symbol.offset + symbol.size;
        if let Some(bytes) = data.get_mut(symbol.offset as usize..end as usize) {
            bytes.fill(0);
        }
        references.retain(|at| !(symbol.offset..end).contains(at));
    }
    references.is_empty() && data.iter().all(|byte| *byte == 0)
}
