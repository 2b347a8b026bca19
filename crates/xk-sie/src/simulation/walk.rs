//! The product program of two functions: both are executed side by side, from one pair of
//! places to the next, and at each the simulation relation is established.
//!
//! In: two builds of one function. Out: nothing, if the other build's function does what
//! the deployed one does with its constants replaced, for every state and every V of the
//! range; else where and why that could not be shown.
//!
//! The pairs of places are: where paths meet in either build, and behind what both must do
//! together (`events.rs`). In between, execution is symbolic and remembers the conditions
//! under which a path is taken. A branch of one build that the other does not have is taken
//! both ways. A relation is weakened until every path agrees with it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use xk_table::Range;

use super::claims::{Claims, Effort, Facts};
use super::frames::Frames;
use super::relation::{clobbered, locations, Loc, Relation, BASE, OTHER};
use super::side::{At, Kind, Side, Stop};
use super::stores::groups;
use super::{Failure, Mismatch, Rules};
use crate::flow::Live;
use crate::insn::{Insn, Node, Target};
use crate::object::Function;
use crate::state::{arithmetic, Flag, Frame, State, RSP};
use crate::term::{Node as Term, TermId, Terms};

/// Registers that a function must give back unchanged (System V ABI).
pub(crate) const CALLEE_SAVED: [usize; 6] = [3, 5, 12, 13, 14, 15];
/// How deep a term may be that says how one location follows from others.
const MOST_DERIVED: u32 = 6;
/// How deep terms are shown in messages.
pub(crate) const SHOWN: u32 = 5;
/// Pairs of stops after which a function is taken to be too large.
const MOST_PAIRS: usize = 40_000;
/// How long one comparison of two functions may take, for every V and for one value: most
/// take less than a second.
const LONGEST_ALL: Duration = Duration::from_secs(40);
const LONGEST_ONE: Duration = Duration::from_secs(8);

/// Both builds, somewhere between two pairs of places.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub at: [At; 2],
    pub states: [State; 2],
    pub facts: Facts,
    /// Instructions executed since the last pair of places.
    pub trace: [Vec<Node>; 2],
    /// The last pair of places.
    from: Places,
}

/// A place of the deployed build and one of the other.
type Places = (Node, Node);

/// Two functions under comparison.
pub(crate) struct Walk<'a> {
    pub sides: [Side<'a>; 2],
    pub rules: Rules<'a>,
    pub terms: Terms,
    pub claims: Claims<'a>,
    /// Empty frames, where they are kept apart from memory.
    pub frames: Option<[Frame; 2]>,
    /// The function, by its name in both builds.
    pub name: &'a str,
    relations: HashMap<Places, Relation>,
    work: Vec<Places>,
    /// Paths that are still to be followed to the next pair of places.
    paths: Vec<Pair>,
    /// From one pair of places to another, and which builds moved.
    edges: BTreeMap<(Places, Places), [bool; 2]>,
    known: HashMap<TermId, bool>,
    pairs: usize,
    /// When the comparison is given up.
    deadline: Instant,
}

pub(crate) type Step<T = ()> = Result<T, Failure>;

