//! The object with new instructions.
//!
//! What grows is appended to the file, and its section header is changed. Tables that name instructions follow them.
//! Everything else stays as it is, and where it is.

use std::collections::BTreeMap;

use object::elf::{SHF_INFO_LINK, SHT_REL, STT_FILE, STT_OBJECT, STT_SECTION};

use crate::code::NewCode;
use crate::elf::Object;
use crate::ext::{self, records, string, Record, Table};
use crate::insn::SIZE;
use crate::Error;

const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;
const RELOCATION: usize = 16;
/// `R_BPF_64_64`: the address of a symbol in an `ld_imm64`.
const ADDRESS: u64 = 1;
/// `R_BPF_64_32`: a call of a symbol.
const CALL: u64 = 10;

struct Writer {
    bytes: Vec<u8>,
    headers: usize,
}

fn damaged() -> Error {
    Error::Object("its section headers are damaged".into())
}

impl Writer {
    fn get(&self, at: usize, len: usize) -> Result<u64, Error> {
        let bytes = at.checked_add(len).and_then(|end| self.bytes.get(at..end)).ok_or_else(damaged)?;
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn put(&mut self, at: usize, len: usize, value: u64) -> Result<(), Error> {
        let bytes = at.checked_add(len).and_then(|end| self.bytes.get_mut(at..end)).ok_or_else(damaged)?;
        bytes.copy_from_slice(&value.to_le_bytes()[..len]);
        Ok(())
    }

    fn header(&self, section: usize) -> usize {
        self.headers + section * SECTION_HEADER
    }

    fn content(&self, section: usize) -> Result<(usize, usize), Error> {
        let header = self.header(section);
        Ok((self.get(header + 24, 8)? as usize, self.get(header + 32, 8)? as usize))
    }

    fn append(&mut self, data: &[u8]) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(data);
        at
    }

    /// The content of a section is another one, at the end of the file.
    fn replace(&mut self, section: usize, data: &[u8]) -> Result<(), Error> {
        let (at, header) = (self.append(data), self.header(section));
        self.put(header + 24, 8, at as u64)?;
        self.put(header + 32, 8, data.len() as u64)
    }

    /// Adds a section with relocations of a section; the table of headers moves to the end of the file.
    fn add_relocations(&mut self, object: &Object, code: usize, data: &[u8]) -> Result<(), Error> {
        let code = &object.code[code];
        let (count, names) = (self.get(60, 2)? as usize, self.get(62, 2)? as usize);
        let (start, len) = self.content(names)?;
        let mut strings = self.bytes.get(start..start + len).ok_or_else(damaged)?.to_vec();
        let name = strings.len();
        strings.extend(format!(".rel{}\0", code.name).bytes());
        self.replace(names, &strings)?;
        let at = self.append(data);
        let table = self.bytes.get(self.headers..self.headers + count * SECTION_HEADER).ok_or_else(damaged)?.to_vec();
        self.headers = self.append(&table);
        self.bytes.resize(self.bytes.len() + SECTION_HEADER, 0);
        self.put(40, 8, self.headers as u64)?;
        self.put(60, 2, count as u64 + 1)?;
        let header = self.header(count);
        self.put(header, 4, name as u64)?;
        self.put(header + 4, 4, SHT_REL.into())?;
        self.put(header + 8, 8, SHF_INFO_LINK.into())?;
        self.put(header + 24, 8, at as u64)?;
        self.put(header + 32, 8, data.len() as u64)?;
        self.put(header + 40, 4, object.symbol_table as u64)?;
        self.put(header + 44, 4, code.section as u64)?;
        self.put(header + 48, 8, 8)?;
        self.put(header + 56, 8, RELOCATION as u64)
    }

    fn code(&mut self, object: &Object, index: usize, new: &NewCode) -> Result<(), Error> {
        let code = &object.code[index];
        if new.insns == code.insns {
            return Ok(());
        }
        let bytes: Vec<u8> = new.insns.iter().flat_map(|insn| insn.bytes()).collect();
        self.replace(code.section, &bytes)?;
        let info = |at: &usize| {
            let (symbol, kind) = code.relocs.get(at)?;
            Some((*symbol as u64) << 32 | u64::from(*kind))
        };
        let old = code.relocs.keys().filter(|at| !new.replaced.contains(at));
        let old = old.filter_map(|at| Some((new.place[*at], info(at)?)));
        let copies = new.copies.iter().filter_map(|(new, old)| Some((*new, info(old)?)));
        let mut relocs: Vec<(usize, u64)> = old.chain(copies).collect();
        if let Some(control) = object.control() {
            relocs.extend(new.controls.iter().map(|at| (*at, (control as u64) << 32 | ADDRESS)));
        }
        relocs.extend(new.calls.iter().map(|(at, symbol)| (*at, (*symbol as u64) << 32 | CALL)));
        relocs.sort_unstable();
        let mut data = Vec::new();
        for (at, info) in relocs {
            data.extend(((at * SIZE) as u64).to_le_bytes());
            data.extend(info.to_le_bytes());
        }
        match code.rel_section {
            Some(section) => self.replace(section, &data),
            None if data.is_empty() => Ok(()),
            None => self.add_relocations(object, index, &data),
        }
    }

