//! The simulation relation at a pair of places: which locations of the two builds hold
//! equal values there, and which hold a value that is known.
//!
//! A *location* is a register or a slot of the function's own stack frame. Memory outside
//! of the frame is equal wherever there is a relation; that is not written down. A value
//! is *known* when it is a function of V and of what does not change during one activation
//! of the function: addresses that the linker chose, the stack pointer and the preserved
//! registers at the entry.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use xk_lift::state::{Flag, Frame, State, REGISTERS};
use xk_lift::term::foreign::FOREIGN;
use xk_lift::term::{Bits, TermId, Terms};

use super::bounds::Bound;

/// The build that is deployed, as an index.
pub(crate) const BASE: usize = 0;
/// The build that it is compared with.
pub(crate) const OTHER: usize = 1;
/// What they are called in the names of unknowns.
const SIDES: [&str; 2] = ["base", "other"];

/// A place that holds a value in one activation of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Loc {
    /// A register, by its number.
    Register(usize),
    /// Bytes of the frame: distance from its top, and how many.
    Slot(i64, u8),
}

impl Loc {
    pub fn bits(self) -> Bits {
        match self {
            Self::Register(_) => 64,
            Self::Slot(_, bytes) => u32::from(bytes) * 8,
        }
    }

    fn name(self, side: &str) -> String {
        match self {
            Self::Register(number) => format!("{side} {}", REGISTERS[number]),
            Self::Slot(offset, bytes) => format!("{side} frame{offset:+}:{bytes}"),
        }
    }

    /// What stands for the value that the deployed build holds there at a pair of places.
    pub fn symbol(self, terms: &mut Terms) -> TermId {
        terms.symbol(self.name("base"), self.bits())
    }

    /// What `state` holds there.
    pub fn value(self, state: &State) -> Option<TermId> {
        match self {
            Self::Register(number) => Some(state.regs[number]),
            Self::Slot(offset, _) => state.frame.as_ref()?.slots.get(&offset).copied(),
        }
    }
}

/// All locations of a state.
pub(crate) fn locations(terms: &Terms, state: &State) -> Vec<Loc> {
    let mut all: Vec<Loc> = (0..16).map(Loc::Register).collect();
    if let Some(frame) = &state.frame {
        all.extend(frame.slots.iter().map(|(&offset, &value)| Loc::Slot(offset, (terms.bits(value) / 8) as u8)));
    }
    all
}

/// What holds whenever control is at a pair of places.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Relation {
    /// Locations of the other build and of the deployed one, with the number of low bits in
    /// which they are equal: 8, 16, 32 or 64.
    pub equal: BTreeMap<(Loc, Loc), u8>,
    /// Known values, of the deployed build and of the other.
    pub known: [BTreeMap<Loc, TermId>; 2],
    /// Values that follow from others, or their low bits: terms over what locations of the deployed build hold
    /// ([`Loc::symbol`]) and over what is known.
    pub derived: [BTreeMap<Loc, TermId>; 2],
    /// Status flags that are equal, as bits in the order of [`Flag::ALL`].
    pub flags: u8,
    /// Registers that a call clobbered and nothing wrote since, as bits.
    pub clobbered: [u16; 2],
    /// Frame slots that a push wrote.
    pub pushed: [BTreeSet<i64>; 2],
    /// Locations that hold a foreign value (see [`xk_lift::term::foreign`]).
    pub foreign: [BTreeSet<Loc>; 2],
    /// Whether an address in the frame may have got out.
    pub escaped: bool,
    /// How far numbers can have come that are tested for order.
    pub bounds: Vec<Bound>,
}