impl<'a> Walk<'a> {
    pub fn new(sides: [Side<'a>; 2], rules: Rules<'a>, name: &'a str, range: Option<Range>, frames: &Frames) -> Self {
        let mut terms = Terms::new();
        let claims = Claims::new(&mut terms, rules.solver, range, rules.default);
        let frames = frames.empty(&mut terms);
        Self {
            sides,
            rules,
            terms,
            claims,
            frames,
            name,
            relations: HashMap::new(),
            work: Vec::new(),
            paths: Vec::new(),
            edges: BTreeMap::new(),
            known: HashMap::new(),
            pairs: 0,
            deadline: Instant::now() + if range.is_some() { LONGEST_ALL } else { LONGEST_ONE },
        }
    }

    /// Walks from the entries of both functions until every relation holds.
    pub fn run(&mut self, functions: [&Function; 2]) -> Step {
        let entry = (functions[BASE].start, functions[OTHER].start);
        let relation = self.entry();
        self.relations.insert(entry, relation);
        self.work.push(entry);
        while let Some(places) = self.work.pop() {
            let states = self.relations[&places].states(&mut self.terms, self.frames.as_ref());
            let at = [At::Start(places.0), At::Start(places.1)];
            let pair = Pair { at, states, facts: Facts::default(), trace: [Vec::new(), Vec::new()], from: places };
            self.follow(pair);
            while let Some(pair) = self.paths.pop() {
                self.advance(pair)?;
            }
        }
        self.progress()
    }

    /// `pair` is a path that is still to be followed.
    pub fn follow(&mut self, pair: Pair) {
        self.paths.push(pair);
    }

    /// What holds at the entry: the same arguments and the same memory. Bits above the width of
    /// an argument or a result are not defined and not read (System V ABI): callers need not
    /// agree on them, and here they are the same.
    fn entry(&mut self) -> Relation {
        let mut relation = Relation::default();
        for register in (0..16).filter(|register| *register != RSP) {
            let loc = Loc::Register(register);
            let preserved = CALLEE_SAVED.contains(&register);
            if !preserved || self.frames.is_none() {
                relation.equal.insert((loc, loc), 64);
            }
            if preserved {
                for side in [BASE, OTHER] {
                    let value = self.preserved(side, register);
                    relation.known[side].insert(loc, value);
                }
            }
        }
        for side in [BASE, OTHER] {
            let top = self.top(side);
            relation.known[side].insert(Loc::Register(RSP), top);
        }
        relation
    }

    /// The stack pointer at the entry.
    pub fn top(&mut self, side: usize) -> TermId {
        match &self.frames {
            Some(frames) => frames[side].tops[0],
            None => self.terms.symbol("top of both", 64),
        }
    }

    /// What a preserved register holds at the entry: the callers may keep different things there.
    pub fn preserved(&mut self, side: usize, register: usize) -> TermId {
        let whose = if self.frames.is_some() { ["base", "other"][side] } else { "both" };
        self.terms.symbol(format!("entry {whose} {register}"), 64)
    }

    pub fn mismatch<T>(&self, node: Node, detail: impl Into<String>) -> Step<T> {
        Err(Failure::Mismatch(Mismatch { base: node, detail: detail.into() }))
    }

    /// The instruction at an event of a side.
    pub fn insn(&self, side: usize, node: Node) -> Step<&'a Insn> {
        match self.sides[side].insn(node) {
            Some(insn) => Ok(insn),
            None => self.mismatch(node, "there is no instruction here"),
        }
    }

    /// From where `pair` is to the next stops, and on from there.
    fn advance(&mut self, mut pair: Pair) -> Step {
        self.pairs += 1;
        if self.pairs > MOST_PAIRS {
            return self.mismatch(pair.from.0, "the function has too many paths");
        }
        if Instant::now() > self.deadline {
            return self.mismatch(pair.from.0, "it takes too long to compare the functions");
        }
        let mut stops = Vec::new();
        for side in [BASE, OTHER] {
            let Pair { at, states, trace, .. } = &mut pair;
            match self.sides[side].run(&mut self.terms, &mut states[side], &at[side], &mut trace[side]) {
                Ok(stop) => {
                    // What has been executed is not executed again.
                    at[side] = match &stop {
                        Stop::Leave(node, target) => At::Leaving(*node, target.clone()),
                        Stop::Event(node) | Stop::Join(node) | Stop::End(node) => At::Start(*node),
                    };
                    stops.push(stop);
                }
                Err(node) => return self.mismatch(node, "a loop without an end"),
            }
        }
        let (Some(other), Some(base)) = (stops.pop(), stops.pop()) else { return Ok(()) };
        match (&base, &other) {
            (Stop::Event(a), Stop::Event(b)) => {
                let (a, b) = (self.insn(BASE, *a)?, self.insn(OTHER, *b)?);
                self.events(pair, a, b)
            }
            (Stop::End(_), Stop::End(_)) => Ok(()),
            (Stop::Join(_), Stop::Event(_) | Stop::Join(_)) | (Stop::Event(_), Stop::Join(_)) => {
                self.meet(pair, [&base, &other])
            }
            (Stop::Leave(a, to), Stop::Leave(b, other_to)) => {
                let (a, b) = (self.insn(BASE, *a)?, self.insn(OTHER, *b)?);
                self.leave(pair, [a, b], [to, other_to])
            }
            (Stop::Leave(at, target), Stop::Event(node)) if self.returns(BASE, target, OTHER, *node) => {
                let at = self.insn(BASE, *at)?;
                self.give_back(pair, at)
            }
            (Stop::Event(node), Stop::Leave(_, target)) if self.returns(OTHER, target, BASE, *node) => {
                let at = self.insn(BASE, *node)?;
                self.give_back(pair, at)
            }
            (Stop::Event(node), _) if self.is_branch(BASE, *node) => self.fork(pair, BASE, *node),
            (_, Stop::Event(node)) if self.is_branch(OTHER, *node) => self.fork(pair, OTHER, *node),
            // Where the other build leaves, the deployed one may still have to come to.
            (Stop::Join(a), Stop::Leave(b, _)) | (Stop::Leave(a, _), Stop::Join(b)) => {
                let jumps =
                    |side: usize, node: &Node| self.sides[side].insn(*node).is_some_and(|insn| !insn.falls_through());
                let side = if matches!(base, Stop::Join(_)) { OTHER } else { BASE };
                if jumps(side, if side == OTHER { b } else { a }) {
                    return self.cut(pair, (*a, *b));
                }
                self.mismatch(*a, "a conditional jump leaves the function in one build only")
            }
            _ => {
                let text = |side: usize, stop: &Stop| match self.sides[side].insn(stop.node()) {
                    Some(insn) => format!("`{}`", insn.text()),
                    None => "its end".into(),
                };
                let detail = format!("one build comes to {}, the other to {}", text(BASE, &base), text(OTHER, &other));
                self.mismatch(base.node(), detail)
            }
        }
    }

