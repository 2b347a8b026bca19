//! What the maps of programs contain.
//!
//! In: an object in the kernel, and its file. Out: for each map its entries, for the sections of variables each variable.
//! Numbers of up to 8 bytes are numbers; anything else is its bytes. A map of every CPU has a value for each and their
//! sum.

use std::collections::BTreeMap;

use libbpf_rs::{Map, MapCore, MapFlags, MapType};
use object::{Object as _, ObjectSection, ObjectSymbol};
use serde_json::{json, Value};

use crate::program::Programs;

/// Entries of a map that are read.
const MOST: usize = 65536;

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
    let mut all = serde_json::Map::new();
    for map in programs.object().maps() {
        let name = map.name().to_string_lossy().into_owned();
        match section_of(&name) {
            Some(section) => {
                if let Some(variables) = variables(&map, file, section) {
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

/// The section that a map of variables is made of. Constants are of no interest.
fn section_of(name: &str) -> Option<&'static str> {
    let section = name.get(name.find('.')?..)?;
    [".data", ".bss", ".rodata", ".kconfig"].into_iter().find(|known| section.starts_with(known))
}

/// The variables of a section.
fn variables(map: &Map<'_>, file: &[u8], section: &str) -> Option<Value> {
    if !matches!(section, ".data" | ".bss") {
        return None;
    }
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten()?;
    let file = object::File::parse(file).ok()?;
    let index = file.section_by_name(section)?.index();
    let here = file.symbols().filter(|symbol| symbol.section_index() == Some(index) && symbol.size() > 0);
    let variables: BTreeMap<String, Value> = here
        .filter_map(|symbol| {
            let (start, size) = (symbol.address() as usize, symbol.size() as usize);
            Some((symbol.name().ok()?.to_owned(), value(bytes.get(start..start.checked_add(size)?)?)))
        })
        .collect();
    Some(json!(variables))
}

/// The entries of a map, as far as they can be read: not those of queues and of buffers of events.
fn entries(map: &Map<'_>) -> Vec<Value> {
    let per_cpu = matches!(map.map_type(), MapType::PercpuHash | MapType::PercpuArray | MapType::LruPercpuHash);
    let empty = |entry: &Value| {
        let nothing = matches!(map.map_type(), MapType::Array | MapType::PercpuArray);
        nothing && (entry["value"] == 0 || entry["sum"] == 0)
    };
    map.keys().take(MOST).filter_map(|key| entry(map, &key, per_cpu)).filter(|entry| !empty(entry)).collect()
}

fn entry(map: &Map<'_>, key: &[u8], per_cpu: bool) -> Option<Value> {
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
        assert_eq!(section_of(".rodata.str1.1"), Some(".rodata"));
        assert_eq!(section_of("counts"), None);
    }
}
