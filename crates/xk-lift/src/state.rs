//! The machine state that instructions act on: sixteen registers, six status
//! flags and memory, each a term.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::RflagsBits;

use crate::term::{Bits, TermId, Terms};

/// The status flags in the order of [`State::flags`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Flag {
    /// Carry.
    Cf,
    /// Parity of the low byte.
    Pf,
    /// Carry out of bit 3.
    Af,
    /// Zero.
    Zf,
    /// Sign.
    Sf,
    /// Signed overflow.
    Of,
}

impl Flag {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Cf, Self::Pf, Self::Af, Self::Zf, Self::Sf, Self::Of];

    /// Position in rflags (Intel SDM vol. 1, 3.4.3).
    #[must_use]
    pub fn bit(self) -> u32 {
        match self {
            Self::Cf => 0,
            Self::Pf => 2,
            Self::Af => 4,
            Self::Zf => 6,
            Self::Sf => 7,
            Self::Of => 11,
        }
    }

    /// Its bit as iced numbers them, which is not its position.
    #[must_use]
    pub fn iced(self) -> u32 {
        match self {
            Self::Cf => RflagsBits::CF,
            Self::Pf => RflagsBits::PF,
            Self::Af => RflagsBits::AF,
            Self::Zf => RflagsBits::ZF,
            Self::Sf => RflagsBits::SF,
            Self::Of => RflagsBits::OF,
        }
    }

    /// Mask in rflags.
    #[must_use]
    pub fn mask(self) -> u64 {
        1 << self.bit()
    }
}

/// Names of the registers by the processor's numbers.
pub const REGISTERS: [&str; 16] =
    ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

/// Number of the frame pointer.
pub const RBP: usize = 5;

/// Number of the stack pointer.
pub const RSP: usize = 4;

/// Where the current flags come from, when one comparison or arithmetic
/// operation set all of them: lets an update set them in one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagsOrigin {
    /// `a - b`.
    Sub(TermId, TermId),
    /// `a + b`.
    Add(TermId, TermId),
    /// A logic result.
    Logic(TermId),
}

/// The state after some instructions, as terms over the state before them.
#[derive(Debug, Clone)]
pub struct State {
    /// General registers, 64 bits each.
    pub regs: [TermId; 16],
    /// Status flags, one bit each.
    pub flags: [TermId; 6],
    /// Memory.
    pub memory: TermId,
    /// Where the flags come from, if one operation set them all.
    pub flags_origin: Option<FlagsOrigin>,
    /// The function's own stack frame, where it is kept apart from memory.
    pub frame: Option<Frame>,
    /// Memory as others share it, where it is looked at like that.
    pub shared: Option<Shared>,
}

/// Memory that other contexts read and write at any time: each read gives an unknown of its
/// own, and stores are kept in their order. [`State::memory`] holds the function's own frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    /// The stack pointer, if nothing else reaches what lies a known distance from it.
    pub own: Option<TermId>,
    /// All accesses in their order.
    pub accesses: Vec<Access>,
    /// Whether they are those of an update.
    pub of_update: bool,
}

/// One access to shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Where.
    pub address: TermId,
    /// What was read or is stored.
    pub value: TermId,
    /// Whether it is a store.
    pub store: bool,
}

impl Shared {
    fn is_own(&self, terms: &Terms, address: TermId) -> bool {
        self.own.is_some_and(|own| terms.distance(address, own).is_some())
    }

    fn read(&mut self, terms: &mut Terms, address: TermId, bits: Bits) -> TermId {
        // The same in two executions, if both read there as their n-th access.
        let (number, by) = (self.accesses.len(), if self.of_update { "update" } else { "code" });
        let value = terms.symbol(format!("reading {number} of the {by} at {address:?}, {bits} bits"), bits);
        self.accesses.push(Access { address, value, store: false });
        value
    }
}

/// The parts of a stack frame that nothing but the function itself can reach, kept apart
/// from memory: two builds may place their spilled values differently.
///
/// Places are told by their distance from the stack pointer at the function's entry, or,
/// where that is aligned, from what it was then; the two are as far apart as can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The stack pointer at the entry, and after its alignment.
    pub tops: [TermId; 2],
    /// Which places belong to it.
    pub private: Private,
    /// What is known of its contents; no two overlap.
    pub slots: BTreeMap<i64, TermId>,
    /// Slots that a push wrote, and that may therefore be arguments of a call.
    pub pushed: BTreeMap<i64, TermId>,
    /// Whether something was stored above the return address, where arguments are.
    pub arguments_changed: bool,
}

