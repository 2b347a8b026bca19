//! An eBPF object: its code, functions, relocations, and source lines.
//!
//! `object` finds sections and symbols. Their places in the file are kept, because the writer changes single fields
//! and leaves everything else as it is.

use std::collections::BTreeMap;

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::LittleEndian;

use crate::insn::{Callee, Insn, SIZE};
use crate::types::Types;
use crate::{ext, Error};

/// What `bpf/xk_flex.bpf.h` declares: what user space tells all runs,
const CONTROL: &str = "xk_flex_control";
/// the section, and so the map, that contains only it,
pub const CONTROL_SECTION: &str = ".data.xk_flex";
/// the function that a look calls,
const LOOK: &str = "xk_flex_look";
/// in an object with a heap (`bpf/xk_fault.bpf.h`), this one,
const HEAP_LOOK: &str = "xk_heap_look";
/// in an object with locks (`bpf/xk_lock.bpf.h`), this one,
const LOCK_LOOK: &str = "xk_lock_look";
/// in an object with a heap, what programs call at their beginning,
const HEAP_BEGIN: &str = "xk_heap_begin";
/// what they call at their end,
const HEAP_LEFT: &str = "xk_heap_left";
/// if there are locks, too,
const LOCK_LEFT: &str = "xk_lock_left";
/// the program that counts faults,
pub const HEAP_FAULT: &str = "xk_heap_fault";
/// the ring buffer with the runs that were ended,
pub const ENDED: &str = "xk_flex_ended";
/// and the section, and so the map, that contains only the number of those for which it had no room.
pub const UNREPORTED: &str = ".data.xk_flex_unreported";

/// A symbol.
#[derive(Debug, Clone)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Number of its section; 0 for what is outside.
    pub section: usize,
    /// Offset in the section.
    pub value: u64,
    /// Length in bytes.
    pub size: u64,
    /// Function, object, section.
    pub kind: u8,
    /// Not seen by other objects, or hidden.
    pub is_static: bool,
}

/// A section with instructions.
#[derive(Debug)]
pub struct Code {
    /// Its number.
    pub section: usize,
    /// Its name.
    pub name: String,
    /// Its instructions; the second half of an `ld_imm64` is one.
    pub insns: Vec<Insn>,
    /// Symbols to which instructions refer: number, and type of the relocation.
    pub relocs: BTreeMap<usize, (usize, u32)>,
    /// Number of the section with these relocations.
    pub rel_section: Option<usize>,
    /// For instructions that are copies of others: the first of them.
    pub twins: BTreeMap<usize, usize>,
}

/// A function.
#[derive(Debug, Clone)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Which of [`Object::code`] contains it.
    pub code: usize,
    /// First instruction.
    pub start: usize,
    /// Behind the last instruction.
    pub end: usize,
    /// A program, not a subprogram.
    pub is_program: bool,
    /// Only this object calls it, so that the verifier follows calls of it.
    pub is_static: bool,
    /// How many arguments it takes by its type.
    pub parameters: Option<usize>,
}

/// An object that was read.
#[derive(Debug)]
pub struct Object {
    /// The file.
    pub bytes: Vec<u8>,
    /// Sections with instructions.
    pub code: Vec<Code>,
    /// Functions, by section and place.
    pub functions: Vec<Function>,
    /// All symbols.
    pub symbols: Vec<Symbol>,
    /// Number of the symbol table.
    pub symbol_table: usize,
    /// `.BTF.ext`: number, offset and length.
    pub ext: Option<(usize, usize, usize)>,
    btf: Option<(usize, usize)>,
    lines: ext::Lines,
    types: Types,
}

fn wrong(error: impl ToString) -> Error {
    Error::Object(error.to_string())
}

/// The header of an object.
pub type Header = FileHeader64<LittleEndian>;
/// Calls of it become the address of the run. Only an object with locks has it.
const THIS_RUN: &str = "xk_lock_this_run";
/// Finds a lock among those that a run holds. It is there also if nothing calls it.
const LOCK_FIND: &str = "xk_lock_find";
const E: LittleEndian = LittleEndian;

