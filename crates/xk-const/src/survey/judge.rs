//! The verdict on one candidate: exclusions first, then the votes.

use super::evidence::{of_name, of_value, Category, Evidence};
use super::gather::{is_conversion, Definition};
use super::table::Table;
use super::usage::{Loose, Usage};
use super::{Listed, Reach, Written};
use crate::index::Index;
use crate::search_path::FileNo;
use crate::token::{integer_literal, Kind};
use crate::tree::TreeError;
use crate::value::CType;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Votes that a candidate needs.
const ENOUGH: i32 = 3;
/// Larger numbers are addresses, limits of types and random constants.
const LARGEST: i64 = 1 << 40;
/// Reasons that are shown.
const REASONS: usize = 4;

pub(crate) struct Judge<'a> {
    pub index: &'a Index,
    pub modules: &'a HashMap<FileNo, String>,
    pub included_by: &'a [Vec<FileNo>],
    pub table: &'a Table,
}

/// Units that reach a header, by header.
pub(crate) type Reached = HashMap<FileNo, HashSet<FileNo>>;

impl Judge<'_> {
    /// A definition with its uses.
    pub fn definition(
        &self,
        definition: &Definition,
        usage: &Usage,
        reached: &mut Reached,
    ) -> Result<Option<Listed>, TreeError> {
        let named = of_name(&definition.name);
        let strong = named.iter().any(|e| e.strong());
        // A size that is only assigned is a layout more often than an amount.
        let weakly_named = named.iter().any(|e| e.vote().1 == Category::Limit);
        let literal_of_macro = definition.written == Written::FunctionMacro;
        let names_something = !literal_of_macro
            && (2 * usage.names > usage.mentions || (usage.flags > 0 && (!strong || usage.flags == usage.mentions)));
        // `_SHIFT` beside `_MASK` says where a field lies.
        let stem = ["_SHIFT", "_BITS"].iter().find_map(|end| definition.name.strip_suffix(end));
        let packs = stem.is_some_and(|stem| self.table.has(&format!("{stem}_MASK")));
        let only_equal = usage.equals == usage.mentions && !strong;
        if packs || only_equal || usage.mentions == 0 || usage.sizes > 0 || usage.conditionals > 0 || names_something {
            return Ok(None);
        }
        let Some((id, value, c_type)) = self.value(definition) else { return Ok(None) };
        let mut evidence: Vec<Evidence> = named;
        evidence.extend(of_value(definition.tokens.iter().map(|(_, text)| text.as_str())));
        evidence.extend(&definition.evidence);
        if !literal_of_macro {
            let mut used: Vec<(&Evidence, &u32)> = usage.evidence.iter().collect();
            used.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            evidence.extend(used.into_iter().map(|(evidence, _)| *evidence));
        }
        let computed = evidence.iter().any(|e| e.computes());
        let interval = evidence.iter().any(|e| e.vote().1 == Category::Interval);
        let absurd = match value {
            Some(0) => true,
            Some(1) => !strong,
            // Numbers as words: `MILLION`.
            Some(value) if !strong && u64::try_from(value).is_ok_and(is_conversion) && definition.tokens.len() == 1 => {
                !computed
            }
            Some(value) => value.checked_abs().is_none_or(|v| v > LARGEST) && !interval,
            None => false,
        };
        if absurd || !(computed || strong || weakly_named) || total(&evidence) < ENOUGH {
            return Ok(None);
        }
        let units = self.units(usage, reached)?;
        if units.is_empty() {
            return Ok(None);
        }
        Ok(Some(Listed {
            id,
            name: definition.name.clone(),
            written: definition.written,
            value,
            c_type,
            category: category(&evidence),
            why: why(&evidence),
            units: units.len() as u32,
            mentions: usage.mentions,
            used_in: self.used_in(&units),
        }))
    }

    /// A literal in a function.
    pub fn literal(&self, file: FileNo, literal: Loose, reached: &mut Reached) -> Result<Option<Listed>, TreeError> {
        let Some(number) = integer_literal(&literal.id.value) else { return Ok(None) };
        let units = if self.modules.contains_key(&file) {
            BTreeSet::from([file])
        } else if literal.inline {
            self.through(file, &literal.function, reached)?
        } else {
            return Ok(None);
        };
        if units.is_empty() {
            return Ok(None);
        }
        Ok(Some(Listed {
            name: literal.function,
            written: Written::Literal,
            value: Some(number.value as i64),
            c_type: CType::of_literal(number),
            category: category(&literal.evidence),
            why: why(&literal.evidence),
            units: units.len() as u32,
            mentions: 1,
            used_in: self.used_in(&units),
            id: literal.id,
        }))
    }

    /// The value; of a body that is none, that of its only literal. `None`: an alias of something unknown.
    #[allow(clippy::type_complexity)] // what one row shows
    fn value(&self, definition: &Definition) -> Option<(crate::id::ConstId, Option<i64>, Option<CType>)> {
        let tokens: Vec<(Kind, &str)> = definition.tokens.iter().map(|(kind, text)| (*kind, text.as_str())).collect();
        if let Some(typed) = self.table.value(definition.file, &tokens) {
            let c_type = match definition.written {
                // Its own declaration decides, not the initialiser.
                Written::Static => definition.declared,
                // What else is enumerated decides.
                Written::Enumerator => None,
                _ => Some(typed.c_type),
            };
            return Some((definition.id.clone(), Some(typed.value), c_type));
        }
        let literal = definition.only_literal.as_ref();
        let variable =
            tokens.iter().any(|(kind, text)| *kind == Kind::Ident && !self.table.has(text) && *text != "sizeof");
        match literal {
            Some(id) if variable && definition.written == Written::Macro => {
                let number = integer_literal(&id.value)?;
                Some((id.clone(), Some(number.value as i64), CType::of_literal(number)))
            }
            _ if tokens.iter().any(|(kind, text)| *kind == Kind::Number || *text == "sizeof") => {
                Some((definition.id.clone(), None, None))
            }
            _ => None,
        }
    }

    /// The units whose code depends on the uses.
    fn units(&self, usage: &Usage, reached: &mut Reached) -> Result<BTreeSet<FileNo>, TreeError> {
        let mut units: BTreeSet<FileNo> =
            usage.units.iter().copied().filter(|f| self.modules.contains_key(f)).collect();
        for (file, outer) in &usage.through {
            if self.modules.contains_key(file) {
                units.insert(*file);
            } else {
                units.extend(self.through(*file, outer, reached)?);
            }
        }
        Ok(units)
    }

    /// The units that mention a macro or function of a header; if none does, those that include it.
    fn through(&self, header: FileNo, name: &str, reached: &mut Reached) -> Result<BTreeSet<FileNo>, TreeError> {
        let units = reached.entry(header).or_insert_with(|| {
            let all = Reach::new(self.included_by).from(header);
            all.into_iter().filter(|file| self.modules.contains_key(file)).collect()
        });
        let named: BTreeSet<FileNo> =
            self.index.mentions(name)?.into_iter().filter(|file| units.contains(file)).collect();
        Ok(if named.is_empty() { units.iter().copied().collect() } else { named })
    }

    fn used_in(&self, units: &BTreeSet<FileNo>) -> Vec<String> {
        let modules: BTreeSet<&String> = units.iter().filter_map(|unit| self.modules.get(unit)).collect();
        let mut names: Vec<String> = modules.into_iter().cloned().collect();
        names.sort_by_key(|name| name != "vmlinux");
        names
    }
}

fn total(evidence: &[Evidence]) -> i32 {
    evidence.iter().map(|e| e.vote().0).sum()
}

fn category(evidence: &[Evidence]) -> Category {
    let mut votes: BTreeMap<Category, i32> = BTreeMap::new();
    for (weight, category) in evidence.iter().map(|e| e.vote()) {
        *votes.entry(category).or_default() += weight;
    }
    votes.remove(&Category::Other);
    // The first of equals, in the order of the enumeration.
    let best = votes.iter().max_by_key(|(category, weight)| (**weight, std::cmp::Reverse(**category)));
    best.map_or(Category::Other, |(category, _)| *category)
}

fn why(evidence: &[Evidence]) -> Vec<String> {
    let mut sorted: Vec<Evidence> = evidence.to_vec();
    sorted.sort_by_key(|e| std::cmp::Reverse(e.vote().0));
    sorted.dedup();
    sorted.iter().take(REASONS).map(|e| e.text()).collect()
}