/// Places that only the function itself can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Private {
    /// All of its frame, since no address in it gets out.
    All,
    /// These bytes.
    Bytes(BTreeSet<i64>),
}

/// All of [`Flag`], as iced numbers them.
pub const STATUS: u32 =
    RflagsBits::CF | RflagsBits::PF | RflagsBits::AF | RflagsBits::ZF | RflagsBits::SF | RflagsBits::OF;

/// Where a function finds the first of its arguments that are on the stack.
const FIRST_STACK_ARGUMENT: i64 = 8;
/// Where places after the alignment are counted from.
pub const ALIGNED: i64 = -(1 << 40);

impl Frame {
    /// A frame of which nothing is known.
    #[must_use]
    pub fn new(tops: [TermId; 2], private: Private) -> Self {
        Self { tops, private, slots: BTreeMap::new(), pushed: BTreeMap::new(), arguments_changed: false }
    }

    /// The place of an address.
    #[must_use]
    pub fn place(&self, terms: &Terms, address: TermId) -> Option<i64> {
        let [entry, aligned] = self.tops;
        let behind = || terms.distance(address, aligned).map(|distance| ALIGNED + distance);
        terms.distance(address, entry).or_else(behind)
    }

    /// The place of an access of `bits` bits, if it is one of the function's own.
    fn own(&self, terms: &Terms, address: TermId, bits: Bits) -> Option<i64> {
        let place = self.place(terms, address)?;
        let own = match &self.private {
            Private::All => true,
            Private::Bytes(bytes) => {
                self.slots.contains_key(&place)
                    || (place..place + i64::from(bits / 8)).all(|byte| bytes.contains(&byte))
            }
        };
        own.then_some(place)
    }

    /// Whether an access of so many bytes touches what only the function itself can reach.
    #[must_use]
    pub fn is_touched(&self, terms: &Terms, address: TermId, bytes: usize) -> bool {
        let Some(place) = self.place(terms, address) else { return false };
        let end = place + bytes.max(1) as i64;
        match &self.private {
            Private::All => true,
            Private::Bytes(private) => {
                private.range(place..end).next().is_some() || self.slots.range(place - 7..end).next().is_some()
            }
        }
    }

    /// `bits` bits at `offset`; what is not known becomes an unknown.
    pub fn load(&mut self, terms: &mut Terms, offset: i64, bits: Bits) -> TermId {
        if let Some((&at, &value)) = self.slots.range(..=offset).next_back() {
            let (skipped, width) = (offset - at, i64::from(terms.bits(value)));
            if skipped * 8 + i64::from(bits) <= width {
                return terms.extract(value, skipped as u32 * 8, bits);
            }
        }
        if offset >= FIRST_STACK_ARGUMENT && !self.arguments_changed {
            return terms.symbol(format!("argument at {offset}, {bits} bits"), bits);
        }
        let unknown = terms.fresh("frame", bits);
        if self.overlapping(terms, offset, bits).is_empty() {
            self.slots.insert(offset, unknown);
        }
        unknown
    }

    /// Writes `value` at `offset`.
    pub fn store(&mut self, terms: &Terms, offset: i64, value: TermId) {
        self.arguments_changed |= offset >= 0;
        for at in self.overlapping(terms, offset, terms.bits(value)) {
            self.slots.remove(&at);
            self.pushed.remove(&at);
        }
        self.slots.insert(offset, value);
    }

    fn overlapping(&self, terms: &Terms, offset: i64, bits: Bits) -> Vec<i64> {
        let end = offset + i64::from(bits / 8);
        let reaches = |(&at, &value): (&i64, &TermId)| (at + i64::from(terms.bits(value) / 8) > offset).then_some(at);
        // No slot is wider than eight bytes.
        self.slots.range(offset - 8..end).filter_map(reaches).collect()
    }
}

