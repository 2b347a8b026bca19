//! Text, symbols and types of a kernel: running, saved, or in a file.
//!
//! The three sources look the same from outside, with one difference that
//! [`Image::is_live`] tells: a running kernel has patched its own text
//! (alternatives, static calls, jump labels, tracing), a file has not.

mod elf;
mod fault;
pub(crate) mod kallsyms;
pub(crate) mod kcore;
mod live;
mod module;
pub(crate) mod symbols;
pub(crate) mod vmlinuz;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::bundle::{Bundle, BundleError, LoadedSection};
use crate::id::{build_id, IdError, KernelId};
use elf::Elf;
use kcore::Kcore;
use symbols::Symbols;

pub use fault::{CoreFault, ElfError, KernelFault, ModuleFault, UnpackError};
pub use kallsyms::KallsymsError;
pub(crate) use live::lockdown_mode;
pub use module::{Module, ModuleRelocation, ModuleSection, ModuleSymbol};
pub use symbols::{Symbol, SymbolsError};

/// Largest read; nothing in a kernel's text is longer.
const MAX_READ: usize = 256 << 20;

/// Why a kernel cannot be read.
#[derive(Debug, Error)]
#[allow(missing_docs)] // the message of each variant documents its fields
pub enum ImageError {
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{} is not a kernel that can be read: {fault}", path.display())]
    NotAKernel { path: PathBuf, fault: KernelFault },
    #[error("cannot use the symbols in {origin}: {error}")]
    Symbols { origin: String, error: SymbolsError },
    #[error("cannot find the symbols of {}: {error}; name its System.map (package linux-image-<release>-dbg)", path.display())]
    Kallsyms { path: PathBuf, error: KallsymsError },
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("cannot read {length} bytes at {address:#x}: the kernel has nothing there")]
    Unmapped { address: u64, length: usize },
    #[error("the kernel's memory cannot be read through {}: {error}; this needs root{lockdown}", path.display())]
    Forbidden { path: PathBuf, error: io::Error, lockdown: String },
    #[error("no module '{name}' for kernel {release} in {}; install linux-image-{release}, and check the name with 'modinfo {name}'", folder.display())]
    ModuleMissing { name: String, release: String, folder: PathBuf },
    #[error("the module {} cannot be used: {fault}", path.display())]
    Module { path: PathBuf, fault: ModuleFault },
    #[error("module '{name}' is not loaded in the kernel under study; load it (modprobe {name}) before its addresses are needed")]
    NotLoaded { name: String },
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

impl ImageError {
    fn read(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |error| Self::Read { path: path.to_owned(), error }
    }
}

/// Where the bytes are.
#[derive(Debug)]
enum Memory {
    Elf(Elf),
    Bundle(Bundle),
    Kcore(Kcore),
}

/// A kernel that can be read.
#[derive(Debug)]
pub struct Image {
    id: KernelId,
    memory: Memory,
    symbols: Symbols,
    /// `lib/modules/<release>`.
    modules: PathBuf,
    /// The module that was asked for last, by name.
    last: Mutex<Option<(String, Arc<Module>)>>,
}

impl Image {
    /// The kernel in a boot image (`vmlinuz`) or in an uncompressed `vmlinux`.
    ///
    /// Symbols come from the tables that the kernel carries for itself;
    /// `system_map` is used only for a kernel that has none. Modules are
    /// looked for in `lib/modules` beside the image's `boot` folder. Takes
    /// about a second.
    pub fn from_vmlinuz(path: &Path, system_map: Option<&Path>) -> Result<Self, ImageError> {
        let file = std::fs::read(path).map_err(ImageError::read(path))?;
        let not_kernel = |fault: KernelFault| ImageError::NotAKernel { path: path.to_owned(), fault };
        let unpacked = vmlinuz::unpack(&file).map_err(|error| not_kernel(error.into()))?;
        let elf = Elf::parse(unpacked.elf).map_err(|error| not_kernel(error.into()))?;
        let (constants, rodata) = elf.section(".rodata").ok_or_else(|| not_kernel(KernelFault::NoReadOnlyData))?;
        let banner = find_banner(rodata).ok_or_else(|| not_kernel(KernelFault::NoBanner))?;
        let release = banner.split_whitespace().nth(2).unwrap_or_default().to_owned();
        let notes = elf.section(".notes").and_then(|(_, notes)| build_id(notes));
        let build_id = notes.ok_or_else(|| IdError::NoBuildId { origin: path.display().to_string() })?;
        // A vmlinux has no setup header; of a boot image both texts state the same release.
        if !unpacked.banner.is_empty() && unpacked.banner.split_whitespace().next() != Some(&release) {
            return Err(not_kernel(KernelFault::Release { header: unpacked.banner, text: release }));
        }
        let id = KernelId::new(&release, build_id, &banner);
        let symbols = match (kallsyms::decode(rodata, constants.address), system_map) {
            (Ok(entries), _) => Symbols::from_entries(entries)
                .map_err(|error| ImageError::Symbols { origin: path.display().to_string(), error })?,
            (Err(_), Some(map)) => symbols_of_map(map, &elf)?,
            (Err(error), None) => return Err(ImageError::Kallsyms { path: path.to_owned(), error }),
        };
        let linked = elf.section(".text").map(|(text, _)| text.address);
        if symbols.image_address("_text") != linked {
            return Err(not_kernel(KernelFault::Symbols));
        }
        let root = path.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let modules = root.join("lib/modules").join(&release);
        Ok(Self { id, memory: Memory::Elf(elf), symbols, modules, last: Mutex::default() })
    }

