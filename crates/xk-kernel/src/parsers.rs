//! The parsers of single formats, without the files around them: what the
//! fuzzer feeds. Each says how much it understood.

use std::path::Path;

use crate::image::{self, ImageError, KallsymsError, SymbolsError, UnpackError};

/// Unpacks a boot image: the length of the kernel inside.
///
/// # Errors
/// What is wrong with the file.
pub fn vmlinuz(file: &[u8]) -> Result<usize, UnpackError> {
    image::vmlinuz::unpack(file).map(|unpacked| unpacked.elf.len() + unpacked.banner.len())
}

/// Decodes the symbol tables in read-only data: how many symbols.
///
/// # Errors
/// Why there are none.
pub fn kallsyms(data: &[u8]) -> Result<usize, KallsymsError> {
    image::kallsyms::decode(data, 0xffff_ffff_8200_0000).map(|entries| entries.len())
}

/// Reads `/proc/kallsyms` or a System.map: how many symbols.
///
/// # Errors
/// Why it cannot be used.
pub fn symbols(text: &str) -> Result<usize, SymbolsError> {
    image::symbols::Symbols::parse(text).map(|symbols| symbols.all().len())
}

/// Opens a core and reads some addresses and lengths: how many could be read.
///
/// # Errors
/// Why it is no core.
pub fn kcore(path: &Path, wanted: &[(u64, usize)]) -> Result<usize, ImageError> {
    let kcore = image::kcore::Kcore::open(path, "")?;
    Ok(wanted.iter().filter(|&&(address, length)| kcore.read(address, length).is_ok()).count())
}