    /// Functions, and labels between them.
    fn symbols(&mut self, object: &Object, code: &[NewCode]) -> Result<(), Error> {
        let (table, _) = self.content(object.symbol_table)?;
        for (index, symbol) in object.symbols.iter().enumerate() {
            let Some(number) = object.code.iter().position(|code| code.section == symbol.section) else { continue };
            if [STT_SECTION, STT_FILE, STT_OBJECT].contains(&symbol.kind) {
                continue;
            }
            let find = |value: u64| code[number].entry.get(value as usize / SIZE).map(|new| (new * SIZE) as u64);
            let (start, end) = (find(symbol.value), find(symbol.value.saturating_add(symbol.size)));
            let (Some(start), Some(end)) = (start, end) else { return Err(damaged()) };
            self.put(table + index * SYMBOL + 8, 8, start)?;
            self.put(table + index * SYMBOL + 16, 8, end - start)?;
        }
        Ok(())
    }

    fn ext(&mut self, object: &Object, code: &[NewCode]) -> Result<(), Error> {
        let Some((section, start, len)) = object.ext else { return Ok(()) };
        let old = &object.bytes[start..start + len];
        let (records, btf) = (records(old).ok_or_else(damaged)?, object.btf().ok_or_else(damaged)?);
        let mut moved = Vec::new();
        for record in &records {
            let name = string(btf, record.section).ok_or_else(damaged)?;
            let number = object.code.iter().position(|code| code.name == name);
            let insn = match (record.table, number) {
                (_, None) => Some(&record.insn),
                (Table::Functions | Table::Lines, Some(number)) => code[number].entry.get(record.insn),
                (Table::Relocations, Some(number)) => code[number].place.get(record.insn),
            };
            moved.push(Record { insn: *insn.ok_or_else(damaged)?, ..record.clone() });
        }
        for (code, new) in object.code.iter().zip(code) {
            let own = |record: &&Record| string(btf, record.section) == Some(&code.name);
            moved.extend(copied(&records.iter().filter(own).collect::<Vec<_>>(), &new.copies));
        }
        let new = ext::write(old, &moved);
        let new = new.ok_or_else(|| Error::Object("its .BTF.ext has tables that are not known".into()))?;
        if new.len() == len {
            self.bytes[start..start + len].copy_from_slice(&new);
            return Ok(());
        }
        self.replace(section, &new)
    }
}

/// What the records of a section say of copies of its instructions.
fn copied(records: &[&Record], copies: &[(usize, usize)]) -> Vec<Record> {
    let of = |table: Table| {
        let own = records.iter().filter(move |record| record.table == table);
        own.map(|record| (record.insn, *record)).collect::<BTreeMap<_, _>>()
    };
    let (lines, relocations) = (of(Table::Lines), of(Table::Relocations));
    let (mut found, mut last) = (Vec::new(), None);
    for &(insn, old) in copies {
        if let Some(record) = relocations.get(&old) {
            found.push(Record { insn, ..(*record).clone() });
        }
        let line = lines.range(..=old).next_back();
        if let Some((at, record)) = line.filter(|(at, _)| last != Some(**at)) {
            last = Some(*at);
            found.push(Record { insn, ..(*record).clone() });
        }
    }
    found
}

