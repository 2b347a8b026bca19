//! The product program of two functions: both are executed side by side, from one pair of
//! places to the next, and at each the simulation relation is established.
//!
//! In: two builds of one function. Out: nothing, if the other build's function does what
//! the deployed one does with its constants replaced, for every state and every V of the
//! range; else where and why that could not be shown.
//!
//! The pairs of places are: where paths meet in either build, and after what both must do
//! together (`events.rs`). In between, execution is symbolic and remembers the conditions
//! under which a path is taken. A branch of one build that the other does not have is taken
//! both ways. A relation is weakened until every path agrees with it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use xk_lift::insn::{Insn, Node, Target};
use xk_lift::object::Function;
use xk_lift::state::{Frame, State, RSP};
use xk_lift::term::{TermId, Terms};
use xk_table::Range;

use super::bounds::Bound;
use super::claims::{Claims, Effort, Facts};
use super::frames::Frames;
use super::relation::{Loc, Relation, BASE, OTHER};
use super::side::{is_return, At, Kind, Side, Stop};
use super::stores::groups;
use super::{Failure, Mismatch, Rules};

/// Registers that a function must give back unchanged (System V ABI).
pub(crate) const CALLEE_SAVED: [usize; 6] = [3, 5, 12, 13, 14, 15];
/// How deep terms are shown in messages.
pub(crate) const SHOWN: u32 = 5;
/// Pairs of stops after which a function is taken to be too large, for every V and for one
/// value.
const MOST_PAIRS_ALL: usize = 4_000;
const MOST_PAIRS_ONE: usize = 1_500;
/// How long one comparison of two functions may take on any machine: what is not decided by
/// counting, as here, differs between machines.
const LONGEST: Duration = Duration::from_secs(120);

/// Both builds, somewhere between two pairs of places.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub at: [At; 2],
    pub states: [State; 2],
    pub facts: Facts,
    /// Whether an address in the frame may have got out.
    pub escaped: bool,
    /// Instructions executed since the last pair of places.
    pub trace: [Vec<Node>; 2],
    /// The last pair of places.
    from: Places,
}

/// A place of the deployed build and one of the other.
pub(crate) type Places = (Node, Node);

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
    /// How far numbers may have come that are tested for order.
    pub bounds: Vec<Bound>,
    work: Vec<Places>,
    /// Paths that are still to be followed to the next pair of places.
    paths: Vec<Pair>,
    /// From one pair of places to another, and which builds moved.
    edges: BTreeMap<(Places, Places), [bool; 2]>,
    pub known: HashMap<TermId, bool>,
    pairs: usize,
    most_pairs: usize,
    /// When the comparison is given up.
    deadline: Instant,
}

pub(crate) type Step<T = ()> = Result<T, Failure>;

