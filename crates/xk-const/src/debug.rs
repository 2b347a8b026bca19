//! Debug information of an object that is not linked: sections with their relocations applied, and
//! code at addresses that tell its sections apart.

use crate::unreadable::{relocate, Unreadable};
use gimli::{EndianSlice, LittleEndian};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SectionKind};

/// Flags for debug information of a kind that is read here. The code stays as it is.
pub(crate) const DEBUG: [&str; 2] = ["-w", "-gdwarf-4"];
/// Code sections lie this far apart while they are read.
const APART: u64 = 1 << 32;

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Sections of an object all begin at 0; here, those of code do not.
pub(crate) fn section_base(index: SectionIndex) -> u64 {
    (index.0 as u64 + 1) * APART
}

/// The section of code and the offset in it that an address stands for.
pub(crate) fn section_of(address: u64) -> Option<(usize, u64)> {
    let section = (address / APART).checked_sub(1)?;
    Some((usize::try_from(section).ok()?, address % APART))
}

/// A debug section with its relocations applied.
pub(crate) fn relocated(file: &object::File<'_>, name: &str) -> Result<Vec<u8>, Unreadable> {
    let Some(section) = file.section_by_name(name) else { return Ok(Vec::new()) };
    let mut data = section.data()?.to_vec();
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
        let symbol = file.symbol_by_index(symbol)?;
        let code = symbol
            .section_index()
            .filter(|&index| file.section_by_index(index).is_ok_and(|section| section.kind() == SectionKind::Text));
        let base = code.map_or(0, section_base);
        let value = base.wrapping_add(symbol.address()).wrapping_add_signed(relocation.addend());
        relocate(&mut data, name, offset, relocation.size(), value)?;
    }
    Ok(data)
}
