//! `.BTF.ext`: tables that name instructions by their offset. libbpf reads them and does not change them, so they are
//! read and written here.

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

/// A record of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its table.
    pub table: Table,
    /// Offset of the name of its section, in the strings of `.BTF`.
    pub section: u32,
    /// The instruction.
    pub insn: usize,
    /// What it says.
    pub rest: Vec<u8>,
}

/// Tables, and the fields of the header that say where they are.
const TABLES: [(Table, usize); 3] = [(Table::Functions, 8), (Table::Lines, 16), (Table::Relocations, 24)];
/// Length of the header with these fields.
const HEADER: usize = 32;

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
    for (table, field) in TABLES {
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
            let end = at.checked_add(size)?;
            found.push(Record { table, section, insn: offset / SIZE, rest: ext.get(at + 4..end)?.to_vec() });
            at = end;
        }
    }
    Some(())
}

/// The section with these records, in the order of the instructions. Nothing if it has tables that are not known, or
/// is damaged.
#[must_use]
pub fn write(ext: &[u8], records: &[Record]) -> Option<Vec<u8>> {
    let len = word(ext, 4)? as usize;
    let mut bytes = ext.get(..len)?.to_vec();
    if bytes.iter().skip(HEADER).any(|byte| *byte != 0) {
        return None;
    }
    for (table, field) in TABLES.iter().filter(|(_, field)| field + 8 <= len) {
        let start = bytes.len();
        let mut own: Vec<&Record> = records.iter().filter(|record| record.table == *table).collect();
        if word(ext, field + 4)? > 0 {
            let size = word(ext, len.checked_add(word(ext, *field)? as usize)?)?;
            bytes.extend(size.to_le_bytes());
        }
        while let Some(section) = own.first().map(|record| record.section) {
            let (mut now, later): (Vec<_>, Vec<_>) = own.into_iter().partition(|record| record.section == section);
            now.sort_by_key(|record| record.insn);
            bytes.extend(section.to_le_bytes());
            bytes.extend(u32::try_from(now.len()).ok()?.to_le_bytes());
            for record in now {
                bytes.extend(u32::try_from(record.insn * SIZE).ok()?.to_le_bytes());
                bytes.extend(&record.rest);
            }
            own = later;
        }
        for (at, value) in [(*field, start - len), (field + 4, bytes.len() - start)] {
            bytes[at..at + 4].copy_from_slice(&u32::try_from(value).ok()?.to_le_bytes());
        }
    }
    Some(bytes)
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
        let (file, column) = (string(btf, word(&record.rest, 0)?)?, word(&record.rest, 8)?);
        let name = file.rsplit('/').next().unwrap_or(file).to_owned();
        let section = lines.0.entry(string(btf, record.section)?.to_owned()).or_default();
        // Line 0 is of the compiler; what stands before it holds on.
        if column >> 10 != 0 {
            section.insert(record.insn, (name, column >> 10));
        }
    }
    Some(lines)
}
