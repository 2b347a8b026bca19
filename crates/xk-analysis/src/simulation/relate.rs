//! The relation that holds between two places: what the two builds' locations have in common.

use std::collections::{BTreeSet, HashMap};

use xk_lift::flow::Live;
use xk_lift::state::Flag;
use xk_lift::term::{mask, BinOp, Node as Term, TermId, Terms};

use super::claims::{Effort, Facts};
use super::relation::{clobbered, locations, Loc, Relation, BASE, OTHER};
use super::walk::{Pair, Places, Step, Walk};
use super::Failure;

/// How deep a term may be that says how one location follows from others.
const MOST_DERIVED: u32 = 6;

impl<'a> Walk<'a> {
    /// What is equal and what is known now. Of the other build only what may still be read
    /// matters.
    pub fn relate(&mut self, pair: &mut Pair, places: Places) -> Step<Relation> {
        let live = self.sides[OTHER].flow.live_in(places.1);
        let mut relation = Relation::default();
        let base: Vec<(Loc, TermId)> = self.values(pair, BASE);
        let other: Vec<(Loc, TermId)> = self.values(pair, OTHER);
        for &(loc, value) in &base {
            if self.is_known(value) {
                relation.known[BASE].insert(loc, value);
            }
        }
        let needed = |live: Live, loc: Loc| !matches!(loc, Loc::Register(number) if !live.register(number));
        for &(loc, value) in other.iter().filter(|(loc, _)| needed(live, *loc)) {
            if self.is_known(value) {
                relation.known[OTHER].insert(loc, value);
            }
            self.pair_up(pair, &base, loc, value, &mut relation)?;
        }
        let ours = self.sides[BASE].flow.live_in(places.0);
        self.derive(&base, &other, &mut relation, |side, loc| needed([ours, live][side], loc));
        for flag in Flag::ALL.into_iter().filter(|flag| live.flag(*flag)) {
            let (x, y) = (pair.states[BASE].flag(flag), pair.states[OTHER].flag(flag));
            if self.claims.equal(&mut self.terms, &mut pair.facts, x, y, Effort::Welcome) {
                relation.flags |= 1 << flag as u8;
            }
        }
        relation.escaped =
            pair.escaped || [BASE, OTHER].iter().any(|&side| self.terms.lets_out(pair.states[side].memory));
        for (side, values) in [(BASE, &base), (OTHER, &other)] {
            let foreign = values.iter().filter(|(_, value)| self.terms.is_foreign(*value)).map(|(loc, _)| *loc);
            relation.foreign[side] = foreign.collect();
        }
        for side in [BASE, OTHER] {
            for number in 0..16 {
                if pair.states[side].regs[number] == clobbered(&mut self.terms, number) {
                    relation.clobbered[side] |= 1 << number;
                }
            }
            if let Some(frame) = &pair.states[side].frame {
                relation.pushed[side] = frame.pushed.keys().copied().collect::<BTreeSet<_>>();
            }
        }
        Ok(relation)
    }

    fn values(&mut self, pair: &Pair, side: usize) -> Vec<(Loc, TermId)> {
        let state = &pair.states[side];
        let all = locations(&self.terms, state).into_iter().filter_map(|loc| Some((loc, loc.value(state)?)));
        let all: Vec<_> = all.collect();
        all.into_iter().map(|(loc, value)| (loc, pair.facts.rewrite(&mut self.terms, value))).collect()
    }

    /// Notes which locations of the deployed build hold `value`, in as many bits as possible.
    fn pair_up(
        &mut self,
        pair: &mut Pair,
        base: &[(Loc, TermId)],
        loc: Loc,
        value: TermId,
        relation: &mut Relation,
    ) -> Step {
        for bits in [64, 32, 16, 8].into_iter().filter(|bits| *bits <= loc.bits()) {
            let same = self.partners(pair, base, value, bits);
            if same.is_empty() {
                continue;
            }
            if bits < loc.bits() && self.mentions_v(value) {
                self.widen(pair, base, loc.bits(), value, &same)?;
            }
            relation.equal.extend(same.into_iter().map(|from| ((loc, from), bits as u8)));
            return Ok(());
        }
        Ok(())
    }

