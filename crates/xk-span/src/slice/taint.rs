//! What the slice knows: the state at an instruction, and what crosses the border of a frame.

use std::collections::BTreeSet;

use crate::location::{Access, Locations, Pointer, RegisterSet, Where};
use crate::value::{Value, Values};

/// Everything that may be tainted before an instruction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Taint {
    /// Registers, flags and bytes of the frame.
    pub(super) locations: Locations,
    /// Operands outside of the frame that tainted data were stored to.
    pub(super) cells: BTreeSet<Access>,
    /// Whether tainted data were stored outside of the frame. Any code that runs until the frame ends may read them
    /// under a name that is not in `cells`, so this never ends.
    pub(super) stored: bool,
}

impl Taint {
    /// Adds the state of another path; whether the state has grown.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let (cells, stored) = (self.cells.len(), self.stored);
        self.cells.extend(&other.cells);
        self.stored |= other.stored;
        self.locations.add(&other.locations) || cells != self.cells.len() || stored != self.stored
    }
}

/// What is tainted when a function is entered.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryTaint {
    /// Registers.
    pub registers: RegisterSet,
    /// Status flags.
    pub flags: u32,
    /// Registers that point to tainted bytes of a caller's frame.
    pub pointees: RegisterSet,
    /// Bytes of arguments on the stack. They count from the first argument, because it is not known which are tainted.
    pub stack: i32,
}

impl EntryTaint {
    /// Adds what another call passes.
    pub fn join(&mut self, other: &Self) {
        self.registers |= other.registers;
        self.flags |= other.flags;
        self.pointees |= other.pointees;
        self.stack = self.stack.max(other.stack);
    }

    /// Whether nothing is tainted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The tainted places of the callee's frame. Arguments on the stack begin above the return address.
    pub(super) fn locations(&self) -> Locations {
        let mut locations = Locations { registers: self.registers, flags: self.flags, ..Locations::default() };
        locations.add_slots(8, self.stack);
        locations
    }
}

/// What is tainted when a function has returned.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExitTaint {
    /// Registers.
    pub registers: RegisterSet,
    /// Status flags.
    pub flags: u32,
    /// Stores of tainted data outside of the function's frame.
    pub stores: BTreeSet<Store>,
}

impl ExitTaint {
    /// Whether nothing is tainted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.registers.is_empty() && self.flags == 0 && self.stores.is_empty()
    }
}

/// A store of tainted data outside of the frame that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Store {
    /// The instruction.
    pub at: u64,
    /// Where it goes, as the frame that is looked at sees it.
    pub access: Access,
    /// The object and the offset as the function that stores sees them: their names.
    pub named: Option<Pointer>,
}

impl Store {
    /// A store to `access`, as the function that makes it sees it.
    pub(super) fn new(at: u64, access: Access) -> Self {
        let named = match access.place {
            Where::Object(pointer) => Some(pointer),
            _ => None,
        };
        Self { at, access, named }
    }

    /// The register that passed the object's address, if that is how it is known.
    #[must_use]
    pub fn parameter(&self) -> Option<u8> {
        match self.access.place {
            Where::Object(pointer) => pointer.parameter,
            _ => None,
        }
    }

    /// The same store as the caller sees it, whose `values` are those at the call.
    ///
    /// A callee knows an object that was passed to it by the register that passed its address. The caller knows what
    /// the register holds. A store whose offset or register is not known becomes less precise, never a store to a place
    /// that it may not be at: an unknown offset in an object of the caller's frame stands for all bytes from the object
    /// upwards.
    pub(super) fn seen_by_caller(self, values: &Values) -> Self {
        let (Where::Object(pointer), Some(register)) = (self.access.place, self.parameter()) else { return self };
        let without_parameter = Where::Object(Pointer { parameter: None, ..pointer });
        let (place, bytes) = match (values.reg(register.into()), pointer.offset) {
            (Value::Frame(base), Some(offset)) => (Where::Frame(base.wrapping_add(offset)), self.access.bytes),
            (Value::Frame(base), None) => (Where::Frame(base), 0),
            (Value::SomeFrame, _) => (Where::SomeFrame, 0),
            (Value::Pointer(outer), _) => {
                let offset = outer.offset.zip(pointer.offset).map(|(a, b)| a.wrapping_add(b));
                (Where::Object(Pointer { offset, ..outer }), self.access.bytes)
            }
            (Value::Static(address), Some(offset)) => {
                (Where::Static(address.wrapping_add(i64::from(offset) as u64)), self.access.bytes)
            }
            (Value::Static(_), None) | (Value::Unknown | Value::Code(_), _) => (without_parameter, self.access.bytes),
        };
        Self { access: Access { place, bytes }, ..self }
    }
}