impl Object {
    /// Reads an object.
    ///
    /// # Errors
    /// [`Error::Object`]: it is no eBPF object of clang, or damaged.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let header = header(bytes)?;
        let sections = header.sections(E, bytes).map_err(wrong)?;
        let table = sections.symbols(E, bytes, elf::SHT_SYMTAB).map_err(wrong)?;
        let mut symbols = Vec::new();
        for symbol in table.symbols() {
            symbols.push(Symbol {
                name: String::from_utf8_lossy(symbol.name(E, table.strings()).map_err(wrong)?).into_owned(),
                section: usize::from(symbol.st_shndx.get(E)),
                value: symbol.st_value.get(E),
                size: symbol.st_size.get(E),
                kind: symbol.st_type(),
                is_static: symbol.st_bind() == elf::STB_LOCAL || symbol.st_visibility() == elf::STV_HIDDEN,
            });
        }
        let (mut code, mut btf, mut ext) = (Vec::new(), None, None);
        for (index, section) in sections.enumerate() {
            let name = String::from_utf8_lossy(sections.section_name(E, section).map_err(wrong)?).into_owned();
            let data = section.data(E, bytes).map_err(wrong)?;
            match name.as_str() {
                ".BTF" => btf = Some((section.sh_offset.get(E) as usize, data.len())),
                ".BTF.ext" => ext = Some((index.0, section.sh_offset.get(E) as usize, data.len())),
                _ => {}
            }
            let is_code = section.sh_flags.get(E) & u64::from(elf::SHF_EXECINSTR) != 0;
            if is_code && section.sh_type.get(E) == elf::SHT_PROGBITS && !data.is_empty() {
                code.push(read_code(index.0, name, data)?);
            }
        }
        for (index, section) in sections.enumerate() {
            let Some((relocs, _)) = section.rel(E, bytes).map_err(wrong)? else { continue };
            let Some(code) = code.iter_mut().find(|code| code.section == section.sh_info.get(E) as usize) else {
                continue;
            };
            code.rel_section = Some(index.0);
            for reloc in relocs {
                let at = reloc.r_offset.get(E) as usize;
                let (symbol, kind) = (reloc.r_sym(E) as usize, reloc.r_type(E));
                if at % SIZE != 0 || at / SIZE >= code.insns.len() || symbol >= symbols.len() {
                    return Err(wrong(format!("a relocation of {} is damaged", code.name)));
                }
                code.relocs.insert(at / SIZE, (symbol, kind));
            }
        }
        let lines = match (ext, btf) {
            (Some((_, offset, len)), Some((types, size))) => {
                let lines = ext::lines(&bytes[offset..offset + len], &bytes[types..types + size]);
                lines.ok_or_else(|| wrong(".BTF.ext is damaged"))?
            }
            _ => return Err(wrong("it has no types and source lines: compile it with -g")),
        };
        let types = Types::read(bytes).map_err(wrong)?;
        let functions = functions(&code, &symbols, &types)?;
        let (bytes, symbol_table) = (bytes.to_vec(), table.section().0);
        Ok(Self { bytes, code, functions, symbols, symbol_table, ext, btf, lines, types })
    }

    /// The types.
    #[must_use]
    pub fn btf(&self) -> Option<&[u8]> {
        let (start, len) = self.btf?;
        self.bytes.get(start..start + len)
    }

    /// The instruction of which one is a copy, or that one.
    #[must_use]
    pub fn original(&self, code: usize, at: usize) -> usize {
        self.code[code].twins.get(&at).copied().unwrap_or(at)
    }

    /// The source line of an instruction, or its number.
    #[must_use]
    pub fn place(&self, code: usize, at: usize) -> String {
        let code = &self.code[code];
        match self.lines.find(&code.name, at) {
            Some((file, line)) => format!("{file}:{line}"),
            None => format!("{}+{at}", code.name),
        }
    }

    /// The function that contains an instruction.
    #[must_use]
    pub fn function_at(&self, code: usize, at: usize) -> Option<usize> {
        self.functions.iter().position(|function| function.code == code && (function.start..function.end).contains(&at))
    }

    /// The function to which an instruction refers: by a call, or by its address.
    #[must_use]
    pub fn target(&self, code: usize, at: usize) -> Option<usize> {
        let (code, at) = self.target_place(code, at)?;
        let found = self.function_at(code, at)?;
        (self.functions[found].start == at).then_some(found)
    }

    /// Section and instruction to which a call or an address refers.
    #[must_use]
    pub fn target_place(&self, code: usize, at: usize) -> Option<(usize, usize)> {
        let section = &self.code[code];
        let insn = section.insns[at];
        let is_call = insn.code == Insn::CALL;
        let Some((symbol, _)) = section.relocs.get(&at) else {
            let target = i64::try_from(at).ok()? + 1 + i64::from(insn.imm);
            return (is_call && insn.src == 1).then_some((code, usize::try_from(target).ok()?));
        };
        let symbol = &self.symbols[*symbol];
        let code = self.code.iter().position(|code| code.section == symbol.section)?;
        let base = i64::try_from(symbol.value).ok()? / SIZE as i64;
        let target = base + if is_call { i64::from(insn.imm) + 1 } else { i64::from(insn.imm) / SIZE as i64 };
        Some((code, usize::try_from(target).ok()?))
    }

    /// The name of the function of the kernel that is called.
    #[must_use]
    pub fn external(&self, code: usize, at: usize) -> Option<&str> {
        let (symbol, _) = self.code[code].relocs.get(&at)?;
        let symbol = &self.symbols[*symbol];
        (symbol.section == 0).then_some(&symbol.name)
    }

    /// Whether an instruction loads the address of a map that holds sockets.
    #[must_use]
    pub fn loads_socket_map(&self, code: usize, at: usize) -> bool {
        let symbol = self.code[code].relocs.get(&at).map(|(symbol, _)| &self.symbols[*symbol]);
        self.code[code].insns[at].code == Insn::LD_IMM64
            && symbol.is_some_and(|symbol| symbol.section != 0 && self.types.socket_maps.contains(&symbol.name))
    }

    fn symbol(&self, name: &str) -> Option<usize> {
        self.symbols.iter().position(|symbol| symbol.name == name && symbol.section != 0)
    }

    /// Number of the symbol of what user space tells all runs.
    #[must_use]
    pub fn control(&self) -> Option<usize> {
        self.symbol(CONTROL)
    }

    /// Number of the symbol of the function that a look calls, and the function.
    #[must_use]
    pub fn look(&self) -> Option<(usize, usize)> {
        [LOCK_LOOK, HEAP_LOOK, LOOK].into_iter().find_map(|name| self.called(name))
    }

    /// The same of what programs of an object with a heap call at their beginning.
    #[must_use]
    pub fn begin(&self) -> Option<(usize, usize)> {
        self.called(HEAP_BEGIN)
    }

    /// The same of what they call at their end.
    #[must_use]
    pub fn left(&self) -> Option<(usize, usize)> {
        [LOCK_LEFT, HEAP_LEFT].into_iter().find_map(|name| self.called(name))
    }

    /// Whether a function is a program whose accesses of the heap are watched.
    #[must_use]
    pub fn notes_faults(&self, function: &Function) -> bool {
        function.is_program && function.name != HEAP_FAULT && self.begin().is_some()
    }

    fn called(&self, name: &str) -> Option<(usize, usize)> {
        Some((self.symbol(name)?, self.function(name)?))
    }

    /// The function of which each call becomes the address of the run. An object that has it uses locks.
    #[must_use]
    pub fn this_run(&self) -> Option<usize> {
        self.function(THIS_RUN)
    }

    /// The functions that end a run, and find what it holds: nothing is inserted into them.
    pub fn ending(&self) -> impl Iterator<Item = usize> + '_ {
        let called = [self.look(), self.begin(), self.left()].into_iter().flatten().map(|(_, function)| function);
        called.chain(self.function(LOCK_FIND))
    }

    /// Where a function asks for the address of the run.
    #[must_use]
    pub fn asks_for_run(&self, function: &Function) -> Vec<usize> {
        let Some(this_run) = self.this_run() else { return Vec::new() };
        let insns = &self.code[function.code].insns;
        let is_it = |at: &usize| {
            insns[*at].callee() == Some(Callee::Subprogram) && self.target(function.code, *at) == Some(this_run)
        };
        (function.start..function.end).filter(is_it).collect()
    }

    fn function(&self, name: &str) -> Option<usize> {
        self.functions.iter().position(|function| function.name == name && !function.is_program)
    }

    /// Whether it includes the header.
    #[must_use]
    pub fn has_header(&self) -> bool {
        self.control().is_some() && self.look().is_some()
    }

    /// Whether something calls the function of looks, which no source does.
    #[must_use]
    pub fn is_rewritten(&self) -> bool {
        let Some((_, look)) = self.look() else { return false };
        let calls = |(number, code): (usize, &Code)| {
            (0..code.insns.len()).any(|at| code.insns[at].code == Insn::CALL && self.target(number, at) == Some(look))
        };
        self.code.iter().enumerate().any(calls)
    }

    /// Functions, each after those that it calls.
    #[must_use]
    pub fn callees_first(&self) -> Vec<usize> {
        let mut order = Vec::new();
        let mut seen = vec![false; self.functions.len()];
        let mut stack: Vec<(usize, bool)> = (0..self.functions.len()).rev().map(|function| (function, false)).collect();
        while let Some((number, is_done)) = stack.pop() {
            if is_done {
                order.push(number);
            } else if !std::mem::replace(&mut seen[number], true) {
                let function = &self.functions[number];
                stack.push((number, true));
                let calls = (function.start..function.end).filter_map(|at| self.target(function.code, at));
                stack.extend(calls.map(|callee| (callee, false)));
            }
        }
        order
    }
}