/// Writes an object with new instructions.
///
/// # Errors
/// [`Error::Object`]: it is damaged.
pub fn write(object: &Object, code: &[NewCode]) -> Result<Vec<u8>, Error> {
    let mut writer = Writer { bytes: object.bytes.clone(), headers: 0 };
    writer.headers = writer.get(40, 8)? as usize;
    for (index, new) in code.iter().enumerate() {
        writer.code(object, index, new)?;
    }
    writer.symbols(object, code)?;
    writer.ext(object, code)?;
    Ok(writer.bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::choose::{choose, Choice, LoopReport};
    use crate::emit::emit;
    use crate::flow::graphs;
    use crate::insn::Insn;
    use crate::plan::Plan;
    use crate::sample::compiled;
    use crate::unroll::unroll;

    const SOURCE: &str = "struct kernel { int first; int second; } __attribute__((preserve_access_index));\n\
        static long (*const each)(__u32, void *, void *, __u64) = (void *)181; volatile long counter;\n\
        static long callback(__u64 at, void *context) { return at > 3; }\n\
        static __attribute__((noinline)) int sub(struct kernel *k) {\n\
        int n = k->second;\nwhile (n != k->first) { n += 3;\ncounter++; asm volatile(\"\" : \"+r\"(n)); }\nreturn n; }\n\
        __attribute__((section(\"kprobe\"))) int f(struct kernel *k) { int s = 0;\n\
        while (k->first != 7) { s += k->second;\ns ^= sub(k) + each(3, callback, 0, 0); }\n return s; }\n";

    fn records_of(object: &Object) -> Vec<Record> {
        let (_, start, len) = object.ext.unwrap();
        records(&object.bytes[start..start + len]).unwrap()
    }

    #[test]
    fn tables_are_written_as_they_were_read() {
        let object = Object::read(&compiled(SOURCE)).unwrap();
        let (_, start, len) = object.ext.unwrap();
        let bytes = &object.bytes[start..start + len];
        assert_eq!(ext::write(bytes, &records(bytes).unwrap()).unwrap(), bytes);
    }

    /// Each copy is the instruction that it copies, with its source line and relocations of both kinds.
    #[test]
    fn tables_name_copies_of_the_instructions_that_they_named() {
        let old = Object::read(&compiled(SOURCE)).unwrap();
        let graphs = graphs(&old).unwrap();
        let loops = choose(&old, &graphs, &Choice::default()).unwrap();
        let mut wanted: Vec<_> = loops.iter().filter_map(LoopReport::wanted).collect();
        // Also the one that calls a function with the other loop.
        wanted.iter_mut().for_each(|own| own.copies = 3);
        let (new, moved) = unroll(&old, &graphs, &wanted).unwrap();
        assert_eq!(moved.len(), 2);
        let copied = |code: usize| new.code[code].twins.len();
        assert!(old.code.iter().enumerate().all(|(number, _)| copied(number) > 4 && copied(number) % 2 == 0));
        let names = |at: usize, code: usize| {
            let relocation = |record: &&Record| {
                record.table == Table::Relocations
                    && record.insn == at
                    && string(new.btf().unwrap(), record.section) == Some(&new.code[code].name)
            };
            records_of(&new).iter().filter(relocation).map(|record| record.rest.clone()).collect::<Vec<_>>()
        };
        let (mut relocations, mut functions, mut addresses) = (0, 0, 0);
        for (number, code) in new.code.iter().enumerate() {
            for (&copy, &first) in &code.twins {
                let (own, other) = (code.insns[copy], code.insns[first]);
                assert_eq!((own.code, own.dst, own.src), (other.code, other.dst, other.src));
                assert_eq!(new.place(number, copy), new.place(number, first), "{}+{copy}", code.name);
                assert_eq!(names(copy, number), names(first, number), "{}+{copy}", code.name);
                assert_eq!(code.relocs.get(&copy), code.relocs.get(&first), "{}+{copy}", code.name);
                assert_eq!(new.target(number, copy), new.target(number, first), "{}+{copy}", code.name);
                relocations += names(copy, number).len();
                functions += usize::from(new.target(number, copy).is_some());
                addresses += usize::from(own.code == Insn::LD_IMM64);
            }
        }
        assert!(relocations >= 6 && functions == 4 && addresses >= 2, "{relocations}, {functions}, {addresses}");
        let lines = records_of(&new).into_iter().filter(|record| record.table == Table::Lines);
        let mut lines: Vec<_> = lines.map(|record| (record.section, record.insn)).collect();
        lines.dedup();
        assert!(lines.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].1 < pair[1].1), "in order");
    }

    #[test]
    fn tables_name_the_instructions_that_they_named() {
        let old = Object::read(&compiled(SOURCE)).unwrap();
        let graphs = graphs(&old).unwrap();
        let loops = choose(&old, &graphs, &Choice::default()).unwrap();
        let wanted: Vec<_> = loops.iter().filter_map(LoopReport::wanted).collect();
        let code = emit(&old, &Plan::new(&old, &graphs, &wanted, &Choice::default()).unwrap()).unwrap();
        let new = Object::read(&write(&old, &code).unwrap()).unwrap();
        let mut relocations = 0;
        for (before, after) in records_of(&old).into_iter().zip(records_of(&new)) {
            let name = string(old.btf().unwrap(), before.section).unwrap();
            let number = old.code.iter().position(|code| code.name == name).unwrap();
            if before.table == Table::Relocations {
                relocations += 1;
                let insns = [old.code[number].insns[before.insn], new.code[number].insns[after.insn]];
                assert_eq!(insns[0], insns[1], "{name}+{}", before.insn);
            }
        }
        assert!(relocations > 4);
        for (number, section) in old.code.iter().enumerate() {
            assert_ne!(section.insns.len(), new.code[number].insns.len(), "both sections grow");
            for at in 0..section.insns.len() {
                assert_eq!(new.place(number, code[number].place[at]), old.place(number, at), "{}+{at}", section.name);
            }
        }
        let names = |object: &Object| object.functions.iter().map(|found| found.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&new), names(&old));
        assert_eq!(old.symbols.len(), new.symbols.len());
    }
}
