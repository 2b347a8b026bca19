//! What the types of an object say: how many arguments functions take, and which maps hold sockets.

use std::collections::{BTreeMap, BTreeSet};

use libbpf_rs::btf::{types, Btf, BtfType, TypeId};

/// `BPF_MAP_TYPE_SOCKMAP` and `BPF_MAP_TYPE_SOCKHASH`.
const SOCKETS: [usize; 2] = [15, 18];

/// What is known.
#[derive(Debug, Default)]
pub struct Types {
    /// Numbers of arguments, by the names of functions.
    pub parameters: BTreeMap<String, usize>,
    /// Names of maps from which a lookup takes a reference to a socket.
    pub socket_maps: BTreeSet<String>,
}

impl Types {
    /// Reads the types of an object.
    ///
    /// # Errors
    /// libbpf cannot read it.
    pub fn read(bytes: &[u8]) -> Result<Self, libbpf_rs::Error> {
        let Some(btf) = Btf::from_raw("object", bytes)? else { return Ok(Self::default()) };
        let name = |found: &BtfType<'_>| found.name().map(|name| name.to_string_lossy().into_owned());
        let mut found = Self::default();
        for function in btf.type_by_kind::<types::Func<'_>>() {
            let prototype = function.next_type().and_then(|next| types::FuncProto::try_from(next).ok());
            if let (Some(name), Some(prototype)) = (name(&function), prototype) {
                // Of several functions of one name, the most.
                let number = found.parameters.entry(name).or_default();
                *number = prototype.len().max(*number);
            }
        }
        let sections =
            btf.type_by_kind::<types::DataSec<'_>>().filter(|section| name(section).as_deref() == Some(".maps"));
        let maps: Vec<TypeId> =
            sections.flat_map(|section| section.iter().map(|map| map.ty).collect::<Vec<_>>()).collect();
        for map in maps.into_iter().filter_map(|id| btf.type_by_id::<types::Var<'_>>(id)) {
            if map_type(&btf, &map).is_some_and(|number| SOCKETS.contains(&number)) {
                found.socket_maps.extend(name(&map));
            }
        }
        Ok(found)
    }
}

/// The type of a map: as the macro `__uint(type, …)` of libbpf writes it, the length of an array.
fn map_type(btf: &Btf<'_>, map: &types::Var<'_>) -> Option<usize> {
    let definition = types::Struct::try_from(map.next_type()?).ok()?;
    let member = definition.iter().find(|member| member.name.is_some_and(|name| name == "type"))?;
    let pointer: types::Ptr<'_> = btf.type_by_id(member.ty)?;
    Some(types::Array::try_from(pointer.next_type()?).ok()?.capacity())
}
