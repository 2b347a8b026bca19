//! Why an object with debug information cannot be read.

use thiserror::Error;

/// Why neither variables nor layouts are known from an object.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is not an ELF object, or a damaged one.
    #[error(transparent)]
    Object(#[from] object::Error),
    /// Its debug information is damaged, or of an unknown kind.
    #[error(transparent)]
    Dwarf(#[from] gimli::Error),
    /// The compiler wrote no debug information.
    #[error("there is no debug information; the compiler ignored -g")]
    NoDebugInfo,
    /// A relocation does not lie in its section.
    #[error("{section}+{offset:#x}: a relocation lies outside its section")]
    OutsideSection {
        /// Name of the section.
        section: String,
        /// Offset of the relocation, in bytes.
        offset: u64,
    },
    /// A relocation is wider than an address.
    #[error("{section}+{offset:#x}: a relocation of {bits} bits is too wide")]
    TooWide {
        /// Name of the section.
        section: String,
        /// Offset of the relocation, in bytes.
        offset: u64,
        /// Its width.
        bits: u8,
    },
    /// Debug information changed the code of a function.
    #[error("{symbol} with debug information is not the code that was analysed")]
    OtherCode {
        /// Name of the function.
        symbol: String,
    },
}

/// Writes `value` where a relocation of a section says, little-endian.
pub(crate) fn relocate(data: &mut [u8], section: &str, offset: u64, bits: u8, value: u64) -> Result<(), Unreadable> {
    let outside = || Unreadable::OutsideSection { section: section.to_owned(), offset };
    let width = usize::from(bits / 8);
    let at = usize::try_from(offset).map_err(|_| outside())?;
    let end = at.checked_add(width).ok_or_else(outside)?;
    let target = data.get_mut(at..end).ok_or_else(outside)?;
    let bytes = value.to_le_bytes();
    let bytes = bytes.get(..width).ok_or_else(|| Unreadable::TooWide { section: section.to_owned(), offset, bits })?;
    target.copy_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relocations_stay_in_their_section() {
        let mut data = [0; 8];
        assert!(relocate(&mut data, ".debug_info", 4, 32, 0x0102_0304).is_ok());
        assert_eq!(data, [0, 0, 0, 0, 4, 3, 2, 1]);
        for offset in [5, u64::MAX] {
            let error = relocate(&mut data, ".debug_info", offset, 32, 0).unwrap_err();
            assert!(matches!(error, Unreadable::OutsideSection { offset: at, .. } if at == offset));
        }
        let error = relocate(&mut [0; 16], ".debug_info", 0, 128, 0).unwrap_err();
        assert!(matches!(error, Unreadable::TooWide { bits: 128, .. }));
    }
}
