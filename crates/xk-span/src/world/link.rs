//! Modules: placed after the kernel, and linked to it as the loader would.

use std::collections::HashSet;
use std::sync::Arc;

use xk_kernel::{Image, ImageError, Module, ModuleSection};

use super::{words, Function, Placed, Region, World, CLOSED, EXPORTS, UNWIND};
use crate::patches::Tables;

/// The owner of symbols that are not defined.
const UNDEFINED_OWNER: usize = usize::MAX;
/// Where symbols are placed that are not defined.
const UNDEFINED: u64 = 0xffff_ffff_fe00_0000;

/// Sections of modules that list functions without calling them.
const LISTS: [&str; 3] = ["__mcount_loc", "_kprobe_blacklist", "_error_injection_whitelist"];

impl World {
    /// Places a module after those whose functions it calls.
    pub(super) fn place_with_needs(
        &mut self,
        image: &Image,
        name: &str,
        mut at: u64,
        known: &mut HashSet<String>,
    ) -> Result<u64, ImageError> {
        if !known.insert(name.replace('-', "_")) {
            return Ok(at);
        }
        let module = image.module(name)?;
        let needs = module.info("depends").unwrap_or_default();
        for need in needs.split(',').filter(|need| !need.is_empty()) {
            at = self.place_with_needs(image, need, at, known)?;
        }
        Ok(self.place(&module, at))
    }

    /// Places a module at `at` and links it; returns the first address after it.
    pub(super) fn place(&mut self, module: &Module, at: u64) -> u64 {
        let owner = self.owners.len();
        self.owners.push(Some(module.name.replace('-', "_")));
        if let Some(section) = module.section(".BTF") {
            self.types.add_module(&section.data);
        }
        let (starts, end) = self.place_sections(module, owner, at);
        for (section, &start) in module.sections.iter().zip(&starts).filter(|(section, _)| section.allocated) {
            let bytes = self.linked(module, section, start, &starts);
            self.read_section(section, start, &bytes);
            let boot = section.name.starts_with(".init") || section.name == ".altinstr_aux";
            self.regions.push(Region { start, bytes: Arc::new(bytes), code: section.executable, boot });
        }
        self.regions.sort_by_key(|region| region.start);
        self.read_unwind(module, &starts);
        self.name_module(module, owner, &starts);
        let tables = Tables::of_module(module, &starts, |start, length| self.read(start, length).map(<[u8]>::to_vec));
        self.patches.read(&tables);
        end
    }

    /// The tables of the unwinder, linked.
    fn read_unwind(&mut self, module: &Module, starts: &[u64]) {
        let start = |name: &str| {
            let index = module.sections.iter().position(|section| section.name == name && section.allocated)?;
            starts.get(index).copied()
        };
        let (Some(addresses), Some(entries)) = (start(UNWIND.0), start(UNWIND.1)) else { return };
        let tables = [addresses, entries].map(|start| self.region(start).map(|region| region.bytes.clone()));
        if let [Some(bytes), Some(entries)] = tables {
            self.unwind.add(addresses, &bytes, &entries);
        }
    }

    /// Gives each section of a module an address, from `at` on; returns them, and the first address after them.
    fn place_sections(&mut self, module: &Module, owner: usize, mut at: u64) -> (Vec<u64>, u64) {
        let mut starts = vec![0; module.sections.len()];
        for (start, section) in starts.iter_mut().zip(&module.sections).filter(|(_, section)| section.allocated) {
            at = at.next_multiple_of(4096);
            *start = at;
            self.placed.push(Placed { owner, section: section.name.clone(), start: at });
            at += section.size.max(1);
        }
        (starts, at)
    }

    /// The bytes of a section at `start`, relocated.
    fn linked(&mut self, module: &Module, section: &ModuleSection, start: u64, starts: &[u64]) -> Vec<u8> {
        let mut bytes = section.data.clone();
        for relocation in &section.relocations {
            let Some(symbol) = self.symbol_address(module, relocation.symbol, starts) else { continue };
            let place = start.wrapping_add(relocation.offset);
            let value = symbol.wrapping_add(relocation.addend as u64);
            // R_X86_64_64, PC32, PLT32, 32, 32S, PC64; modules have no others.
            let (value, size) = match relocation.kind {
                1 => (value, 8),
                2 | 4 => (value.wrapping_sub(place), 4),
                24 => (value.wrapping_sub(place), 8),
                10 | 11 => (value, 4),
                _ => continue,
            };
            let offset = relocation.offset as usize;
            let field = offset.checked_add(size).and_then(|end| bytes.get_mut(offset..end));
            let Some(field) = field else { continue };
            field.copy_from_slice(&value.to_le_bytes()[..size]);
            self.relocated.push((place, size as u8));
        }
        bytes
    }

    fn symbol_address(&mut self, module: &Module, index: usize, starts: &[u64]) -> Option<u64> {
        let symbol = module.symbols.get(index)?;
        match symbol.section {
            Some(section) => Some(starts.get(section)?.wrapping_add(symbol.offset)),
            None => Some(self.resolve(&symbol.name)),
        }
    }

    /// What the section of a module says about code.
    fn read_section(&mut self, section: &ModuleSection, start: u64, bytes: &[u8]) {
        let name = section.name.as_str();
        let range = start..start + bytes.len() as u64;
        if section.executable && CLOSED.iter().any(|(closed, ..)| name.starts_with(closed)) {
            self.closed.push((range.clone(), name.to_owned()));
        }
        if name == "_kprobe_blacklist" {
            self.blacklist.extend(words(bytes));
        }
        if EXPORTS.contains(&name) {
            self.export(start, bytes);
        }
        if LISTS.contains(&name) {
            self.listed.push(range);
        }
    }

    fn name_module(&mut self, module: &Module, owner: usize, starts: &[u64]) {
        let mut text = Vec::new();
        for symbol in module.symbols.iter().filter(|symbol| !symbol.name.is_empty()) {
            let Some(section) = symbol.section else { continue };
            let (Some(&start), Some(kind)) = (starts.get(section), module.sections.get(section)) else { continue };
            let start = start.wrapping_add(symbol.offset);
            if symbol.function && kind.executable {
                text.push((start, start.saturating_add(symbol.size), symbol.name.as_str()));
            } else if !symbol.function {
                self.objects.push((start, symbol.name.clone()));
            }
        }
        let auxiliary = module.sections.iter().zip(starts).filter(|(section, _)| section.name == ".altinstr_aux");
        text.extend(auxiliary.map(|(section, &start)| (start, start + section.size, xk_lift::object::AUXILIARY)));
        let first = self.functions.len();
        self.add_functions(text, owner);
        self.index_names(first);
    }

    /// Address of a symbol that a module does not define.
    fn resolve(&mut self, name: &str) -> u64 {
        if self.by_name.is_empty() {
            self.index_names(0);
        }
        // A static function of the same name is another one.
        let offered = |address: &u64| self.exported.contains(address) || self.blind;
        let functions = self.by_name.get(name).into_iter().flatten().map(|&index| &self.functions[index]);
        if let Some(found) = functions.clone().find(|f| f.owner == UNDEFINED_OWNER || offered(&f.start)) {
            return found.start;
        }
        if let Some((address, _)) = self.objects.iter().find(|(address, known)| known == name && offered(address)) {
            return *address;
        }
        let place = UNDEFINED + 16 * self.functions.len() as u64;
        let function = Function { start: place, end: place, names: vec![name.to_owned()], owner: UNDEFINED_OWNER };
        self.by_name.entry(name.to_owned()).or_default().push(self.functions.len());
        self.functions.push(function);
        place
    }
}
