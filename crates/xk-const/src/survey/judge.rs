//! Decides which definitions and literals `xk scan` lists, and in which category.
//!
//! In: a definition with all of its uses ([`Usage`]), or a literal in a function. Out: a row of the list with its
//! category and reasons, or `None`. A definition is left out if its uses show that it is no amount
//! ([`Case::is_no_amount`]), if its value cannot be one ([`Case::is_implausible`]), if there are too few votes
//! ([`Case::is_convincing`]), or if no deployed unit depends on it. Fails only if the index cannot be read.
//!
//! All of this is guessed from the text of the source. A wrong guess is a useless row, or a row that is missing: the
//! constant can still be named. It cannot become a wrong tune, because nothing but the ID leaves a row. `xk build`
//! resolves, compiles, compares and proves a listed constant like any other.

use super::evidence::{of_name, of_value, Category, Evidence};
use super::gather::{is_conversion, Definition};
use super::table::Table;
use super::usage::{FunctionLiteral, Usage};
use super::{Listed, Reach, Written};
use crate::id::ConstId;
use crate::index::Index;
use crate::search_path::FileNo;
use crate::token::{integer_literal, Kind};
use crate::tree::TreeError;
use crate::value::CType;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Sum of votes that a definition needs: one strong word in its name, or two weaker observations.
const ENOUGH_VOTES: i32 = 3;
/// Larger numbers are addresses, limits of types and random constants; intervals may be larger.
const LARGEST_AMOUNT: i64 = 1 << 40;
/// Reasons that a row shows.
const SHOWN_REASONS: usize = 4;

/// What a verdict needs besides the definition itself.
pub(crate) struct Judge<'a> {
    index: &'a Index,
    /// The deployed units: what each is linked into.
    modules: &'a HashMap<FileNo, String>,
    /// For each file the files that include it.
    included_by: &'a [Vec<FileNo>],
    table: &'a Table,
    /// The deployed units that reach a header, for headers that were asked for.
    reached: HashMap<FileNo, HashSet<FileNo>>,
}

/// A constant with the value that a row shows. For a macro like `(4 * variable)` that is the literal, not the macro.
struct Valued {
    id: ConstId,
    /// `None` if only the compiler can tell.
    value: Option<i64>,
    c_type: Option<CType>,
}

impl<'a> Judge<'a> {
    pub fn new(
        index: &'a Index,
        modules: &'a HashMap<FileNo, String>,
        included_by: &'a [Vec<FileNo>],
        table: &'a Table,
    ) -> Self {
        Judge { index, modules, included_by, table, reached: HashMap::new() }
    }

    /// The row of a definition, if it looks like a perf-const.
    pub fn definition(&mut self, definition: &Definition, usage: &Usage) -> Result<Option<Listed>, TreeError> {
        let case = Case::new(definition, usage);
        if case.is_no_amount() || self.places_field(&definition.name) {
            return Ok(None);
        }
        let Some(valued) = self.valued(definition) else { return Ok(None) };
        if case.is_implausible(valued.value) || !case.is_convincing() {
            return Ok(None);
        }
        let units = self.units_of(usage)?;
        if units.is_empty() {
            return Ok(None);
        }
        Ok(Some(Listed {
            id: valued.id,
            name: definition.name.clone(),
            written: definition.written,
            value: valued.value,
            c_type: valued.c_type,
            category: category(&case.evidence),
            why: reasons(&case.evidence),
            units: units.len() as u32,
            mentions: usage.mentions,
            used_in: self.linked_into(&units),
        }))
    }

