//! The kernel itself: its text, its data, its symbols, and the lists that it keeps
//! about its own code; from a boot image, or from a running kernel.

use std::ops::Range;
use std::sync::Arc;

use xk_kernel::{Image, ImageError};

use super::{words, Region, World, CLOSED, EXPORTS};
use crate::patches::Tables;

/// Data of the image that addresses of code are looked for in.
const DATA: [&str; 7] = [".rodata", ".data", ".init.data", "__init_rodata", ".pci_fixup", "__param", ".data..percpu"];
/// Loaded, but neither data nor tables of addresses that anything jumps to.
const DESCRIPTIONS: [&str; 6] = [".BTF", ".BTF_ids", ".notes", ".orc_header", ".orc_unwind_ip", ".orc_unwind"];

impl World {
    pub(super) fn read_image(&mut self, image: &Image) -> Result<(), ImageError> {
        if image.is_live() {
            let text = image.text_range();
            let length = (text.end - text.start) as usize;
            self.regions.push(Region {
                start: text.start,
                bytes: Arc::new(image.read(text.start, length)?),
                code: true,
                boot: false,
            });
        }
        for (name, start, length) in image.executable_sections() {
            let boot = name.starts_with(".init") || name == ".exit.text" || name == ".altinstr_aux";
            self.regions.push(Region { start, bytes: Arc::new(image.read(start, length)?), code: true, boot });
        }
        let others = image.data_sections().into_iter();
        let others = others.filter(|(name, ..)| !DATA.contains(name) && !DESCRIPTIONS.contains(name));
        self.tables.extend(others.map(|(_, start, bytes)| Region {
            start,
            bytes: Arc::new(bytes.to_vec()),
            code: false,
            boot: false,
        }));
        for name in DATA {
            if let Some((start, bytes)) = image.section(name) {
                self.regions.push(Region { start, bytes: Arc::new(bytes.to_vec()), code: false, boot: false });
            }
        }
        self.regions.sort_by_key(|region| region.start);
        let mut text: Vec<(u64, u64, &str)> = Vec::new();
        for symbol in image.all_symbols().iter().filter(|symbol| symbol.module.is_none()) {
            if symbol.is_text() {
                text.push((symbol.address, symbol.address + symbol.size_hint, &symbol.name));
            } else {
                self.objects.push((symbol.address, symbol.name.clone()));
            }
        }
        self.add_functions(text, 0);
        let tables = Tables::of_image(image);
        self.patches.read(&tables);
        let between = |start: &str, stop: &str| {
            let address = |name| image.symbols(name).into_iter().find(|s| s.module.is_none()).map(|s| s.address);
            Some(address(start)?..address(stop)?)
        };
        let lists = [
            ("__start_mcount_loc", "__stop_mcount_loc"),
            ("__start_kprobe_blacklist", "__stop_kprobe_blacklist"),
            ("__start_error_injection_whitelist", "__stop_error_injection_whitelist"),
        ];
        self.listed.extend(lists.into_iter().filter_map(|(start, stop)| between(start, stop)));
        let closed =
            CLOSED.into_iter().filter_map(|(name, start, stop)| Some((between(start, stop)?, name.to_owned())));
        self.closed.extend(closed);
        let blacklist = between("__start_kprobe_blacklist", "__stop_kprobe_blacklist");
        match blacklist.and_then(|table| image.read(table.start, table.end.checked_sub(table.start)? as usize).ok()) {
            Some(table) => self.blacklist.extend(words(&table)),
            // A running kernel has dropped its list.
            None => self.forgotten = true,
        }
        if image.is_live() {
            self.read_live(image, &between);
        }
        for table in EXPORTS {
            if let Some((start, bytes)) = image.section(table) {
                self.export(start, bytes);
            }
        }
        Ok(())
    }

    /// The data of a running kernel, if it can be read.
    fn read_live(&mut self, image: &Image, between: &dyn Fn(&str, &str) -> Option<Range<u64>>) {
        let read = |range: Range<u64>| {
            let length = range.end.checked_sub(range.start)? as usize;
            Some((range.start, image.read(range.start, length).ok()?))
        };
        for (start, stop) in [("__start_rodata", "__end_rodata"), ("_sdata", "_edata")] {
            match between(start, stop).and_then(read) {
                Some((start, bytes)) => {
                    self.regions.push(Region { start, bytes: Arc::new(bytes), code: false, boot: false })
                }
                None => self.blind = true,
            }
        }
        for (start, stop) in
            [("__start___ksymtab", "__stop___ksymtab"), ("__start___ksymtab_gpl", "__stop___ksymtab_gpl")]
        {
            match between(start, stop).and_then(read) {
                Some((start, bytes)) => self.export(start, &bytes),
                None => self.blind = true,
            }
        }
        self.regions.sort_by_key(|region| region.start);
    }
}
