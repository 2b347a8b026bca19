//! Functions whose address is taken: what a call through a pointer may reach.
//!
//! In: the whole address space. Out: the first bytes of the functions whose address stands in data or is an operand of an
//! instruction that does not branch there. The lists of what may be traced or probed do not count. A number that happens
//! to be the address of a function counts, so the set is too large rather than too small. What only boot code could call
//! is left out.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions};

use crate::window::map::{named, Map};
use crate::world::World;

/// Bytes of an address in data.
const WORD: usize = 8;

/// The functions of `world` whose address is taken in it; `map` was made of it.
#[must_use]
pub fn taken(world: &World, map: &Map) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let bounds = world.functions().first().zip(world.functions().last());
    let Some((low, high)) = bounds.map(|(first, last)| (first.start, last.start)) else { return found };
    let is_function = |address: u64| {
        // Most words are no address of code.
        (low..=high).contains(&address)
            && world.function_at(address).is_some_and(|function| function.called("__pfx_").is_none())
            && !world.is_over(address)
    };
    for region in world.regions().iter().filter(|region| !region.code).chain(&world.tables) {
        for (at, field) in region.bytes.windows(WORD).enumerate() {
            let Ok(field) = field.try_into() else { continue };
            let address = u64::from_le_bytes(field);
            let place = region.start + at as u64;
            if is_function(address) && !world.listed.iter().any(|list| list.contains(&place)) {
                found.insert(address);
            }
        }
    }
    for part in map.parts() {
        let Some(code) = world.read(part.start, (part.end - part.start) as usize) else { continue };
        for insn in Decoder::with_ip(64, code, part.start, DecoderOptions::NONE) {
            found.extend(named(&insn).filter(|address| is_function(*address)));
        }
    }
    found
}
