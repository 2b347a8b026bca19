//! A relocatable object of the kernel: its functions as instructions, and the
//! tables through which the kernel jumps into or patches them.
//!
//! In: the bytes of a `.o` file. Out: [`Object`]. Refused: anything that is not
//! an x86-64 ELF object, or a function that does not decode.

mod alternatives;
mod control;
mod names;
pub mod reloc;
mod tables;

pub use alternatives::Alternative;
pub use control::successors;
pub use names::DataNames;

use std::collections::{BTreeMap, HashMap, HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use object::read::elf::ElfFile64;
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget, SectionFlags, SymbolKind,
};
use thiserror::Error;

use crate::insn::{Insn, Node, SymbolRef, Target};

/// Why an object could not be read.
#[derive(Debug, Error)]
pub enum ObjectError {
    /// Not an ELF object, or damaged.
    #[error("not a usable ELF object: {0}")]
    Elf(String),
    /// Bytes that are no instruction.
    #[error("{function}+{offset:#x}: not a valid instruction")]
    Decode {
        /// Function.
        function: String,
        /// Offset in it.
        offset: u64,
    },
}

/// A section with its relocations.
#[derive(Debug, Clone)]
pub struct Section {
    /// Name.
    pub name: String,
    /// Contents; empty for `.bss`.
    pub data: Vec<u8>,
    /// Size, also of `.bss`.
    pub size: u64,
    /// Whether it is loaded.
    pub allocated: bool,
    /// Whether it is code.
    pub executable: bool,
    /// Relocations by offset.
    pub relocations: BTreeMap<u64, Relocation>,
}

/// One relocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocation {
    /// ELF type (`R_X86_64_*`).
    pub kind: u32,
    /// Bytes that the linker writes.
    pub size: u8,
    /// Symbol or section, with the addend as written.
    pub target: RelocTarget,
}

/// What a relocation refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelocTarget {
    /// A place in a section of this object.
    Section {
        /// Index.
        section: usize,
        /// Offset including the addend.
        offset: i64,
    },
    /// A symbol defined elsewhere.
    Symbol(SymbolRef),
}

/// A function symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Name.
    pub name: String,
    /// First instruction.
    pub start: Node,
    /// Size in bytes.
    pub size: u64,
    /// Whether another definition may replace it.
    pub weak: bool,
}

impl Function {
    /// The function that it is a part of, if the compiler has moved it away; else itself.
    #[must_use]
    pub fn whole(&self) -> &str {
        self.name.split_once(".cold").map_or(&self.name, |(whole, _)| whole)
    }
}

/// A site that the kernel patches by itself, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatchSite {
    /// First byte.
    pub at: Node,
    /// Bytes.
    pub len: u64,
}

/// What the kernel reports when it comes to a `ud2` (include/asm-generic/bug.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bug {
    /// Source file.
    pub file: Option<SymbolRef>,
    /// Line.
    pub line: u16,
    /// `BUGFLAG_*`.
    pub flags: u16,
}

/// What the code of the section `.altinstr_aux` is called; the kernel gives it no
/// symbol.
pub const AUXILIARY: &str = ".cold.altinstr_aux";

/// An object of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSymbol {
    /// Section that holds it.
    pub section: String,
    /// Offset in the section.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// Whether another definition may replace it.
    pub weak: bool,
}

/// Sections of constants that the linker merges: what counts is the content, and
/// only where code refers to it.
pub const CONSTANT_POOL: &str = ".rodata.cst";
/// Sections of string literals, likewise.
pub const LITERALS: &str = ".rodata.str";

/// A parsed object.
#[derive(Debug, Default)]
pub struct Object {
    /// Sections by ELF index.
    pub sections: Vec<Section>,
    /// Functions, also the `.cold` parts, by place.
    pub functions: BTreeMap<Node, Function>,
    /// Instructions of all functions by place.
    pub insns: BTreeMap<Node, Insn>,
    /// Jump label sites: no-op or jump, to where, under which key.
    pub jump_labels: HashMap<Node, (Node, String)>,
    /// Where a faulting instruction continues.
    pub fixups: HashMap<Node, Node>,
    /// How a fault is handled: type, register and value of the table entry.
    pub handlers: HashMap<Node, [u8; 4]>,
    /// `ud2` that continues after itself (`WARN`).
    pub warnings: HashSet<Node>,
    /// What is reported of a `ud2`: file, line and flags.
    pub bugs: HashMap<Node, Bug>,
    /// Sites of alternatives.
    pub alternatives: Vec<PatchSite>,
    /// The entries that describe each site: section and offset.
    choices: HashMap<Node, Vec<(usize, u64)>>,
    /// Fields of instructions that the kernel fills in at boot.
    pub runtime_constants: Vec<PatchSite>,
    /// What it fills in there, by the name of the section that lists the place.
    runtime_names: Vec<String>,
    /// Instructions in whose place others may run.
    pub in_alternative: HashSet<Node>,
    /// Lock prefixes that the kernel replaces on a single processor.
    pub lock_prefixes: Vec<Node>,
    /// Functions that must not be probed (`NOKPROBE_SYMBOL`).
    pub blacklist: HashSet<String>,
    /// Data objects by name.
    pub data_symbols: BTreeMap<String, DataSymbol>,
    /// What data is called, if not as in the file.
    names: DataNames,
}

