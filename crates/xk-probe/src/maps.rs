//! What the maps of programs contain.
//!
//! In: an object in the kernel, and its file. Out: for each map its entries, for the sections of variables each variable.
//! Numbers of up to 8 bytes are numbers; anything else is its bytes. A map of every CPU has a value for each and their
//! sum.

use std::collections::BTreeMap;

use libbpf_rs::btf::types::{DataSec, Var, VarSecInfo};
use libbpf_rs::btf::Btf;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use object::{Object as _, ObjectSection, ObjectSymbol};
use serde_json::{json, Value};
use thiserror::Error;

use crate::program::Programs;

/// Entries of a map that are read.
const MOST: usize = 65536;

/// Why the maps of a program cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MapsError {
    /// The kernel shows no such program.
    #[error("the kernel has no eBPF program {0}, or shows it only to CAP_SYS_ADMIN")]
    NoProgram(u32),
    /// A map cannot be opened.
    #[error("the maps of eBPF program {program} cannot be opened: {error}")]
    Unopened {
        /// The number of the program.
        program: u32,
        /// What the kernel said.
        error: libbpf_rs::Error,
    },
}

/// Bytes as a number if they can be one, else in hexadecimal.
#[must_use]
pub fn value(bytes: &[u8]) -> Value {
    match number(bytes) {
        Some(number) => json!(number),
        None => json!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    let mut whole = [0; 8];
    if !matches!(bytes.len(), 1 | 2 | 4 | 8) {
        return None;
    }
    whole[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_le_bytes(whole))
}

/// All maps by their names; `file` is the object that was loaded.
#[must_use]
pub fn read(programs: &Programs, file: &[u8]) -> Value {
    of_all(programs.object().maps(), |section| Some(layout_of_file(file, section).unwrap_or_default()))
}

/// The maps of a program in the kernel.
///
/// Descriptors keep the maps after the program is gone, so they can be read when it runs no more.
#[derive(Debug)]
pub struct Opened {
    maps: Vec<MapHandle>,
    types: Option<Btf<'static>>,
}

impl Opened {
    /// Opens the maps of the program with this number.
    ///
    /// # Errors
    /// [`MapsError`].
    pub fn of(program: u32) -> Result<Self, MapsError> {
        let with_maps = ProgInfoQueryOptions::default().include_map_ids(true);
        let info = ProgInfoIter::with_query_opts(with_maps).find(|info| info.id == program);
        let info = info.ok_or(MapsError::NoProgram(program))?;
        let open = |id: &u32| MapHandle::from_map_id(*id);
        let maps = info.map_ids.iter().map(open).collect::<Result<_, _>>();
        let maps = maps.map_err(|error| MapsError::Unopened { program, error })?;
        // Without types, variables have no names.
        Ok(Self { maps, types: Btf::from_prog_id(program).ok() })
    }

    /// All maps by their names, of which the kernel keeps 15 bytes.
    #[must_use]
    pub fn read(self) -> Value {
        let types = self.types;
        of_all(self.maps, |section| layout_of_types(types.as_ref()?, section))
    }
}

/// A variable of a section.
struct Variable {
    name: String,
    offset: usize,
    size: usize,
}

fn of_all<M: MapCore>(maps: impl IntoIterator<Item = M>, layout: impl Fn(&str) -> Option<Vec<Variable>>) -> Value {
    let mut all = serde_json::Map::new();
    for map in maps {
        let name = map.name().to_string_lossy().into_owned();
        match section_of(&name) {
            // Constants are of no interest, nor is what `xk probe` itself has written.
            Some(section) if !is_shown(section) => {}
            Some(section) => {
                if let Some(variables) = layout(section).and_then(|layout| variables(&map, &layout)) {
                    all.insert(section.trim_start_matches('.').to_owned(), variables);
                }
            }
            None => {
                all.insert(name, json!({ "type": format!("{:?}", map.map_type()), "entries": entries(&map) }));
            }
        }
    }
    Value::Object(all)
}

/// The section that a map of variables is made of.
fn section_of(name: &str) -> Option<&str> {
    let section = name.get(name.find('.')?..)?;
    let is_of =
        |known: &&str| section.strip_prefix(*known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    [".data", ".bss", ".rodata", ".kconfig"].iter().any(is_of).then_some(section)
}

/// Whether it has variables that programs change.
fn is_shown(section: &str) -> bool {
    (section.starts_with(".data") || section.starts_with(".bss")) && !section.starts_with(".data.xk_")
}

/// The variables of a section, from the symbols of an object.
fn layout_of_file(file: &[u8], section: &str) -> Option<Vec<Variable>> {
    let file = object::File::parse(file).ok()?;
    let index = file.section_by_name(section)?.index();
    let here = file.symbols().filter(|symbol| symbol.section_index() == Some(index) && symbol.size() > 0);
    let variable = |symbol: object::Symbol<'_, '_>| {
        let name = symbol.name().ok()?.to_owned();
        Some(Variable { name, offset: symbol.address() as usize, size: symbol.size() as usize })
    };
    Some(here.filter_map(variable).collect())
}

/// The variables of a section, from the types that the kernel has of a program.
fn layout_of_types(types: &Btf<'_>, section: &str) -> Option<Vec<Variable>> {
    let section: DataSec<'_> = types.type_by_name(section)?;
    let variable = |place: VarSecInfo| {
        let variable: Var<'_> = types.type_by_id(place.ty)?;
        let name = variable.name()?.to_string_lossy().into_owned();
        Some(Variable { name, offset: place.offset as usize, size: place.size })
    };
    Some(section.iter().filter_map(variable).collect())
}

fn variables(map: &impl MapCore, layout: &[Variable]) -> Option<Value> {
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten()?;
    let one = |variable: &Variable| {
        let end = variable.offset.checked_add(variable.size)?;
        Some((variable.name.clone(), value(bytes.get(variable.offset..end)?)))
    };
    Some(json!(layout.iter().filter_map(one).collect::<BTreeMap<_, _>>()))
}

/// The entries of a map, as far as they can be read: not those of queues and of buffers of events.
fn entries(map: &impl MapCore) -> Vec<Value> {
    let per_cpu = matches!(map.map_type(), MapType::PercpuHash | MapType::PercpuArray | MapType::LruPercpuHash);
    let empty = |entry: &Value| {
        let nothing = matches!(map.map_type(), MapType::Array | MapType::PercpuArray);
        nothing && (entry["value"] == 0 || entry["sum"] == 0)
    };
    map.keys().take(MOST).filter_map(|key| entry(map, &key, per_cpu)).filter(|entry| !empty(entry)).collect()
}

fn entry(map: &impl MapCore, key: &[u8], per_cpu: bool) -> Option<Value> {
    if !per_cpu {
        let bytes = map.lookup(key, MapFlags::ANY).ok()??;
        return Some(json!({ "key": value(key), "value": value(&bytes) }));
    }
    let each = map.lookup_percpu(key, MapFlags::ANY).ok()??;
    let values: Vec<Value> = each.iter().map(|bytes| value(bytes)).collect();
    let numbers: Option<Vec<u64>> = each.iter().map(|bytes| number(bytes)).collect();
    let sum = numbers.map(|numbers| numbers.iter().fold(0u64, |sum, number| sum.wrapping_add(*number)));
    Some(json!({ "key": value(key), "values": values, "sum": sum }))
}

/// The maps as text for people.
#[must_use]
pub fn text(maps: &Value) -> String {
    let mut text = String::new();
    for (name, map) in maps.as_object().into_iter().flatten() {
        match map["entries"].as_array() {
            Some(entries) => {
                text += &format!("{name}:{}\n", if entries.is_empty() { " empty" } else { "" });
                for entry in entries {
                    let value = if entry["sum"].is_null() { &entry["value"] } else { &entry["sum"] };
                    let value = if value.is_null() { &entry["values"] } else { value };
                    text += &format!("  {}: {}\n", plain(&entry["key"]), plain(value));
                }
            }
            None => {
                for (variable, value) in map.as_object().into_iter().flatten() {
                    text += &format!("{variable} = {}\n", plain(value));
                }
            }
        }
    }
    text
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_numbers_if_they_can_be() {
        assert_eq!(value(&[7, 1]), json!(263));
        assert_eq!(value(&[0xff; 8]), json!(u64::MAX));
        assert_eq!(value(&[1, 2, 0xab]), json!("0102ab"));
    }

    #[test]
    fn maps_are_shown_with_sums() {
        let maps = json!({
            "counts": { "type": "PercpuHash", "entries": [{ "key": 5, "values": [1, 2], "sum": 3 }] },
            "none": { "type": "Hash", "entries": [] },
            "bss": { "total": 9 },
        });
        assert_eq!(text(&maps), "total = 9\ncounts:\n  5: 3\nnone: empty\n");
    }

    #[test]
    fn maps_of_variables_are_known_by_their_section() {
        assert_eq!(section_of("xk_probe.bss"), Some(".bss"));
        assert_eq!(section_of(".rodata.str1.1"), Some(".rodata.str1.1"));
        assert_eq!((section_of("xk_probe.database"), section_of(".data.own")), (None, Some(".data.own")));
        let shown = [".data", ".bss", ".data.own", ".data.xk_taken", ".rodata"].map(is_shown);
        assert_eq!(shown, [true, true, true, false, false]);
        assert_eq!(section_of("counts"), None);
    }
}
