//! Where the running kernel has its code.
//!
//! In: `/proc/kallsyms`, and where modules were loaded (`/sys/module`). Out: the distance of vmlinux from its image, by the
//! address of `_printk`, and the addresses of the sections of modules. Refuses hidden addresses.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use xk_kernel::{Image, Module};

use crate::error::Error;

/// The symbol from which addresses of vmlinux are counted, here as in tables.
const ANCHOR: &str = "_printk";

/// A function of a loaded module.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    address: u64,
    name: String,
    module: String,
}

/// The running kernel.
#[derive(Debug)]
pub struct Live {
    /// Of the anchor.
    anchor: u64,
    /// Start and end of the code of vmlinux.
    text: std::ops::Range<u64>,
    /// Functions of modules, by address.
    functions: Vec<Known>,
    /// `/sys/module`.
    folder: PathBuf,
}

impl Live {
    /// The kernel that runs here.
    ///
    /// # Errors
    /// [`Error::Symbols`], [`Error::Hidden`].
    pub fn read() -> Result<Self, Error> {
        let text = fs::read_to_string("/proc/kallsyms").map_err(Error::Symbols)?;
        Self::parse(&text, Path::new("/sys/module"))
    }

    pub(crate) fn parse(text: &str, folder: &Path) -> Result<Self, Error> {
        let mut named: HashMap<&str, u64> = HashMap::new();
        let mut functions = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            match words.next() {
                None if [ANCHOR, "_stext", "_etext"].contains(&name) => {
                    named.insert(name, address);
                }
                Some(module) if kind.eq_ignore_ascii_case("t") => functions.push(Known {
                    address,
                    name: name.to_owned(),
                    module: module.trim_matches(['[', ']']).to_owned(),
                }),
                _ => {}
            }
        }
        let at = |name| named.get(name).copied().filter(|address| *address != 0).ok_or(Error::Hidden);
        functions.sort_by_key(|known| known.address);
        Ok(Self { anchor: at(ANCHOR)?, text: at("_stext")?..at("_etext")?, functions, folder: folder.to_owned() })
    }

    /// What is added to an address of vmlinux in `image` for the one in the running kernel; `None` if the image has no
    /// anchor.
    #[must_use]
    pub fn shift(&self, image: &Image) -> Option<u64> {
        let anchor = image.symbols(ANCHOR).into_iter().find(|symbol| symbol.module.is_none())?;
        Some(self.anchor.wrapping_sub(anchor.address))
    }

    /// Whether an address is in the code of vmlinux.
    #[must_use]
    pub fn is_vmlinux(&self, address: u64) -> bool {
        self.text.contains(&address)
    }

    /// The module whose code is at an address.
    #[must_use]
    pub fn module_at(&self, address: u64) -> Option<&str> {
        let end = self.functions.partition_point(|known| known.address <= address);
        self.functions[..end].last().map(|known| known.module.as_str())
    }

    /// The loaded modules that have a function of this name.
    pub fn modules_with<'a>(&'a self, function: &'a str) -> impl Iterator<Item = &'a str> {
        self.functions.iter().filter(move |known| known.name == function).map(|known| known.module.as_str())
    }

    /// The modules that are loaded and have functions.
    #[must_use]
    pub fn modules(&self) -> Vec<&str> {
        let names: BTreeSet<&str> = self.functions.iter().map(|known| known.module.as_str()).collect();
        names.into_iter().filter(|module| self.is_loaded(module)).collect()
    }

    /// The functions of a module.
    pub fn functions_of<'a>(&'a self, module: &'a str) -> impl Iterator<Item = u64> + 'a {
        self.functions.iter().filter(move |known| known.module == module).map(|known| known.address)
    }

    /// Whether a loaded module has this function at this address.
    #[must_use]
    pub fn has(&self, module: &str, names: &[String], address: u64) -> bool {
        let from = self.functions.partition_point(|known| known.address < address);
        let here = self.functions[from..].iter().take_while(|known| known.address == address);
        here.into_iter().any(|known| known.module == module && names.contains(&known.name))
    }

    /// Whether a module is loaded.
    #[must_use]
    pub fn is_loaded(&self, module: &str) -> bool {
        // Built-in modules have a folder too, without a state.
        self.folder.join(module).join("initstate").exists()
    }

    /// Whether the file of a module is the one that was loaded.
    #[must_use]
    pub fn is_build(&self, module: &Module, name: &str) -> bool {
        match (fs::read(self.folder.join(name).join("notes/.note.gnu.build-id")), module.build_id()) {
            // The identifier is the end of its note.
            (Ok(note), Some(id)) => note.ends_with(&id),
            _ => true,
        }
    }

    /// Where a section of a loaded module is.
    #[must_use]
    pub fn section(&self, module: &str, section: &str) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join(module).join("sections").join(section)).ok()?;
        u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok().filter(|address| *address != 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const TEXT: &str = "ffffffff81000000 T _stext\nffffffff81000100 T _printk\nffffffff82000000 T _etext\n\
                        ffffffffc0001000 t first\t[a_mod]\nffffffffc0002000 t second\t[b_mod]\n\
                        ffffffffc0001800 d object\t[a_mod]\n";

    #[test]
    fn code_belongs_to_vmlinux_or_to_the_module_before_it() {
        let live = Live::parse(TEXT, Path::new("/nonexistent")).unwrap();
        assert!(live.is_vmlinux(0xffff_ffff_8100_0000) && !live.is_vmlinux(0xffff_ffff_8200_0000));
        assert_eq!(live.module_at(0xffff_ffff_c000_1fff), Some("a_mod"));
        assert_eq!(live.module_at(0xffff_ffff_c000_2000), Some("b_mod"));
        assert_eq!(live.module_at(0xffff_ffff_c000_0fff), None);
        assert_eq!(live.modules_with("second").collect::<Vec<_>>(), ["b_mod"]);
        assert!(live.has("a_mod", &["first".into()], 0xffff_ffff_c000_1000));
        assert!(!live.has("a_mod", &["first".into()], 0xffff_ffff_c000_1001));
        assert!(!live.is_loaded("a_mod"));
    }

    #[test]
    fn hidden_addresses_are_an_error() {
        let hidden: String = TEXT.lines().map(|line| format!("0000000000000000 {}\n", &line[17..])).collect();
        assert!(matches!(Live::parse(&hidden, Path::new("/")), Err(Error::Hidden)));
    }

    #[test]
    fn sections_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let sections = folder.path().join("a_mod/sections");
        fs::create_dir_all(&sections).unwrap();
        fs::write(sections.join(".text"), "0xffffffffc0001000\n").unwrap();
        fs::write(sections.join(".data"), "0x0000000000000000\n").unwrap();
        let live = Live::parse(TEXT, folder.path()).unwrap();
        assert_eq!(live.section("a_mod", ".text"), Some(0xffff_ffff_c000_1000));
        assert_eq!(live.section("a_mod", ".data"), None, "hidden");
        assert_eq!(live.section("a_mod", ".bss"), None);
    }
}