impl<'a> Walk<'a> {
    pub fn new(sides: [Side<'a>; 2], rules: Rules<'a>, name: &'a str, range: Option<Range>, frames: &Frames) -> Self {
        let mut terms = Terms::new();
        let claims = Claims::new(&mut terms, rules.solver, range, rules.default);
        let frames = frames.empty(&mut terms);
        let bounds = range.map_or_else(Vec::new, |range| Bound::all(&sides[BASE], name, range));
        Self {
            sides,
            rules,
            terms,
            claims,
            frames,
            name,
            relations: HashMap::new(),
            bounds,
            work: Vec::new(),
            paths: Vec::new(),
            edges: BTreeMap::new(),
            known: HashMap::new(),
            pairs: 0,
            most_pairs: if range.is_some() { MOST_PAIRS_ALL } else { MOST_PAIRS_ONE },
            deadline: Instant::now() + LONGEST,
        }
    }

    /// Walks from the entries of both functions until every relation holds.
    pub fn run(&mut self, functions: [&Function; 2]) -> Step {
        let entry = (functions[BASE].start, functions[OTHER].start);
        let relation = self.entry();
        self.relations.insert(entry, relation);
        self.work.push(entry);
        while let Some(places) = self.work.pop() {
            let relation = &self.relations[&places];
            let states = relation.states(&mut self.terms, self.frames.as_ref());
            let escaped = relation.escaped;
            let at = [At::Start(places.0), At::Start(places.1)];
            let bounds = relation.bounds.clone();
            let mut pair =
                Pair { at, states, facts: Facts::default(), escaped, trace: [Vec::new(), Vec::new()], from: places };
            self.assume_bounds(&mut pair, &bounds);
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
            relation.foreign.iter_mut().for_each(|foreign| _ = foreign.insert(loc));
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
            let aligned = self.frames.as_ref().map(|frames| frames[side].tops[1]);
            for top in [Some(top), aligned].into_iter().flatten() {
                self.terms.own_frame(top);
            }
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
        if self.pairs > self.most_pairs {
            return self.mismatch(pair.from.0, "the function has too many paths");
        }
        if Instant::now() > self.deadline {
            return self.mismatch(pair.from.0, "it takes too long to compare the functions");
        }
        let base = self.execute(&mut pair, BASE)?;
        let other = self.execute(&mut pair, OTHER)?;
        match (&base, &other) {
            (Stop::Event(a), Stop::Event(b)) => {
                let (a, b) = (self.insn(BASE, *a)?, self.insn(OTHER, *b)?);
                self.events(pair, a, b)
            }
            (Stop::End(_), Stop::End(_)) => Ok(()),
            (Stop::Join(join), Stop::Event(branch)) if self.goes_by_v(&pair, *branch)? => {
                pair.at[BASE] = At::Place(*join);
                self.fork(pair, OTHER, *branch)
            }
            (Stop::Join(_), Stop::Event(_) | Stop::Join(_)) | (Stop::Event(_), Stop::Join(_)) => {
                self.meet(pair, [&base, &other])
            }
            (Stop::Leave(a, to), Stop::Leave(b, other_to)) => {
                let (a, b) = (self.insn(BASE, *a)?, self.insn(OTHER, *b)?);
                self.leave(pair, [a, b], [to, other_to])
            }
            (Stop::Leave(at, target), Stop::Event(node)) if self.returns(target, OTHER, *node) => {
                let at = self.insn(BASE, *at)?;
                self.give_back(pair, at)
            }
            (Stop::Event(node), Stop::Leave(_, target)) if self.returns(target, BASE, *node) => {
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

    /// One build, from where it is to its next stop.
    fn execute(&mut self, pair: &mut Pair, side: usize) -> Step<Stop> {
        let Pair { at, states, trace, .. } = pair;
        let stop = match self.sides[side].run(&mut self.terms, &mut states[side], &at[side], &mut trace[side]) {
            Ok(stop) => stop,
            Err(node) => return self.mismatch(node, "a loop without an end"),
        };
        // What has been executed is not executed again.
        at[side] = match &stop {
            Stop::Leave(node, target) => At::Leaving(*node, target.clone()),
            Stop::Event(node) | Stop::Join(node) | Stop::End(node) => At::Start(*node),
        };
        Ok(stop)
    }

    /// At least one build is where paths meet. If the other has stored what it has not, this is
    /// no place for a relation: the build that lags behind continues, unless that is a loop.
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

    /// Whether a jump to `target` and the instruction at `node` of `side` both return.
    fn returns(&self, target: &Target, side: usize, node: Node) -> bool {
        let insn = self.sides[side].insn(node);
        is_return(target) && insn.is_some_and(|insn| self.sides[side].kind(insn) == Some(Kind::Return))
    }

    /// Whether two terms are equal; whatever depends on it fails if they are not.
    pub fn must_equal(&mut self, pair: &mut Pair, ours: TermId, theirs: TermId) -> Step<bool> {
        if self.claims.equal(&mut self.terms, &mut pair.facts, ours, theirs, Effort::Needed) {
            return Ok(true);
        }
        self.narrow(pair, ours, theirs)?;
        Ok(false)
    }

    /// The relation between two places becomes what holds now as well as before.
    pub fn cut(&mut self, mut pair: Pair, places: Places) -> Step {
        self.same_memory(&mut pair, places.0)?;
        let mut relation = self.relate(&mut pair, places)?;
        let before = self.relations.get(&places).cloned();
        relation.bounds = self.bounded(&mut pair, places.0, before.as_ref());
        let moved = self.edges.entry((pair.from, places)).or_insert([true, true]);
        for side in [BASE, OTHER] {
            moved[side] &= !pair.trace[side].is_empty();
        }
        let met = match before {
            Some(old) => {
                self.agree(&old, &mut relation);
                let mut strong = old.clone();
                strong.derive_from_known(&mut self.terms, &relation);
                relation.derive_from_known(&mut self.terms, &old);
                let met = strong.meet(&relation);
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