    /// Locations of the deployed build that hold the low `bits` of `value`.
    fn partners(&mut self, pair: &mut Pair, base: &[(Loc, TermId)], value: TermId, bits: u32) -> Vec<Loc> {
        let low = self.terms.extract(value, 0, bits);
        let mut same = Vec::new();
        let mut likely = Vec::new();
        for &(from, ours) in base.iter().filter(|(from, _)| from.bits() >= bits) {
            let ours = self.terms.extract(ours, 0, bits);
            if ours == low {
                same.push(from);
            } else {
                likely.push((from, ours));
            }
        }
        if same.is_empty() {
            let digest = self.claims.digest(&self.terms, &pair.facts, low);
            for (from, ours) in likely {
                if self.claims.digest(&self.terms, &pair.facts, ours) == digest
                    && self.claims.equal(&mut self.terms, &mut pair.facts, ours, low, Effort::Welcome)
                {
                    same.push(from);
                }
            }
        }
        same
    }

    /// What is equal in its low bits may be equal in all for most values, as those of one sign:
    /// then those are the range.
    fn widen(&mut self, pair: &Pair, base: &[(Loc, TermId)], bits: u32, value: TermId, among: &[Loc]) -> Step {
        for &(_, ours) in base.iter().filter(|(from, _)| among.contains(from) && from.bits() == bits) {
            if let Some(range) = self.claims.widest(&mut self.terms, &pair.facts, ours, value) {
                if self.claims.is_most(range) {
                    return Err(Failure::Narrower(range));
                }
            }
        }
        Ok(())
    }

    /// What follows from the values of locations of the deployed build that the other build
    /// has, too.
    fn derive(
        &mut self,
        base: &[(Loc, TermId)],
        other: &[(Loc, TermId)],
        relation: &mut Relation,
        needed: impl Fn(usize, Loc) -> bool,
    ) {
        let paired: BTreeSet<Loc> = relation.equal.keys().map(|(_, base)| *base).collect();
        let whole: BTreeSet<Loc> = relation.whole().map(|(other, _)| other).collect();
        let mut leaves: HashMap<TermId, Loc> = HashMap::new();
        for &(loc, value) in base.iter().filter(|(loc, _)| paired.contains(loc)) {
            leaves.entry(value).or_insert(loc);
        }
        for (side, values, done) in [(BASE, base, &paired), (OTHER, other, &whole)] {
            for &(loc, value) in values {
                if done.contains(&loc) || relation.known[side].contains_key(&loc) || !needed(side, loc) {
                    continue;
                }
                if let Some(derived) = self.express(value, &leaves, MOST_DERIVED) {
                    relation.derived[side].insert(loc, derived);
                }
            }
        }
        let known = [&relation.known[BASE], &relation.derived[BASE]];
        let free = |loc: &Loc| known.iter().all(|known| !known.contains_key(loc));
        let from: Vec<(Loc, TermId)> =
            base.iter().filter(|(loc, _)| free(loc) && needed(BASE, *loc)).copied().collect();
        let partly: BTreeSet<Loc> = relation.equal.keys().map(|(other, _)| *other).collect();
        for &(loc, value) in other {
            let known = [&relation.known[OTHER], &relation.derived[OTHER]];
            if partly.contains(&loc) || known.iter().any(|known| known.contains_key(&loc)) || !needed(OTHER, loc) {
                continue;
            }
            if let Some(derived) = self.at_distance(loc, value, &from) {
                relation.derived[OTHER].insert(loc, derived);
            }
        }
    }

