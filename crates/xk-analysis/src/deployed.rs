//! The deployed code as `xk-kernel` reads it: from a running kernel, a bundle,
//! or the files of a distribution's packages. Module code always comes from
//! the module's file, so that a constant can be analysed before its module is
//! loaded; `xk.ko` compares with the loaded copy again.

use std::collections::HashSet;

use xk_kernel::{Image, Module, Symbol};
use xk_lift::object::reloc;
use xk_lift::prototypes::{shared_names, Prototypes};

use crate::identity::{Candidate, Deployed, Linked, Reference, Unreadable};

impl Deployed for Image {
    fn candidates(&self, symbol: &str, module: Option<&str>) -> Result<Vec<Candidate>, Unreadable> {
        match module {
            None => {
                let base = self.text_base();
                let found = self.symbols(symbol).into_iter().filter(|s| s.module.is_none());
                Ok(found
                    .map(|s| Candidate {
                        section: ".text".into(),
                        text_offset: s.address.wrapping_sub(base),
                        address: s.address,
                    })
                    .collect())
            }
            Some(name) => {
                let module = self.shared_module(name)?;
                Ok(functions(&module, symbol))
            }
        }
    }

    fn text(&self, candidate: &Candidate, module: Option<&str>, len: usize) -> Result<Vec<u8>, Unreadable> {
        match module {
            None => Ok(self.read(candidate.address, len)?),
            Some(name) => {
                let module = self.shared_module(name)?;
                let outside = || Unreadable::Outside {
                    module: name.to_owned(),
                    section: candidate.section.clone(),
                    offset: candidate.address,
                };
                let section = module.section(&candidate.section).ok_or_else(outside)?;
                let start = candidate.address as usize;
                let end = start.checked_add(len).ok_or_else(outside)?;
                section.data.get(start..end).map(<[u8]>::to_vec).ok_or_else(outside)
            }
        }
    }

    fn prototypes(&self, modules: &[&str]) -> Prototypes {
        let vmlinux = self.btf().map(|btf| Prototypes::of_btf(&btf)).unwrap_or_default();
        // One that cannot be read has no unit that is located in it.
        let modules: Vec<Module> = modules.iter().filter_map(|name| self.module(name).ok()).collect();
        let known = modules.iter().fold(vmlinux, |known, module| match module.section(".BTF") {
            Some(section) => known.with_module(&section.data),
            None => known,
        });
        known.without(ambiguous(self, &modules))
    }

    fn linked(&self) -> Option<&dyn Linked> {
        Some(self)
    }
}

/// The bytes of a relocated field as the processor takes them.
fn value(bytes: &[u8], kind: u32) -> Option<u64> {
    let word = || bytes.get(..4)?.try_into().ok().map(u32::from_le_bytes);
    Some(match kind {
        reloc::ABS64 | reloc::PC64 => u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?),
        reloc::ABS32 => u64::from(word()?),
        _ => word()? as i32 as u64,
    })
}

impl Linked for Image {
    fn reference(
        &self,
        field: &Candidate,
        kind: u32,
        end: u64,
        module: Option<&str>,
    ) -> Result<Option<Reference>, Unreadable> {
        let relative = matches!(kind, reloc::PC32 | reloc::PLT32 | reloc::PC64);
        let Some(name) = module else {
            let size = reloc::size(kind).map_or(0, usize::from);
            let bytes = self.read(field.address, size)?;
            let Some(value) = value(&bytes, kind) else { return Ok(None) };
            let base = if relative { field.address.wrapping_add(end) } else { 0 };
            let address = base.wrapping_add(value);
            return Ok(Some(Reference::Place(Candidate { section: String::new(), text_offset: address, address })));
        };
        // A module is linked when it is loaded: until then its file says what it refers to.
        let module = self.shared_module(name)?;
        let Some(section) = module.section(&field.section) else { return Ok(None) };
        let found = section.relocations.iter().find(|relocation| relocation.offset == field.address);
        let missing = || Unreadable::NotRelocated {
            module: name.to_owned(),
            section: field.section.clone(),
            offset: field.address,
        };
        let relocation = found.ok_or_else(missing)?;
        let symbol = module.symbols.get(relocation.symbol).ok_or_else(missing)?;
        let behind = if relative { relocation.addend.wrapping_add(end as i64) } else { relocation.addend };
        Ok(Some(match symbol.section.and_then(|section| module.sections.get(section)) {
            Some(section) => {
                let address = symbol.offset.wrapping_add(behind as u64);
                Reference::Place(Candidate { section: section.name.clone(), text_offset: address, address })
            }
            None => Reference::Symbol { name: symbol.name.clone(), offset: behind },
        }))
    }

    fn describe(&self, section: &str, address: u64, module: Option<&str>) -> String {
        match (module, self.text_symbol_at(address)) {
            (Some(_), _) => format!("{section}+{address:#x}"),
            (None, Some(symbol)) => format!("{}{:+#x}", symbol.name, address - symbol.address),
            (None, None) => format!("{address:#x}"),
        }
    }
}

/// Which function a place is in: of vmlinux by address, of modules by module and section.
type FunctionPlace<'a> = (Option<&'a str>, usize, u64);

/// Names of which it is not certain that the functions of vmlinux and `modules` that BTF
/// describes by them are those that their code means.
fn ambiguous(image: &Image, modules: &[Module]) -> HashSet<String> {
    let own = |s: &&Symbol| s.module.is_none() && s.is_text();
    let vmlinux: Vec<&Symbol> = image.all_symbols().iter().filter(own).collect();
    let mut functions: Vec<(&str, FunctionPlace<'_>)> =
        vmlinux.iter().map(|s| (s.name.as_str(), (None, 0, s.address))).collect();
    let exported = modules.iter().flat_map(|module| &module.symbols).filter(|s| s.global && s.section.is_some());
    let global: HashSet<&str> = vmlinux
        .iter()
        .filter(|s| matches!(s.kind, 'T' | 'W'))
        .map(|s| s.name.as_str())
        .chain(exported.map(|s| s.name.as_str()))
        .collect();
    for module in modules {
        for symbol in module.symbols.iter().filter(|s| !s.name.is_empty()) {
            let owner = Some(module.name.as_str());
            match symbol.section {
                Some(section) if symbol.function => {
                    functions.push((&symbol.name, (owner, section, symbol.offset)));
                }
                Some(_) => {}
                // A function of some other module: what has its name here is not it.
                None if !global.contains(symbol.name.as_str()) => {
                    functions.push((&symbol.name, (None, usize::MAX, 0)));
                }
                None => {}
            }
        }
    }
    shared_names(functions)
}

fn functions(module: &Module, symbol: &str) -> Vec<Candidate> {
    module
        .symbols_named(symbol)
        .filter_map(|s| {
            let section = &module.sections.get(s.section?)?.name;
            Some(Candidate { section: section.clone(), text_offset: s.offset, address: s.offset })
        })
        .collect()
}
