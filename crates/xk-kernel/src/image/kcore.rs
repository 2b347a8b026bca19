//! The running kernel's memory through `/proc/kcore`.
//!
//! The file is an ELF core: program headers say at which offset which kernel
//! address is. It is sparse and hundreds of terabytes long; only what is asked
//! for is read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::fault::CoreFault;
use super::ImageError;

/// A header of more segments than any machine has memory ranges for.
const MAX_HEADERS: usize = 4096;
const PT_LOAD: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    address: u64,
    size: u64,
    offset: u64,
}

/// An open core file with its address map.
#[derive(Debug)]
pub(crate) struct Kcore {
    file: File,
    path: PathBuf,
    segments: Vec<Segment>,
}

impl Kcore {
    /// Opens a core file; `lockdown` completes the message when that is forbidden.
    pub(crate) fn open(path: &Path, lockdown: &str) -> Result<Self, ImageError> {
        let forbidden = |error| ImageError::Forbidden { path: path.to_owned(), error, lockdown: lockdown.to_owned() };
        let file = File::open(path).map_err(forbidden)?;
        let mut start = vec![0; 64];
        file.read_exact_at(&mut start, 0).map_err(forbidden)?;
        let not_core = |fault: CoreFault| ImageError::NotAKernel { path: path.to_owned(), fault: fault.into() };
        let table = program_headers(&start).map_err(not_core)?;
        let mut headers = vec![0; table.length];
        file.read_exact_at(&mut headers, table.offset).map_err(ImageError::read(path))?;
        let segments = segments(&headers);
        if segments.is_empty() {
            return Err(not_core(CoreFault::Empty));
        }
        Ok(Self { file, path: path.to_owned(), segments })
    }

    /// Reads exactly `length` bytes of kernel memory.
    pub(crate) fn read(&self, address: u64, length: usize) -> Result<Vec<u8>, ImageError> {
        let end = address.checked_add(length as u64);
        let holds = |segment: &&Segment| {
            let at = address.checked_sub(segment.address);
            at.is_some_and(|at| at < segment.size && end.is_some_and(|end| end - segment.address <= segment.size))
        };
        let segment = self.segments.iter().find(holds).ok_or(ImageError::Unmapped { address, length })?;
        let offset = segment.offset + (address - segment.address);
        let mut bytes = vec![0; length];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ImageError::Unmapped { address, length }),
            Err(error) => Err(ImageError::Read { path: self.path.clone(), error }),
        }
    }
}

/// Where the program headers are.
struct Table {
    offset: u64,
    length: usize,
}

fn program_headers(start: &[u8]) -> Result<Table, CoreFault> {
    if !start.starts_with(b"\x7fELF\x02\x01") {
        return Err(CoreFault::NotElf);
    }
    let half = |at: usize| usize::from(u16::from_le_bytes([start[at], start[at + 1]]));
    if half(0x10) != 4 || half(0x12) != 62 {
        return Err(CoreFault::NotACore);
    }
    let mut offset = [0; 8];
    offset.copy_from_slice(&start[0x20..0x28]);
    let (size, count) = (half(0x36), half(0x38));
    if size != 56 || count > MAX_HEADERS {
        return Err(CoreFault::Headers);
    }
    Ok(Table { offset: u64::from_le_bytes(offset), length: size * count })
}

fn segments(headers: &[u8]) -> Vec<Segment> {
    let loads = headers.chunks_exact(56).filter(|header| header[..4] == PT_LOAD.to_le_bytes());
    let segment = |header: &[u8]| {
        let long = |at: usize| header[at..at + 8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        Segment { offset: long(8), address: long(16), size: long(40) }
    };
    // A damaged size must not make the address wrap, nor the offset.
    let ends = |segment: &Segment| [segment.address, segment.offset].map(|start| start.checked_add(segment.size));
    loads.map(segment).filter(|segment| ends(segment).iter().all(Option::is_some)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core with one segment of `content` at `address`.
    fn core(address: u64, content: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + 2 * 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[0x10] = 4;
        file[0x12] = 62;
        file[0x20] = 64;
        file[0x36] = 56;
        file[0x38] = 2;
        file[64] = 4; // a note first
        let header = 64 + 56;
        file[header] = 1;
        let end = file.len() as u64;
        file[header + 8..header + 16].copy_from_slice(&end.to_le_bytes());
        file[header + 16..header + 24].copy_from_slice(&address.to_le_bytes());
        file[header + 40..header + 48].copy_from_slice(&(content.len() as u64).to_le_bytes());
        file.extend(content);
        file
    }

    fn opened(bytes: &[u8]) -> Result<Kcore, ImageError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Kcore::open(file.path(), "")
    }

    const BASE: u64 = 0xffff_ffff_8100_0000;

    #[test]
    fn bytes_are_read_by_address() {
        let kcore = opened(&core(BASE, b"0123456789")).unwrap();
        assert_eq!(kcore.read(BASE + 3, 4).unwrap(), b"3456");
        assert_eq!(kcore.read(BASE, 10).unwrap(), b"0123456789");
        for (address, length) in [(BASE + 8, 4), (BASE - 1, 2), (0, 1), (u64::MAX, 1), (u64::MAX - 1, 4)] {
            assert!(matches!(kcore.read(address, length), Err(ImageError::Unmapped { .. })), "{address:#x}");
        }
    }

    #[test]
    fn malformed_cores_are_refused() {
        let whole = core(BASE, b"0123456789");
        for end in 0..64 + 2 * 56 {
            assert!(opened(&whole[..end]).is_err(), "cut at {end}");
        }
        // The segment promises more than the file has.
        let cut = opened(&whole[..whole.len() - 4]).unwrap();
        assert!(matches!(cut.read(BASE, 10), Err(ImageError::Unmapped { .. })));
        assert!(opened(&[0x7f; 256]).is_err());
        assert!(opened(&core(u64::MAX - 2, b"0123456789")).is_err(), "an address that wraps");
        let mut far = whole.clone();
        far[64 + 56 + 8..][..8].fill(0xff);
        assert!(opened(&far).is_err(), "an offset that wraps");
        let mut many = whole;
        many[0x39] = 0xff;
        assert!(opened(&many).is_err());
    }

    #[test]
    fn a_forbidden_core_names_the_remedy() {
        let error = Kcore::open(Path::new("/nonexistent/kcore"), "; lockdown is on").unwrap_err().to_string();
        assert!(error.contains("needs root") && error.contains("lockdown is on"), "{error}");
    }
}