    /// At least one build is where paths meet. If the other has stored what it has not, this is
    /// no place for a relation: whoever lags behind goes on, unless that is a loop.
    fn meet(&mut self, mut pair: Pair, stops: [&Stop; 2]) -> Step {
        let places = (stops[BASE].node(), stops[OTHER].node());
        let error = match self.same_memory(&mut pair, places.0) {
            Ok(()) => return self.cut(pair, places),
            Err(Failure::Mismatch(mismatch)) => mismatch,
            Err(narrower) => return Err(narrower),
        };
        let stored = |side: usize| groups(&self.terms, pair.states[side].memory).0.len();
        let lagging = if stored(BASE) < stored(OTHER) { BASE } else { OTHER };
        for side in [lagging, 1 - lagging] {
            let passes = matches!(stops[side], Stop::Join(node) if !self.sides[side].flow.is_loop(*node));
            if passes && stored(side) <= stored(1 - side) {
                if let Stop::Join(node) = stops[1 - side] {
                    // It stays there.
                    pair.at[1 - side] = At::Place(*node);
                }
                self.follow(pair);
                return Ok(());
            }
        }
        Err(Failure::Mismatch(error))
    }

    /// Whether one build returns by a jump and the other by an instruction.
    fn returns(&self, side: usize, target: &Target, other: usize, node: Node) -> bool {
        let thunk = matches!(target, Target::External(symbol) if symbol.name == "__x86_return_thunk");
        let insn = self.sides[other].insn(node);
        let _ = side;
        thunk && insn.is_some_and(|insn| self.sides[other].kind(insn) == Some(Kind::Return))
    }

    fn is_branch(&self, side: usize, node: Node) -> bool {
        let insn = self.sides[side].insn(node);
        insn.is_some_and(|insn| matches!(self.sides[side].kind(insn), Some(Kind::Branch(_))))
    }

    /// The condition of the branch at `node`.
    fn condition(&mut self, pair: &Pair, side: usize, node: Node) -> Step<TermId> {
        let insn = self.insn(side, node)?;
        let Some(Kind::Branch(code)) = self.sides[side].kind(insn) else {
            return self.mismatch(node, "no branch");
        };
        let condition = arithmetic::condition(&mut self.terms, &pair.states[side].flags, code);
        Ok(pair.facts.rewrite(&mut self.terms, condition))
    }

    /// Where control goes from a branch.
    fn outcome(&self, side: usize, insn: &Insn, taken: bool) -> Step<At> {
        if !taken {
            return Ok(At::Place(insn.next()));
        }
        let Some(target) = &insn.target else { return self.mismatch(insn.node, "a branch without a target") };
        Ok(match self.sides[side].within(insn.node, target) {
            Some(node) => At::Place(node),
            None => At::Leaving(insn.node, target.clone()),
        })
    }

