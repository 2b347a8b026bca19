//! Where the functions and objects of a scope table are in the running kernel.
//!
//! In: the kernel's own list of symbols and, for modules, where it loaded
//! their sections. Out: exactly one address for each, or none if its
//! module is not loaded: the kernel finds it when it comes. A name is never
//! enough: vmlinux is told apart by the distance from `_stext`, a module's
//! symbols by the distance from the start of their section.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use thiserror::Error;
use xk_table::{DataSite, Function, ScopeTable};

const KALLSYMS: &str = "/proc/kallsyms";
const MODULES: &str = "/sys/module";

/// The symbols of the running kernel.
#[derive(Debug)]
pub struct Symbols {
    /// Of a symbol and its module.
    symbols: HashMap<(String, Option<String>), Vec<u64>>,
    stext: u64,
    /// Of `_printk`; 0 where there is none.
    printk: u64,
    modules: PathBuf,
}

impl Symbols {
    /// Of the running kernel; only the symbols that `tables` name are kept.
    ///
    /// # Errors
    /// [`SymbolsError::Unreadable`] and [`SymbolsError::Hidden`].
    pub fn live<'a>(tables: impl Iterator<Item = &'a ScopeTable>) -> Result<Self, SymbolsError> {
        let text = fs::read_to_string(KALLSYMS)?;
        let names = |table: &'a ScopeTable| {
            let functions = table.functions.iter().map(|function| function.symbol.as_str());
            functions.chain(table.data.iter().map(|data| data.symbol.as_str()))
        };
        let wanted: Vec<&str> = tables.flat_map(names).collect();
        Self::parse(&text, &wanted, Path::new(MODULES))
    }

    fn parse(text: &str, wanted: &[&str], modules: &Path) -> Result<Self, SymbolsError> {
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
            return Err(SymbolsError::Hidden);
        }
        Ok(Self { symbols, stext, printk, modules: modules.to_owned() })
    }

    /// Address of `_printk`, from which addresses of vmlinux in a signed table are counted.
    ///
    /// # Errors
    /// [`SymbolsError::NoAnchor`].
    pub fn anchor(&self) -> Result<u64, SymbolsError> {
        Some(self.printk).filter(|&address| address != 0).ok_or(SymbolsError::NoAnchor)
    }

    /// The address of the first byte of a function; `None` when its module is not loaded.
    ///
    /// # Errors
    /// [`NoAddress`].
    pub fn function(&self, function: &Function) -> Result<Option<u64>, NoAddress> {
        self.find(&Place {
            kind: SymbolKind::Function,
            symbol: &function.symbol,
            module: function.module.as_deref().map(spelling),
            section: &function.section,
            offset: function.text_offset,
        })
    }

    /// The address of the first byte of an object; `None` when its module is not loaded.
    ///
    /// # Errors
    /// [`NoAddress`].
    pub fn object(&self, data: &DataSite) -> Result<Option<u64>, NoAddress> {
        self.find(&Place {
            kind: SymbolKind::Object,
            symbol: &data.symbol,
            module: data.module.as_deref().map(spelling),
            section: &data.section,
            offset: data.section_offset,
        })
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
    kind: SymbolKind,
    symbol: &'a str,
    module: Option<String>,
    section: &'a str,
    offset: u64,
}

impl Symbols {
    fn find(&self, place: &Place<'_>) -> Result<Option<u64>, NoAddress> {
        let key = (place.symbol.to_owned(), place.module.clone());
        let candidates = self.symbols.get(&key).map_or(&[][..], Vec::as_slice);
        match &place.module {
            None => self.find_in_vmlinux(place, candidates),
            Some(module) => self.find_in_module(place, module, candidates),
        }
    }

    fn find_in_vmlinux(&self, place: &Place<'_>, candidates: &[u64]) -> Result<Option<u64>, NoAddress> {
        let address = self.stext.wrapping_add(place.offset);
        match candidates {
            [] => Err(NoAddress::NoSymbol(place.kind)),
            _ if candidates.contains(&address) => Ok(Some(address)),
            _ => Err(NoAddress::Elsewhere { offset: place.offset }),
        }
    }

    fn find_in_module(&self, place: &Place<'_>, module: &str, candidates: &[u64]) -> Result<Option<u64>, NoAddress> {
        let Place { kind, section, offset, .. } = *place;
        let module = module.to_owned();
        match (candidates, self.section(&module, section)) {
            ([], _) if !self.is_loaded(&module) => Ok(None),
            ([], _) => Err(NoAddress::NotInModule { module, kind }),
            // What is there is compared again when it is loaded.
            ([only], None) => Ok(Some(*only)),
            (_, Some(start)) => match start.wrapping_add(offset) {
                address if candidates.contains(&address) => Ok(Some(address)),
                _ => Err(NoAddress::ElsewhereInModule { module, section: section.to_owned(), offset }),
            },
            (several, None) => {
                let file = self.modules.join(&module).join("sections").join(section);
                Err(NoAddress::Several { module, number: several.len(), kind, file })
            }
        }
    }
}

