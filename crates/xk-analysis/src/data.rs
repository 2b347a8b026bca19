//! Data that changes with the value: no update of code can repair it. What is
//! writable is changed in place, and so are constant objects of modules; anything
//! else is a refusal.
//!
//! In: builds of a unit. Out: the words of data that follow V, or the refusal.
//! Tables that describe code (unwinding, patching, line numbers) move with it: their
//! entries must be the same, with the same references, in whatever order.

mod moved;

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;
use xk_lift::insn::{Node, SymbolRef};
use xk_lift::object::{Alternative, DataSymbol, Object, Section, CONSTANT_POOL, LITERALS};
use xk_table::{DataSite, Fit, Place, Refusal};

use crate::fit::{fit, Point};
use crate::identity::Deployed;
pub(crate) use moved::{renamed, Renamed};

/// Sections that hold places in code, by prefix: they follow the code.
const DESCRIBE_CODE: [&str; 20] = [
    ".orc_",
    "__jump_table",
    "__ex_table",
    "__bug_table",
    ".altinstructions",
    ".altinstr_replacement",
    ".altinstr_aux",
    "__mcount_loc",
    "__patchable_function_entries",
    ".static_call",
    ".smp_locks",
    "_kprobe_blacklist",
    ".return_sites",
    ".retpoline_sites",
    ".call_sites",
    ".ibt_endbr_seal",
    ".discard",
    ".note",
    "runtime_ptr_",
    "runtime_shift_",
];

/// Tables that refer to what is not code, or say what is done at a place, and the size of their
/// entries: the jump labels' keys, the handlers of faults, files and lines of warnings, the
/// constants that are filled in, the called keys. (include/linux/jump_label.h,
/// arch/x86/include/asm/extable.h, include/asm-generic/bug.h, include/linux/static_call_types.h)
const ENTRIES: [(&str, usize); 6] = [
    ("__jump_table", 16),
    ("__ex_table", 12),
    ("__bug_table", 12),
    (".static_call_sites", 8),
    ("_kprobe_blacklist", 8),
    ("runtime_", 4),
];

/// An entry of a table: its bytes, and what its fields refer to.
type Entry = (Vec<u8>, Vec<(u64, SymbolRef)>);

/// What `section` says, whatever the order of the code that it is about.
fn entries(object: &Object, section: &Section, size: usize) -> BTreeMap<Entry, u64> {
    let mut found = BTreeMap::new();
    for (number, bytes) in section.data.chunks(size).enumerate() {
        let at = (number * size) as u64;
        let name = |target| {
            let mut symbol = object.symbol_ref(target);
            // Whether a block is moved away is up to each build.
            symbol.name = symbol.name.trim_end_matches(".cold").to_owned();
            symbol
        };
        let fields = section.relocations.range(at..at + size as u64);
        let fields = fields.map(|(field, relocation)| (field - at, name(&relocation.target))).collect();
        found.entry((bytes.to_vec(), fields)).or_insert(at);
    }
    found
}

/// Tables that describe code follow it; what they say of it must be the same.
fn tables(base: &Object, variant: &Object, unit: &str) -> Result<(), Refusal> {
    for (prefix, size) in ENTRIES {
        let tables = |object: &Object| -> BTreeMap<String, BTreeMap<Entry, u64>> {
            let sections = object.sections.iter().filter(|s| s.name.starts_with(prefix) && s.size > 0);
            sections.map(|section| (section.name.clone(), entries(object, section, size))).collect()
        };
        let (ours, theirs) = (tables(base), tables(variant));
        let none = BTreeMap::new();
        for name in ours.keys().chain(theirs.keys()) {
            let (x, y) = (ours.get(name).unwrap_or(&none), theirs.get(name).unwrap_or(&none));
            let missing = x.iter().find(|(entry, _)| !y.contains_key(*entry));
            let missing = missing.or_else(|| y.iter().find(|(entry, _)| !x.contains_key(*entry)));
            if let Some((_, &offset)) = missing {
                return Err(Refusal::ReadOnlyData { unit: unit.into(), section: name.clone(), offset });
            }
        }
    }
    Ok(())
}