    /// One build branches, the other stays where it is.
    pub fn fork(&mut self, pair: Pair, side: usize, node: Node) -> Step {
        let condition = self.condition(&pair, side, node)?;
        let insn = self.insn(side, node)?;
        if side == OTHER {
            self.decide_by_v(&pair, condition)?;
        }
        for taken in [false, true] {
            let mut next = pair.clone();
            next.facts.assume(&mut self.terms, condition, taken);
            let excluded = self.terms.as_const(condition) == Some(u128::from(!taken));
            if excluded || !self.claims.possible(&self.terms, &next.facts) {
                continue;
            }
            next.at[side] = self.outcome(side, insn, taken)?;
            next.trace[side].push(node);
            self.follow(next);
        }
        Ok(())
    }

    /// Where a branch of the other build can go one way only with the default, the deployed
    /// build need not have it: then it goes that way for all of the range.
    fn decide_by_v(&mut self, pair: &Pair, condition: TermId) -> Step {
        if self.terms.as_const(condition).is_some() || !self.mentions_v(condition) {
            return Ok(());
        }
        let outcomes = [0, 1].map(|value| self.terms.constant(value, 1));
        for value in outcomes {
            if self.claims.equal(&mut self.terms, &mut pair.facts.clone(), condition, value, Effort::Needed) {
                return Ok(());
            }
        }
        for value in outcomes {
            if let Some(range) = self.claims.widest(&mut self.terms, &pair.facts, condition, value) {
                return Err(Failure::Narrower(range));
            }
        }
        Ok(())
    }

    /// Both builds branch.
    pub fn branches(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
        let ours = self.condition(&pair, BASE, a.node)?;
        let theirs = self.condition(&pair, OTHER, b.node)?;
        let opposite = self.terms.not(theirs);
        let mut found = None;
        for (inverted, theirs) in [(false, theirs), (true, opposite)] {
            if self.claims.equal(&mut self.terms, &mut pair.facts, ours, theirs, Effort::Needed) {
                found = Some(inverted);
                break;
            }
        }
        if found.is_none() {
            for theirs in [theirs, opposite] {
                self.narrow(&pair, ours, theirs)?;
            }
        }
        let Some(inverted) = found else {
            let forked = if self.mentions_v(theirs) { OTHER } else { BASE };
            let node = if forked == OTHER { b.node } else { a.node };
            return self.fork(pair, forked, node);
        };
        for taken in [false, true] {
            if self.terms.as_const(ours) == Some(u128::from(!taken)) {
                continue;
            }
            let mut next = pair.clone();
            next.facts.assume(&mut self.terms, ours, taken);
            next.at = [self.outcome(BASE, a, taken)?, self.outcome(OTHER, b, taken != inverted)?];
            next.trace[BASE].push(a.node);
            next.trace[OTHER].push(b.node);
            self.follow(next);
        }
        Ok(())
    }

    /// If the two are equal for some values around the default only: those are the range.
    pub fn narrow(&mut self, pair: &Pair, ours: TermId, theirs: TermId) -> Step {
        let (ours, theirs) = (pair.facts.rewrite(&mut self.terms, ours), pair.facts.rewrite(&mut self.terms, theirs));
        if !self.mentions_v(ours) && !self.mentions_v(theirs) {
            return Ok(());
        }
        match self.claims.widest(&mut self.terms, &pair.facts, ours, theirs) {
            Some(range) => Err(Failure::Narrower(range)),
            None => Ok(()),
        }
    }

    /// Whether two terms are equal; whatever depends on it fails if they are not.
    pub fn must_equal(&mut self, pair: &mut Pair, ours: TermId, theirs: TermId) -> Step<bool> {
        if self.claims.equal(&mut self.terms, &mut pair.facts, ours, theirs, Effort::Needed) {
            return Ok(true);
        }
        self.narrow(pair, ours, theirs)?;
        Ok(false)
    }