impl State {
    /// A state about which nothing is known. The same `terms` give the same
    /// unknowns, so that two executions start from one state.
    #[must_use]
    pub fn unknown(terms: &mut Terms) -> Self {
        Self {
            regs: std::array::from_fn(|i| terms.symbol(REGISTERS[i], 64)),
            flags: std::array::from_fn(|i| terms.symbol(format!("{:?}", Flag::ALL[i]), 1)),
            memory: terms.memory(),
            flags_origin: None,
            frame: None,
            shared: None,
        }
    }

    /// What a load of `bits` bits at `address` gives.
    pub fn load(&mut self, terms: &mut Terms, address: TermId, bits: Bits) -> TermId {
        if let Some(frame) = &mut self.frame {
            if let Some(place) = frame.own(terms, address, bits) {
                return frame.load(terms, place, bits);
            }
        }
        match &mut self.shared {
            Some(shared) if !shared.is_own(terms, address) => shared.read(terms, address, bits),
            _ => terms.load(self.memory, address, bits),
        }
    }

    /// Pushes `value` to `address`: nothing else has its address yet.
    pub fn push(&mut self, terms: &mut Terms, address: TermId, value: TermId) {
        if let Some(frame) = &mut self.frame {
            if let Some(place) = frame.place(terms, address) {
                frame.store(terms, place, value);
                frame.pushed.insert(place, value);
                return;
            }
        }
        self.store(terms, address, value);
    }

    /// What is popped from `address`.
    pub fn pop(&mut self, terms: &mut Terms, address: TermId) -> TermId {
        let value = self.load(terms, address, 64);
        if let Some(frame) = &mut self.frame {
            if let Some(place) = frame.place(terms, address) {
                frame.pushed.remove(&place);
            }
        }
        value
    }

    /// Stores `value` at `address`.
    pub fn store(&mut self, terms: &mut Terms, address: TermId, value: TermId) {
        if let Some(frame) = &mut self.frame {
            if let Some(place) = frame.own(terms, address, terms.bits(value)) {
                return frame.store(terms, place, value);
            }
        }
        match &mut self.shared {
            Some(shared) if !shared.is_own(terms, address) => {
                shared.accesses.push(Access { address, value, store: true });
            }
            _ => self.memory = terms.store(self.memory, address, value),
        }
    }

    /// The low `bits` of register `number`.
    pub fn reg(&self, terms: &mut Terms, number: usize, bits: Bits) -> TermId {
        terms.extract(self.regs[number], 0, bits)
    }

    /// Writes register `number` as the processor does: 32 bits clear the upper
    /// half, 8 and 16 bits keep the rest (Intel SDM vol. 1, 3.4.1.1).
    pub fn set_reg(&mut self, terms: &mut Terms, number: usize, value: TermId) {
        let bits = terms.bits(value);
        self.regs[number] = match bits {
            64 => value,
            32 => terms.zext(value, 64),
            _ => {
                let rest = terms.extract(self.regs[number], bits, 64 - bits);
                terms.concat(rest, value)
            }
        };
    }

    /// Bits 8 to 15 of register `number` (`ah`, `ch`, `dh`, `bh`).
    pub fn high_byte(&self, terms: &mut Terms, number: usize) -> TermId {
        terms.extract(self.regs[number], 8, 8)
    }

    /// Writes bits 8 to 15 of register `number`.
    pub fn set_high_byte(&mut self, terms: &mut Terms, number: usize, value: TermId) {
        let high = terms.extract(self.regs[number], 16, 48);
        let low = terms.extract(self.regs[number], 0, 8);
        let upper = terms.concat(high, value);
        self.regs[number] = terms.concat(upper, low);
    }

    /// One flag.
    #[must_use]
    pub fn flag(&self, flag: Flag) -> TermId {
        self.flags[flag as usize]
    }

    /// Writes one flag.
    pub fn set_flag(&mut self, flag: Flag, value: TermId) {
        self.flags[flag as usize] = value;
    }
}

/// The status flags of arithmetic, as the processor defines them (Intel SDM
/// vol. 1, 3.4.3.1); shared by the instructions and by the operations of an
/// update, so that the two cannot disagree.
pub mod arithmetic {
    use super::Flag;
    use crate::term::{BinOp, TermId, Terms};

    /// One bit of `value`.
    pub fn bit(terms: &mut Terms, value: TermId, position: u32) -> TermId {
        terms.extract(value, position, 1)
    }

    fn sign(terms: &mut Terms, value: TermId) -> TermId {
        let top = terms.bits(value) - 1;
        bit(terms, value, top)
    }