impl Relation {
    /// What holds when either did: the greatest lower bound.
    #[must_use]
    pub fn meet(&self, with: &Self) -> Self {
        let equal = self.equal.iter().filter_map(|(pair, bits)| Some((*pair, *bits.min(with.equal.get(pair)?))));
        let common = |ours: &BTreeMap<Loc, TermId>, theirs: &BTreeMap<Loc, TermId>| {
            let same = |(loc, term): (&Loc, &TermId)| (theirs.get(loc) == Some(term)).then_some((*loc, *term));
            ours.iter().filter_map(same).collect()
        };
        let known = |side: usize| common(&self.known[side], &with.known[side]);
        let derived = |side: usize| {
            let mut derived: BTreeMap<Loc, TermId> = common(&self.derived[side], &with.derived[side]);
            derived.retain(|loc, _| !known(side).contains_key(loc));
            derived
        };
        let pushed = |side: usize| &self.pushed[side] | &with.pushed[side];
        let foreign = |side: usize| &self.foreign[side] & &with.foreign[side];
        Self {
            equal: equal.collect(),
            known: [known(BASE), known(OTHER)],
            derived: [derived(BASE), derived(OTHER)],
            flags: self.flags & with.flags,
            clobbered: [BASE, OTHER].map(|side| self.clobbered[side] & with.clobbered[side]),
            pushed: [pushed(BASE), pushed(OTHER)],
            foreign: [foreign(BASE), foreign(OTHER)],
            escaped: self.escaped || with.escaped,
            bounds: self.bounds.iter().filter(|bound| with.bounds.contains(bound)).cloned().collect(),
        }
    }

    /// Adds what `with` derives and what is so here since all of it is known: a counter that is 2 where the other
    /// build's is 1 is one ahead of it.
    pub fn derive_from_known(&mut self, terms: &mut Terms, with: &Self) {
        let known: HashMap<TermId, TermId> =
            self.known[BASE].iter().map(|(loc, value)| (loc.symbol(terms), *value)).collect();
        for side in [BASE, OTHER] {
            for (&loc, &term) in &with.derived[side] {
                let Some(&value) = self.known[side].get(&loc) else { continue };
                let bits = terms.bits(term);
                if terms.substitute(term, &known) == terms.extract(value, 0, bits) {
                    self.derived[side].insert(loc, term);
                }
            }
        }
    }

    /// States of which nothing else is known than this relation.
    pub fn states(&self, terms: &mut Terms, frames: Option<&[Frame; 2]>) -> [State; 2] {
        terms.set_escaped(self.escaped);
        let memory = terms.memory();
        let mut empty = |side: usize| State {
            regs: std::array::from_fn(|i| self.unknown(terms, side, Loc::Register(i))),
            flags: Flag::ALL.map(|flag| terms.symbol(format!("{} {flag:?}", SIDES[side]), 1)),
            memory,
            flags_origin: None,
            frame: frames.map(|frames| frames[side].clone()),
            shared: None,
        };
        let (mut base, mut other) = (empty(BASE), empty(OTHER));
        for (loc, value) in self.base_values(terms) {
            place(terms, &mut base, loc, value);
        }
        self.other_values(terms, &base, &mut other);
        let map: HashMap<TermId, TermId> = locations(terms, &base)
            .into_iter()
            .filter_map(|loc| Some((loc.symbol(terms), loc.value(&base)?)))
            .collect();
        for ((state, derived), side) in [&mut base, &mut other].into_iter().zip(&self.derived).zip(SIDES) {
            for (&loc, &value) in derived {
                let low = terms.substitute(value, &map);
                let value = below_unknown(terms, loc, side, low);
                place(terms, state, loc, value);
            }
        }
        for flag in Flag::ALL.into_iter().filter(|flag| self.flags >> *flag as usize & 1 == 1) {
            other.flags[flag as usize] = base.flags[flag as usize];
        }
        for (state, side) in [(&mut base, BASE), (&mut other, OTHER)] {
            for number in (0..16).filter(|number| self.clobbered[side] >> number & 1 == 1) {
                state.regs[number] = clobbered(terms, number);
            }
            if let Some(frame) = &mut state.frame {
                let slots = self.pushed[side].iter().filter_map(|at| Some((*at, *frame.slots.get(at)?)));
                frame.pushed = slots.collect();
            }
        }
        [base, other]
    }

    /// What stands for a location of which no more is known.
    fn unknown(&self, terms: &mut Terms, side: usize, loc: Loc) -> TermId {
        let kind = if self.foreign[side].contains(&loc) { FOREIGN } else { "" };
        terms.symbol(format!("{kind}{}", loc.name(SIDES[side])), loc.bits())
    }

