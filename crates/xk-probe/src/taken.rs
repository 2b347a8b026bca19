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
const BITS: &str = "xk_taken";
const BETWEEN: &str = "xk_taken_between";
const START: &str = "xk_taken_start";
const END: &str = "xk_taken_end";

/// Functions whose address is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    start: u64,
    end: u64,
    words: BTreeMap<u32, u64>,
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
        let end = addresses.iter().max().map_or(0, |last| last + 1);
        let mut this = Self { start, end, words: BTreeMap::new(), between: Vec::new() };
        for address in addresses {
            let distance = address - start;
            match u32::try_from(distance / WORD) {
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

    /// Sizes the maps of an object that is to be loaded, and sets its constants.
    pub(crate) fn prepare(&self, open: &mut OpenObject, object: &[u8]) -> Result<(), String> {
        let words = u32::try_from((self.end - self.start) / WORD + 1).map_err(|_| "the code is too far apart")?;
        let mut sized = false;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name == BITS {
                map.set_max_entries(words).map_err(|error| error.to_string())?;
                sized = true;
            } else if name == BETWEEN {
                map.set_max_entries(self.between.len().max(1) as u32).map_err(|error| error.to_string())?;
            } else if name.ends_with(CONSTANTS) {
                let bytes = map.initial_value_mut().ok_or("its constants cannot be set")?;
                set(object, bytes, START, 0, self.start)?;
                set(object, bytes, END, 0, self.end)?;
            }
        }
        sized.then_some(()).ok_or_else(|| format!("{BITS} is no map"))
    }

    /// Fills the maps of a loaded object.
    pub(crate) fn fill(&self, object: &Object) -> Result<(), libbpf_rs::Error> {
        for map in object.maps() {
            if map.name() == BITS {
                for (word, bits) in &self.words {
                    map.update(&word.to_ne_bytes(), &bits.to_ne_bytes(), MapFlags::ANY)?;
                }
            } else if map.name() == BETWEEN {
                for address in &self.between {
                    map.update(&address.to_ne_bytes(), &[1], MapFlags::ANY)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_bits_or_between() {
        let taken = Taken::new(&[0x1010, 0x1410, 0x1013, 0x1800]);
        assert_eq!((taken.start, taken.end, taken.len()), (0x1010, 0x1801, 4));
        assert_eq!(taken.words, BTreeMap::from([(0, 1), (1, 1 | 1 << 63)]));
        assert_eq!(taken.between, [0x1013]);
        assert!(Taken::new(&[]).is_empty());
        assert!(!wants_taken(b"no object"));
    }
}
