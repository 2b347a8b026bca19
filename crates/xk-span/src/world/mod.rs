//! The deployed code as one address space: the kernel where it is linked (or runs),
//! and modules placed after it and linked to it as the loader would.
//!
//! In: an image, the names of modules. Out: bytes, functions, objects, types, and the
//! places that the kernel patches by itself. Refuses modules that cannot be read.

mod image;
mod link;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use xk_kernel::{Image, ImageError, Module};

use crate::btf::{Prototype, Types};
use crate::patches::Patches;
use crate::unwind::Unwind;

/// Code or data at its address.
#[derive(Debug, Clone)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// The bytes, shared by all address spaces of one kernel.
    pub bytes: Arc<Vec<u8>>,
    /// Whether it is code.
    pub code: bool,
    /// Whether it is code that never runs once the kernel or the module is there.
    pub boot: bool,
}

/// A function, or the `.cold` part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// First byte.
    pub start: u64,
    /// First byte after it; the padding belongs to it.
    pub end: u64,
    /// Its names; several symbols may share an address.
    pub names: Vec<String>,
    /// Index into [`World::owners`].
    pub owner: usize,
}

impl Function {
    /// The name by which it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        self.names.first().map_or("?", String::as_str)
    }

    /// The one of its names that begins with `prefix`.
    #[must_use]
    pub fn called(&self, prefix: &str) -> Option<&str> {
        self.names.iter().map(String::as_str).find(|name| name.starts_with(prefix))
    }

    /// The function that it is a part of, if the compiler has moved it away; else itself.
    #[must_use]
    pub fn whole(&self) -> &str {
        self.name().split_once(".cold").map_or(self.name(), |(whole, _)| whole)
    }

    /// Whether it is a part that the compiler split off.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.names.iter().any(|name| name.contains(".cold"))
    }
}

/// A module's section, where it was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Index into [`World::owners`].
    pub owner: usize,
    /// Name.
    pub section: String,
    /// Address.
    pub start: u64,
}

/// The address space.
#[derive(Debug, Clone, Default)]
pub struct World {
    regions: Vec<Region>,
    functions: Vec<Function>,
    objects: Vec<(u64, String)>,
    by_name: HashMap<String, Vec<usize>>,
    /// `None` for vmlinux, else the module as the kernel spells it.
    pub owners: Vec<Option<String>>,
    /// What the kernel patches, and where control continues unseen.
    pub patches: Patches,
    /// Types.
    pub types: Types,
    /// Functions that modules may call.
    pub exported: HashSet<u64>,
    /// Functions that do not return.
    pub noreturns: HashSet<String>,
    /// Where modules' sections are.
    pub placed: Vec<Placed>,
    /// Fields that the loader of modules fills in: address and length.
    pub relocated: Vec<(u64, u8)>,
    /// `_stext`.
    pub text_base: u64,
    /// Tables that list functions without calling them: tracing, probes, fault injection.
    pub listed: Vec<std::ops::Range<u64>>,
    /// The data could not be read, so it is not known which addresses are taken.
    pub blind: bool,
    /// What else is loaded and is no code: tables of the kernel.
    pub tables: Vec<Region>,
    /// Code that nothing may be put into, with the name of its section.
    pub closed: Vec<(std::ops::Range<u64>, String)>,
    /// Functions that the kernel itself does not let probes into.
    pub blacklist: HashSet<u64>,
    /// How the unwinder finds the stack.
    pub unwind: Unwind,
    /// A list was dropped: functions may be missing from `blacklist`, and tracing sites.
    pub forgotten: bool,
}

/// Where modules are placed: after any kernel, within reach of a call.
const MODULES: u64 = 0xffff_ffff_c000_0000;
/// Sections of code that nothing may be put into: include/asm-generic/vmlinux.lds.h and
/// arch/x86/kernel/vmlinux.lds.S, with the symbols around them.
const CLOSED: [(&str, &str, &str); 7] = [
    (".noinstr.text", "__noinstr_text_start", "__noinstr_text_end"),
    (".entry.text", "__entry_text_start", "__entry_text_end"),
    (".irqentry.text", "__irqentry_text_start", "__irqentry_text_end"),
    (".kprobes.text", "__kprobes_text_start", "__kprobes_text_end"),
    (".cpuidle.text", "__cpuidle_text_start", "__cpuidle_text_end"),
    (".static_call.text", "__static_call_text_start", "__static_call_text_end"),
    (".text..__x86.indirect_thunk", "__indirect_thunk_start", "__indirect_thunk_end"),
];

/// Sections of exported symbols.
const EXPORTS: [&str; 2] = ["__ksymtab", "__ksymtab_gpl"];
/// Addresses, and how the stack is found from them on.
const UNWIND: (&str, &str) = (".orc_unwind_ip", ".orc_unwind");
/// Addresses, one after the other.
fn words(table: &[u8]) -> impl Iterator<Item = u64> + '_ {
    table.chunks_exact(8).filter_map(|field| Some(u64::from_le_bytes(field.try_into().ok()?)))
}

impl World {
    /// The kernel of `image` with some of its modules.
    ///
    /// # Errors
    /// When the text or a module cannot be read.
    pub fn new(image: &Image, modules: &[&str], noreturns: HashSet<String>) -> Result<Self, ImageError> {
        let mut this = Self { noreturns, text_base: image.text_base(), ..Self::default() };
        this.owners.push(None);
        this.types = image.btf().map(|btf| Types::new(&btf)).unwrap_or_default();
        this.read_image(image)?;
        this.finish(0);
        this.with(image, modules)
    }