    /// Pairs of locations that are equal in all their bits.
    pub fn whole(&self) -> impl Iterator<Item = (Loc, Loc)> + '_ {
        let whole = |((other, base), bits): (&(Loc, Loc), &u8)| {
            (u32::from(*bits) == base.bits() && base.bits() == other.bits()).then_some((*other, *base))
        };
        self.equal.iter().filter_map(whole)
    }

    /// Locations of the deployed build that this relation speaks of, each with its value.
    /// Those that equal one location of the other build equal each other.
    fn base_values(&self, terms: &mut Terms) -> BTreeMap<Loc, TermId> {
        let mut leader: BTreeMap<Loc, Loc> = self.equal.keys().map(|(_, base)| (*base, *base)).collect();
        leader.extend(self.known[BASE].keys().map(|loc| (*loc, *loc)));
        let find = |leader: &BTreeMap<Loc, Loc>, mut loc: Loc| {
            while leader[&loc] != loc {
                loc = leader[&loc];
            }
            loc
        };
        let mut first: BTreeMap<Loc, Loc> = BTreeMap::new();
        for (other, base) in self.whole() {
            let equal = *first.entry(other).or_insert(base);
            let (from, to) = (find(&leader, base), find(&leader, equal));
            leader.insert(from, to);
        }
        let mut known: BTreeMap<Loc, TermId> = BTreeMap::new();
        for (loc, value) in &self.known[BASE] {
            known.insert(find(&leader, *loc), *value);
        }
        for (other, base) in self.whole() {
            if let Some(value) = self.known[OTHER].get(&other) {
                known.entry(find(&leader, base)).or_insert(*value);
            }
        }
        let locs: Vec<Loc> = leader.keys().copied().collect();
        let mut value = |loc: Loc| {
            let leader = find(&leader, loc);
            known.get(&leader).copied().unwrap_or_else(|| self.unknown(terms, BASE, leader))
        };
        let mut values: BTreeMap<Loc, TermId> = locs.into_iter().map(|loc| (loc, value(loc))).collect();
        for (narrow, wide) in self.parts() {
            let part = terms.extract(values[&wide], 0, narrow.bits());
            values.insert(narrow, part);
        }
        values
    }

    /// Locations of the deployed build that are as wide as they are equal to one of the other,
    /// each with a wider one that is equal to the same in these bits.
    fn parts(&self) -> BTreeMap<Loc, Loc> {
        let mut parts = BTreeMap::new();
        for ((other, narrow), bits) in &self.equal {
            if u32::from(*bits) != narrow.bits() {
                continue;
            }
            let all = self.equal.range((*other, Loc::Register(0))..).take_while(|((loc, _), _)| loc == other);
            let wide = all
                .filter(|((_, wide), equal)| wide.bits() > narrow.bits() && *equal >= bits)
                .map(|((_, wide), _)| *wide);
            if let Some(wide) = wide.max_by_key(|wide| wide.bits()) {
                parts.insert(*narrow, wide);
            }
        }
        parts
    }

    fn other_values(&self, terms: &mut Terms, base: &State, other: &mut State) {
        let mut best: BTreeMap<Loc, (u8, Loc)> = BTreeMap::new();
        for ((loc, from), bits) in &self.equal {
            let found = best.entry(*loc).or_insert((*bits, *from));
            if found.0 < *bits {
                *found = (*bits, *from);
            }
        }
        for (loc, (bits, from)) in best {
            let Some(value) = from.value(base) else { continue };
            let low = terms.extract(value, 0, u32::from(bits));
            let value = below_unknown(terms, loc, SIDES[OTHER], low);
            place(terms, other, loc, value);
        }
        for (&loc, &value) in &self.known[OTHER] {
            place(terms, other, loc, value);
        }
    }
}

/// The value of a location of which the low bits are known.
fn below_unknown(terms: &mut Terms, loc: Loc, side: &str, low: TermId) -> TermId {
    let bits = terms.bits(low);
    if bits == loc.bits() {
        return low;
    }
    let high = terms.symbol(format!("{} above {bits}", loc.name(side)), loc.bits() - bits);
    terms.concat(high, low)
}

fn place(terms: &Terms, state: &mut State, loc: Loc, value: TermId) {
    match loc {
        Loc::Register(number) => state.regs[number] = value,
        Loc::Slot(offset, _) => {
            if let Some(frame) = &mut state.frame {
                frame.store(terms, offset, value);
            }
        }
    }
}

/// What a register holds that a call clobbered. Compiled code does not read it (System V
/// ABI), so it may be the same in both builds.
pub(crate) fn clobbered(terms: &mut Terms, number: usize) -> TermId {
    terms.symbol(format!("clobbered {}", REGISTERS[number]), 64)
}
