//! Does the constant size anything? Compiles the default and one variant with debug information
//! and compares every type, variable and data symbol of the two objects. Memory of the old layout
//! exists in the running kernel, so any change found here refuses the constant.

use crate::build::{build_with, BuildError};
use crate::constant::Constant;
use crate::tree::{BuildTree, Unit};
use crate::unreadable::{relocate, Unreadable};
use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian, UnitOffset};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Adds debug information of a kind that gimli and every supported compiler know.
const DEBUG: [&str; 2] = ["-w", "-gdwarf-4"];

/// One thing whose layout depends on the constant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LayoutChange {
    /// `struct foo`, `array bar`, `symbol baz`.
    pub what: String,
    /// Its layout with the default.
    pub before: String,
    /// Its layout with the other value.
    pub after: String,
}

impl fmt::Display for LayoutChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.what, self.before, self.after)
    }
}

/// Why the layouts cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// One of the two does not compile.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An object cannot be read.
    #[error("cannot read the layouts in {path}: {why}")]
    Object {
        /// The object.
        path: PathBuf,
        /// What is wrong.
        #[source]
        why: Unreadable,
    },
}

/// What changes size or place in `unit` when `constant` becomes `value`. Empty: nothing.
pub fn layout_sensitive(
    tree: &impl BuildTree,
    constant: &Constant,
    unit: &Unit,
    value: i64,
    out_dir: &Path,
) -> Result<Vec<LayoutChange>, LayoutError> {
    let layouts = |value| -> Result<Layouts, LayoutError> {
        let path = build_with(tree, constant, unit, value, out_dir, &DEBUG)?;
        let bytes = std::fs::read(&path).map_err(|e| LayoutError::Object { path: path.clone(), why: e.into() })?;
        layouts_of(&bytes).map_err(|why| LayoutError::Object { path, why })
    };
    Ok(changes(&layouts(constant.default)?, &layouts(value)?))
}

/// The size of a thing and, for types, the offsets of its members.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Layout {
    size: u64,
    members: Vec<(String, u64)>,
}

/// By kind and name; the second part of the key tells things of the same name apart.
type Layouts = BTreeMap<Key, Layout>;
type Key = (String, String);

fn changes(before: &Layouts, after: &Layouts) -> Vec<LayoutChange> {
    let mut found = Vec::new();
    for (key, old) in before {
        let Some(new) = after.get(key).filter(|new| *new != old) else { continue };
        let (from, to) = if old.size != new.size {
            (format!("{} bytes", old.size), format!("{} bytes", new.size))
        } else {
            let moved = old.members.iter().zip(&new.members).find(|(a, b)| a != b);
            match moved {
                Some(((name, a), (_, b))) => (format!("{name} at bit {a}"), format!("{name} at bit {b}")),
                None => (format!("{} members", old.members.len()), format!("{} members", new.members.len())),
            }
        };
        found.push(LayoutChange { what: key.0.clone(), before: from, after: to });
    }
    found.sort();
    found.dedup();
    found
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

fn layouts_of(bytes: &[u8]) -> Result<Layouts, Unreadable> {
    let file = object::File::parse(bytes)?;
    let mut layouts = Layouts::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for symbol in file.symbols().filter(|s| s.kind() == SymbolKind::Data && s.size() > 0) {
        let Ok(name) = symbol.name() else { continue };
        // Local statics carry a number that any edit may change.
        let base = name.split('.').next().unwrap_or(name).to_owned();
        let nth = seen.entry(base.clone()).and_modify(|n| *n += 1).or_default();
        let layout = Layout { size: symbol.size(), members: Vec::new() };
        layouts.insert((format!("symbol {base}"), nth.to_string()), layout);
    }
    let load = |id: gimli::SectionId| relocated(&file, id.name());
    let sections = gimli::DwarfSections::load(load)?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let mut units = dwarf.units();
    let mut any = false;
    while let Some(header) = units.next()? {
        any = true;
        let unit = dwarf.unit(header)?;
        Reader { dwarf: &dwarf, unit: &unit }.collect(&mut layouts)?;
    }
    if any {
        Ok(layouts)
    } else {
        Err(Unreadable::NoDebugInfo)
    }
}

/// A debug section with its relocations applied: in an unlinked object, references between
/// sections are only in the relocations.
fn relocated(file: &object::File<'_>, name: &str) -> Result<Vec<u8>, Unreadable> {
    let Some(section) = file.section_by_name(name) else { return Ok(Vec::new()) };
    let mut data = section.data()?.to_vec();
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
        let symbol = file.symbol_by_index(symbol)?;
        let value = symbol.address().wrapping_add_signed(relocation.addend());
        relocate(&mut data, name, offset, relocation.size(), value)?;
    }
    Ok(data)
}

struct Reader<'a, 'd> {
    dwarf: &'a Dwarf<Slice<'d>>,
    unit: &'a gimli::Unit<Slice<'d>>,
}