    /// ZF, SF and PF of a result.
    pub fn result_flags(terms: &mut Terms, result: TermId) -> [(Flag, TermId); 3] {
        let zero = terms.constant(0, terms.bits(result));
        let zf = terms.bin(BinOp::Eq, result, zero);
        let sf = sign(terms, result);
        let mut parity = terms.constant(1, 1);
        for position in 0..8 {
            let next = bit(terms, result, position);
            parity = terms.bin(BinOp::Xor, parity, next);
        }
        [(Flag::Zf, zf), (Flag::Sf, sf), (Flag::Pf, parity)]
    }

    fn adjust(terms: &mut Terms, a: TermId, b: TermId, result: TermId) -> TermId {
        let ab = terms.bin(BinOp::Xor, a, b);
        let abr = terms.bin(BinOp::Xor, ab, result);
        bit(terms, abr, 4)
    }

    /// `a + b + carry` and its flags; `carry` is one bit.
    pub fn add(terms: &mut Terms, a: TermId, b: TermId, carry: TermId) -> (TermId, [TermId; 6]) {
        let bits = terms.bits(a);
        let (wa, wb, wc) = (terms.zext(a, bits + 1), terms.zext(b, bits + 1), terms.zext(carry, bits + 1));
        let sum = terms.bin(BinOp::Add, wa, wb);
        let sum = terms.bin(BinOp::Add, sum, wc);
        let c = terms.zext(carry, bits);
        let ab = terms.bin(BinOp::Add, a, b);
        let result = terms.bin(BinOp::Add, ab, c);
        let cf = bit(terms, sum, bits);
        let (ar, br) = (terms.bin(BinOp::Xor, a, result), terms.bin(BinOp::Xor, b, result));
        let overflow = terms.bin(BinOp::And, ar, br);
        let of = sign(terms, overflow);
        let af = adjust(terms, a, b, result);
        let [(_, zf), (_, sf), (_, pf)] = result_flags(terms, result);
        (result, [cf, pf, af, zf, sf, of])
    }

    /// `a - b - borrow` and its flags; `borrow` is one bit.
    pub fn sub(terms: &mut Terms, a: TermId, b: TermId, borrow: TermId) -> (TermId, [TermId; 6]) {
        let bits = terms.bits(a);
        let c = terms.zext(borrow, bits);
        let ab = terms.bin(BinOp::Sub, a, b);
        let result = terms.bin(BinOp::Sub, ab, c);
        let cf = if terms.as_const(borrow) == Some(0) {
            terms.bin(BinOp::Ult, a, b)
        } else {
            let (wa, wb, wc) = (terms.zext(a, bits + 1), terms.zext(b, bits + 1), terms.zext(borrow, bits + 1));
            let need = terms.bin(BinOp::Add, wb, wc);
            terms.bin(BinOp::Ult, wa, need)
        };
        let (axb, axr) = (terms.bin(BinOp::Xor, a, b), terms.bin(BinOp::Xor, a, result));
        let overflow = terms.bin(BinOp::And, axb, axr);
        let of = sign(terms, overflow);
        let af = adjust(terms, a, b, result);
        let [(_, zf), (_, sf), (_, pf)] = result_flags(terms, result);
        (result, [cf, pf, af, zf, sf, of])
    }

    /// Whether the x86 condition code `cc` (0..=15) holds in `flags`.
    pub fn condition(terms: &mut Terms, flags: &[TermId; 6], cc: u8) -> TermId {
        let f = |flag: Flag| flags[flag as usize];
        let value = match cc >> 1 {
            0 => f(Flag::Of),
            1 => f(Flag::Cf),
            2 => f(Flag::Zf),
            3 => terms.bin(BinOp::Or, f(Flag::Cf), f(Flag::Zf)),
            4 => f(Flag::Sf),
            5 => f(Flag::Pf),
            6 => terms.bin(BinOp::Xor, f(Flag::Sf), f(Flag::Of)),
            _ => {
                let less = terms.bin(BinOp::Xor, f(Flag::Sf), f(Flag::Of));
                terms.bin(BinOp::Or, less, f(Flag::Zf))
            }
        };
        if cc & 1 == 1 {
            terms.not(value)
        } else {
            value
        }
    }
}
