//! What a variable of the source is at an instruction: a register, a place on the stack, a
//! constant, or nothing any longer.
//!
//! In: a unit compiled once more with debug information, and places in its code. Out: the
//! variables that the source has in scope there, the innermost first, each with where it is. Only
//! what a program can read by itself is said to be there.

use crate::build::{build_debug, BuildError};
use crate::debug::{relocated, section_base, Slice};
use crate::tree::{BuildTree, Unit};
use crate::unreadable::Unreadable;
use gimli::{
    AttributeValue, BaseAddresses, CfaRule, DebugFrame, DebuggingInformationEntry, Dwarf, EndianSlice, EntriesTreeNode,
    Expression, LittleEndian, Operation, UnitOffset, UnwindContext, UnwindSection,
};
use object::{Object, ObjectSection, ObjectSymbol};
use std::path::{Path, PathBuf};

/// Types within types.
const DEPTH: usize = 16;

/// Where a variable is. Registers have DWARF's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// In a register.
    Register(u16),
    /// In memory, at a register plus a displacement.
    Memory(u16, i64),
    /// The sum of a register and a number.
    Sum(u16, i64),
    /// Nowhere, but known.
    Constant(i64),
    /// Not there; why.
    Gone(&'static str),
}

/// A variable or an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name in the source.
    pub name: String,
    /// Its type, as C that the kernel's types know.
    pub type_name: String,
    /// Bytes that it takes.
    pub size: u64,
    /// Where it is.
    pub location: Location,
}

/// A place in the code of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// Function.
    pub symbol: String,
    /// Offset in it.
    pub offset: u32,
    /// Its bytes, and which of them must be equal, as they were analysed.
    pub bytes: Vec<u8>,
    /// 0xff where they must.
    pub mask: Vec<u8>,
}

/// Why they are not known.
#[derive(Debug, thiserror::Error)]
pub enum VariablesError {
    /// The unit does not compile.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The object cannot be read, or is not what was analysed.
    #[error("cannot read the variables in {path}: {why}")]
    Object {
        /// The object.
        path: PathBuf,
        /// What is wrong.
        #[source]
        why: Unreadable,
    },
}

/// The variables at each of the points of a unit.
///
/// # Errors
/// See [`VariablesError`].
pub fn variables(
    tree: &impl BuildTree,
    unit: &Unit,
    out_dir: &Path,
    points: &[Point],
) -> Result<Vec<Vec<Variable>>, VariablesError> {
    let path = build_debug(tree, unit, out_dir)?;
    let wrong = |why: Unreadable| VariablesError::Object { path: path.clone(), why };
    let bytes = std::fs::read(&path).map_err(|error| wrong(error.into()))?;
    let file = object::File::parse(&*bytes).map_err(|error| wrong(error.into()))?;
    points.iter().map(|point| at(&file, point).map_err(&wrong)).collect()
}

fn at(file: &object::File<'_>, point: &Point) -> Result<Vec<Variable>, Unreadable> {
    let function = find(file, point)?;
    let base = section_base(function.section().index());
    let pc = base + function.address() + u64::from(point.offset);
    let load = |id: gimli::SectionId| relocated(file, id.name());
    let sections = gimli::DwarfSections::load(load)?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let frames = relocated(file, ".debug_frame")?;
    let cfa = cfa_at(&frames, pc);
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        let mut reader = Reader { dwarf: &dwarf, unit: &unit, pc, cfa, found: Vec::new() };
        reader.unit()?;
        if !reader.found.is_empty() {
            return Ok(reader.found);
        }
    }
    Ok(Vec::new())
}

