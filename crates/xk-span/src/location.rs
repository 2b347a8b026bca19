//! Where a frame keeps data: registers, status flags, bytes of the frame, and operands in other memory.

use std::collections::BTreeSet;
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign};

use crate::btf::TypeId;

/// A set of general registers, by number, and [`RegisterSet::OTHERS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegisterSet(u32);

impl RegisterSet {
    /// No register.
    pub const EMPTY: Self = Self(0);
    /// Everything but the general registers and the flags: vector registers, control registers. They count as one
    /// register that is never overwritten.
    pub const OTHERS: Self = Self(1 << 16);
    /// Every register.
    pub const ALL: Self = Self(0x1_ffff);
    /// The registers that a function returns its result in: rax and rdx.
    pub const RESULTS: Self = Self(0b101);

    /// The registers whose bits are set.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// One register.
    #[must_use]
    pub const fn of(number: usize) -> Self {
        Self(1 << number)
    }

    /// Whether a register is in the set.
    #[must_use]
    pub const fn contains(self, number: usize) -> bool {
        self.0 >> number & 1 == 1
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The general registers of the set.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..16).filter(move |&number| self.contains(number))
    }

    /// Removes the registers of another set.
    pub fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

impl BitOr for RegisterSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for RegisterSet {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for RegisterSet {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitAndAssign for RegisterSet {
    fn bitand_assign(&mut self, other: Self) {
        self.0 &= other.0;
    }
}

impl FromIterator<usize> for RegisterSet {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        numbers.into_iter().fold(Self::EMPTY, |set, number| set | Self::of(number))
    }
}

/// Where an operand in memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Where {
    /// In the frame.
    Frame(i32),
    /// Somewhere in the frame.
    SomeFrame,
    /// In an object.
    Object(Pointer),
    /// At an address.
    Static(u64),
    /// In this CPU's copy of the per-CPU object at an address.
    PerCpu(u64),
    /// At this offset from a register of which nothing is known; without the register, at an address that is computed.
    Based(Option<u8>, i32),
}

/// An address in an object that is not in the frame, as far as this function knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    /// Structure that the object is, or 0.
    pub ty: TypeId,
    /// Offset in it; `None` if it is computed.
    pub offset: Option<i32>,
    /// Register that passed a pointer to the object.
    pub parameter: Option<u8>,
}

/// A set of registers, status flags and bytes of the frame. Offsets in the frame count from the return address.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Locations {
    /// Registers.
    pub registers: RegisterSet,
    /// Status flags, as iced numbers them.
    pub flags: u32,
    /// Bytes of the frame.
    pub slots: BTreeSet<i32>,
    /// In addition, every byte of the frame from this offset on. It stands for a place in the frame whose offset or
    /// size is not known.
    pub slots_from: Option<i32>,
}

impl Locations {
    /// Every register and flag.
    #[must_use]
    pub fn all_registers() -> Self {
        Self { registers: RegisterSet::ALL, flags: u32::MAX, ..Self::default() }
    }

    /// Every byte of the frame from `offset` on.
    #[must_use]
    pub fn frame_from(offset: i32) -> Self {
        Self { slots_from: Some(offset), ..Self::default() }
    }

    /// The bytes of the frame that `access` may touch; nothing if it is known to be elsewhere. An access whose size is
    /// not known may touch everything above its beginning.
    #[must_use]
    pub fn of_access(access: Access) -> Self {
        match access.place {
            Where::Frame(offset) if access.bytes > 0 => {
                let mut locations = Self::default();
                locations.add_slots(offset, access.bytes);
                locations
            }
            Where::Frame(offset) => Self::frame_from(offset),
            Where::SomeFrame => Self::frame_from(i32::MIN),
            _ => Self::default(),
        }
    }

    /// The part of the set that is in the frame.
    #[must_use]
    pub fn in_frame(&self) -> Self {
        Self { registers: RegisterSet::EMPTY, flags: 0, ..self.clone() }
    }

    /// Whether nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.registers.is_empty() && self.flags == 0 && self.slots.is_empty() && self.slots_from.is_none()
    }

    /// Whether the two sets have something in common.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let slots = |a: &Self, b: &Self| match b.slots_from {
            Some(from) => a.slots_from.is_some() || a.slots.range(from..).next().is_some(),
            None => a.slots.iter().any(|slot| b.slots.contains(slot)),
        };
        !(self.registers & other.registers).is_empty()
            || self.flags & other.flags != 0
            || slots(self, other)
            || slots(other, self)
    }

    /// Adds another set; whether the set has grown.
    pub fn add(&mut self, other: &Self) -> bool {
        let before = (self.registers, self.flags, self.slots.len(), self.slots_from);
        self.registers |= other.registers;
        self.flags |= other.flags;
        self.slots.extend(&other.slots);
        self.slots_from = self.slots_from.into_iter().chain(other.slots_from).min();
        before != (self.registers, self.flags, self.slots.len(), self.slots_from)
    }

    /// Removes the registers, flags and single bytes of another set. What `slots_from` stands for is never removed:
    /// nothing overwrites a place that is not known.
    pub fn remove(&mut self, other: &Self) {
        self.registers.remove(other.registers);
        self.flags &= !other.flags;
        for slot in &other.slots {
            self.slots.remove(slot);
        }
    }

    /// Adds bytes of the frame.
    pub fn add_slots(&mut self, offset: i32, bytes: i32) {
        self.slots.extend(offset..offset.saturating_add(bytes.clamp(0, LARGEST_OBJECT)));
        if bytes > LARGEST_OBJECT {
            self.slots_from = self.slots_from.into_iter().chain([offset]).min();
        }
    }
}

/// Bytes up to which each byte of an object in the frame is told apart.
const LARGEST_OBJECT: i32 = 256;

/// An operand in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// Where it is.
    pub place: Where,
    /// Its size in bytes; 0 if that is not known.
    pub bytes: i32,
}

impl Access {
    /// Whether the operand may be in the frame, as far as its address says.
    #[must_use]
    pub fn is_in_frame(self) -> bool {
        matches!(self.place, Where::Frame(_) | Where::SomeFrame)
    }

    /// Whether two operands outside of the frame have the same name and overlap.
    ///
    /// The name of an operand is the field of a type, the static object, or the register and the offset that address
    /// it. Two operands with different names count as different memory although they can be the same. The slice may
    /// ask this only because it does not rely on the answer "no": after a store outside of the frame, everything up to
    /// the exits of the frame is inside, and the store is an escape.
    #[must_use]
    pub fn has_name_of(self, other: Self) -> bool {
        match (self.place, other.place) {
            (Where::Static(a), Where::Static(b)) | (Where::PerCpu(a), Where::PerCpu(b)) => {
                self.overlaps(a as i64, other, b as i64)
            }
            (Where::Object(a), Where::Object(b)) => {
                let same_object =
                    if a.ty == 0 { a.parameter.is_some() && a.parameter == b.parameter } else { a.ty == b.ty };
                let offsets = a.offset.zip(b.offset);
                same_object && offsets.is_none_or(|(a, b)| self.overlaps(a.into(), other, b.into()))
            }
            (Where::Based(a, a_offset), Where::Based(b, b_offset)) => {
                a == b && self.overlaps(a_offset.into(), other, b_offset.into())
            }
            _ => false,
        }
    }

    fn overlaps(self, start: i64, other: Self, other_start: i64) -> bool {
        start < other_start + other.size() && other_start < start + self.size()
    }

    /// Its size; if that is not known, more than any field has.
    fn size(self) -> i64 {
        if self.bytes == 0 {
            u16::MAX.into()
        } else {
            self.bytes.into()
        }
    }
}