    /// The row of a literal in a function. Its place has shown already that it is computed or compared with.
    pub fn literal(&mut self, file: FileNo, literal: FunctionLiteral) -> Result<Option<Listed>, TreeError> {
        let Some(number) = integer_literal(&literal.id.value) else { return Ok(None) };
        let units = if self.modules.contains_key(&file) {
            BTreeSet::from([file])
        } else if literal.inline {
            self.units_through(file, &literal.function)?
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
            why: reasons(&literal.evidence),
            units: units.len() as u32,
            mentions: 1,
            used_in: self.linked_into(&units),
            id: literal.id,
        }))
    }

    /// A shift count with a mask of the same name (`X_SHIFT` and `X_MASK`) says where a field lies in a word. Relies on
    /// the kernel's naming of such pairs.
    fn places_field(&self, name: &str) -> bool {
        let stem = ["_SHIFT", "_BITS"].iter().find_map(|end| name.strip_suffix(end));
        stem.is_some_and(|stem| self.table.has(&format!("{stem}_MASK")))
    }

    /// What a row shows as the value of `definition`. Three cases, in this order: an expression that can be evaluated
    /// from the text; a macro with variables and one literal, which stands for that literal; an expression with a number
    /// or a size, whose value only the compiler knows. `None` for everything else: an alias of something unknown.
    fn valued(&self, definition: &Definition) -> Option<Valued> {
        let tokens: Vec<(Kind, &str)> = definition.tokens.iter().map(|(kind, text)| (*kind, text.as_str())).collect();
        if let Some(typed) = self.table.value(definition.file, &tokens) {
            let c_type = match definition.written {
                // A variable has the type of its declaration, not of its initialiser.
                Written::Static => definition.declared,
                // The type of an enumerator depends on the other enumerators.
                Written::Enumerator => None,
                _ => Some(typed.c_type),
            };
            return Some(Valued { id: definition.id.clone(), value: Some(typed.value), c_type });
        }
        let is_variable = |kind: Kind, text: &str| kind == Kind::Ident && !self.table.has(text) && text != "sizeof";
        let has_variable = tokens.iter().any(|&(kind, text)| is_variable(kind, text));
        match &definition.only_literal {
            Some(id) if has_variable && definition.written == Written::Macro => {
                let number = integer_literal(&id.value)?;
                let (value, c_type) = (Some(number.value as i64), CType::of_literal(number));
                Some(Valued { id: id.clone(), value, c_type })
            }
            _ if tokens.iter().any(|(kind, text)| *kind == Kind::Number || *text == "sizeof") => {
                Some(Valued { id: definition.id.clone(), value: None, c_type: None })
            }
            _ => None,
        }
    }

    /// The deployed units whose code depends on the uses.
    fn units_of(&mut self, usage: &Usage) -> Result<BTreeSet<FileNo>, TreeError> {
        let mut units: BTreeSet<FileNo> =
            usage.units.iter().copied().filter(|file| self.modules.contains_key(file)).collect();
        for (file, outer) in &usage.through {
            if self.modules.contains_key(file) {
                units.insert(*file);
            } else {
                units.extend(self.units_through(*file, outer)?);
            }
        }
        Ok(units)
    }

    /// The deployed units that depend on `name`, a macro or inline function of `header`: those that include the header
    /// and mention the name. If none mentions it, another macro hides the name, and all that include the header count.
    fn units_through(&mut self, header: FileNo, name: &str) -> Result<BTreeSet<FileNo>, TreeError> {
        let (modules, included_by) = (self.modules, self.included_by);
        let including = self.reached.entry(header).or_insert_with(|| {
            let all = Reach::new(included_by).from(header);
            all.into_iter().filter(|file| modules.contains_key(file)).collect()
        });
        let naming: BTreeSet<FileNo> =
            self.index.mentions(name)?.into_iter().filter(|file| including.contains(file)).collect();
        Ok(if naming.is_empty() { including.iter().copied().collect() } else { naming })
    }

    /// What `units` are linked into, the kernel image first.
    fn linked_into(&self, units: &BTreeSet<FileNo>) -> Vec<String> {
        let modules: BTreeSet<&String> = units.iter().filter_map(|unit| self.modules.get(unit)).collect();
        let mut names: Vec<String> = modules.into_iter().cloned().collect();
        names.sort_by_key(|name| name != "vmlinux");
        names
    }
}

/// How much the words of a name say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameSays {
    /// A word that is seldom said of anything but a perf-const (`BATCH`, `TIMEOUT`).
    PerfConst,
    /// A word for a limit (`MAX`, `COUNT`), which may also be a property of hardware or of a format.
    Limit,
    /// Nothing that is enough by itself. A size that is only assigned is a layout more often than an amount.
    Little,
}

impl NameSays {
    fn of(words: &[Evidence]) -> Self {
        if words.iter().any(|word| word.strong()) {
            NameSays::PerfConst
        } else if words.iter().any(|word| word.vote().1 == Category::Limit) {
            NameSays::Limit
        } else {
            NameSays::Little
        }
    }
}

/// A definition, its uses, and what both say.
struct Case<'a> {
    definition: &'a Definition,
    usage: &'a Usage,
    name: NameSays,
    /// From the name, the value, and the uses, in this order.
    evidence: Vec<Evidence>,
}

