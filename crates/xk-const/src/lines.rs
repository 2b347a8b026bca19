//! Which code the compiler made of which line.
//!
//! In: an object with debug information. Out: the rows of its line table, each with the bytes of
//! code that it describes. A line that is inlined in several functions has rows in each of them.

use crate::debug::{relocated, section_of, Slice};
use crate::unreadable::Unreadable;
use gimli::{AttributeValue, EndianSlice, LineProgramHeader, LittleEndian};
use std::ops::Range;

/// A row of a line table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Section of the code, by its number in the object.
    pub section: usize,
    /// The bytes that it describes, as offsets in the section. It may be empty: the next row is at the
    /// same instruction.
    pub bytes: Range<u64>,
    /// The source file, relative to the tree.
    pub file: String,
    /// Its line, from 1.
    pub line: u64,
    /// The instruction is a good place to stop before the line.
    pub is_statement: bool,
}

/// The rows of an object, in the order of the table.
///
/// # Errors
/// The object has no line table, or one that cannot be read.
pub fn lines(object: &[u8]) -> Result<Vec<Row>, Unreadable> {
    let file = object::File::parse(object)?;
    let sections = gimli::DwarfSections::load(|id: gimli::SectionId| relocated(&file, id.name()))?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let mut units = dwarf.units();
    let mut all = Vec::new();
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        let Some(program) = unit.line_program.clone() else { continue };
        let folder = unit.comp_dir.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let (program, sequences) = program.sequences()?;
        for sequence in &sequences {
            let mut rows = program.resume_from(sequence);
            let mut last: Option<Row> = None;
            while let Some((header, row)) = rows.next_row()? {
                let Some((section, offset)) = section_of(row.address()) else { continue };
                if let Some(mut known) = last.take() {
                    known.bytes.end = offset;
                    all.push(known);
                }
                let (Some(line), false) = (row.line(), row.end_sequence()) else { continue };
                let Some(file) = name(&dwarf, &unit, header, row.file_index(), &folder)? else { continue };
                let (bytes, is_statement) = (offset..offset, row.is_stmt());
                last = Some(Row { section, bytes, file, line: line.get(), is_statement });
            }
        }
    }
    if all.is_empty() {
        return Err(Unreadable::NoDebugInfo);
    }
    Ok(all)
}

/// A file of a line table, relative to the folder in which the compiler ran.
fn name(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    unit: &gimli::Unit<Slice<'_>>,
    header: &LineProgramHeader<Slice<'_>>,
    index: u64,
    folder: &str,
) -> Result<Option<String>, gimli::Error> {
    let text = |value: AttributeValue<Slice<'_>>| -> Result<String, gimli::Error> {
        Ok(dwarf.attr_string(unit, value)?.to_string_lossy().into_owned())
    };
    let Some(file) = header.file(index) else { return Ok(None) };
    let name = text(file.path_name())?;
    let within = match file.directory(header) {
        Some(directory) if !name.starts_with('/') => format!("{}/{name}", text(directory)?),
        _ => name,
    };
    let within = within.strip_prefix(folder).unwrap_or(&within);
    let parts = within.split('/').filter(|part| !matches!(*part, "" | "."));
    Ok(Some(parts.collect::<Vec<_>>().join("/")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use object::{Object, ObjectSection, ObjectSymbol};

    const SOURCE: &str = "int other(int);\n\
        static inline __attribute__((always_inline)) int twice(int number)\n\
        {\n\
            return other(number + 5);\n\
        }\n\
        int first(int number) { return twice(number) + 1; }\n\
        int second(int number)\n\
        {\n\
            return twice(number) + 2;\n\
        }\n";

    #[test]
    fn a_line_is_in_every_function_that_inlines_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/a.c"), SOURCE).unwrap();
        let run = std::process::Command::new("gcc")
            .args(["-O2", "-gdwarf-4", "-ffunction-sections", "-c", "-o", "a.o", "./sub/a.c"])
            .current_dir(folder.path())
            .status();
        assert!(run.unwrap().success());
        let bytes = std::fs::read(folder.path().join("a.o")).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let rows = lines(&bytes).unwrap();
        let here = |line: u64| {
            let rows = rows.iter().filter(move |row| row.file == "sub/a.c" && row.line == line && row.is_statement);
            let mut sections: Vec<usize> = rows.map(|row| row.section).collect();
            sections.sort_unstable();
            sections.dedup();
            sections
        };
        let section = |name: &str| file.section_by_name(&format!(".text.{name}")).unwrap().index().0;
        assert_eq!(here(4), [section("first"), section("second")], "{rows:?}");
        assert_eq!((here(9), here(1)), (vec![section("second")], vec![]), "{rows:?}");
        let second = file.symbols().find(|symbol| symbol.name() == Ok("second")).unwrap();
        let end = rows.iter().filter(|row| row.section == section("second")).map(|row| row.bytes.end).max();
        assert_eq!(end, Some(second.size()), "the table describes all of it: {rows:?}");
    }

    #[test]
    fn an_object_without_lines_is_refused() {
        assert!(lines(b"not an object").is_err());
    }
}