/// The function of the point, if it is what was analysed.
fn find<'d, 'f>(file: &'f object::File<'d>, point: &Point) -> Result<Found<'d, 'f>, Unreadable> {
    let named = file.symbols().filter(|symbol| symbol.name() == Ok(&point.symbol));
    for symbol in named {
        let Some(section) = symbol.section_index().and_then(|index| file.section_by_index(index).ok()) else {
            continue;
        };
        let Ok(data) = section.data() else { continue };
        let start = usize::try_from(symbol.address()).unwrap_or(usize::MAX);
        let Some(bytes) = start.checked_add(point.bytes.len()).and_then(|end| data.get(start..end)) else { continue };
        let same = bytes.iter().zip(&point.bytes).zip(&point.mask).all(|((a, b), mask)| a & mask == b & mask);
        if same {
            return Ok(Found { section, address: symbol.address() });
        }
    }
    Err(Unreadable::OtherCode { symbol: point.symbol.clone() })
}

struct Found<'d, 'f> {
    section: object::Section<'d, 'f>,
    address: u64,
}

impl<'d, 'f> Found<'d, 'f> {
    fn section(&self) -> &object::Section<'d, 'f> {
        &self.section
    }

    fn address(&self) -> u64 {
        self.address
    }
}

/// Where the caller's frame ends: a register and a displacement.
fn cfa_at(frames: &[u8], pc: u64) -> Option<(u16, i64)> {
    let mut section = DebugFrame::new(frames, LittleEndian);
    section.set_address_size(8);
    let bases = BaseAddresses::default();
    let mut context = UnwindContext::new();
    let row = section.unwind_info_for_address(&bases, &mut context, pc, DebugFrame::cie_from_offset).ok()?;
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Some((register.0, *offset)),
        CfaRule::Expression(_) => None,
    }
}

struct Reader<'a, 'd> {
    dwarf: &'a Dwarf<Slice<'d>>,
    unit: &'a gimli::Unit<Slice<'d>>,
    pc: u64,
    cfa: Option<(u16, i64)>,
    found: Vec<Variable>,
}

type Entry<'a, 'u, 'd> = DebuggingInformationEntry<'a, 'u, Slice<'d>>;