/// Replacement instructions are code that no walk reaches: each function must have the same
/// choices among the same pieces, instruction by instruction and reference by reference.
fn alternatives(base: &Object, variant: &Object, unit: &str) -> Result<(), Refusal> {
    fn owner(object: &Object, at: Node) -> String {
        object.function_at(at).map_or_else(String::new, |f| f.name.trim_end_matches(".cold").to_owned())
    }
    fn choices(object: &Object) -> Vec<(String, Node, Option<Alternative>)> {
        let sites: BTreeSet<Node> = object.alternatives.iter().map(|site| site.at).collect();
        sites.into_iter().map(|at| (owner(object, at), at, object.alternative(at))).collect()
    }
    let (ours, theirs) = (choices(base), choices(variant));
    let matches = |(f, _, x): &(String, Node, Option<Alternative>), (g, _, y): &(String, Node, Option<Alternative>)| {
        f == g && x.as_ref().zip(y.as_ref()).is_some_and(|(x, y)| x.same(y))
    };
    let missing = ours.iter().find(|x| !theirs.iter().any(|y| matches(x, y)));
    let extra = || theirs.iter().find(|y| !ours.iter().any(|x| matches(x, y)));
    let place = match (missing, missing.is_none().then(extra).flatten()) {
        (None, None) => return Ok(()),
        (Some((function, at, _)), _) => (function, base, at),
        (None, Some((function, at, _))) => (function, variant, at),
    };
    let (function, object, at) = place;
    let offset = object.function_at(*at).map_or(at.offset, |f| at.offset - f.start.offset) as u32;
    Err(Refusal::InlineAssembly { place: Place { source: unit.into(), function: function.clone(), offset } })
}

/// Sections of data that hold other bytes in a variant, with those bytes.
pub type DataDifferences = BTreeMap<String, Vec<u8>>;

/// What initialises data: section and offset, and the value there as a function
/// of V.
pub type DataSeeds = BTreeMap<(String, u64), Fit>;

/// Words of data: section and offset, and how many bytes.
pub type Words = BTreeMap<(String, u64), u8>;

/// Whether the values in a section can be changed in place: ordinary memory that
/// every CPU shares and the kernel may write at any time, and of a module what it
/// may only read, since `xk.ko` maps that a second time. In vmlinux there may be no
/// such mapping beside the sealed one; and what is sealed after initialisation is
/// meant to hold what that found.
fn changeable(section: &Section, in_module: bool) -> bool {
    let per_cpu = section.name.starts_with(".data..percpu");
    let sealed = section.name.starts_with(".data..ro_after_init") || section.name.starts_with(".data.rel.ro");
    let constant = section.name == ".rodata" && in_module;
    constant || section.name.starts_with(".data") && !per_cpu && !sealed
}

/// Compares the data of `variant` with `base`, builds of `unit` of a module or of
/// vmlinux: what can be changed in place is returned.
///
/// # Errors
/// [`Refusal::LayoutChange`] when something has another size,
/// [`Refusal::ReadOnlyData`] when an object that cannot be changed holds another
/// value.
pub fn compare(base: &Object, variant: &Object, unit: &str, module: Option<&str>) -> Result<DataDifferences, Refusal> {
    tables(base, variant, unit)?;
    compare_objects(base, variant, unit, module)
}

/// As [`compare`], but without the tables that describe code: for builds whose code is compared
/// with what those say of it.
///
/// # Errors
/// As [`compare`].
pub fn compare_objects(
    base: &Object,
    variant: &Object,
    unit: &str,
    module: Option<&str>,
) -> Result<DataDifferences, Refusal> {
    compare_but(base, variant, unit, module, &BTreeSet::new())
}

/// As [`compare_objects`], but without the sections `compared`, whose objects were compared by [`renamed`].
///
/// # Errors
/// As [`compare`].
pub(crate) fn compare_but(
    base: &Object,
    variant: &Object,
    unit: &str,
    module: Option<&str>,
    compared: &BTreeSet<String>,
) -> Result<DataDifferences, Refusal> {
    alternatives(base, variant, unit)?;
    same_symbols(base, variant, unit, compared)?;
    let relevant = |s: &&Section| {
        let elsewhere = DESCRIBE_CODE.iter().any(|prefix| s.name.starts_with(prefix));
        // What the linker merges is compared by its content, wherever something refers to it.
        let merged = s.name.starts_with(CONSTANT_POOL) || s.name.starts_with(LITERALS);
        s.allocated && !s.executable && s.size > 0 && !elsewhere && !merged && !compared.contains(&s.name)
    };
    let layout = |what: String| Err(Refusal::LayoutChange { unit: unit.into(), what });
    let mut differences = DataDifferences::new();
    for section in base.sections.iter().filter(relevant) {
        let Some(other) = variant.sections.iter().find(|s| s.name == section.name && s.allocated) else {
            return layout(format!("section {} disappears", section.name));
        };
        if section.size != other.size {
            return layout(format!("section {}: {} -> {} bytes", section.name, section.size, other.size));
        }
        let fixed = |offset| {
            let name = section.name.clone();
            if name.starts_with(".init.") {
                return Err(Refusal::BootOnly { unit: unit.into(), function: "an initialiser".into(), section: name });
            }
            Err(Refusal::ReadOnlyData { unit: unit.into(), section: name, offset })
        };
        if let Some(offset) = section.data.iter().zip(&other.data).position(|(a, b)| a != b) {
            if !changeable(section, module.is_some()) {
                return fixed(offset as u64);
            }
            differences.insert(section.name.clone(), other.data.clone());
        }
        for ((at, ours), (other_at, theirs)) in section.relocations.iter().zip(&other.relocations) {
            if at != other_at || base.symbol_ref(&ours.target) != variant.symbol_ref(&theirs.target) {
                return fixed(*at);
            }
        }
        if section.relocations.len() != other.relocations.len() {
            return fixed(0);
        }
    }
    Ok(differences)
}

