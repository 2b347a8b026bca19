//! What the kernel's unwinder knows about the stack at each address (ORC).
//!
//! In: `.orc_unwind_ip` and `.orc_unwind` of the kernel and of modules, linked. Out: whether the stack
//! is found in the same way at two addresses. Nothing is known where the unwinder gives up.

/// Bytes of `struct orc_entry`.
const ENTRY: usize = 6;

/// The tables of an address space.
#[derive(Debug, Clone, Default)]
pub struct Unwind {
    /// From this address on, ascending.
    entries: Vec<(u64, [u8; ENTRY])>,
}

impl Unwind {
    /// Adds the tables of the kernel or of a module; `start` is the address of `addresses`. Tables that do not belong
    /// together add nothing.
    pub(crate) fn add(&mut self, start: u64, addresses: &[u8], entries: &[u8]) {
        let (addresses, entries) = (addresses.chunks_exact(4), entries.chunks_exact(ENTRY));
        if addresses.len() != entries.len() {
            return;
        }
        let all = addresses.zip(entries).enumerate().filter_map(|(n, (address, entry))| {
            let place = start.wrapping_add(4 * n as u64);
            let distance = i32::from_le_bytes(address.try_into().ok()?);
            Some((place.wrapping_add(i64::from(distance) as u64), entry.try_into().ok()?))
        });
        self.entries.extend(all);
    }

    /// Puts everything in order. Of two entries for one address, the one that knows something counts
    /// (`orc_sort_cmp`).
    pub(crate) fn finish(&mut self) {
        self.entries.sort_by_key(|(address, entry)| (*address, is_known(entry), *entry));
    }

    /// How the stack is found at an address.
    fn at(&self, address: u64) -> Option<&[u8; ENTRY]> {
        let end = self.entries.partition_point(|(start, _)| *start <= address);
        self.entries[..end].last().map(|(_, entry)| entry).filter(|entry| is_known(entry))
    }

    /// Whether the stack is found in the same way at both addresses.
    #[must_use]
    pub fn agrees(&self, one: u64, other: u64) -> bool {
        self.at(one).is_some_and(|entry| self.at(other) == Some(entry))
    }
}

/// Whether the entry names the register from which the stack is found.
fn is_known(entry: &[u8; ENTRY]) -> bool {
    entry[4] & 15 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [u8; ENTRY] = [8, 0, 0xf8, 0xff, 5, 2];
    const OTHER: [u8; ENTRY] = [16, 0, 0xf0, 0xff, 5, 2];
    const UNKNOWN: [u8; ENTRY] = [0; ENTRY];

    fn tables(all: &[(i32, [u8; ENTRY])]) -> Unwind {
        let mut unwind = Unwind::default();
        let field = |(n, (at, _)): (usize, &(i32, _))| (at - 4 * n as i32).to_le_bytes();
        let addresses: Vec<u8> = all.iter().enumerate().flat_map(field).collect();
        let entries: Vec<u8> = all.iter().flat_map(|(_, entry)| *entry).collect();
        unwind.add(0x1000, &addresses, &entries);
        unwind.finish();
        unwind
    }

    #[test]
    fn two_places_agree_if_the_stack_is_found_in_the_same_way() {
        let unwind = tables(&[(0, KNOWN), (16, OTHER), (32, KNOWN), (48, UNKNOWN)]);
        assert!(unwind.agrees(0x1000, 0x100f) && unwind.agrees(0x1005, 0x1020));
        assert!(!unwind.agrees(0x1000, 0x1010), "another offset");
        assert!(!unwind.agrees(0x1030, 0x1031), "nothing is known");
        assert!(!unwind.agrees(0xfff, 0xfff), "no entry");
    }

    #[test]
    fn of_two_entries_the_known_one_counts() {
        for entries in [[(0, KNOWN), (8, UNKNOWN), (8, KNOWN)], [(8, KNOWN), (0, KNOWN), (8, UNKNOWN)]] {
            assert!(tables(&entries).agrees(0x1000, 0x1008));
        }
    }

    #[test]
    fn tables_of_different_lengths_are_not_used() {
        let mut unwind = Unwind::default();
        unwind.add(0x1000, &[0; 8], &KNOWN);
        unwind.finish();
        assert!(!unwind.agrees(0x1000, 0x1000));
    }
}
