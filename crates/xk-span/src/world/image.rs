//! The kernel itself: its text, its data, its symbols, and the lists that it keeps
//! about its own code; from a boot image, or from a running kernel.

use std::ops::Range;
use std::sync::Arc;

use xk_kernel::{Image, ImageError};

use super::{words, Region, World, CLOSED, EXPORTS, UNWIND};
use crate::patches::Tables;

/// Data of the image that addresses of code are looked for in.
const DATA: [&str; 7] = [".rodata", ".data", ".init.data", "__init_rodata", ".pci_fixup", "__param", ".data..percpu"];
/// Loaded, but neither data nor tables of addresses that anything jumps to.
const DESCRIPTIONS: [&str; 6] = [".BTF", ".BTF_ids", ".notes", ".orc_header", ".orc_unwind_ip", ".orc_unwind"];

impl World {
    /// Adds the kernel: its code and data, its symbols, and its own lists of code.
    pub(super) fn read_image(&mut self, image: &Image) -> Result<(), ImageError> {
        self.read_code(image)?;
        self.read_data(image);
        self.regions.sort_by_key(|region| region.start);
        self.name_kernel(image);
        self.patches.read(&Tables::of_image(image));
        self.read_lists(image);
        if let (Some((start, addresses)), Some((_, entries))) = (image.section(UNWIND.0), image.section(UNWIND.1)) {
            self.unwind.add(start, addresses, entries);
        }
        if image.is_live() {
            self.read_live(image);
        }
        for table in EXPORTS {
            if let Some((start, bytes)) = image.section(table) {
                self.export(start, bytes);
            }
        }
        Ok(())
    }

    fn read_code(&mut self, image: &Image) -> Result<(), ImageError> {
        if image.is_live() {
            let text = image.text_range();
            let bytes = image.read(text.start, (text.end - text.start) as usize)?;
            self.regions.push(Region { start: text.start, bytes: Arc::new(bytes), code: true, boot: false });
        }
        for (name, start, length) in image.executable_sections() {
            let boot = name.starts_with(".init") || name == ".exit.text" || name == ".altinstr_aux";
            self.regions.push(Region { start, bytes: Arc::new(image.read(start, length)?), code: true, boot });
        }
        Ok(())
    }

    fn read_data(&mut self, image: &Image) {
        let data = |start, bytes: &[u8]| Region { start, bytes: Arc::new(bytes.to_vec()), code: false, boot: false };
        for (name, start, bytes) in image.data_sections() {
            if !DATA.contains(&name) && !DESCRIPTIONS.contains(&name) {
                self.tables.push(data(start, bytes));
            }
        }
        for (start, bytes) in DATA.iter().filter_map(|name| image.section(name)) {
            self.regions.push(data(start, bytes));
        }
    }

    fn name_kernel(&mut self, image: &Image) {
        let mut text: Vec<(u64, u64, &str)> = Vec::new();
        for symbol in image.all_symbols().iter().filter(|symbol| symbol.module.is_none()) {
            if symbol.is_text() {
                text.push((symbol.address, symbol.address + symbol.size_hint, &symbol.name));
            } else {
                self.objects.push((symbol.address, symbol.name.clone()));
            }
        }
        self.add_functions(text, 0);
    }

    /// The lists that the kernel keeps about its own code.
    fn read_lists(&mut self, image: &Image) {
        const BLACKLIST: (&str, &str) = ("__start_kprobe_blacklist", "__stop_kprobe_blacklist");
        let lists = [
            ("__start_mcount_loc", "__stop_mcount_loc"),
            BLACKLIST,
            ("__start_error_injection_whitelist", "__stop_error_injection_whitelist"),
        ];
        self.listed.extend(lists.into_iter().filter_map(|(start, stop)| between(image, start, stop)));
        let closed =
            CLOSED.into_iter().filter_map(|(name, start, stop)| Some((between(image, start, stop)?, name.to_owned())));
        self.closed.extend(closed);
        match between(image, BLACKLIST.0, BLACKLIST.1).and_then(|range| bytes_of(image, &range)) {
            Some(table) => self.blacklist.extend(words(&table)),
            // A running kernel has freed its list.
            None => self.forgotten = true,
        }
    }

    /// The data of a running kernel, if it can be read.
    fn read_live(&mut self, image: &Image) {
        let read = |start, stop| {
            let range = between(image, start, stop)?;
            Some((range.start, bytes_of(image, &range)?))
        };
        for (start, stop) in [("__start_rodata", "__end_rodata"), ("_sdata", "_edata")] {
            match read(start, stop) {
                Some((start, bytes)) => {
                    self.regions.push(Region { start, bytes: Arc::new(bytes), code: false, boot: false })
                }
                None => self.blind = true,
            }
        }
        for (start, stop) in
            [("__start___ksymtab", "__stop___ksymtab"), ("__start___ksymtab_gpl", "__stop___ksymtab_gpl")]
        {
            match read(start, stop) {
                Some((start, bytes)) => self.export(start, &bytes),
                None => self.blind = true,
            }
        }
        self.regions.sort_by_key(|region| region.start);
    }
}

/// The addresses between two symbols of the kernel.
fn between(image: &Image, start: &str, stop: &str) -> Option<Range<u64>> {
    let address = |name| image.symbols(name).into_iter().find(|s| s.module.is_none()).map(|s| s.address);
    Some(address(start)?..address(stop)?)
}

fn bytes_of(image: &Image, range: &Range<u64>) -> Option<Vec<u8>> {
    image.read(range.start, range.end.checked_sub(range.start)? as usize).ok()
}