/// The name in the source: the compiler numbers objects of functions in the order in which it meets them.
pub(crate) fn unnumbered(name: &str) -> &str {
    let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    name.rsplit_once('.').filter(|(_, rest)| digits(rest)).map_or(name, |(name, _)| name)
}

fn same_symbols(base: &Object, variant: &Object, unit: &str, compared: &BTreeSet<String>) -> Result<(), Refusal> {
    let all = |object: &Object| {
        let all = object
            .data_symbols
            .iter()
            .filter(|(_, symbol)| !compared.contains(&symbol.section))
            .map(|(name, s)| (unnumbered(name).to_owned(), s.section.clone(), s.offset, s.size));
        all.collect::<BTreeSet<_>>()
    };
    if all(base) == all(variant) {
        return Ok(());
    }
    let layout = |what: String| Err(Refusal::LayoutChange { unit: unit.into(), what });
    for (name, ours) in &base.data_symbols {
        match variant.data_symbols.get(name) {
            Some(other) if other == ours => {}
            Some(other) if other.size == ours.size => return layout(format!("the place of object {name}")),
            Some(other) => {
                return layout(format!("object {name} ({}): {} -> {} bytes", ours.section, ours.size, other.size))
            }
            None => return layout(format!("object {name} ({}) disappears", ours.section)),
        }
    }
    match variant.data_symbols.keys().find(|name| !base.data_symbols.contains_key(*name)) {
        Some(name) => layout(format!("object {name} appears")),
        None => Ok(()),
    }
}

/// The values that differ, as aligned words: a scalar variable whole, of
/// anything else the smallest aligned word that covers every difference, so that
/// nothing else is written.
fn words(base: &Object, observed: &[&DataDifferences]) -> Words {
    let mut words = BTreeMap::new();
    for section in &base.sections {
        let others: Vec<&Vec<u8>> = observed.iter().filter_map(|d| d.get(&section.name)).collect();
        let differs = |at: usize| others.iter().any(|other| other.get(at) != section.data.get(at));
        for at in (0..section.data.len()).step_by(8) {
            let bytes: Vec<usize> = (at..(at + 8).min(section.data.len())).filter(|&i| differs(i)).collect();
            let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else { continue };
            let scalar = |symbol: &&DataSymbol| {
                symbol.section == section.name
                    && matches!(symbol.size, 1 | 2 | 4 | 8)
                    && symbol.offset % symbol.size == 0
                    && symbol.offset <= first as u64
                    && (last as u64) < symbol.offset + symbol.size
            };
            let (start, width) = match base.data_symbols.values().find(scalar) {
                Some(symbol) => (symbol.offset, symbol.size),
                None => {
                    let covers = |width: &usize| first / width == last / width;
                    let width = [1, 2, 4, 8].into_iter().find(covers).unwrap_or(8);
                    ((first / width * width) as u64, width as u64)
                }
            };
            words.insert((section.name.clone(), start), width as u8);
        }
    }
    words
}

