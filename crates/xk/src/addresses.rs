//! Where the functions and objects of a scope table are in the running kernel.
//!
//! In: the kernel's own list of symbols and, for modules, where it loaded
//! their sections. Out: exactly one address for each, or none if its
//! module is not loaded: the kernel finds it when it comes. A name is never
//! enough: vmlinux is told apart by the distance from `_stext`, a module's
//! symbols by the distance from the start of their section.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use xk_runtime::AddressOf;
use xk_table::{DataSite, Function, ScopeTable};

use crate::context::Folders;
use crate::exit::{Failure, Result};

const KALLSYMS: &str = "/proc/kallsyms";
const MODULES: &str = "/sys/module";

/// The symbols of the running kernel.
#[derive(Debug)]
pub struct Addresses {
    /// Of a symbol and its module.
    symbols: HashMap<(String, Option<String>), Vec<u64>>,
    stext: u64,
    /// Of `_printk`; 0 where there is none.
    printk: u64,
    modules: PathBuf,
}

impl Addresses {
    /// Of the running kernel; only the symbols that `tables` name are kept.
    pub fn live<'a>(tables: impl Iterator<Item = &'a ScopeTable>) -> Result<Self> {
        let text = fs::read_to_string(KALLSYMS)
            .map_err(|error| Failure::error(format!("{KALLSYMS}: {error}; is /proc mounted?")))?;
        let names = |table: &'a ScopeTable| {
            let functions = table.functions.iter().map(|function| function.symbol.as_str());
            functions.chain(table.data.iter().map(|data| data.symbol.as_str()))
        };
        let wanted: Vec<&str> = tables.flat_map(names).collect();
        Self::parse(&text, &wanted, Path::new(MODULES))
    }

    fn parse(text: &str, wanted: &[&str], modules: &Path) -> Result<Self> {
        let mut symbols: HashMap<(String, Option<String>), Vec<u64>> = HashMap::new();
        let (mut stext, mut printk) = (0, 0);
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if name == "_stext" {
                stext = address;
            }
            if name == "_printk" {
                printk = address;
            }
            if wanted.contains(&name) {
                let module = words.next().map(|word| word.trim_matches(['[', ']']).to_owned());
                let addresses = symbols.entry((name.to_owned(), module)).or_default();
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        if stext == 0 {
            return Err(Failure::error(format!(
                "{KALLSYMS} shows no addresses: run this as root; if root does not see them either, \
                 set kernel.kptr_restrict to 1 (sysctl -w kernel.kptr_restrict=1)"
            )));
        }
        Ok(Self { symbols, stext, printk, modules: modules.to_owned() })
    }

    /// What addresses of vmlinux in a signed table are counted from.
    pub fn anchor(&self) -> Result<u64> {
        match self.printk {
            0 => Err(Failure::error(format!("{KALLSYMS} has no _printk: nothing can be signed for this kernel"))),
            address => Ok(address),
        }
    }

    fn section(&self, module: &str, section: &str) -> Option<u64> {
        let path = self.modules.join(module).join("sections").join(section);
        let text = fs::read_to_string(path).ok()?;
        u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok().filter(|&address| address != 0)
    }

    /// Whether a module's code is there.
    fn is_loaded(&self, module: &str) -> bool {
        // Built-in modules have a folder too, without a state.
        self.modules.join(spelling(module)).join("initstate").exists()
    }
}

/// The name of a module as the kernel spells it; its file may have `-`.
fn spelling(module: &str) -> String {
    module.replace('-', "_")
}

/// A symbol, and where it was analysed.
struct Place<'a> {
    /// `function` or `object`.
    what: &'static str,
    symbol: &'a str,
    module: Option<String>,
    section: &'a str,
    offset: u64,
}

impl Addresses {
    fn find(&self, place: &Place<'_>) -> std::result::Result<Option<u64>, String> {
        let Place { what, section, offset, .. } = place;
        let key = (place.symbol.to_owned(), place.module.clone());
        let candidates = self.symbols.get(&key).map_or(&[][..], Vec::as_slice);
        let Some(module) = &place.module else {
            let address = self.stext.wrapping_add(*offset);
            return match candidates {
                [] => Err(format!(
                    "the running kernel has no such {what}: the table is for another build; run `xk build` again"
                )),
                _ if candidates.contains(&address) => Ok(Some(address)),
                _ => Err(format!(
                    "not at _stext+{offset:#x}, where it was analysed: the table is for another build; \
                     run `xk build` again"
                )),
            };
        };
        match (candidates, self.section(module, section)) {
            ([], _) if !self.is_loaded(module) => Ok(None),
            ([], _) => Err(format!("module {module} has no such {what}: it was updated; run `xk build` again")),
            // What is there is compared again when it is loaded.
            ([only], None) => Ok(Some(*only)),
            (_, Some(start)) => {
                let address = start.wrapping_add(*offset);
                candidates.contains(&address).then_some(Some(address)).ok_or_else(|| {
                    format!(
                        "not at {section}+{offset:#x} of module {module}, where it was analysed: the module was \
                         updated; run `xk build` again"
                    )
                })
            }
            (several, None) => Err(format!(
                "module {module} has {} {what}s of this name, and where it was loaded ({}) cannot be read",
                several.len(),
                self.modules.join(module).join("sections").join(section).display()
            )),
        }
    }
}

