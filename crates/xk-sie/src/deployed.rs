//! The deployed code as `xk-kernel` reads it: from a running kernel, a bundle,
//! or the files of a distribution's packages. Module code always comes from
//! the module's file, so that a constant can be analysed before its module is
//! loaded; `xk.ko` compares with the loaded copy again.

use std::collections::HashSet;

use xk_kernel::{Image, Module, Symbol};

use crate::identity::{Candidate, Deployed};
use crate::prototypes::{shared_names, Prototypes};

impl Deployed for Image {
    fn candidates(&self, symbol: &str, module: Option<&str>) -> Result<Vec<Candidate>, String> {
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
                let module = self.module(name).map_err(|e| e.to_string())?;
                Ok(functions(&module, symbol))
            }
        }
    }

    fn text(&self, candidate: &Candidate, module: Option<&str>, len: usize) -> Result<Vec<u8>, String> {
        match module {
            None => self.read(candidate.address, len).map_err(|e| e.to_string()),
            Some(name) => {
                let module = self.module(name).map_err(|e| e.to_string())?;
                let outside =
                    || format!("{name}: {}+{:#x} lies outside the module", candidate.section, candidate.address);
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