fn read(bytes: &[u8], offset: u64, width: u8) -> u64 {
    let at = offset as usize;
    let word = bytes.get(at..at + usize::from(width)).unwrap_or(&[]);
    word.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// What the data of `base` holds at a place.
fn deployed(base: &Object, section: &str, offset: u64, width: u8) -> u64 {
    base.sections.iter().find(|s| s.name == section).map_or(0, |s| read(&s.data, offset, width))
}

/// Fits the data of several builds.
///
/// # Errors
/// [`Refusal::NonLinear`].
pub fn fit_all(
    base: &Object,
    unit: &str,
    default: i64,
    observed: &[(i64, &DataDifferences)],
) -> Result<DataSeeds, Refusal> {
    let all: Vec<&DataDifferences> = observed.iter().map(|(_, d)| *d).collect();
    fit_words(base, unit, default, observed, &words(base, &all))
}

/// As [`fit_all`], for these words.
///
/// # Errors
/// [`Refusal::NonLinear`].
pub(crate) fn fit_words(
    base: &Object,
    unit: &str,
    default: i64,
    observed: &[(i64, &DataDifferences)],
    words: &Words,
) -> Result<DataSeeds, Refusal> {
    let mut seeds = DataSeeds::new();
    for ((section, offset), &width) in words {
        let (section, offset) = (section.clone(), *offset);
        let bits = u32::from(width) * 8;
        let ours = deployed(base, &section, offset, width);
        let mut points = vec![Point { v: default, iv: ours, bits }];
        points.extend(observed.iter().map(|(v, differences)| {
            let iv = differences.get(&section).map_or(ours, |bytes| read(bytes, offset, width));
            Point { v: *v, iv, bits }
        }));
        let fit = fit(&points, width).ok_or_else(|| Refusal::NonLinear {
            place: Place { source: unit.into(), function: section.clone(), offset: offset as u32 },
            values: points.iter().map(|p| p.v).collect(),
            ivs: points.iter().map(|p| p.iv).collect(),
        })?;
        seeds.insert((section, offset), fit);
    }
    Ok(seeds)
}

/// A place in data that a build fills with other bytes than the fit predicts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{section}+{offset:#x}: the data is not what the fit predicts")]
pub struct Unpredicted {
    /// Section of the unit.
    pub section: String,
    /// Offset of the first such byte in it.
    pub offset: usize,
}

/// Whether a build's data is what the fit predicts.
///
/// # Errors
/// The first place that is not.
pub fn predicted(
    base: &Object,
    seeds: &DataSeeds,
    value: i64,
    differences: &DataDifferences,
) -> Result<(), Unpredicted> {
    for section in &base.sections {
        let changed = seeds.keys().any(|(name, _)| *name == section.name);
        if !changed && !differences.contains_key(&section.name) {
            continue;
        }
        let mut expected = section.data.clone();
        for ((_, offset), fit) in seeds.iter().filter(|((name, _), _)| *name == section.name) {
            let word = fit.apply(value).to_le_bytes();
            let at = *offset as usize;
            if let Some(bytes) = expected.get_mut(at..at + usize::from(fit.width)) {
                bytes.copy_from_slice(&word[..usize::from(fit.width)]);
            }
        }
        let built = differences.get(&section.name).unwrap_or(&section.data);
        if let Some(offset) = expected.iter().zip(built).position(|(a, b)| a != b) {
            return Err(Unpredicted { section: section.name.clone(), offset });
        }
    }
    Ok(())
}

/// The object that has the byte at a place of a section, with its name.
pub(crate) fn holder<'a>(object: &'a Object, section: &str, offset: u64) -> Option<(&'a String, &'a DataSymbol)> {
    let holds = |symbol: &DataSymbol| {
        symbol.section == section && symbol.offset <= offset && offset < symbol.offset + symbol.size
    };
    object.data_symbols.iter().find(|(_, symbol)| holds(symbol))
}

/// The places of `seeds` in the deployed kernel.
///
/// # Errors
/// [`Refusal::NotDeployed`] when an object has no name or is not there exactly
/// once.
pub fn sites(
    base: &Object,
    seeds: &DataSeeds,
    source: &str,
    module: Option<&str>,
    kernel: &dyn Deployed,
) -> Result<Vec<DataSite>, Refusal> {
    let mut sites = Vec::new();
    for ((section, offset), fit) in seeds {
        let unknown = |detail: String| Refusal::NotDeployed { detail };
        let Some((name, symbol)) = holder(base, section, *offset) else {
            return Err(unknown(format!("{source}: the data at {section}+{offset:#x} has no name")));
        };
        let mut candidates = kernel.candidates(name, module)?;
        let owner = module.unwrap_or("vmlinux");
        let (Some(candidate), true) = (candidates.pop(), candidates.is_empty()) else {
            return Err(unknown(format!("{owner} does not have exactly one object {name}")));
        };
        sites.push(DataSite {
            symbol: name.clone(),
            module: module.map(|name| name.replace('-', "_")),
            section: if module.is_some() { candidate.section } else { section.clone() },
            section_offset: candidate.text_offset,
            offset: (offset - symbol.offset) as u32,
            width: fit.width,
            fit: *fit,
            source: source.into(),
        });
    }
    Ok(sites)
}