impl AddressOf for Addresses {
    fn address(&self, function: &Function) -> std::result::Result<Option<u64>, String> {
        self.find(&Place {
            what: "function",
            symbol: &function.symbol,
            module: function.module.as_deref().map(spelling),
            section: &function.section,
            offset: function.text_offset,
        })
    }

    fn data_address(&self, data: &DataSite) -> std::result::Result<Option<u64>, String> {
        self.find(&Place {
            what: "object",
            symbol: &data.symbol,
            module: data.module.as_deref().map(spelling),
            section: &data.section,
            offset: data.section_offset,
        })
    }

    fn signature(&self, table: &ScopeTable) -> std::result::Result<Option<Vec<u8>>, String> {
        let file = Folders::new().signature_file(table).map_err(|failure| failure.message)?;
        match fs::read(&file) {
            Ok(signature) => Ok(Some(signature)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("its signature cannot be read: {}: {error}", file.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000000 T _stext\n\
                        ffffffff81000100 t twice\n\
                        ffffffff81000900 t twice\n\
                        ffffffff81000200 T once\n\
                        ffffffffc0001040 t twice\t[a_mod]\n\
                        ffffffffc0001080 t twice\t[a_mod]\n\
                        ffffffffc0001000 t lone\t[a_mod]\n";

    fn function(symbol: &str, module: Option<&str>, text_offset: u64) -> Function {
        Function {
            symbol: symbol.into(),
            module: module.map(Into::into),
            text_offset,
            section: ".text".into(),
            bytes: String::new(),
            mask: String::new(),
            source: String::new(),
        }
    }

    fn addresses(modules: &Path) -> Addresses {
        Addresses::parse(TEXT, &["twice", "once", "lone"], modules).unwrap()
    }

    #[test]
    fn functions_of_one_name_are_told_apart_by_their_offset() {
        let known = addresses(Path::new("/nonexistent"));
        assert_eq!(known.address(&function("twice", None, 0x900)), Ok(Some(0xffff_ffff_8100_0900)));
        assert_eq!(known.address(&function("twice", None, 0x100)), Ok(Some(0xffff_ffff_8100_0100)));
        assert!(known.address(&function("twice", None, 0x200)).is_err());
        assert!(known.address(&function("none", None, 0x200)).is_err());
    }

    #[test]
    fn functions_of_modules_lie_in_their_section() {
        let folder = tempfile::tempdir().unwrap();
        let sections = folder.path().join("a_mod/sections");
        fs::create_dir_all(&sections).unwrap();
        let known = addresses(folder.path());
        assert_eq!(known.address(&function("lone", Some("a-mod"), 0)), Ok(Some(0xffff_ffff_c000_1000)));
        assert!(known.address(&function("twice", Some("a-mod"), 0x80)).is_err_and(|e| e.contains("2 functions")));
        fs::write(sections.join(".text"), "0xffffffffc0001000\n").unwrap();
        assert_eq!(known.address(&function("twice", Some("a-mod"), 0x80)), Ok(Some(0xffff_ffff_c000_1080)));
        assert!(known.address(&function("twice", Some("a-mod"), 0x20)).is_err_and(|e| e.contains("updated")));
        assert_eq!(known.address(&function("lone", Some("absent"), 0)), Ok(None));
        // Loaded, and without the function: that is not the module that was analysed.
        fs::write(folder.path().join("a_mod/initstate"), "live\n").unwrap();
        assert!(known.address(&function("once", Some("a-mod"), 0)).is_err_and(|e| e.contains("updated")));
    }

    #[test]
    fn objects_are_found_as_functions_are() {
        let known = addresses(Path::new("/nonexistent"));
        let mut object = DataSite {
            symbol: "once".into(),
            module: None,
            section: ".data".into(),
            section_offset: 0x200,
            offset: 8,
            width: 4,
            fit: xk_table::Fit::linear(1, 0, 4),
            source: String::new(),
        };
        assert_eq!(known.data_address(&object), Ok(Some(0xffff_ffff_8100_0200)));
        object.section_offset = 0x208;
        assert!(known.data_address(&object).is_err_and(|e| e.contains("_stext+0x208")));
        object.module = Some("absent".into());
        assert_eq!(known.data_address(&object), Ok(None));
    }

    #[test]
    fn hidden_addresses_are_an_error() {
        let hidden = TEXT.replace("ffffffff8100", "0000000000000000");
        let hidden: String = hidden.lines().map(|line| format!("0000000000000000 {}\n", &line[17..])).collect();
        assert!(Addresses::parse(&hidden, &[], Path::new("/")).is_err_and(|e| e.message.contains("root")));
    }
}