    /// Both memories are the same; from here on they have one name.
    pub fn same_memory(&mut self, pair: &mut Pair, node: Node) -> Step {
        let (ours, theirs) = (pair.states[BASE].memory, pair.states[OTHER].memory);
        if ours == theirs {
            return Ok(());
        }
        let difference = self.different_stores(pair, ours, theirs)?;
        if let Some(difference) = difference {
            if !self.claims.equal(&mut self.terms, &mut pair.facts, ours, theirs, Effort::Needed) {
                return self.mismatch(node, format!("memory may differ: {difference}"));
            }
        }
        pair.states[OTHER].memory = ours;
        Ok(())
    }

    /// The first difference between what was stored; `None` if there is none. Older stores
    /// come first: what they wrote is read by what follows.
    fn different_stores(&mut self, pair: &mut Pair, ours: TermId, theirs: TermId) -> Step<Option<String>> {
        let ((ours, before), (theirs, other_before)) = (groups(&self.terms, ours), groups(&self.terms, theirs));
        if before != other_before {
            return Ok(Some("memory before them".into()));
        }
        for (group, other) in ours.iter().zip(&theirs) {
            let same_base = match (group.base, other.base) {
                (None, None) => true,
                (Some(x), Some(y)) => self.must_equal(pair, x, y)?,
                _ => false,
            };
            let show =
                |walk: &Self, base: Option<TermId>| base.map_or("a number".into(), |base| walk.terms.show(base, SHOWN));
            let Some(pieces) = group.pieces(&mut self.terms, other).filter(|_| same_base) else {
                let (x, y) = (show(self, group.base), show(self, other.base));
                return Ok(Some(format!("stores to {x} against stores to {y}")));
            };
            for (x, y) in pieces {
                if !self.must_equal(pair, x, y)? {
                    let (x, y, at) = (self.terms.show(x, SHOWN), self.terms.show(y, SHOWN), show(self, group.base));
                    return Ok(Some(format!("{x} against {y}, stored to {at}")));
                }
            }
        }
        let counts = (ours.len(), theirs.len());
        Ok((counts.0 != counts.1).then(|| format!("{} groups of stores against {}", counts.0, counts.1)))
    }

    /// The relation between two places becomes what holds now as well as before.
    pub fn cut(&mut self, mut pair: Pair, places: Places) -> Step {
        self.same_memory(&mut pair, places.0)?;
        let mut relation = self.relate(&mut pair, places)?;
        let moved = self.edges.entry((pair.from, places)).or_insert([true, true]);
        for side in [BASE, OTHER] {
            moved[side] &= !pair.trace[side].is_empty();
        }
        let met = match self.relations.get(&places).cloned() {
            Some(old) => {
                self.agree(&old, &mut relation);
                let met = old.meet(&relation);
                if met == old {
                    return Ok(());
                }
                met
            }
            None => relation,
        };
        self.relations.insert(places, met);
        if !self.work.contains(&places) {
            self.work.push(places);
        }
        Ok(())
    }

    /// Known values that are written in another way than before, but are the same.
    fn agree(&mut self, old: &Relation, new: &mut Relation) {
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

    /// What is equal and what is known now. Of the other build only what may still be read
    /// matters.
    fn relate(&mut self, pair: &mut Pair, places: Places) -> Step<Relation> {
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

    fn mentions_v(&mut self, term: TermId) -> bool {
        let v = self.terms.v();
        let mut seen = BTreeSet::new();
        let mut waiting = vec![term];
        while let Some(next) = waiting.pop() {
            if next == v {
                return true;
            }
            if seen.insert(next) {
                waiting.extend(self.terms.children(next));
            }
        }
        false
    }

    /// No build goes round in circles while the other waits: then one would never end, and the
    /// other might.
    fn progress(&self) -> Step {
        for side in [BASE, OTHER] {
            let still: Vec<_> = self.edges.iter().filter(|(_, moved)| !moved[side]).map(|(edge, _)| *edge).collect();
            let mut left: BTreeSet<Places> = still.iter().flat_map(|(from, to)| [*from, *to]).collect();
            // Places without a successor that stands still are on no circle.
            loop {
                let ends: Vec<_> = left
                    .iter()
                    .copied()
                    .filter(|place| !still.iter().any(|(from, to)| from == place && left.contains(to)))
                    .collect();
                if ends.is_empty() {
                    break;
                }
                ends.iter().for_each(|place| _ = left.remove(place));
            }
            if let Some((base, _)) = left.first() {
                return self.mismatch(*base, "a loop has no counterpart");
            }
        }
        Ok(())
    }
}