impl<'d> Reader<'_, 'd> {
    fn unit(&mut self) -> gimli::Result<()> {
        let unit = self.unit;
        let mut tree = unit.entries_tree(None)?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            if child.entry().tag() == gimli::DW_TAG_subprogram && self.covers(child.entry())? {
                self.scope(child, 0)?;
            }
        }
        Ok(())
    }

    fn covers(&self, entry: &Entry<'_, '_, 'd>) -> gimli::Result<bool> {
        let mut ranges = self.dwarf.die_ranges(self.unit, entry)?;
        while let Some(range) = ranges.next()? {
            if range.begin <= self.pc && self.pc < range.end {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What is declared here, after what is declared in inner blocks, which hides it.
    fn scope(&mut self, node: EntriesTreeNode<'_, '_, '_, Slice<'d>>, depth: usize) -> gimli::Result<()> {
        if depth > 64 {
            return Ok(());
        }
        let mut own = Vec::new();
        let mut children = node.children();
        while let Some(child) = children.next()? {
            match child.entry().tag() {
                gimli::DW_TAG_formal_parameter | gimli::DW_TAG_variable => {
                    own.extend(self.variable(child.entry())?);
                }
                gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine if self.covers(child.entry())? => {
                    self.scope(child, depth + 1)?;
                }
                _ => {}
            }
        }
        for variable in own {
            if !self.found.iter().any(|known| known.name == variable.name) {
                self.found.push(variable);
            }
        }
        Ok(())
    }

    fn variable(&self, entry: &Entry<'_, '_, 'd>) -> gimli::Result<Option<Variable>> {
        let origin = match entry.attr_value(gimli::DW_AT_abstract_origin)? {
            Some(AttributeValue::UnitRef(offset)) => Some(self.unit.entry(offset)?),
            _ => None,
        };
        let attribute = |at| -> gimli::Result<Option<AttributeValue<Slice<'d>>>> {
            if let Some(value) = entry.attr_value(at)? {
                return Ok(Some(value));
            }
            origin.as_ref().map_or(Ok(None), |origin| origin.attr_value(at))
        };
        // Variables of files are for others to find.
        if attribute(gimli::DW_AT_external)?.is_some() || attribute(gimli::DW_AT_declaration)?.is_some() {
            return Ok(None);
        }
        let Some(name) = attribute(gimli::DW_AT_name)? else { return Ok(None) };
        let name = self.dwarf.attr_string(self.unit, name)?.to_string_lossy().into_owned();
        let Some(AttributeValue::UnitRef(of)) = attribute(gimli::DW_AT_type)? else { return Ok(None) };
        let size = self.size(of, 0)?;
        let location = match attribute(gimli::DW_AT_const_value)? {
            Some(value) => {
                value.sdata_value().map_or(Location::Gone("a constant of an unusual kind"), Location::Constant)
            }
            None => self.location(attribute(gimli::DW_AT_location)?)?,
        };
        Ok(Some(Variable { name, type_name: self.type_name(of, 0)?, size, location }))
    }

    fn location(&self, value: Option<AttributeValue<Slice<'d>>>) -> gimli::Result<Location> {
        let Some(value) = value else { return Ok(Location::Gone("optimised away")) };
        if let AttributeValue::Exprloc(expression) = value {
            return self.place(expression);
        }
        let Some(mut list) = self.dwarf.attr_locations(self.unit, value)? else {
            return Ok(Location::Gone("optimised away"));
        };
        while let Some(entry) = list.next()? {
            if entry.range.begin <= self.pc && self.pc < entry.range.end {
                return self.place(entry.data);
            }
        }
        Ok(Location::Gone("optimised away here: its value is not kept"))
    }

    fn place(&self, expression: Expression<Slice<'d>>) -> gimli::Result<Location> {
        const COMPUTED: Location = Location::Gone("in pieces, or computed from what is not there");
        let mut operations = expression.operations(self.unit.encoding());
        let mut all = Vec::new();
        while let Some(operation) = operations.next()? {
            all.push(operation);
        }
        Ok(match &all[..] {
            [] => Location::Gone("optimised away here: its value is not kept"),
            [Operation::Register { register }] => Location::Register(register.0),
            [Operation::FrameOffset { offset }] => match self.cfa {
                Some((register, cfa)) => Location::Memory(register, cfa + offset),
                None => Location::Gone("on a stack whose layout is not known here"),
            },
            [Operation::RegisterOffset { register, offset, .. }] => Location::Memory(register.0, *offset),
            [Operation::RegisterOffset { register, offset, .. }, Operation::StackValue] => {
                Location::Sum(register.0, *offset)
            }
            [Operation::UnsignedConstant { value }, Operation::StackValue] => Location::Constant(*value as i64),
            [Operation::SignedConstant { value }, Operation::StackValue] => Location::Constant(*value),
            _ => COMPUTED,
        })
    }

    fn referred(&self, entry: &Entry<'_, '_, 'd>) -> gimli::Result<Option<UnitOffset>> {
        Ok(match entry.attr_value(gimli::DW_AT_type)? {
            Some(AttributeValue::UnitRef(offset)) => Some(offset),
            _ => None,
        })
    }

    fn size(&self, of: UnitOffset, depth: usize) -> gimli::Result<u64> {
        let entry = self.unit.entry(of)?;
        if let Some(size) = entry.attr_value(gimli::DW_AT_byte_size)?.and_then(|value| value.udata_value()) {
            return Ok(size);
        }
        match self.referred(&entry)? {
            Some(next) if depth < DEPTH && entry.tag() != gimli::DW_TAG_array_type => self.size(next, depth + 1),
            _ => Ok(0),
        }
    }

    /// As C; what the kernel's types do not name is a number.
    fn type_name(&self, of: UnitOffset, depth: usize) -> gimli::Result<String> {
        let entry = self.unit.entry(of)?;
        let name = match entry.attr_value(gimli::DW_AT_name)? {
            Some(value) => Some(self.dwarf.attr_string(self.unit, value)?.to_string_lossy().into_owned()),
            None => None,
        };
        let next = self.referred(&entry)?;
        let number = "unsigned long long".to_owned();
        Ok(match (entry.tag(), name, next) {
            (gimli::DW_TAG_base_type | gimli::DW_TAG_typedef, Some(name), _) => name,
            (gimli::DW_TAG_structure_type, Some(name), _) => format!("struct {name}"),
            (gimli::DW_TAG_union_type, Some(name), _) => format!("union {name}"),
            (gimli::DW_TAG_enumeration_type, Some(name), _) => format!("enum {name}"),
            (gimli::DW_TAG_pointer_type, _, None) => "void *".to_owned(),
            (gimli::DW_TAG_pointer_type, _, Some(next)) if depth < DEPTH => {
                let to = self.unit.entry(next)?;
                // Functions, and what has no name, are addresses.
                match to.tag() {
                    gimli::DW_TAG_subroutine_type | gimli::DW_TAG_array_type => "void *".to_owned(),
                    _ => {
                        let name = self.type_name(next, depth + 1)?;
                        if name == number {
                            "void *".to_owned()
                        } else {
                            format!("{name} *")
                        }
                    }
                }
            }
            (gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type | gimli::DW_TAG_restrict_type, _, Some(next))
                if depth < DEPTH =>
            {
                self.type_name(next, depth + 1)?
            }
            (gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type, _, None) => "void".to_owned(),
            _ => number,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    const SOURCE: &str = "struct thing { int a, b; };\n\
        int other(int);\n\
        int probe(struct thing *thing, int number, int unused)\n\
        {\n\
            int kept = other(number);\n\
            int gone = number * 3;\n\
            const int known = 17;\n\
            asm volatile(\"nop; nop; nop; nop; nop; nop; nop\" : : \"r\" (kept));\n\
            return other(thing->a + kept + known) + other(gone) + thing->b;\n\
        }\n";

    /// What gcc makes of it, and where its seven no-ops are.
    fn compiled() -> (Vec<u8>, u32) {
        let folder = tempfile::tempdir().unwrap();
        let (source, object) = (folder.path().join("a.c"), folder.path().join("a.o"));
        std::fs::write(&source, SOURCE).unwrap();
        let run = std::process::Command::new("gcc")
            .args(["-O2", "-gdwarf-4", "-fno-asynchronous-unwind-tables", "-ffunction-sections", "-c", "-o"])
            .args([&object, &source])
            .status()
            .unwrap();
        assert!(run.success());
        let bytes = std::fs::read(&object).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let text = file.section_by_name(".text.probe").unwrap().data().unwrap().to_vec();
        let offset = text.windows(7).position(|window| window == [0x90; 7]).unwrap();
        (bytes, offset as u32)
    }

    #[test]
    fn variables_are_found_by_name() {
        let (bytes, offset) = compiled();
        let file = object::File::parse(&*bytes).unwrap();
        let point = Point { symbol: "probe".into(), offset, bytes: vec![], mask: vec![] };
        let found = at(&file, &point).unwrap();
        let found: std::collections::BTreeMap<&str, &Variable> =
            found.iter().map(|variable| (variable.name.as_str(), variable)).collect();
        let location = |name: &str| found[name].location.clone();
        assert_eq!(found["thing"].type_name, "struct thing *");
        assert_eq!((found["kept"].type_name.as_str(), found["kept"].size), ("int", 4));
        assert!(matches!(location("thing"), Location::Register(_) | Location::Memory(..)), "{found:?}");
        assert_eq!(location("kept"), Location::Register(0), "{found:?}");
        assert_eq!(location("known"), Location::Constant(17));
        assert!(matches!(location("unused"), Location::Gone(_)), "{found:?}");
    }

    #[test]
    fn other_code_is_refused() {
        let (bytes, offset) = compiled();
        let file = object::File::parse(&*bytes).unwrap();
        let point = |byte: u8| Point { symbol: "probe".into(), offset, bytes: vec![byte; 8], mask: vec![0xff; 8] };
        assert!(at(&file, &point(0xcc)).unwrap_err().to_string().contains("is not the code that was analysed"));
        assert!(at(&file, &Point { symbol: "none".into(), ..point(0) }).is_err());
    }
}