    /// The kernel in a bundle that [`Bundle::save_live`] wrote. Its text is as it was running.
    pub fn from_bundle(path: &Path) -> Result<Self, ImageError> {
        let bundle = Bundle::open(path)?;
        let symbols = Symbols::parse(bundle.kallsyms())
            .map_err(|error| ImageError::Symbols { origin: format!("bundle {}", path.display()), error })?;
        let id = bundle.id().clone();
        let modules = Path::new("/lib/modules").join(&id.release);
        Ok(Self { id, memory: Memory::Bundle(bundle), symbols, modules, last: Mutex::default() })
    }

    /// Looks for module files under `root/lib/modules/<release>`.
    #[must_use]
    pub fn with_modules_in(mut self, root: &Path) -> Self {
        self.modules = root.join("lib/modules").join(&self.id.release);
        self
    }

    /// Which kernel this is.
    pub fn id(&self) -> &KernelId {
        &self.id
    }

    /// Whether the text is that of a running kernel (or was, in a bundle) and therefore patched by itself.
    pub fn is_live(&self) -> bool {
        !matches!(self.memory, Memory::Elf(_))
    }

    /// Every symbol of that name, by address: statics may exist more than once.
    pub fn symbols(&self, name: &str) -> Vec<Symbol> {
        self.symbols.named(name).cloned().collect()
    }

    /// Every symbol, by address.
    pub fn all_symbols(&self) -> &[Symbol] {
        self.symbols.all()
    }

    /// The code symbol that covers an address.
    pub fn text_symbol_at(&self, address: u64) -> Option<&Symbol> {
        self.symbols.text_at(address)
    }

    /// Address of `_stext`: where this kernel's code begins, randomisation included.
    pub fn text_base(&self) -> u64 {
        // Symbols without _stext do not construct.
        self.symbols.image_address("_stext").unwrap_or_default()
    }

    /// Start and end of the kernel's own code (`_stext`, `_etext`).
    pub fn text_range(&self) -> std::ops::Range<u64> {
        let start = self.text_base();
        start..self.symbols.image_address("_etext").unwrap_or(start).max(start)
    }

    /// Reads exactly `length` bytes (at most 256 MiB).
    pub fn read(&self, address: u64, length: usize) -> Result<Vec<u8>, ImageError> {
        let unmapped = || ImageError::Unmapped { address, length };
        if length > MAX_READ {
            return Err(unmapped());
        }
        match &self.memory {
            Memory::Elf(elf) => {
                let bytes = elf.bytes_at(address).and_then(|bytes| bytes.get(..length)).ok_or_else(unmapped)?;
                Ok(bytes.to_vec())
            }
            Memory::Bundle(bundle) => bundle.bytes_at(address, length).map(<[u8]>::to_vec).ok_or_else(unmapped),
            Memory::Kcore(kcore) => kcore.read(address, length),
        }
    }

    /// A section of the linked kernel, with its address: only in an image, where tables such as
    /// `.altinstructions` and `.smp_locks`, which a running kernel discards, are still there.
    pub fn section(&self, name: &str) -> Option<(u64, &[u8])> {
        let Memory::Elf(elf) = &self.memory else { return None };
        elf.section(name).map(|(section, bytes)| (section.address, bytes))
    }