    /// This address space, which is that of `image` alone, with some of its modules.
    ///
    /// # Errors
    /// When a module cannot be read.
    pub fn with(mut self, image: &Image, modules: &[&str]) -> Result<Self, ImageError> {
        let own = self.functions.len();
        let mut at = MODULES;
        let mut known = HashSet::new();
        for name in modules {
            at = self.place_with_needs(image, name, at, &mut known)?;
        }
        self.finish(own);
        Ok(self)
    }

    /// The regions of modules.
    pub fn module_regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().filter(|region| region.start >= MODULES)
    }

    /// Modules alone: fixtures.
    #[must_use]
    pub fn of_modules(modules: &[Module]) -> Self {
        let mut this = Self { owners: vec![None], types: Types::new(&[]), ..Self::default() };
        let mut at = MODULES;
        for module in modules {
            at = this.place(module, at);
        }
        this.finish(0);
        this
    }

    /// include/linux/export-internal.h: s32 value, name, namespace.
    fn export(&mut self, start: u64, table: &[u8]) {
        self.exported.extend(table.chunks_exact(12).enumerate().map(|(n, entry)| {
            let offset = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            (start + 12 * n as u64).wrapping_add(i64::from(offset) as u64)
        }));
    }

    /// Functions of one owner; symbols at one address are one function.
    fn add_functions(&mut self, mut text: Vec<(u64, u64, &str)>, owner: usize) {
        text.sort_by_key(|&(start, _, name)| (start, name.starts_with("__pfx_"), name.contains('.')));
        for (start, end, name) in text {
            match self.functions.last_mut() {
                Some(last) if last.start == start && last.owner == owner => {
                    last.names.push(name.to_owned());
                    last.end = last.end.max(end);
                }
                _ => self.functions.push(Function { start, end, names: vec![name.to_owned()], owner }),
            }
        }
    }

    /// Indexes the functions from `first` on; those before it are, and stay where they are.
    fn index_names(&mut self, first: usize) {
        let fresh = || self.functions.iter().enumerate().skip(first);
        for name in fresh().flat_map(|(_, function)| &function.names) {
            if let Some(places) = self.by_name.get_mut(name) {
                places.retain(|&place| place < first);
            }
        }
        for (index, function) in fresh() {
            for name in &function.names {
                self.by_name.entry(name.clone()).or_default().push(index);
            }
        }
    }

    /// Puts everything in order; the functions before `first` are, and nothing that came
    /// later lies before one of them.
    fn finish(&mut self, first: usize) {
        self.functions[first..].sort_by_key(|function| function.start);
        self.objects.sort();
        self.relocated.sort_unstable();
        self.unwind.finish();
        self.index_names(first);
    }

    fn region(&self, address: u64) -> Option<&Region> {
        self.regions[..self.regions.partition_point(|region| region.start <= address)].last()
    }

    /// Whether the code at an address never runs any more: what runs at boot, and what
    /// alternatives replace before anything runs.
    #[must_use]
    pub fn is_over(&self, address: u64) -> bool {
        self.region(address).is_some_and(|region| region.boot)
    }

    /// Bytes at an address.
    #[must_use]
    pub fn read(&self, address: u64, length: usize) -> Option<&[u8]> {
        let region = self.region(address)?;
        let at = usize::try_from(address - region.start).ok()?;
        region.bytes.get(at..at.checked_add(length)?)
    }

    /// The code from an address on, at most 16 bytes.
    #[must_use]
    pub fn code(&self, address: u64) -> Option<&[u8]> {
        let region = self.region(address)?;
        let at = usize::try_from(address - region.start).ok()?;
        let rest = region.bytes.get(at..).filter(|rest| region.code && !rest.is_empty())?;
        Some(&rest[..rest.len().min(16)])
    }

    /// Everything.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Every symbol that is no function, by address.
    #[must_use]
    pub fn objects(&self) -> &[(u64, String)] {
        &self.objects
    }

    /// Every function, by address.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The functions of that name.
    pub fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Function> {
        self.by_name.get(name).into_iter().flatten().map(|&index| &self.functions[index])
    }

    /// The function that begins at an address.
    #[must_use]
    pub fn function_at(&self, start: u64) -> Option<&Function> {
        let index = self.functions.binary_search_by_key(&start, |function| function.start).ok()?;
        self.functions.get(index)
    }

    /// The function that covers an address.
    #[must_use]
    pub fn function_of(&self, address: u64) -> Option<&Function> {
        let end = self.functions.partition_point(|function| function.start <= address);
        let found = self.functions[..end].last()?;
        (address < found.end).then_some(found)
    }

    /// The prototype of a function, if it is certain.
    #[must_use]
    pub fn prototype(&self, function: &Function) -> Option<&Prototype> {
        function.names.iter().find_map(|name| self.types.function(name))
    }

    /// Whether the calling convention holds for a function: it has a prototype, or the compiler cloned it from one that
    /// has.
    #[must_use]
    pub fn is_c(&self, function: &Function) -> bool {
        let clone = |name: &String| [".isra.", ".constprop.", ".part."].iter().any(|suffix| name.contains(suffix));
        self.prototype(function).is_some() || function.names.iter().any(clone)
    }

    /// The object at or before an address, with the distance.
    #[must_use]
    pub fn object(&self, address: u64) -> Option<(&str, u64)> {
        let end = self.objects.partition_point(|(start, _)| *start <= address);
        let (start, name) = self.objects[..end].last()?;
        Some((name, address - start))
    }

    /// `vfs_write+0x12 [module]`.
    #[must_use]
    pub fn place_name(&self, address: u64) -> String {
        let Some(function) = self.function_of(address) else { return format!("{address:#x}") };
        let module = self.owners.get(function.owner).and_then(Option::as_deref);
        let module = module.map_or_else(String::new, |module| format!(" [{module}]"));
        format!("{}{:+#x}{module}", function.name(), address - function.start)
    }
}
