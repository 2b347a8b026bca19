//! The linked kernel inside a boot image: sections, segments, identity.

use std::ops::Range;

use object::elf::{FileHeader64, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS};
use object::read::elf::{FileHeader, SectionHeader};
use object::Endianness;

use super::fault::ElfError;

/// A section of the linked kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) name: String,
    /// Where it is linked to; 0 for sections that are not loaded.
    pub(crate) address: u64,
    /// Its bytes in the file; empty for zero-initialised sections.
    pub(crate) range: Range<usize>,
    pub(crate) loaded: bool,
    pub(crate) executable: bool,
}

/// An ELF file with its section table.
#[derive(Debug)]
pub(crate) struct Elf {
    pub(crate) data: Vec<u8>,
    pub(crate) sections: Vec<Section>,
}

impl Elf {
    pub(crate) fn parse(data: Vec<u8>) -> Result<Self, ElfError> {
        let bytes = data.as_slice();
        let header = FileHeader64::<Endianness>::parse(bytes)?;
        let endian = header.endian()?;
        if header.e_machine(endian) != object::elf::EM_X86_64 {
            return Err(ElfError::Machine);
        }
        let table = header.sections(endian, bytes)?;
        let mut sections = Vec::new();
        for section in table.iter() {
            let name = table.section_name(endian, section)?;
            let name = String::from_utf8_lossy(name).into_owned();
            let start = section.sh_offset(endian) as usize;
            let size = if section.sh_type(endian) == SHT_NOBITS { 0 } else { section.sh_size(endian) as usize };
            let range = start
                ..start
                    .checked_add(size)
                    .filter(|&end| size == 0 || end <= data.len())
                    .ok_or_else(|| ElfError::SectionCut { section: name.clone() })?;
            let flag = |flag: u32| section.sh_flags(endian) & u64::from(flag) != 0;
            sections.push(Section {
                name,
                address: section.sh_addr(endian),
                range: if size == 0 { 0..0 } else { range },
                loaded: flag(SHF_ALLOC),
                executable: flag(SHF_EXECINSTR),
            });
        }
        if sections.is_empty() {
            return Err(ElfError::NoSections);
        }
        Ok(Self { data, sections })
    }

    pub(crate) fn section(&self, name: &str) -> Option<(&Section, &[u8])> {
        let section = self.sections.iter().find(|section| section.name == name)?;
        Some((section, self.data.get(section.range.clone())?))
    }

    /// The bytes that are linked to an address, up to the end of their section.
    pub(crate) fn bytes_at(&self, address: u64) -> Option<&[u8]> {
        let holds = |section: &&Section| {
            section.loaded && address.checked_sub(section.address).is_some_and(|at| at < section.range.len() as u64)
        };
        let section = self.sections.iter().find(holds)?;
        self.data.get(section.range.start + (address - section.address) as usize..section.range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_binary_has_sections() {
        let elf = Elf::parse(std::fs::read("/proc/self/exe").unwrap()).unwrap();
        let (text, bytes) = elf.section(".text").unwrap();
        assert!(text.executable && text.loaded);
        assert_eq!(elf.bytes_at(text.address + 16), Some(&bytes[16..]));
        assert_eq!(elf.bytes_at(u64::MAX), None);
    }

    #[test]
    fn malformed_files_are_refused() {
        assert!(Elf::parse(Vec::new()).is_err());
        assert!(Elf::parse(vec![0x7f; 4096]).is_err());
        let whole = std::fs::read("/proc/self/exe").unwrap();
        for end in [16, 64, 100, 4096, whole.len() / 2, whole.len() - 1] {
            assert!(Elf::parse(whole[..end].to_vec()).is_err(), "cut at {end}");
        }
    }
}
