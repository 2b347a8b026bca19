//! What lies where in a heap: the constants, words and size classes of `bpf/xk_heap.bpf.h`.

/// The map of a heap.
pub const MAP: &str = "xk_heap";
/// The ring buffer by which programs wake who gives pages.
pub const WANTED: &str = "xk_heap_wanted";
pub const PAGE: u64 = 4096;
pub const SPAN: u64 = 65536;
/// Classes of which several objects share a span.
pub const SMALL: usize = 40;
pub const CLASSES: usize = 56;
pub const LARGEST: u64 = SPAN << 12;
const CONTROL: u64 = 4096;
pub const KINDS: u64 = 65536;
const CPUS: u64 = 131_072;
const CPU_BYTES: u64 = 1024;

/// Words of `struct xk_heap_control`, by their offsets in the heap.
pub const FRESH: u64 = CONTROL;
pub const READY: u64 = CONTROL + 8;
pub const LOW: u64 = CONTROL + 16;
pub const REFUSED: u64 = CONTROL + 24;
pub const INVALID: u64 = CONTROL + 32;
pub const LOST: u64 = CONTROL + 40;
const LISTS: u64 = CONTROL + 56; // behind a zero

/// Where user space notes which locks its threads take, and how many notes there are.
const USERS: u64 = 8192;
pub const NOTES: u64 = 1024;
pub const NOTE_BYTES: u64 = 16;

/// `struct xk_lock`, places for tickets in it, and readers behind it (`bpf/flex/lock.h`).
pub const LOCK_BYTES: u64 = 16 + 8 * PLACES;
pub const PLACES: u64 = 8;
pub const READERS: u64 = 16;

/// A note: a lock's offset and a thread's number, and when that began.
pub fn note(number: u64) -> u64 {
    USERS + number * NOTE_BYTES
}

/// The list of free objects of a class that all CPUs share.
pub fn list(class: usize) -> u64 {
    LISTS + 8 * class as u64
}

/// The numbers of objects that were allocated and freed on a CPU.
pub fn counts(cpu: u64) -> [u64; 2] {
    let lists_and_rests = 16 * CLASSES as u64;
    let start = CPUS + cpu * CPU_BYTES + lists_and_rests;
    [start, start + 8]
}

/// Where spans begin, for so many CPUs.
pub fn first_span(cpus: u64) -> u64 {
    (CPUS + cpus * CPU_BYTES).next_multiple_of(SPAN)
}

/// The size class of a size: 16 to 128 bytes in steps of 16, then four sizes in each doubling up to half a span, then
/// one span, two, four ... of them.
pub fn class(size: u64) -> Option<usize> {
    let class = match size {
        0..=128 => size.saturating_sub(1) >> 4,
        129..=32_768 => {
            let doublings = u64::from((size - 1).ilog2()) - 7;
            8 + 4 * doublings + ((size - 1) >> (doublings + 5)) - 4
        }
        _ if size <= LARGEST => SMALL as u64 + u64::from(size.div_ceil(SPAN).next_power_of_two().ilog2()),
        _ => return None,
    };
    usize::try_from(class).ok()
}

/// Bytes of an object of a class.
pub fn size(class: usize) -> u64 {
    let number = class as u64;
    match class {
        0..8 => (number + 1) * 16,
        8..SMALL => (32 << ((number - 8) / 4)) * (5 + (number - 8) % 4),
        _ => SPAN << (class - SMALL),
    }
}

/// A list of free objects: see `XK_LIST` in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List(pub u64);

impl List {
    const OBJECT: u64 = (1 << 28) - 1;
    const MOST: u64 = 63;

    /// The offset of the first object.
    pub fn first(self) -> Option<u64> {
        Some((self.0 & Self::OBJECT) << 4).filter(|&offset| offset != 0)
    }

    fn length(self) -> u64 {
        self.0 >> 28 & Self::MOST
    }

    fn next(self, first: u64, length: u64) -> Self {
        let changes = (self.0 >> 34) + 1;
        Self(first & Self::OBJECT | length << 28 | changes << 34)
    }

    /// Without its first object, after which this one follows.
    pub fn popped(self, next: u32) -> Self {
        self.next(next.into(), self.length().saturating_sub(1))
    }

    /// With one more.
    pub fn pushed(self, offset: u64) -> Self {
        self.next(offset >> 4, (self.length() + 1).min(Self::MOST))
    }

    /// What the first object of this list keeps in its first bytes: the one behind it.
    pub fn link(self) -> u32 {
        u32::try_from(self.0 & Self::OBJECT).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_the_smallest_class_that_is_large_enough() {
        for size_wanted in (1..70_000).chain([SPAN * 2, SPAN * 2 + 1, SPAN * 3, LARGEST - 1, LARGEST]) {
            let class = class(size_wanted).unwrap();
            assert!(size(class) >= size_wanted, "{size_wanted}: class {class}");
            assert!(class == 0 || size(class - 1) < size_wanted, "{size_wanted}: class {class}");
            assert!(size(class) % 16 == 0);
        }
        assert_eq!((class(0), class(LARGEST + 1)), (Some(0), None));
        assert!(class(LARGEST).unwrap() < CLASSES);
    }

    #[test]
    fn lists_count_their_changes() {
        let empty = List(0);
        let one = empty.pushed(0x1230);
        assert_eq!((one.first(), one.length(), one.0 >> 34), (Some(0x1230), 1, 1));
        let none = one.popped(0);
        assert_eq!((none.first(), none.length(), none.0 >> 34), (None, 0, 2));
        let full = (0..100).fold(empty, |list, at| list.pushed(0x10000 + 16 * at));
        assert_eq!((full.length(), full.0 >> 34), (63, 100));
        let last = List(u64::MAX).pushed(16);
        assert_eq!((last.0 >> 34, last.link()), (0, 1));
    }
}