impl<'d> Reader<'_, 'd> {
    fn collect(&self, layouts: &mut Layouts) -> gimli::Result<()> {
        let mut entries = self.unit.entries();
        let mut depth = 0_isize;
        // The types and functions around the current entry.
        let mut around: Vec<(isize, String, Option<Key>)> = Vec::new();
        while let Some((delta, entry)) = entries.next_dfs()? {
            depth += delta;
            around.retain(|(level, ..)| *level < depth);
            let name = self.name(entry)?;
            let place = |what: &str| {
                let scope: Vec<&str> = around.iter().map(|(_, name, _)| name.as_str()).collect();
                (what.to_owned(), format!("{}@{}", scope.join("/"), self.declared(entry)))
            };
            match entry.tag() {
                gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type => {
                    let kind = if entry.tag() == gimli::DW_TAG_union_type { "union" } else { "struct" };
                    let shown = name.clone().unwrap_or_else(|| "(anonymous)".to_owned());
                    let key = place(&format!("{kind} {shown}"));
                    if let Some(size) = self.number(entry, gimli::DW_AT_byte_size)? {
                        layouts.insert(key.clone(), Layout { size, members: Vec::new() });
                    }
                    around.push((depth, shown, Some(key)));
                }
                gimli::DW_TAG_subprogram => around.push((depth, name.unwrap_or_default(), None)),
                gimli::DW_TAG_member => {
                    let bytes = self.number(entry, gimli::DW_AT_data_member_location)?.unwrap_or(0);
                    let bits = self.number(entry, gimli::DW_AT_data_bit_offset)?;
                    let bit = bits.unwrap_or(bytes * 8 + self.number(entry, gimli::DW_AT_bit_offset)?.unwrap_or(0));
                    let owner = around.last().and_then(|(.., key)| key.clone());
                    if let Some(layout) = owner.and_then(|key| layouts.get_mut(&key)) {
                        layout.members.push((name.unwrap_or_default(), bit));
                    }
                }
                gimli::DW_TAG_variable => {
                    if let (Some(name), Some(size)) = (name, self.size_of(entry, 0)?) {
                        let local = around.last().map(|(_, function, _)| format!(" in {function}")).unwrap_or_default();
                        layouts.insert(place(&format!("variable {name}{local}")), Layout { size, members: Vec::new() });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn name(&self, entry: &DebuggingInformationEntry<'_, '_, Slice<'d>>) -> gimli::Result<Option<String>> {
        let Some(value) = entry.attr_value(gimli::DW_AT_name)? else { return Ok(None) };
        Ok(Some(self.dwarf.attr_string(self.unit, value)?.to_string_lossy().into_owned()))
    }

    fn declared(&self, entry: &DebuggingInformationEntry<'_, '_, Slice<'d>>) -> String {
        let field = |at| self.number(entry, at).ok().flatten().unwrap_or(0);
        let file = field(gimli::DW_AT_decl_file);
        format!("{file}:{}:{}", field(gimli::DW_AT_decl_line), field(gimli::DW_AT_decl_column))
    }

    fn number(
        &self,
        entry: &DebuggingInformationEntry<'_, '_, Slice<'d>>,
        at: gimli::DwAt,
    ) -> gimli::Result<Option<u64>> {
        Ok(entry.attr_value(at)?.and_then(|value| match value {
            AttributeValue::FileIndex(index) => Some(index),
            value => value.udata_value(),
        }))
    }

    /// The size of an entry's type.
    fn size_of(
        &self,
        entry: &DebuggingInformationEntry<'_, '_, Slice<'d>>,
        nesting: usize,
    ) -> gimli::Result<Option<u64>> {
        let Some(AttributeValue::UnitRef(offset)) = entry.attr_value(gimli::DW_AT_type)? else { return Ok(None) };
        self.size_at(offset, nesting)
    }

    fn size_at(&self, offset: UnitOffset, nesting: usize) -> gimli::Result<Option<u64>> {
        let entry = self.unit.entry(offset)?;
        if let Some(size) = self.number(&entry, gimli::DW_AT_byte_size)? {
            return Ok(Some(size));
        }
        if nesting > 32 {
            return Ok(None);
        }
        let element = self.size_of(&entry, nesting + 1)?;
        if entry.tag() != gimli::DW_TAG_array_type {
            return Ok(element);
        }
        let mut tree = self.unit.entries_tree(Some(offset))?;
        let mut dimensions = tree.root()?.children();
        let mut count = 1_u64;
        while let Some(dimension) = dimensions.next()? {
            let bound = self.number(dimension.entry(), gimli::DW_AT_upper_bound)?;
            let Some(elements) =
                self.number(dimension.entry(), gimli::DW_AT_count)?.or(bound.map(|b| b.wrapping_add(1)))
            else {
                return Ok(None);
            };
            count = count.wrapping_mul(elements);
        }
        Ok(element.map(|size| size.wrapping_mul(count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_offsets_are_compared() {
        let layout = |size, at| Layout { size, members: vec![("a".into(), 0), ("b".into(), at)] };
        let one = |l: Layout| Layouts::from([(("struct s".to_owned(), "1".to_owned()), l)]);
        let shown = |a, b| changes(&one(a), &one(b)).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(layout(64, 32), layout(72, 40)), ["struct s: 64 bytes -> 72 bytes"]);
        assert_eq!(shown(layout(64, 32), layout(64, 40)), ["struct s: b at bit 32 -> b at bit 40"]);
        assert!(shown(layout(64, 32), layout(64, 32)).is_empty());
    }

    #[test]
    fn malformed_objects_are_errors() {
        for bytes in [&b""[..], b"\x7fELF", &[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 62, 0]]
        {
            assert!(layouts_of(bytes).is_err());
        }
    }
}
