//! What `xk-kernel` reads: images, symbols, memory, modules, bundles.

use std::io::Write;

use anyhow::Result;
use flate2::write::GzEncoder;
use flate2::Compression;
use xk_kernel::{parsers, Image, Module};

use super::code::size;
use super::{said, Input};
use crate::seeds;

pub fn boot_images() -> Result<Vec<Vec<u8>>> {
    seeds::boot_images()
}

pub fn vmlinuz(input: &Input<'_>) -> String {
    said(parsers::vmlinuz(input.bytes), |length| format!("length {}", size(length)))
}

pub fn images() -> Result<Vec<Vec<u8>>> {
    Ok(vec![seeds::kernel()?])
}

/// A kernel and what is asked of it.
pub fn image(input: &Input<'_>) -> String {
    said(Image::from_vmlinuz(input.path, None), |image| about(&image))
}

fn about(image: &Image) -> String {
    let (start, end) = (image.text_range().start, image.text_range().end);
    let at_edges: Vec<bool> = [start, start.wrapping_sub(1), end, end.wrapping_sub(1), 0, u64::MAX]
        .iter()
        .flat_map(|&address| [1, 16, usize::MAX].map(|length| (address, length)))
        .map(|(address, length)| {
            let _ = image.text_symbol_at(address);
            image.read(address, length).is_ok_and(|bytes| bytes.len() == length)
        })
        .collect();
    for (_, address, length) in image.executable_sections() {
        let _ = image.read(address, length);
    }
    for symbol in image.all_symbols() {
        let _ = symbol.address.wrapping_add(symbol.size_hint);
    }
    let sections = image.executable_sections().len();
    let btf = image.btf().map(|bytes| size(bytes.len()));
    let at_edges: String = at_edges.iter().map(|&read| if read { 'r' } else { 'u' }).collect();
    let all = size(image.all_symbols().len());
    format!("symbols {all} {} {} {at_edges} {}", btf.unwrap_or('-'), size(sections), image.config().is_some())
}

pub fn tables() -> Result<Vec<Vec<u8>>> {
    Ok(vec![seeds::kallsyms(8), seeds::kallsyms(300)])
}

pub fn kallsyms(input: &Input<'_>) -> String {
    said(parsers::kallsyms(input.bytes), |count| format!("count {}", size(count)))
}

pub fn lists() -> Result<Vec<Vec<u8>>> {
    let list = "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000040 t twice\n\
                ffffffff81000060 t twice\nffffffffc0000000 t bbr_main\t[tcp_bbr]\n";
    Ok(vec![list.as_bytes().to_vec()])
}

pub fn symbols(input: &Input<'_>) -> String {
    let text = String::from_utf8_lossy(input.bytes);
    said(parsers::symbols(&text), |count| format!("count {}", size(count)))
}

pub fn cores() -> Result<Vec<Vec<u8>>> {
    Ok(vec![seeds::core()])
}

/// Opens, and reads at the ends of every segment that the file states.
pub fn kcore(input: &Input<'_>) -> String {
    let headers = input.bytes.get(64..).unwrap_or_default().chunks_exact(56).take(8);
    let addresses = headers.flat_map(|header| {
        let long = |at: usize| header[at..at + 8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        [long(16), long(16).wrapping_add(long(40)).wrapping_sub(1)]
    });
    let wanted: Vec<(u64, usize)> =
        addresses.chain([0, u64::MAX]).flat_map(|address| [1, 8, 4096].map(|length| (address, length))).collect();
    said(parsers::kcore(input.path, &wanted), |read| format!("read {}", size(read)))
}

pub fn modules() -> Result<Vec<Vec<u8>>> {
    seeds::modules()
}

pub fn module(input: &Input<'_>) -> String {
    said(Module::open(input.path), |module| {
        let relocations: usize = module.sections.iter().map(|section| section.relocations.len()).sum();
        let text = module.sections.iter().filter(|section| section.executable).count();
        format!(
            "sections {} {} {} {} {} {} {}",
            size(module.sections.len()),
            size(text),
            size(relocations),
            size(module.symbols.len()),
            module.info("vermagic").is_some(),
            module.build_id().is_some(),
            module.symbols_named("f").count(),
        )
    })
}

pub fn bundles() -> Result<Vec<Vec<u8>>> {
    Ok(vec![seeds::bundle()?])
}

pub fn bundle(input: &Input<'_>) -> String {
    said(Image::from_bundle(input.path), |image| about(&image))
}

pub fn archives() -> Result<Vec<Vec<u8>>> {
    Ok(vec![seeds::bundle_archive()?])
}

/// A bundle whose compression is intact.
pub fn archive(input: &Input<'_>) -> String {
    let path = input.path.with_extension("xkb");
    let write = || {
        let mut encoder = GzEncoder::new(std::fs::File::create(&path)?, Compression::none());
        encoder.write_all(input.bytes)?;
        encoder.finish()
    };
    match write() {
        Ok(_) => said(Image::from_bundle(&path), |image| about(&image)),
        // No disk, no verdict.
        Err(error) => error.to_string(),
    }
}