/// Why the running kernel's symbols are not known.
#[derive(Debug, Error)]
pub enum SymbolsError {
    /// The list cannot be read.
    #[error("{KALLSYMS}: {0}; is /proc mounted?")]
    Unreadable(#[from] io::Error),
    /// The kernel shows no addresses to this process.
    #[error(
        "{KALLSYMS} shows no addresses: run this as root; if root does not see them either, \
         set kernel.kptr_restrict to 1 (sysctl -w kernel.kptr_restrict=1)"
    )]
    Hidden,
    /// What addresses of a signed table are counted from is missing.
    #[error("{KALLSYMS} has no _printk: nothing can be signed for this kernel")]
    NoAnchor,
}

/// Why a function or an object of a table has no address in the running kernel.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoAddress {
    /// vmlinux has no symbol of this name.
    #[error("the running kernel has no such {0}: the table is for another build; run `xk build` again")]
    NoSymbol(SymbolKind),
    /// The symbol of vmlinux is elsewhere.
    #[error("not at _stext+{offset:#x}, where it was analysed: the table is for another build; run `xk build` again")]
    Elsewhere {
        /// Distance from `_stext` in the table, in bytes.
        offset: u64,
    },
    /// The loaded module has no symbol of this name.
    #[error("module {module} has no such {kind}: it was updated; run `xk build` again")]
    NotInModule {
        /// The module.
        module: String,
        /// What is missing.
        kind: SymbolKind,
    },
    /// The symbol of the module is elsewhere.
    #[error(
        "not at {section}+{offset:#x} of module {module}, where it was analysed: the module was updated; \
         run `xk build` again"
    )]
    ElsewhereInModule {
        /// The module.
        module: String,
        /// Section in the table.
        section: String,
        /// Offset in it, in bytes.
        offset: u64,
    },
    /// Several symbols of the module have this name, and nothing tells them apart.
    #[error("module {module} has {number} {kind}s of this name, and where it was loaded ({}) cannot be read", file.display())]
    Several {
        /// The module.
        module: String,
        /// How many.
        number: usize,
        /// Of what.
        kind: SymbolKind,
        /// The file that would say where the section is.
        file: PathBuf,
    },
}

/// What a symbol names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolKind {
    /// Code.
    Function,
    /// Data.
    Object,
}

impl fmt::Display for SymbolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Function => "function",
            Self::Object => "object",
        })
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

    fn symbols(modules: &Path) -> Symbols {
        Symbols::parse(TEXT, &["twice", "once", "lone"], modules).unwrap()
    }

    #[test]
    fn functions_of_one_name_are_told_apart_by_their_offset() {
        let known = symbols(Path::new("/nonexistent"));
        assert_eq!(known.function(&function("twice", None, 0x900)), Ok(Some(0xffff_ffff_8100_0900)));
        assert_eq!(known.function(&function("twice", None, 0x100)), Ok(Some(0xffff_ffff_8100_0100)));
        assert!(known.function(&function("twice", None, 0x200)).is_err());
        assert!(known.function(&function("none", None, 0x200)).is_err());
    }

    #[test]
    fn functions_of_modules_lie_in_their_section() {
        let folder = tempfile::tempdir().unwrap();
        let sections = folder.path().join("a_mod/sections");
        fs::create_dir_all(&sections).unwrap();
        let known = symbols(folder.path());
        assert_eq!(known.function(&function("lone", Some("a-mod"), 0)), Ok(Some(0xffff_ffff_c000_1000)));
        assert!(known
            .function(&function("twice", Some("a-mod"), 0x80))
            .is_err_and(|e| e.to_string().contains("2 functions")));
        fs::write(sections.join(".text"), "0xffffffffc0001000\n").unwrap();
        assert_eq!(known.function(&function("twice", Some("a-mod"), 0x80)), Ok(Some(0xffff_ffff_c000_1080)));
        assert!(known
            .function(&function("twice", Some("a-mod"), 0x20))
            .is_err_and(|e| e.to_string().contains("updated")));
        assert_eq!(known.function(&function("lone", Some("absent"), 0)), Ok(None));
        // Loaded, and without the function: that is not the module that was analysed.
        fs::write(folder.path().join("a_mod/initstate"), "live\n").unwrap();
        assert!(known.function(&function("once", Some("a-mod"), 0)).is_err_and(|e| e.to_string().contains("updated")));
    }

    #[test]
    fn objects_are_found_as_functions_are() {
        let known = symbols(Path::new("/nonexistent"));
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
        assert_eq!(known.object(&object), Ok(Some(0xffff_ffff_8100_0200)));
        object.section_offset = 0x208;
        assert!(known.object(&object).is_err_and(|e| e.to_string().contains("_stext+0x208")));
        object.module = Some("absent".into());
        assert_eq!(known.object(&object), Ok(None));
    }

    #[test]
    fn hidden_addresses_are_an_error() {
        let hidden = TEXT.replace("ffffffff8100", "0000000000000000");
        let hidden: String = hidden.lines().map(|line| format!("0000000000000000 {}\n", &line[17..])).collect();
        assert!(Symbols::parse(&hidden, &[], Path::new("/")).is_err_and(|e| e.to_string().contains("root")));
    }
}
