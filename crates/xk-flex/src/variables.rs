//! Global variables of a loaded object, as memory that its programs share.
//!
//! libbpf makes a map of each section of variables. User space maps it, and finds a variable by the symbols of the object.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::null_mut;

use libbpf_rs::{MapCore, MapHandle};
use object::read::File;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use rustix::param::page_size;
use serde::{Deserialize, Serialize};

use crate::need::{Loaded, NAME};
use crate::Error;

/// Where a variable is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Its name in the source.
    pub name: String,
    /// The map of its section.
    pub map: String,
    /// In the value of the map.
    pub offset: usize,
    /// Its size.
    pub bytes: usize,
}

/// The variables of an object, in order. None if it cannot be read.
#[must_use]
pub fn variables(bytes: &[u8]) -> Vec<Variable> {
    let Ok(file) = File::parse(bytes) else { return Vec::new() };
    let read = |symbol: object::Symbol<'_, '_>| {
        let section = file.section_by_index(symbol.section_index()?).ok()?;
        let section = section.name().ok()?;
        let is_data = symbol.kind() == SymbolKind::Data && symbol.size() > 0;
        Some(Variable {
            name: symbol.name().ok()?.into(),
            map: map_of(section).filter(|_| is_data)?,
            offset: usize::try_from(symbol.address()).ok()?,
            bytes: usize::try_from(symbol.size()).ok()?,
        })
    };
    file.symbols().filter_map(read).collect()
}

/// How libbpf calls the map of a section; nothing if there are no variables in it.
fn map_of(section: &str) -> Option<String> {
    match section {
        ".bss" | ".data" | ".rodata" => Some(format!("{NAME}{section}")),
        _ if [".bss.", ".data.", ".rodata."].iter().any(|start| section.starts_with(start)) => Some(section.into()),
        _ => None,
    }
}

/// The variables of a loaded object, mapped in this process.
#[derive(Debug)]
pub struct Variables {
    known: Vec<Variable>,
    maps: BTreeMap<String, Mapping>,
}

/// The memory of a variable. Programs change it at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where it begins.
    pub address: usize,
    /// Its size.
    pub bytes: usize,
    /// Whether the kernel lets user space write it.
    pub is_writable: bool,
}

impl Variables {
    /// Those of an object that this process has loaded.
    ///
    /// # Errors
    /// [`Error::Control`]: a map cannot be mapped.
    pub fn of(loaded: &Loaded) -> Result<Self, Error> {
        Self::new(variables(&loaded.rewritten.bytes), |name| {
            let found = loaded.object.maps().find(|map| map.name() == name);
            found.map(|map| MapHandle::try_from(&map).map_err(|error| refused(name, &error))).transpose()
        })
    }

    /// These, of maps that have a name.
    pub(crate) fn new(
        known: Vec<Variable>,
        named: impl Fn(&str) -> Result<Option<MapHandle>, Error>,
    ) -> Result<Self, Error> {
        let mut maps = BTreeMap::new();
        for variable in &known {
            if maps.contains_key(&variable.map) {
                continue;
            }
            if let Some(mapping) = named(&variable.map)?.map(|map| Mapping::new(&map, &variable.map)).transpose()? {
                maps.insert(variable.map.clone(), mapping);
            }
        }
        Ok(Self { known, maps })
    }

    /// Where a variable is; nothing if there is none of this name. Of several static ones, the first.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<Place> {
        let find = |variable: &Variable| {
            let mapping = self.maps.get(&variable.map)?;
            let end = variable.offset.checked_add(variable.bytes)?;
            let (address, is_writable) = (mapping.address + variable.offset, mapping.is_writable);
            (end <= mapping.bytes).then_some(Place { address, bytes: variable.bytes, is_writable })
        };
        self.known.iter().filter(|variable| variable.name == name).find_map(find)
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(|variable| variable.name.as_str())
    }
}

/// The value of a map, as memory.
#[derive(Debug)]
struct Mapping {
    address: usize,
    bytes: usize,
    is_writable: bool,
}

impl Mapping {
    fn new(map: &MapHandle, name: &str) -> Result<Self, Error> {
        let info = map.info().map_err(|error| refused(name, &error))?;
        // Of .rodata, the kernel lets only the programs' loader write the value.
        let is_writable = info.info.map_flags & libbpf_sys::BPF_F_RDONLY_PROG == 0;
        let access = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let bytes = (map.value_size() as usize).next_multiple_of(page_size());
        // SAFETY: a new mapping, wherever there is room.
        let mapped = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, map.as_fd(), 0) };
        let mapped = mapped.map_err(|error| refused(name, &error))?;
        Ok(Self { address: mapped as usize, bytes, is_writable })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and who uses its addresses keeps its owner.
        _ = unsafe { munmap(self.address as *mut c_void, self.bytes) };
    }
}

fn refused(map: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Control(format!("{map}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::compiled;

    #[test]
    fn variables_are_found_by_their_sections() {
        let source = "__u64 zero, other[3]; int set = 7; static const int given[2] = { 1, 2 };\n\
            __u32 own __attribute__((section(\".data.own\")));\n\
            __attribute__((section(\"xdp\"))) int f(void *c) { return given[own & 1] + set + zero + other[set & 1]; }\n";
        let found = variables(&compiled(source));
        let of = |name: &str| {
            let found = found.iter().find(|variable| variable.name == name);
            found.map(|found| (found.map.as_str(), found.bytes))
        };
        assert_eq!(of("zero"), Some(("xk_flex.bss", 8)));
        assert_eq!(of("other"), Some(("xk_flex.bss", 24)));
        assert_eq!(of("set"), Some(("xk_flex.data", 4)));
        assert_eq!(of("own"), Some((".data.own", 4)));
        assert_eq!(of("f"), None, "a program is no variable");
        assert_eq!(variables(b"no object"), []);
    }
}
