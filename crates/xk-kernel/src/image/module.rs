//! A module's file: an ELF object that is linked when it is loaded.
//!
//! In: a `.ko`, plain or compressed. Out: sections, symbols and relocations.
//! Refuses files of another kernel release.

use std::fs;
use std::path::{Path, PathBuf};

use object::elf::{FileHeader64, Rela64, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, SHT_NOTE, SHT_RELA};
use object::read::elf::{FileHeader, Rela as _, SectionHeader, Sym};
use object::Endianness;

use super::fault::{ElfError, ModuleFault};
use super::{vmlinuz, ImageError};
use crate::id::build_id;

/// A module's file, taken apart.
#[derive(Debug, Clone)]
pub struct Module {
    /// The name, as the file spells it (`nvme-core`); the kernel replaces `-` by `_`.
    pub name: String,
    /// Where the file is.
    pub path: PathBuf,
    /// The uncompressed ELF object.
    pub elf: Vec<u8>,
    /// In the order of the file; index 0 is the empty section that ELF begins with.
    pub sections: Vec<ModuleSection>,
    /// In the order of the file; index 0 is the empty symbol that ELF begins with.
    pub symbols: Vec<ModuleSymbol>,
}

/// A section of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSection {
    /// The name.
    pub name: String,
    /// Its bytes, before relocation; empty for zero-initialised sections.
    pub data: Vec<u8>,
    /// Bytes in memory.
    pub size: u64,
    /// It is loaded.
    pub allocated: bool,
    /// It holds code.
    pub executable: bool,
    /// What is patched into it when it is loaded, by offset.
    pub relocations: Vec<ModuleRelocation>,
}

/// A place in a section that the loader fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleRelocation {
    /// Offset in the section.
    pub offset: u64,
    /// `R_X86_64_*`.
    pub kind: u32,
    /// Index into [`Module::symbols`].
    pub symbol: usize,
    /// What is added to the symbol's address.
    pub addend: i64,
}

/// A symbol of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSymbol {
    /// The name; empty for a section's own symbol.
    pub name: String,
    /// Index into [`Module::sections`]; `None` for symbols of the kernel or of other modules.
    pub section: Option<usize>,
    /// Offset in the section.
    pub offset: u64,
    /// Bytes; 0 if not stated.
    pub size: u64,
    /// It is a function.
    pub function: bool,
    /// It is visible outside of its unit.
    pub global: bool,
}

impl Module {
    /// Reads a module's file.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let file = fs::read(path).map_err(ImageError::read(path))?;
        let bad = |fault: ModuleFault| ImageError::Module { path: path.to_owned(), fault };
        let elf = match file.starts_with(b"\x7fELF") {
            true => file,
            false => vmlinuz::decompress(&file).map_err(|error| bad(error.into()))?,
        };
        let name = stem(path).unwrap_or_default().to_owned();
        let (sections, symbols) = parse(&elf).map_err(|error| bad(error.into()))?;
        Ok(Self { name, path: path.to_owned(), elf, sections, symbols })
    }

    /// The section of that name.
    pub fn section(&self, name: &str) -> Option<&ModuleSection> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The functions and objects of that name that the module itself has.
    pub fn symbols_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ModuleSymbol> {
        self.symbols.iter().filter(move |symbol| symbol.section.is_some() && symbol.name == name)
    }

    /// The GNU build-id, if the module has one.
    pub fn build_id(&self) -> Option<Vec<u8>> {
        build_id(&self.section(".note.gnu.build-id")?.data).map(<[u8]>::to_vec)
    }

    /// A field of the module's description, for example `vermagic` or `depends`.
    pub fn info(&self, field: &str) -> Option<String> {
        let entries = self.section(".modinfo")?.data.split(|&byte| byte == 0);
        entries.into_iter().find_map(|entry| {
            let text = std::str::from_utf8(entry).ok()?;
            text.strip_prefix(field)?.strip_prefix('=').map(str::to_owned)
        })
    }

    pub(super) fn check_release(&self, release: &str) -> Result<(), ImageError> {
        let found = self.info("vermagic").unwrap_or_default();
        if found.split_whitespace().next() == Some(release) {
            return Ok(());
        }
        let fault = ModuleFault::Release { found, release: release.to_owned() };
        Err(ImageError::Module { path: self.path.clone(), fault })
    }
}