    /// The executable sections of the linked kernel (name, address, length): `.text`, `.init.text`, …; only in an image.
    pub fn executable_sections(&self) -> Vec<(String, u64, usize)> {
        let Memory::Elf(elf) = &self.memory else { return Vec::new() };
        let code = elf.sections.iter().filter(|section| section.executable && section.loaded);
        code.map(|section| (section.name.clone(), section.address, section.range.len())).collect()
    }

    /// The other sections that are loaded (name, address, bytes): data and tables; only in an image.
    pub fn data_sections(&self) -> Vec<(&str, u64, &[u8])> {
        let Memory::Elf(elf) = &self.memory else { return Vec::new() };
        let data = elf.sections.iter().filter(|section| !section.executable && section.loaded);
        data.filter_map(|s| Some((s.name.as_str(), s.address, elf.data.get(s.range.clone())?))).collect()
    }

    /// The kernel's type information.
    pub fn btf(&self) -> Option<Vec<u8>> {
        match &self.memory {
            Memory::Elf(elf) => elf.section(".BTF").map(|(_, bytes)| bytes.to_vec()),
            Memory::Bundle(bundle) => bundle.btf().map(<[u8]>::to_vec),
            Memory::Kcore(_) => std::fs::read(live::BTF).ok(),
        }
    }

    /// The configuration, when it came with the kernel (a bundle).
    pub fn config(&self) -> Option<&str> {
        match &self.memory {
            Memory::Bundle(bundle) => bundle.config(),
            _ => None,
        }
    }

    /// A module's file: sections, symbols and relocations, not yet linked to an address.
    ///
    /// `name` is spelled with `-` or `_`. Refuses a file of another kernel,
    /// and, on a live kernel, a file that is not the loaded module's.
    pub fn module(&self, name: &str) -> Result<Module, ImageError> {
        let path = module::find(&self.modules, name).ok_or_else(|| ImageError::ModuleMissing {
            name: name.to_owned(),
            release: self.id.release.clone(),
            folder: self.modules.clone(),
        })?;
        let module = Module::open(&path)?;
        module.check_release(&self.id.release)?;
        if let Memory::Kcore(_) = self.memory {
            live::check_same_build(&module)?;
        }
        Ok(module)
    }

    /// [`Image::module`], read once for questions that follow each other.
    pub fn shared_module(&self, name: &str) -> Result<Arc<Module>, ImageError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, module)) = last.as_ref().filter(|(known, _)| known == name) {
            return Ok(Arc::clone(module));
        }
        let module = Arc::new(self.module(name)?);
        *last = Some((name.to_owned(), Arc::clone(&module)));
        Ok(module)
    }

    /// Where the sections of a loaded module are; only of a live kernel or a bundle.
    pub fn module_sections(&self, name: &str) -> Result<Vec<LoadedSection>, ImageError> {
        let not_loaded = || ImageError::NotLoaded { name: name.to_owned() };
        match &self.memory {
            Memory::Elf(_) => Err(not_loaded()),
            Memory::Bundle(bundle) => bundle.module_sections(name).ok_or_else(not_loaded),
            Memory::Kcore(_) => live::module_sections(name)?.ok_or_else(not_loaded),
        }
    }
}

/// The kernel's own statement of its version.
fn find_banner(rodata: &[u8]) -> Option<String> {
    const START: &[u8] = b"Linux version ";
    let is_banner = |at: &usize| rodata.get(at + START.len()).is_some_and(u8::is_ascii_digit);
    let at = rodata.windows(START.len()).enumerate().filter(|(_, window)| *window == START).map(|(at, _)| at);
    let text = &rodata[at.into_iter().find(is_banner)?..];
    let end = text.iter().take(1024).position(|&byte| byte == 0 || byte == b'\n')?;
    Some(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// Symbols of a System.map, if it belongs to this kernel.
fn symbols_of_map(map: &Path, elf: &Elf) -> Result<Symbols, ImageError> {
    let text = std::fs::read(map).map_err(ImageError::read(map))?;
    let symbols = Symbols::parse(&String::from_utf8_lossy(&text))
        .map_err(|error| ImageError::Symbols { origin: map.display().to_string(), error })?;
    let banner = symbols.image_address("linux_banner").and_then(|address| elf.bytes_at(address));
    if !banner.is_some_and(|bytes| bytes.starts_with(b"Linux version ")) {
        return Err(ImageError::NotAKernel { path: map.to_owned(), fault: KernelFault::OtherMap });
    }
    Ok(symbols)
}
