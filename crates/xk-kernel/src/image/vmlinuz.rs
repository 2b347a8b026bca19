//! Unpacking a boot image.
//!
//! In: the bytes of a `vmlinuz` (bzImage) or of an uncompressed `vmlinux`.
//! Out: the ELF file inside. Refuses compressions that no distribution of a
//! supported kernel uses (bzip2, LZMA, LZO).

use std::io::Read;

use super::fault::UnpackError;

/// Largest kernel that is unpacked: guards against damaged sizes.
pub(super) const MAX_KERNEL: u64 = 512 << 20;
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// The ELF file inside a boot image, and the version text of its setup header.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub(crate) elf: Vec<u8>,
    /// `6.12.117+deb12-amd64 (debian-kernel@…) #1 SMP … Debian 6.12.117-1~deb12u1 (…)`; empty for an ELF file.
    pub(crate) banner: String,
}

/// Unpacks; the error says what is wrong with the file.
pub(crate) fn unpack(file: &[u8]) -> Result<Unpacked, UnpackError> {
    if file.starts_with(ELF_MAGIC) {
        return Ok(Unpacked { elf: file.to_vec(), banner: String::new() });
    }
    // Offsets of Documentation/arch/x86/boot.rst.
    if file.get(0x202..0x206) != Some(b"HdrS") {
        return Err(UnpackError::NotAnImage);
    }
    let byte = |at: usize| file.get(at).copied().ok_or(UnpackError::SetupCut);
    let half = |at: usize| Ok::<_, UnpackError>(u16::from_le_bytes([byte(at)?, byte(at + 1)?]));
    let word =
        |at: usize| Ok::<_, UnpackError>(u32::from_le_bytes([byte(at)?, byte(at + 1)?, byte(at + 2)?, byte(at + 3)?]));
    let version = half(0x206)?;
    if version < 0x208 {
        return Err(UnpackError::Protocol { version });
    }
    let setup_sectors = match byte(0x1f1)? {
        0 => 4,
        count => usize::from(count),
    };
    let start = (setup_sectors + 1) * 512 + word(0x248)? as usize;
    let payload = file.get(start..start + word(0x24c)? as usize).ok_or(UnpackError::PayloadCut)?;
    let version = file.get(usize::from(half(0x20e)?) + 0x200..).unwrap_or_default();
    let version = &version[..version.iter().take(512).position(|&byte| byte == 0).unwrap_or(0)];
    let elf = decompress(payload)?;
    if !elf.starts_with(ELF_MAGIC) {
        return Err(UnpackError::NotElf);
    }
    Ok(Unpacked { elf, banner: String::from_utf8_lossy(version).into_owned() })
}

/// Decompresses by magic number. What follows the compressed stream (the kernel's own size) is ignored.
pub(crate) fn decompress(data: &[u8]) -> Result<Vec<u8>, UnpackError> {
    match data {
        [0x1f, 0x8b, ..] => read_all(flate2::read::GzDecoder::new(data)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => read_all(liblzma::read::XzDecoder::new(data)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            read_all(zstd::Decoder::with_buffer(data).map_err(UnpackError::Damaged)?.single_frame())
        }
        [0x02, 0x21, 0x4c, 0x18, rest @ ..] => lz4_legacy(rest),
        [b'B', b'Z', b'h', ..] => Err(UnpackError::Unsupported { format: "bzip2" }),
        [0x5d, 0, 0, ..] => Err(UnpackError::Unsupported { format: "LZMA" }),
        [0x89, b'L', b'Z', ..] => Err(UnpackError::Unsupported { format: "LZO" }),
        _ => Err(UnpackError::UnknownFormat),
    }
}

fn read_all(reader: impl Read) -> Result<Vec<u8>, UnpackError> {
    let mut out = Vec::new();
    let read = reader.take(MAX_KERNEL + 1).read_to_end(&mut out);
    read.map_err(UnpackError::Damaged)?;
    if out.len() as u64 > MAX_KERNEL {
        return Err(UnpackError::TooLarge);
    }
    Ok(out)
}

/// The frame format that `lz4 -l` writes: blocks of up to 8 MiB, each after its compressed size.
fn lz4_legacy(mut rest: &[u8]) -> Result<Vec<u8>, UnpackError> {
    const BLOCK: usize = 8 << 20;
    let mut out = Vec::new();
    // The four bytes after the last block are the kernel's own size.
    while rest.len() > 4 {
        let (size, tail) = rest.split_at(4);
        let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
        let block = tail.get(..size).ok_or(UnpackError::BlockCut)?;
        let block = lz4_flex::block::decompress(block, BLOCK).map_err(UnpackError::BlockDamaged)?;
        out.extend(block);
        if out.len() as u64 > MAX_KERNEL {
            return Err(UnpackError::TooLarge);
        }
        rest = &tail[size..];
    }
    Ok(out)
}

#[cfg(test)]
#[path = "vmlinuz_tests.rs"]
mod tests;
