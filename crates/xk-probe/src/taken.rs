//! The functions whose address is taken, as the maps of `bpf/xk_taken.bpf.h` hold them.
//!
//! In: addresses in the running kernel, and an object with these maps. Out: filled maps. Refuses an object whose maps are
//! not those of the header.

use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags, Object, OpenObject};
use object::{Object as _, ObjectSymbol};

use crate::constants::{set, CONSTANTS};

/// Bytes of code for each bit, and for each word of the map.
const BIT: u64 = 16;
const WORD: u64 = 64 * BIT;
/// Bytes of the bits: the code of a kernel and its modules lies within 2 GiB.
const MOST: u32 = 32 << 20;
const BITS: &str = "xk_taken";
/// The section, and so the map, that contains only it.
const BITS_SECTION: &str = ".data.xk_taken";
const BETWEEN: &str = "xk_taken_between";
const START: &str = "xk_taken_start";
const WORDS: &str = "xk_taken_words";

/// Functions whose address is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    start: u64,
    words: BTreeMap<usize, u64>,
    between: Vec<u64>,
}

/// Whether the object asks for them.
#[must_use]
pub fn wants_taken(object: &[u8]) -> bool {
    let Ok(file) = object::File::parse(object) else { return false };
    let found = file.symbols().any(|symbol| symbol.name() == Ok(BITS));
    found
}

impl Taken {
    /// Of these addresses.
    #[must_use]
    pub fn new(addresses: &[u64]) -> Self {
        let start = addresses.iter().min().map_or(0, |first| first / BIT * BIT);
        let mut this = Self { start, words: BTreeMap::new(), between: Vec::new() };
        for address in addresses {
            let distance = address - start;
            match usize::try_from(distance / WORD) {
                Ok(word) if address % BIT == 0 => *this.words.entry(word).or_default() |= 1 << (distance / BIT % 64),
                _ => this.between.push(*address),
            }
        }
        this
    }

    /// How many functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.between.len() + self.words.values().map(|word| word.count_ones() as usize).sum::<usize>()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sizes the maps of an object that is to be loaded, and sets its constants and bits.
    pub(crate) fn prepare(&self, open: &mut OpenObject, object: &[u8]) -> Result<(), String> {
        let words = self.words.last_key_value().map_or(1, |(last, _)| last + 1);
        let bytes = u32::try_from(words * 8).ok().filter(|bytes| *bytes < MOST).ok_or("the code is too far apart")?;
        let mut sized = false;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name == BITS_SECTION {
                map.set_value_size(bytes).map_err(|error| error.to_string())?;
                let bits = map.initial_value_mut().ok_or("its bits cannot be set")?;
                self.write(bits);
                sized = true;
            } else if name == BETWEEN {
                map.set_max_entries(self.between.len().max(1) as u32).map_err(|error| error.to_string())?;
            } else if name.ends_with(CONSTANTS) {
                let constants = map.initial_value_mut().ok_or("its constants cannot be set")?;
                set(object, constants, START, 0, self.start)?;
                set(object, constants, WORDS, 0, words as u64)?;
            }
        }
        sized.then_some(()).ok_or_else(|| format!("{BITS} is not in a section {BITS_SECTION}"))
    }

    fn write(&self, bytes: &mut [u8]) {
        for (word, bits) in &self.words {
            bytes[word * 8..][..8].copy_from_slice(&bits.to_ne_bytes());
        }
    }

    /// Fills the map of a loaded object that cannot be filled before.
    pub(crate) fn fill(&self, object: &Object) -> Result<(), libbpf_rs::Error> {
        let Some(map) = object.maps().find(|map| map.name() == BETWEEN) else { return Ok(()) };
        self.between.iter().try_for_each(|address| map.update(&address.to_ne_bytes(), &[1], MapFlags::ANY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_bits_or_between() {
        let taken = Taken::new(&[0x1010, 0x1410, 0x1013, 0x1800]);
        assert_eq!((taken.start, taken.len()), (0x1010, 4));
        assert_eq!(taken.words, BTreeMap::from([(0, 1), (1, 1 | 1 << 63)]));
        assert_eq!(taken.between, [0x1013]);
        let mut bytes = [0; 16];
        taken.write(&mut bytes);
        assert_eq!(bytes, [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x80]);
        assert!(Taken::new(&[]).is_empty());
        assert!(!wants_taken(b"no object"));
    }
}