fn parse(bytes: &[u8]) -> Result<(Vec<ModuleSection>, Vec<ModuleSymbol>), ElfError> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    if header.e_machine(endian) != object::elf::EM_X86_64 || header.e_type(endian) != object::elf::ET_REL {
        return Err(ElfError::NotAnObject);
    }
    let table = header.sections(endian, bytes)?;
    let mut sections = Vec::with_capacity(table.len());
    for section in table.iter() {
        let name = table.section_name(endian, section)?;
        let flags = section.sh_flags(endian);
        let kind = section.sh_type(endian);
        let allocated = flags & u64::from(SHF_ALLOC) != 0;
        // Symbol tables and debug information are read where they are; types are
        // small, and the comparison of code needs them.
        let wanted = allocated || kind == SHT_NOTE || name == b".BTF";
        let data = if wanted && kind != SHT_NOBITS { section.data(endian, bytes)?.to_vec() } else { Vec::new() };
        sections.push(ModuleSection {
            name: String::from_utf8_lossy(name).into_owned(),
            data,
            size: section.sh_size(endian),
            allocated,
            executable: flags & u64::from(SHF_EXECINSTR) != 0,
            relocations: Vec::new(),
        });
    }
    let table_symbols = table.symbols(endian, bytes, object::elf::SHT_SYMTAB)?;
    let mut symbols = Vec::with_capacity(table_symbols.len());
    for (index, symbol) in table_symbols.enumerate() {
        let name = table_symbols.symbol_name(endian, symbol)?;
        let section = table_symbols.symbol_section(endian, symbol, index)?.map(|section| section.0);
        if section.is_some_and(|section| section >= sections.len()) {
            return Err(ElfError::SymbolSection { index: index.0 });
        }
        symbols.push(ModuleSymbol {
            name: String::from_utf8_lossy(name).into_owned(),
            section,
            offset: symbol.st_value(endian),
            size: symbol.st_size(endian),
            function: symbol.st_type() == object::elf::STT_FUNC,
            global: symbol.st_bind() != object::elf::STB_LOCAL,
        });
    }
    for section in table.iter().filter(|section| section.sh_type(endian) == SHT_RELA) {
        let target = section.sh_info(endian) as usize;
        let Some((entries, _)) = section.rela(endian, bytes)? else { continue };
        let Some(target) = sections.get_mut(target).filter(|target| target.allocated) else { continue };
        target.relocations.extend(
            relocations(entries, endian, symbols.len())
                .ok_or_else(|| ElfError::RelocationSymbol { section: target.name.clone() })?,
        );
        target.relocations.sort_by_key(|relocation| relocation.offset);
    }
    Ok((sections, symbols))
}

/// The relocations of one section; nothing if one refers to a symbol beyond the table.
fn relocations(entries: &[Rela64<Endianness>], endian: Endianness, symbols: usize) -> Option<Vec<ModuleRelocation>> {
    let relocation = |entry: &Rela64<Endianness>| {
        let symbol = usize::try_from(entry.r_sym(endian, false)).ok()?;
        (symbol < symbols).then(|| ModuleRelocation {
            offset: entry.r_offset(endian),
            kind: entry.r_type(endian, false),
            symbol,
            addend: entry.r_addend(endian),
        })
    };
    entries.iter().map(relocation).collect()
}

/// The module's name in a path such as `x/nvme-core.ko.xz`.
fn stem(path: &Path) -> Option<&str> {
    let (stem, suffix) = path.file_name()?.to_str()?.split_once(".ko")?;
    matches!(suffix, "" | ".xz" | ".gz" | ".zst").then_some(stem)
}

/// The file of a module below `lib/modules/<release>`.
pub(super) fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let wanted = name.replace('-', "_");
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                // Links lead to the headers package.
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() && stem(&path).is_some_and(|stem| stem.replace('-', "_") == wanted) => {
                    return Some(path);
                }
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::*;

    /// An object with a function, a relocation and a description.
    fn object() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let (source, object) = (folder.path().join("a.c"), folder.path().join("a.o"));
        let text = "extern int other(void);\nint function(void) { return other() + 1; }\n\
                    static const char info[] __attribute__((used, section(\".modinfo\"))) = \"vermagic=6.12.117 SMP\";\n";
        fs::write(&source, text).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-fno-pic", "-mcmodel=kernel", "-fcf-protection=none", "-c", "-o"]).arg(&object).arg(&source);
        assert!(gcc.status().unwrap().success());
        fs::read(object).unwrap()
    }

    #[test]
    fn a_plain_and_a_compressed_module_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = folder.path().join("kernel/net");
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join("my-mod.ko"), object()).unwrap();
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
        encoder.write_all(&object()).unwrap();
        fs::write(kernel.join("packed.ko.xz"), encoder.finish().unwrap()).unwrap();

        let plain = Module::open(&find(folder.path(), "my_mod").unwrap()).unwrap();
        let packed = Module::open(&find(folder.path(), "packed").unwrap()).unwrap();
        assert_eq!((plain.name.as_str(), packed.name.as_str()), ("my-mod", "packed"));
        assert_eq!((&plain.sections, &plain.symbols), (&packed.sections, &packed.symbols));
        assert_eq!(find(folder.path(), "absent"), None);

        let text = plain.section(".text").unwrap();
        assert!(text.executable && text.size > 5);
        let function = plain.symbols_named("function").next().unwrap();
        assert!(function.function && function.global && function.size > 0);
        let call = text.relocations.first().unwrap();
        assert_eq!(plain.symbols[call.symbol].name, "other");
        assert_eq!(plain.symbols[call.symbol].section, None);
        assert_eq!(plain.info("vermagic").as_deref(), Some("6.12.117 SMP"));
        assert!(plain.check_release("6.12.117").is_ok());
        assert!(plain.check_release("6.12.115").unwrap_err().to_string().contains("6.12.117 SMP"));
    }

    #[test]
    fn malformed_modules_are_refused() {
        let whole = object();
        let file = tempfile::Builder::new().suffix(".ko").tempfile().unwrap();
        for end in (0..whole.len()).step_by(37) {
            fs::write(file.path(), &whole[..end]).unwrap();
            assert!(matches!(Module::open(file.path()), Err(ImageError::Module { .. })), "cut at {end}");
        }
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let _ = parse(&damaged);
        }
        fs::write(file.path(), fs::read("/proc/self/exe").unwrap()).unwrap();
        assert!(Module::open(file.path()).unwrap_err().to_string().contains("not an x86-64 object"));
    }

    #[test]
    fn only_module_files_have_a_module_name() {
        assert_eq!(stem(Path::new("a/nvme-core.ko.xz")), Some("nvme-core"));
        assert_eq!(stem(Path::new("bfq.ko")), Some("bfq"));
        for path in ["modules.order", "a.kox", "a.ko.txt"] {
            assert_eq!(stem(Path::new(path)), None, "{path}");
        }
    }
}