    /// `value`, or its low bits, as what a location of the deployed build holds and a number: one build may have
    /// counted on already.
    fn at_distance(&mut self, loc: Loc, value: TermId, from: &[(Loc, TermId)]) -> Option<TermId> {
        for bits in [64, 32].into_iter().filter(|bits| *bits <= loc.bits()) {
            let theirs = self.terms.extract(value, 0, bits);
            let (root, offset) = self.apart(theirs);
            if self.terms.as_const(root).is_some() {
                continue;
            }
            for &(near, ours) in from.iter().filter(|(near, _)| near.bits() >= bits) {
                let ours = self.terms.extract(ours, 0, bits);
                let (other_root, before) = self.apart(ours);
                if root == other_root {
                    let symbol = near.symbol(&mut self.terms);
                    let low = self.terms.extract(symbol, 0, bits);
                    let distance = self.terms.constant(offset.wrapping_sub(before) & mask(bits), bits);
                    return Some(self.terms.bin(BinOp::Add, low, distance));
                }
            }
        }
        None
    }

    /// A term as another and a number that is added to it.
    fn apart(&self, term: TermId) -> (TermId, u128) {
        if let Term::Bin(BinOp::Add, rest, number) = *self.terms.node(term) {
            if let Some(number) = self.terms.as_const(number) {
                return (rest, number);
            }
        }
        (term, 0)
    }

    /// `term` over what locations of the deployed build hold, if it is made of that.
    fn express(&mut self, term: TermId, leaves: &HashMap<TermId, Loc>, depth: u32) -> Option<TermId> {
        if let Some(loc) = leaves.get(&term) {
            return Some(loc.symbol(&mut self.terms));
        }
        if self.is_known(term) {
            return Some(term);
        }
        if depth == 0
            || matches!(self.terms.node(term), Term::Symbol(_) | Term::Memory | Term::Store(..) | Term::Load(..))
        {
            return None;
        }
        let children = self.terms.children(term);
        let map: Option<HashMap<TermId, TermId>> =
            children.into_iter().map(|child| Some((child, self.express(child, leaves, depth - 1)?))).collect();
        Some(self.terms.substitute(term, &map?))
    }

    /// Known values that are written in another way than before, but are the same.
    pub fn agree(&mut self, old: &Relation, new: &mut Relation) {
        for side in [BASE, OTHER] {
            for (loc, value) in &mut new.known[side] {
                let Some(before) = old.known[side].get(loc).filter(|before| *before != value) else { continue };
                let same = self.terms.bits(*before) == self.terms.bits(*value)
                    && self.claims.equal(&mut self.terms, &mut Facts::default(), *before, *value, Effort::Welcome);
                if same {
                    *value = *before;
                }
            }
        }
    }

    /// Whether a term is a function of V and of what one activation does not change.
    pub fn is_known(&mut self, term: TermId) -> bool {
        if let Some(&known) = self.known.get(&term) {
            return known;
        }
        let known = match self.terms.node(term) {
            Term::Symbol(name) => {
                name == "V"
                    || ["&", "top of", "aligned top of", "entry ", "hole "]
                        .iter()
                        .any(|prefix| name.starts_with(prefix))
            }
            Term::Memory | Term::Store(..) | Term::Load(..) | Term::Atomic(_) => false,
            _ => self.terms.children(term).into_iter().all(|child| self.is_known(child)),
        };
        self.known.insert(term, known);
        known
    }

    pub fn mentions_v(&mut self, term: TermId) -> bool {
        let v = self.terms.v();
        self.any_within(term, |_, part| part == v)
    }

    /// Whether a term is a function of V alone.
    pub fn is_of_v(&mut self, term: TermId) -> bool {
        let v = self.terms.v();
        let unknown =
            |terms: &Terms, part| part != v && terms.as_const(part).is_none() && terms.children(part).is_empty();
        self.mentions_v(term) && !self.any_within(term, unknown)
    }

    fn any_within(&self, term: TermId, holds: impl Fn(&Terms, TermId) -> bool) -> bool {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![term];
        while let Some(next) = waiting.pop() {
            if holds(&self.terms, next) {
                return true;
            }
            if seen.insert(next) {
                waiting.extend(self.terms.children(next));
            }
        }
        false
    }
}
