//! The deployed code as `xk-kernel` reads it: from a running kernel, a bundle,
//! or the files of a distribution's packages. Module code always comes from
//! the module's file, so that a constant can be analysed before its module is
//! loaded; `xk.ko` compares with the loaded copy again.

use xk_kernel::{Image, Module};

use crate::identity::{Candidate, Deployed};
use crate::prototypes::Prototypes;

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
        modules.iter().fold(vmlinux, |known, name| {
            let module = self.module(name).ok();
            let section = module.as_ref().and_then(|module| module.section(".BTF"));
            section.map_or(known.clone(), |section| known.with_module(&section.data))
        })
    }
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
