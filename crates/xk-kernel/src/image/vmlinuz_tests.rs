use std::io::Write;

use super::*;

const KERNEL: &[u8] = b"\x7fELF and the rest of a kernel";

/// A boot image around a compressed payload.
fn boot_image(payload: &[u8]) -> Vec<u8> {
    let mut file = vec![0_u8; 0x400];
    file[0x1f1] = 1;
    file[0x202..0x206].copy_from_slice(b"HdrS");
    file[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
    file[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    file[0x300..0x308].copy_from_slice(b"6.12.0 x");
    file[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
    file[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    file.extend([0; 16]);
    file.extend(payload);
    file.extend([0xcc; 64]);
    file
}

fn with_size(mut compressed: Vec<u8>) -> Vec<u8> {
    compressed.extend((KERNEL.len() as u32).to_le_bytes());
    compressed
}

fn gzip() -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(KERNEL).unwrap();
    encoder.finish().unwrap()
}

fn xz() -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(KERNEL).unwrap();
    encoder.finish().unwrap()
}

fn zstd() -> Vec<u8> {
    zstd::encode_all(KERNEL, 1).unwrap()
}

fn lz4() -> Vec<u8> {
    let block = lz4_flex::block::compress(KERNEL);
    let mut out = vec![0x02, 0x21, 0x4c, 0x18];
    out.extend((block.len() as u32).to_le_bytes());
    out.extend(block);
    out
}

#[test]
fn every_format_unpacks_with_the_size_behind_it() {
    for (name, payload) in [("gzip", gzip()), ("xz", xz()), ("zstd", zstd()), ("lz4", lz4())] {
        let unpacked = unpack(&boot_image(&with_size(payload))).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(unpacked.elf, KERNEL, "{name}");
        assert_eq!(unpacked.banner, "6.12.0 x");
    }
}

#[test]
fn an_uncompressed_kernel_is_taken_as_it_is() {
    assert_eq!(unpack(KERNEL).unwrap().elf, KERNEL);
}

#[test]
fn other_files_and_formats_are_refused() {
    assert!(unpack(b"").unwrap_err().to_string().contains("neither"));
    assert!(unpack(&[0; 0x400]).unwrap_err().to_string().contains("neither"));
    assert!(unpack(&boot_image(b"BZh91AY")).unwrap_err().to_string().contains("bzip2"));
    assert!(unpack(&boot_image(b"garbage")).unwrap_err().to_string().contains("unknown"));
    let mut not_elf = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    not_elf.write_all(b"text").unwrap();
    assert!(unpack(&boot_image(&not_elf.finish().unwrap())).unwrap_err().to_string().contains("not an ELF"));
}

#[test]
fn truncated_images_are_refused() {
    for payload in [gzip(), xz(), zstd(), lz4()] {
        let whole = boot_image(&payload);
        for end in 0..whole.len() - 64 {
            assert!(unpack(&whole[..end]).is_err(), "cut at {end}");
        }
        let cut = boot_image(&payload[..payload.len() - 5]);
        assert!(unpack(&cut).is_err());
    }
}
