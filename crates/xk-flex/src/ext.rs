//! `.BTF.ext`: tables that name instructions by their offset. libbpf reads them and does not change them, so the
//! fields are changed in place here.

use std::collections::BTreeMap;

use crate::insn::SIZE;

/// What a table says of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// The type of a function that begins there.
    Functions,
    /// The source line of the code from there on.
    Lines,
    /// A relocation of that very instruction, by the types of the kernel.
    Relocations,
}

/// Where the offset of a record is.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// Its table.
    pub table: Table,
    /// Offset of the name of its section, in the strings of `.BTF`.
    pub section: u32,
    /// Place of the record in `.BTF.ext`.
    pub at: usize,
    /// The instruction.
    pub insn: usize,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// All records. Nothing if the section is damaged.
#[must_use]
pub fn records(ext: &[u8]) -> Option<Vec<Record>> {
    const MAGIC: u32 = 0x0001_eb9f;
    if word(ext, 0)? & 0x00ff_ffff != MAGIC {
        return None;
    }
    let header = word(ext, 4)? as usize;
    let mut found = Vec::new();
    for (table, field) in [(Table::Functions, 8), (Table::Lines, 16), (Table::Relocations, 24)] {
        if field + 8 > header {
            break;
        }
        let start = header.checked_add(word(ext, field)? as usize)?;
        let len = word(ext, field + 4)? as usize;
        if len > 0 {
            read_table(ext.get(..start.checked_add(len)?)?, start, table, &mut found)?;
        }
    }
    Some(found)
}

fn read_table(ext: &[u8], start: usize, table: Table, found: &mut Vec<Record>) -> Option<()> {
    let size = word(ext, start)? as usize;
    if size < 4 {
        return None;
    }
    let mut at = start + 4;
    while at < ext.len() {
        let (section, count) = (word(ext, at)?, word(ext, at + 4)?);
        at += 8;
        for _ in 0..count {
            let offset = word(ext, at)? as usize;
            if offset % SIZE != 0 {
                return None;
            }
            found.push(Record { table, section, at, insn: offset / SIZE });
            at = at.checked_add(size).filter(|end| *end <= ext.len())?;
        }
    }
    Some(())
}

/// A string of `.BTF`.
#[must_use]
pub fn string(btf: &[u8], offset: u32) -> Option<&str> {
    let start = (word(btf, 4)? as usize).checked_add(word(btf, 16)? as usize)?.checked_add(offset as usize)?;
    let rest = btf.get(start..)?;
    std::str::from_utf8(&rest[..rest.iter().position(|byte| *byte == 0)?]).ok()
}

/// Source lines of all sections, by the first instruction.
#[derive(Debug, Default)]
pub struct Lines(BTreeMap<String, BTreeMap<usize, (String, u32)>>);

impl Lines {
    /// File and line of an instruction.
    #[must_use]
    pub fn find(&self, section: &str, insn: usize) -> Option<(&str, u32)> {
        let (_, (file, line)) = self.0.get(section)?.range(..=insn).next_back()?;
        Some((file, *line))
    }
}

/// The lines of an object. Nothing if a section is damaged.
#[must_use]
pub fn lines(ext: &[u8], btf: &[u8]) -> Option<Lines> {
    let mut lines = Lines::default();
    for record in records(ext)?.into_iter().filter(|record| record.table == Table::Lines) {
        let (file, column) = (string(btf, word(ext, record.at + 4)?)?, word(ext, record.at + 12)?);
        let name = file.rsplit('/').next().unwrap_or(file).to_owned();
        let section = lines.0.entry(string(btf, record.section)?.to_owned()).or_default();
        // Line 0 is of the compiler; what stands before it holds on.
        if column >> 10 != 0 {
            section.insert(record.insn, (name, column >> 10));
        }
    }
    Some(lines)
}
