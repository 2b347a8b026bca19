//! What can be wrong with the file of a kernel or of a module.

use std::io;

use object::read::Error as ObjectError;
use thiserror::Error;

use super::vmlinuz::MAX_KERNEL;

/// Why a boot image cannot be unpacked.
#[derive(Debug, Error)]
#[allow(missing_docs)] // the message of each variant documents its fields
pub enum UnpackError {
    #[error("it is neither an x86 boot image nor an ELF file")]
    NotAnImage,
    #[error("the setup header is cut off")]
    SetupCut,
    #[error("its boot protocol {version:#x} is older than 2.08")]
    Protocol { version: u16 },
    #[error("the compressed kernel is cut off")]
    PayloadCut,
    #[error("the compressed kernel is not an ELF file")]
    NotElf,
    #[error("it is compressed with {format}, which is not supported")]
    Unsupported { format: &'static str },
    #[error("its compression format is unknown")]
    UnknownFormat,
    #[error("the compressed data is damaged: {0}")]
    Damaged(io::Error),
    #[error("an LZ4 block is cut off")]
    BlockCut,
    #[error("an LZ4 block is damaged: {0}")]
    BlockDamaged(lz4_flex::block::DecompressError),
    #[error("it unpacks to more than {MAX_KERNEL} bytes")]
    TooLarge,
}

/// Why an ELF file cannot be used.
#[derive(Debug, Error)]
#[allow(missing_docs)] // the message of each variant documents its fields
pub enum ElfError {
    #[error(transparent)]
    Malformed(#[from] ObjectError),
    #[error("it is not for x86-64")]
    Machine,
    #[error("it is not an x86-64 object file")]
    NotAnObject,
    #[error("section {section} reaches beyond the end of the file")]
    SectionCut { section: String },
    #[error("it has no sections")]
    NoSections,
    #[error("symbol {index} is in a section that does not exist")]
    SymbolSection { index: usize },
    #[error("a relocation of {section} names a symbol that does not exist")]
    RelocationSymbol { section: String },
}

/// Why the headers of a core file cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[allow(missing_docs)] // the message of each variant documents it
pub enum CoreFault {
    #[error("it is not a 64-bit little-endian ELF file")]
    NotElf,
    #[error("it is not an x86-64 core")]
    NotACore,
    #[error("its program headers are damaged")]
    Headers,
    #[error("it maps no memory")]
    Empty,
}

/// Why a file is not a kernel that can be read.
#[derive(Debug, Error)]
#[allow(missing_docs)] // the message of each variant documents its fields
pub enum KernelFault {
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error(transparent)]
    Core(#[from] CoreFault),
    #[error("it has no read-only data")]
    NoReadOnlyData,
    #[error("it states no 'Linux version'")]
    NoBanner,
    #[error("its header says '{header}', its text '{text}'")]
    Release { header: String, text: String },
    #[error("its symbols do not agree with its sections")]
    Symbols,
    #[error("it belongs to another kernel: its linux_banner is not at the banner")]
    OtherMap,
}

/// Why a module's file cannot be used.
#[derive(Debug, Error)]
#[allow(missing_docs)] // the message of each variant documents its fields
pub enum ModuleFault {
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("it was built for '{found}', not for kernel {release}")]
    Release { found: String, release: String },
    #[error("a section's address is hidden; reading it needs root")]
    HiddenAddress,
    #[error("its build-id is not that of the loaded module; reload the module or reinstall its package")]
    BuildId,
}