impl Object {
    /// Parses `data`.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn parse(data: &[u8]) -> Result<Self, ObjectError> {
        let elf = ElfFile64::<object::Endianness>::parse(data).map_err(|e| ObjectError::Elf(e.to_string()))?;
        if object::Object::architecture(&elf) != object::Architecture::X86_64 {
            return Err(ObjectError::Elf("not x86-64".into()));
        }
        let mut this = Self::default();
        this.read_sections(&elf)?;
        this.read_symbols(&elf);
        this.name_auxiliary_code();
        this.read_relocations(&elf)?;
        this.decode()?;
        this.read_tables();
        Ok(this)
    }

    fn read_sections(&mut self, elf: &ElfFile64<'_>) -> Result<(), ObjectError> {
        for section in elf.sections() {
            let index = section.index().0;
            while self.sections.len() < index {
                self.sections.push(Section::empty());
            }
            let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
            self.sections.push(Section {
                name: section.name().unwrap_or("").to_owned(),
                data: section.data().map_err(|e| ObjectError::Elf(e.to_string()))?.to_vec(),
                size: section.size(),
                allocated: sh_flags & u64::from(object::elf::SHF_ALLOC) != 0,
                executable: sh_flags & u64::from(object::elf::SHF_EXECINSTR) != 0,
                relocations: BTreeMap::new(),
            });
        }
        Ok(())
    }

    fn read_symbols(&mut self, elf: &ElfFile64<'_>) {
        for symbol in elf.symbols() {
            let (Some(section), Ok(name)) = (symbol.section_index(), symbol.name()) else { continue };
            match symbol.kind() {
                SymbolKind::Text if symbol.size() > 0 && symbol.address().checked_add(symbol.size()).is_some() => {
                    let start = Node { section: section.0, offset: symbol.address() };
                    let function = Function { name: name.into(), start, size: symbol.size(), weak: symbol.is_weak() };
                    self.functions.entry(start).or_insert(function);
                }
                SymbolKind::Data => {
                    let section = self.sections.get(section.0).map_or("", |s| &s.name).to_owned();
                    let (offset, size, weak) = (symbol.address(), symbol.size(), symbol.is_weak());
                    let data = DataSymbol { section, offset, size, weak };
                    self.data_symbols.insert(name.to_owned(), data);
                }
                _ => {}
            }
        }
    }

    /// `.altinstr_aux` holds the slow path of `static_cpu_has()`: code that is
    /// jumped to but has no symbol (arch/x86/include/asm/cpufeature.h).
    fn name_auxiliary_code(&mut self) {
        for (index, section) in self.sections.iter().enumerate() {
            if section.name == ".altinstr_aux" && !section.data.is_empty() {
                let start = Node { section: index, offset: 0 };
                let function = Function { name: AUXILIARY.into(), start, size: section.size, weak: false };
                self.functions.entry(start).or_insert(function);
            }
        }
    }

    fn read_relocations(&mut self, elf: &ElfFile64<'_>) -> Result<(), ObjectError> {
        for section in elf.sections() {
            let index = section.index().0;
            for (offset, relocation) in section.relocations() {
                let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
                let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
                let symbol = elf.symbol_by_index(symbol).map_err(|e| ObjectError::Elf(e.to_string()))?;
                let addend = relocation.addend();
                let target = match symbol.section_index() {
                    Some(section) if !symbol.is_weak() => {
                        let offset = (symbol.address() as i64).wrapping_add(addend);
                        RelocTarget::Section { section: section.0, offset }
                    }
                    _ => {
                        let name = symbol.name().unwrap_or("").to_owned();
                        RelocTarget::Symbol(SymbolRef { name, offset: addend })
                    }
                };
                let Some(size) = reloc::size(r_type) else { continue };
                if let Some(section) = self.sections.get_mut(index) {
                    section.relocations.insert(offset, Relocation { kind: r_type, size, target });
                }
            }
        }
        Ok(())
    }

    fn decode(&mut self) -> Result<(), ObjectError> {
        let functions: Vec<Function> = self.functions.values().cloned().collect();
        for function in functions {
            let (start, end) = (function.start.offset as usize, (function.start.offset + function.size) as usize);
            let section = self.sections.get(function.start.section);
            let Some(bytes) = section.and_then(|section| section.data.get(start..end)) else {
                return Err(ObjectError::Elf(format!("{} lies outside its section", function.name)));
            };
            let mut decoder = Decoder::with_ip(64, bytes, function.start.offset, DecoderOptions::NONE);
            let mut decoded = Vec::new();
            while decoder.can_decode() {
                let offset = decoder.ip();
                let raw = decoder.decode();
                if raw.is_invalid() {
                    let offset = offset - function.start.offset;
                    return Err(ObjectError::Decode { function: function.name, offset });
                }
                let constants = decoder.get_constant_offsets(&raw);
                decoded.push((raw, constants));
            }
            for (raw, constants) in decoded {
                let node = Node { section: function.start.section, offset: raw.ip() };
                let at = |has: bool, offset: usize| has.then(|| raw.ip() + offset as u64);
                let displacement = at(constants.has_displacement(), constants.displacement_offset())
                    .and_then(|field| self.field(node.section, field, raw.next_ip()))
                    .or_else(|| {
                        // The assembler resolves references within a section by itself.
                        let offset = raw.ip_rel_memory_address() as i64;
                        raw.is_ip_rel_memory_operand().then_some(RelocTarget::Section { section: node.section, offset })
                    });
                let pool = displacement.as_ref().and_then(|target| self.pooled(target));
                let immediate = at(constants.has_immediate(), constants.immediate_offset())
                    .and_then(|field| self.field(node.section, field, raw.next_ip()));
                let is_branch = matches!(
                    raw.flow_control(),
                    FlowControl::Call | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
                );
                let target = is_branch.then(|| self.branch_target(node, &raw)).flatten();
                let (displacement, immediate) = (
                    displacement.map(|t| self.symbol_ref(&t)),
                    if is_branch { None } else { immediate.map(|t| self.symbol_ref(&t)) },
                );
                let displacement_at =
                    (constants.displacement_size() == 4).then(|| constants.displacement_offset() as u8);
                let pool = pool.filter(|_| raw.memory_size().size() <= 8);
                self.insns.insert(node, Insn { node, raw, displacement, displacement_at, pool, immediate, target });
            }
        }
        Ok(())
    }

    /// The content of a pool of constants at `target`, up to 8 bytes.
    fn pooled(&self, target: &RelocTarget) -> Option<u64> {
        let RelocTarget::Section { section, offset } = target else { return None };
        let section = self.sections.get(*section).filter(|s| s.name.starts_with(CONSTANT_POOL))?;
        let bytes = section.data.get(*offset as usize..)?;
        Some(bytes.iter().take(8).rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    /// The target of a relocated field of an instruction that ends at `end`.
    pub fn field(&self, section: usize, field: u64, end: u64) -> Option<RelocTarget> {
        let relocation = self.sections.get(section)?.relocations.get(&field)?;
        let correction = match relocation.kind {
            reloc::PC32 | reloc::PLT32 | reloc::PC64 => (end - field) as i64,
            _ => 0,
        };
        Some(match &relocation.target {
            RelocTarget::Section { section, offset } => {
                RelocTarget::Section { section: *section, offset: offset.wrapping_add(correction) }
            }
            RelocTarget::Symbol(symbol) => RelocTarget::Symbol(SymbolRef {
                name: symbol.name.clone(),
                offset: symbol.offset.wrapping_add(correction),
            }),
        })
    }

    fn branch_target(&self, node: Node, raw: &iced_x86::Instruction) -> Option<Target> {
        // The 32-bit displacement is the last field; a short branch is never relocated.
        let field = raw.next_ip().saturating_sub(4);
        match self.field(node.section, field, raw.next_ip()) {
            Some(RelocTarget::Section { section, offset }) => {
                Some(Target::Local(Node { section, offset: offset as u64 }))
            }
            Some(RelocTarget::Symbol(symbol)) => Some(Target::External(symbol)),
            None => Some(Target::Local(Node { section: node.section, offset: raw.near_branch_target() })),
        }
    }

    /// A name for a place that is the same in every build of the unit: the
    /// function for code, the content for what the linker merges (string
    /// literals, constants), else the section.
    #[must_use]
    pub fn symbol_ref(&self, target: &RelocTarget) -> SymbolRef {
        match target {
            RelocTarget::Symbol(symbol) => self.agreed(symbol),
            RelocTarget::Section { section, offset } => {
                let node = Node { section: *section, offset: *offset as u64 };
                if let Some(function) = self.function_at(node) {
                    let offset = node.offset.wrapping_sub(function.start.offset) as i64;
                    // Where in its function code lies is up to each build.
                    return match offset {
                        0 => SymbolRef { name: function.name.clone(), offset },
                        _ => SymbolRef { name: format!("label in {}", function.name), offset: 0 },
                    };
                }
                let Some(section) = self.sections.get(*section) else {
                    return SymbolRef { name: "?".into(), offset: *offset };
                };
                let rest = section.data.get(*offset as usize..).unwrap_or(&[]);
                if section.name.starts_with(LITERALS) {
                    let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
                    return SymbolRef { name: format!("\"{}\"", rest[..end].escape_ascii()), offset: 0 };
                }
                if let Some(size) = section.name.strip_prefix(CONSTANT_POOL).and_then(|n| n.parse::<usize>().ok()) {
                    return SymbolRef { name: format!("constant {:x?}", &rest[..size.min(rest.len())]), offset: 0 };
                }
                self.data_place(&section.name, *offset)
            }
        }
    }

    /// The function that contains `node`.
    #[must_use]
    pub fn function_at(&self, node: Node) -> Option<&Function> {
        let (_, function) = self.functions.range(..=node).next_back()?;
        let inside = function.start.section == node.section && node.offset < function.start.offset + function.size;
        inside.then_some(function)
    }

    /// Whether a direct branch or call goes to the symbol `name`.
    #[must_use]
    pub fn goes_to(&self, insn: &Insn, prefix: &str) -> bool {
        matches!(&insn.target, Some(Target::External(symbol)) if symbol.name.starts_with(prefix))
    }

    /// Every byte range of `function` that the running kernel may have
    /// changed: relocated fields and the sites that it patches by itself.
    #[must_use]
    pub fn patched_ranges(&self, function: &Function) -> Vec<PatchSite> {
        let (start, end) = (function.start.offset, function.start.offset + function.size);
        let section = function.start.section;
        let mut ranges = self.kernel_patched(function);
        if let Some(s) = self.sections.get(section) {
            for (&offset, relocation) in s.relocations.range(start..end) {
                ranges.push(PatchSite { at: Node { section, offset }, len: u64::from(relocation.size) });
            }
        }
        ranges
    }

    /// The sites of `function` that the running kernel patches by itself.
    #[must_use]
    pub fn kernel_patched(&self, function: &Function) -> Vec<PatchSite> {
        let (start, end) = (function.start.offset, function.start.offset + function.size);
        let section = function.start.section;
        let mut ranges = Vec::new();
        let inside = |node: &Node| node.section == section && (start..end).contains(&node.offset);
        let patched = self.alternatives.iter().chain(&self.runtime_constants);
        ranges.extend(patched.filter(|site| inside(&site.at)));
        let first = function.start;
        for (&node, insn) in self.insns.range(first..Node { section, offset: end }) {
            let whole = PatchSite { at: node, len: insn.len() };
            // ftrace, static calls, retpolines and return thunks are calls or
            // jumps to well-known symbols; endbr64 may be sealed.
            let thunk = ["__fentry__", "__SCT__", "__x86_indirect_", "__x86_return_thunk"];
            if thunk.iter().any(|prefix| self.goes_to(insn, prefix))
                || insn.raw.mnemonic() == Mnemonic::Endbr64
                || self.jump_labels.contains_key(&node)
            {
                ranges.push(whole);
            }
        }
        // On a single processor these lock prefixes are replaced; others stay.
        ranges.extend(self.lock_prefixes.iter().filter(|at| inside(at)).map(|&at| PatchSite { at, len: 1 }));
        ranges
    }

    /// The bytes of `function` and their mask: `0xff` where a deployed copy
    /// must agree.
    #[must_use]
    pub fn text_and_mask(&self, function: &Function) -> (Vec<u8>, Vec<u8>) {
        let start = function.start.offset as usize;
        let text = self.sections[function.start.section].data[start..start + function.size as usize].to_vec();
        let mut mask = vec![0xff; text.len()];
        for site in self.patched_ranges(function) {
            let from = (site.at.offset - function.start.offset) as usize;
            let to = (from + site.len as usize).min(mask.len());
            mask[from.min(to)..to].fill(0);
        }
        (text, mask)
    }
}

impl Section {
    fn empty() -> Self {
        Self {
            name: String::new(),
            data: Vec::new(),
            size: 0,
            allocated: false,
            executable: false,
            relocations: BTreeMap::new(),
        }
    }
}