/// The header of an object for eBPF.
///
/// # Errors
/// [`Error::Object`]: it is none.
pub fn header(bytes: &[u8]) -> Result<&Header, Error> {
    let header = Header::parse(bytes).map_err(wrong)?;
    if header.e_machine.get(E) != elf::EM_BPF || header.e_type.get(E) != elf::ET_REL || !header.is_little_endian() {
        return Err(wrong("it is not a relocatable object for little-endian eBPF (clang -target bpf)"));
    }
    Ok(header)
}

fn read_code(section: usize, name: String, data: &[u8]) -> Result<Code, Error> {
    let insns = data.chunks(SIZE).map(Insn::read).collect::<Option<Vec<_>>>();
    let insns = insns.ok_or_else(|| wrong(format!("{name} ends inside an instruction")))?;
    Ok(Code { section, name, insns, relocs: BTreeMap::new(), rel_section: None, twins: BTreeMap::new() })
}

/// The functions. Together they must be all code, so that nothing is forgotten.
fn functions(code: &[Code], symbols: &[Symbol], types: &Types) -> Result<Vec<Function>, Error> {
    let mut found = Vec::new();
    for (index, code) in code.iter().enumerate() {
        let own = symbols.iter().filter(|symbol| symbol.section == code.section && symbol.kind == elf::STT_FUNC);
        let mut own: Vec<_> = own.collect();
        own.sort_by_key(|symbol| symbol.value);
        let mut end = 0;
        for symbol in own {
            let start = symbol.value as usize;
            let last = start.checked_add(symbol.size as usize).filter(|last| *last <= code.insns.len() * SIZE);
            if start != end || symbol.size == 0 || start % SIZE != 0 || last.is_none_or(|last| last % SIZE != 0) {
                return Err(wrong(format!("{}: the symbol of {} does not fit its code", code.name, symbol.name)));
            }
            end = start + symbol.size as usize;
            found.push(Function {
                name: symbol.name.clone(),
                code: index,
                start: start / SIZE,
                end: end / SIZE,
                is_program: code.name != ".text",
                is_static: symbol.is_static,
                parameters: types.parameters.get(&symbol.name).copied(),
            });
        }
        if end != code.insns.len() * SIZE {
            return Err(wrong(format!("{}: some code belongs to no function", code.name)));
        }
    }
    Ok(found)
}