impl<'a> Case<'a> {
    fn new(definition: &'a Definition, usage: &'a Usage) -> Self {
        let mut evidence = of_name(&definition.name);
        let name = NameSays::of(&evidence);
        evidence.extend(of_value(definition.tokens.iter().map(|(_, text)| text.as_str())));
        evidence.extend(&definition.evidence);
        if !is_in_function_macro(definition) {
            // The most frequent first. Equals keep the order of the enumeration.
            let mut used: Vec<(&Evidence, &u32)> = usage.evidence.iter().collect();
            used.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            evidence.extend(used.into_iter().map(|(evidence, _)| *evidence));
        }
        Case { definition, usage, name, evidence }
    }

    fn is_named_like_a_perf_const(&self) -> bool {
        self.name == NameSays::PerfConst
    }

    /// Whether the uses show that the definition is no amount and no time. Relies on how C code uses the others:
    /// - what nothing mentions has no effect;
    /// - what sizes a type, or decides in `#if`, cannot be changed in a running kernel;
    /// - what is only tested for equality is a state or an identifier, unless its name says otherwise;
    /// - labels and flags, see [`Case::is_label_or_flag`].
    fn is_no_amount(&self) -> bool {
        let Usage { mentions, equals, sizes, conditionals, .. } = *self.usage;
        let only_tested_for_equality = equals == mentions && !self.is_named_like_a_perf_const();
        mentions == 0 || sizes > 0 || conditionals > 0 || only_tested_for_equality || self.is_label_or_flag()
    }

    /// Whether most mentions are labels (`case X`, an index), or some combine it with `|`, `&` or `~`. A name like
    /// that of a perf-const outweighs flags unless every mention is one, because amounts serve as masks, too
    /// (`n & (BATCH - 1)`). Says nothing of a literal in a macro with parameters: the mentions are the macro's, not the literal's.
    fn is_label_or_flag(&self) -> bool {
        let Usage { mentions, names, flags, .. } = *self.usage;
        let label = 2 * names > mentions;
        let flag = flags > 0 && (!self.is_named_like_a_perf_const() || flags == mentions);
        !is_in_function_macro(self.definition) && (label || flag)
    }

    /// Whether no perf-const has this value. 0 and 1 switch something on or off. A bare power of ten is a factor
    /// between units (`MILLION`) unless something is computed with it. Very large numbers are no amounts, but may be
    /// times in nanoseconds. An unknown value is plausible: the compiler knows it.
    fn is_implausible(&self, value: Option<i64>) -> bool {
        let named = self.is_named_like_a_perf_const();
        let is_bare_factor =
            |value: i64| self.definition.tokens.len() == 1 && u64::try_from(value).is_ok_and(is_conversion);
        match value {
            Some(0) => true,
            Some(1) => !named,
            Some(value) if !named && is_bare_factor(value) => !self.is_computed_with(),
            Some(value) => value.checked_abs().is_none_or(|value| value > LARGEST_AMOUNT) && !self.is_interval(),
            None => false,
        }
    }

    /// Whether there is enough evidence: the sum of the votes, and one observation that counts by itself.
    fn is_convincing(&self) -> bool {
        let votes: i32 = self.evidence.iter().map(|evidence| evidence.vote().0).sum();
        votes >= ENOUGH_VOTES && (self.is_computed_with() || self.name != NameSays::Little)
    }

    fn is_computed_with(&self) -> bool {
        self.evidence.iter().any(|evidence| evidence.computes())
    }

    fn is_interval(&self) -> bool {
        self.evidence.iter().any(|evidence| evidence.vote().1 == Category::Interval)
    }
}

/// Whether the definition is a literal in a macro with parameters. Its uses are those of the macro.
fn is_in_function_macro(definition: &Definition) -> bool {
    definition.written == Written::FunctionMacro
}

/// The category with the most votes, the first of equals in the order of the enumeration. `Other` only if there is no
/// other.
fn category(evidence: &[Evidence]) -> Category {
    let mut votes: BTreeMap<Category, i32> = BTreeMap::new();
    for (weight, category) in evidence.iter().map(|evidence| evidence.vote()) {
        *votes.entry(category).or_default() += weight;
    }
    votes.remove(&Category::Other);
    let best = votes.iter().max_by_key(|(category, weight)| (**weight, std::cmp::Reverse(**category)));
    best.map_or(Category::Other, |(category, _)| *category)
}

/// The observations that count most, as texts.
fn reasons(evidence: &[Evidence]) -> Vec<String> {
    let mut sorted: Vec<Evidence> = evidence.to_vec();
    sorted.sort_by_key(|evidence| std::cmp::Reverse(evidence.vote().0));
    sorted.dedup();
    sorted.iter().take(SHOWN_REASONS).map(|evidence| evidence.text()).collect()
}
