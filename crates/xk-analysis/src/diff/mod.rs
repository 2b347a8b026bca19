//! The structural diff of two builds of one translation unit.
//!
//! In: the deployed build and a variant. Out: the constants in which they
//! differ, and nothing else: the walk shows by lockstep simulation that the
//! variant is the deployed build with those constants replaced. Blocks may be
//! laid out in another order, registers may be renamed, encodings may change
//! length. Refused: everything else, naming the first pair of instructions
//! that does not match.
//!
//! The argument is a bisimulation. A *pairing* says which register of the
//! variant holds the value of which register of the deployed build, and memory
//! is equal. The walk starts at every function with the identity, requires
//! that paired instructions read paired registers, and pairs what they write.
//! Where paths meet, a pairing is the intersection of what arrives.

mod calls;
pub(crate) mod forms;
mod operands;
mod pairing;
pub(crate) mod same;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic};

use crate::blocks::{self, Equal};
use crate::constants::{Differences, Field, VariantConstant};
use crate::proof::Solver;
use forms::Form;
use pairing::Pairing;
use xk_lift::flow::Flow;
use xk_lift::insn::{Insn, Node, Target};
use xk_lift::object::{Function, Object, AUXILIARY};
use xk_lift::prototypes::Prototypes;
use xk_lift::state::STATUS;

/// Where and why two builds do not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Place in the deployed build.
    pub base: Node,
    /// What differs.
    pub detail: String,
}

/// Compares `variant` with `base`. `noreturns` are functions that do not
/// come back (`tools/objtool/noreturns.h` and what the unit defines).
///
/// # Errors
/// [`Mismatch`] when the variant is not the deployed code with constants replaced.
pub fn compare(base: &Object, variant: &Object, noreturns: &HashSet<String>) -> Result<Differences, Mismatch> {
    let (prototypes, expected) = (Prototypes::default(), Differences::new());
    let rules = Rules { noreturns, prototypes: &prototypes, solver: None, expected: &expected, flow: None };
    compare_with(base, variant, &rules)
}

/// What a comparison may use besides the two builds.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Functions that do not come back.
    pub noreturns: &'a HashSet<String>,
    /// How many registers a call passes.
    pub prototypes: &'a Prototypes,
    /// Decides whether blocks that do not match by instructions do the same;
    /// without it they do not match.
    pub solver: Option<&'a Solver>,
    /// The constants that the deployed code should have for this value, if a
    /// fit is known.
    pub expected: &'a Differences,
    /// Blocks and liveness of the deployed build, if somebody has them.
    pub flow: Option<&'a Flow>,
}

/// Compares `variant` with `base`; blocks that do not match by instructions
/// are compared as a whole ([`crate::blocks`]).
///
/// # Errors
/// [`Mismatch`] when the variant is not the deployed code with constants replaced.
pub fn compare_with(base: &Object, variant: &Object, rules: &Rules<'_>) -> Result<Differences, Mismatch> {
    let mut walk = Walk {
        base,
        variant,
        rules: *rules,
        flows: Default::default(),
        pairings: HashMap::new(),
        at: None,
        arrivals: HashMap::new(),
        summarised: HashMap::new(),
        work: Vec::new(),
        constants: BTreeMap::new(),
        seen: BTreeSet::new(),
        untouched: HashSet::new(),
        info: InstructionInfoFactory::new(),
    };
    walk.roots()?;
    while let Some((b, v)) = walk.work.pop() {
        walk.visit(b, v)?;
    }
    walk.finish()
}

/// An instruction of the deployed build and one of the variant.
type Pair = (Node, Node);

struct Walk<'a> {
    base: &'a Object,
    variant: &'a Object,
    rules: Rules<'a>,
    flows: [OnceCell<Flow>; 2],
    pairings: HashMap<Pair, Pairing>,
    /// The pair that the walk is at; none at the entries.
    at: Option<Pair>,
    /// From which pairs the walk came to each.
    arrivals: HashMap<Pair, HashSet<Option<Pair>>>,
    /// Pairs that do not match by instructions, and the pair from which both blocks were compared as
    /// a whole instead.
    summarised: HashMap<Pair, Pair>,
    work: Vec<Pair>,
    /// For each instruction of the deployed build and each instruction of the
    /// variant that stands for it: the constants that are others there.
    constants: BTreeMap<Node, BTreeMap<Node, BTreeMap<Field, VariantConstant>>>,
    seen: BTreeSet<Node>,
    /// Functions that are the same in both builds.
    untouched: HashSet<String>,
    info: InstructionInfoFactory,
}

/// Follows no-ops and jumps: they do not change the state.
fn settle(object: &Object, mut node: Node, seen: &mut BTreeSet<Node>) -> Node {
    for _ in 0..object.insns.len() {
        let Some(insn) = object.insns.get(&node) else { return node };
        if object.jump_labels.contains_key(&node) {
            return node;
        }
        if insn.is_nop() {
            seen.insert(node);
            node = insn.next();
        } else if let (Mnemonic::Jmp, Some(Target::Local(target))) = (insn.raw.mnemonic(), &insn.target) {
            // A jump to the first instruction of another function is a tail call.
            if object.functions.contains_key(target) && !is_part(&object.functions[target]) {
                return node;
            }
            seen.insert(node);
            node = *target;
        } else {
            return node;
        }
    }
    node
}

/// A part of a function that the compiler moved away, entered by jumps only.
fn is_part(function: &Function) -> bool {
    function.name.contains(".cold")
}

impl Walk<'_> {
    /// Blocks and liveness of both builds; needed only where they differ.
    fn flows(&self) -> (&Flow, &Flow) {
        let [base, variant] = &self.flows;
        let flow = |object| Flow::new(object, self.rules.prototypes);
        let base = self.rules.flow.unwrap_or_else(|| base.get_or_init(|| flow(self.base)));
        (base, variant.get_or_init(|| flow(self.variant)))
    }

    fn mismatch<T>(&self, base: Node, detail: impl Into<String>) -> Result<T, Mismatch> {
        Err(Mismatch { base, detail: detail.into() })
    }

    fn roots(&mut self) -> Result<(), Mismatch> {
        let named = |object: &Object| -> BTreeMap<String, Node> {
            object.functions.values().filter(|f| !is_part(f)).map(|f| (f.name.clone(), f.start)).collect()
        };
        let (ours, theirs) = (named(self.base), named(self.variant));
        for (name, &node) in &ours {
            match theirs.get(name) {
                Some(&other)
                    if same::same(
                        self.base,
                        self.variant,
                        &self.base.functions[&node],
                        &self.variant.functions[&other],
                    ) =>
                {
                    self.untouched.insert(name.clone());
                }
                Some(&other) => self.reach(node, other, Pairing::identity()),
                None => return self.mismatch(node, format!("{name} does not exist in the variant")),
            }
        }
        let auxiliary = |object: &Object| object.functions.values().find(|f| f.name == AUXILIARY).cloned();
        if let (Some(x), Some(y)) = (auxiliary(self.base), auxiliary(self.variant)) {
            if same::same_code(self.base, self.variant, &x, &y) {
                self.untouched.insert(AUXILIARY.into());
            }
        }
        if let Some(name) = theirs.keys().find(|name| !ours.contains_key(*name)) {
            let node = Node { section: 0, offset: 0 };
            return self.mismatch(node, format!("{name} exists in the variant only"));
        }
        Ok(())
    }

    fn reach(&mut self, base: Node, variant: Node, pairing: Pairing) {
        let mut ignored = BTreeSet::new();
        let base = settle(self.base, base, &mut self.seen);
        let variant = settle(self.variant, variant, &mut ignored);
        let pair = (base, variant);
        let new_way = self.arrivals.entry(pair).or_default().insert(self.at);
        let met = self.pairings.get(&pair).map_or(pairing, |old| old.meet(&pairing));
        let weaker = self.pairings.insert(pair, met) != Some(met);
        // What was shown of a block as a whole holds from where it was entered, and from nowhere else.
        if weaker || new_way && self.summarised.contains_key(&pair) {
            self.work.push(pair);
        }
        if weaker {
            self.work.extend(self.summarised.iter().filter(|(_, entry)| **entry == pair).map(|(pair, _)| *pair));
        }
    }

    /// The earliest pair from which the walk can only have come to `pair`, straight through both
    /// blocks: what is shown from there holds for everything that arrives at `pair`.
    fn entered(&self, pair: Pair, base: &[&Insn], variant: &[&Insn]) -> Pair {
        let inside = |block: &[&Insn], node: Node| block.iter().any(|insn| insn.node == node);
        let mut entry = pair;
        while let Some(ways) = self.arrivals.get(&entry) {
            let mut ways = ways.iter();
            let (Some(Some((b, v))), None) = (ways.next(), ways.next()) else { break };
            let before = *b < entry.0 && *v < entry.1 && inside(base, *b) && inside(variant, *v);
            if !before {
                break;
            }
            entry = (*b, *v);
        }
        entry
    }

    fn visit(&mut self, b: Node, v: Node) -> Result<(), Mismatch> {
        let (bi, vi) = match (self.base.insns.get(&b), self.variant.insns.get(&v)) {
            (Some(bi), Some(vi)) => (bi, vi),
            (None, None) => return Ok(()), // behind the end of both: a call that does not return
            _ => return self.mismatch(b, "one of the builds ends here"),
        };
        self.seen.insert(b);
        self.at = Some((b, v));
        let mut pairing = self.pairings[&(b, v)];
        if let Some(result) = self.jump_label(bi, vi, pairing) {
            return result;
        }
        match self.lockstep(bi, vi, &mut pairing) {
            Ok(form) => self.successors(bi, vi, pairing, form == Form::Inverted),
            Err(mismatch) => self.summarise(b, v).unwrap_or(Err(mismatch)),
        }
    }

    /// Pairs one instruction with another and updates the pairing.
    fn lockstep(&mut self, bi: &Insn, vi: &Insn, pairing: &mut Pairing) -> Result<Form, Mismatch> {
        let form = self.form(bi, vi)?;
        self.constants.entry(bi.node).or_default().insert(vi.node, BTreeMap::new());
        if (bi.raw.rflags_read() | vi.raw.rflags_read()) & STATUS != 0 && !pairing.flags {
            return self.mismatch(bi.node, format!("`{}` reads flags that may differ", bi.text()));
        }
        self.operands(bi, vi, pairing, form)?;
        self.flags(bi, vi, pairing, form);
        Ok(form)
    }

    /// Compares the rest of the two blocks as a whole, from where the walk
    /// entered them. `None` when that is not possible or shows no equivalence.
    fn summarise(&mut self, b: Node, v: Node) -> Option<Result<(), Mismatch>> {
        let solver = self.rules.solver?;
        let (base, variant) = (self.base, self.variant);
        let (base_flow, variant_flow) = self.flows();
        let base_block = base_flow.block(base, b);
        let variant_block = variant_flow.block(variant, v);
        let (from_b, from_v) = self.entered((b, v), &base_block, &variant_block);
        let entry = *self.pairings.get(&(from_b, from_v))?;
        let base_piece = straight(&base_block, from_b);
        let variant_piece = straight(&variant_block, from_v);
        let special = |object: &Object, insns: &[&Insn]| {
            insns.iter().any(|i| {
                object.jump_labels.contains_key(&i.node)
                    || object.fixups.contains_key(&i.node)
                    || object.in_alternative.contains(&i.node)
            })
        };
        if special(base, base_piece) || special(variant, variant_piece) || base_piece.is_empty() {
            return None;
        }
        let behind = |piece: &[&Insn], from: Node| piece.last().map_or(from, |insn| insn.next());
        let (to_b, to_v) = (behind(base_piece, from_b), behind(variant_piece, from_v));
        let inside: Vec<Node> = base_piece.iter().map(|insn| insn.node).collect();
        let branches = (base.insns.get(&to_b), variant.insns.get(&to_v));
        let conditions = match branches {
            (Some(x), Some(y)) => forms::condition(x).zip(forms::condition(y)),
            _ => None,
        };
        if !inside.contains(&b) && conditions.is_none() {
            return None; // the jump or call itself does not match
        }
        let end = blocks::End { live: variant_flow.live_in(to_v), branch: conditions };
        let equal = Equal { registers: entry.registers, flags: entry.flags };
        let copy: Vec<Node> = variant_piece.iter().map(|insn| insn.node).collect();
        let mut recorded = Differences::new();
        for node in &inside {
            let places = self.constants.get(node).into_iter().flatten().filter(|(place, _)| copy.contains(place));
            recorded.extend(places.flat_map(|(_, fields)| fields.iter().map(|(f, o)| ((*node, *f), *o))));
        }
        let known = [self.rules.expected, &recorded];
        let summary = known.iter().find_map(|k| blocks::compare(base_piece, variant_piece, equal, end, k, solver))?;
        if !inside.contains(&b) && summary.branch.is_none() {
            return None;
        }
        self.summarised.insert((b, v), (from_b, from_v));
        // What the walk recorded on its way to the mismatch was a misreading.
        for node in &inside {
            let places = self.constants.entry(*node).or_default();
            places.retain(|place, _| !copy.contains(place));
            let fields = summary.differences.iter().filter(|((n, _), _)| n == node);
            places.insert(from_v, fields.map(|((_, field), other)| (*field, *other)).collect());
        }
        self.seen.extend(inside);
        let junk = [entry.junk[0] & !self.written(base_piece), entry.junk[1] & !self.written(variant_piece)];
        let pairing = Pairing { registers: summary.exit.registers, flags: summary.exit.flags, junk };
        if let (false, Some(inverted), (Some(x), Some(y))) = (pairing.flags, summary.branch, branches) {
            // The flags differ, the decision does not: on with both branches.
            self.seen.insert(to_b);
            self.at = Some((to_b, to_v));
            return Some(self.successors(x, y, pairing, inverted));
        }
        self.reach(to_b, to_v, pairing);
        Some(Ok(()))
    }

    fn jump_label(&mut self, bi: &Insn, vi: &Insn, pairing: Pairing) -> Option<Result<(), Mismatch>> {
        let labels = (self.base.jump_labels.get(&bi.node), self.variant.jump_labels.get(&vi.node));
        match labels {
            (None, None) => None,
            (Some((bt, bk)), Some((vt, vk))) if bk == vk && bi.is_nop() == vi.is_nop() => {
                let (bt, vt) = (*bt, *vt);
                self.reach(bt, vt, pairing);
                self.reach(bi.next(), vi.next(), pairing);
                Some(Ok(()))
            }
            _ => Some(self.mismatch(bi.node, "different static branches")),
        }
    }

    fn successors(&mut self, bi: &Insn, vi: &Insn, mut pairing: Pairing, inverted: bool) -> Result<(), Mismatch> {
        match (self.base.fixups.get(&bi.node), self.variant.fixups.get(&vi.node)) {
            (None, None) => {}
            (Some(&b), Some(&v)) if self.base.handlers.get(&bi.node) == self.variant.handlers.get(&vi.node) => {
                // A fault comes before the writes of the instruction.
                let before = self.pairings.get(&(bi.node, vi.node)).map_or(pairing, |before| before.meet(&pairing));
                self.reach(b, v, before);
            }
            _ => return self.mismatch(bi.node, "different exception fixups"),
        }
        if bi.is_call() {
            return self.call(bi, vi, &mut pairing);
        }
        match bi.raw.flow_control() {
            FlowControl::ConditionalBranch => {
                let (Some(bt), Some(vt)) = (&bi.target, &vi.target) else {
                    return self.mismatch(bi.node, "branch without target");
                };
                let (bn, vn) = (Target::Local(bi.next()), Target::Local(vi.next()));
                let pairs = if inverted { [(bt, &vn), (&bn, vt)] } else { [(bt, vt), (&bn, &vn)] };
                for (b, v) in pairs {
                    self.jump([bi, vi], b, v, pairing)?;
                }
                Ok(())
            }
            FlowControl::UnconditionalBranch => {
                let (Some(bt), Some(vt)) = (bi.target.clone(), vi.target.clone()) else {
                    return self.mismatch(bi.node, "jump without target");
                };
                self.jump([bi, vi], &bt, &vt, pairing)
            }
            FlowControl::IndirectBranch => self.mismatch(bi.node, "indirect jump"),
            FlowControl::Return => self.returns(bi, pairing),
            FlowControl::Exception => {
                if self.base.warnings.contains(&bi.node) {
                    self.reach(bi.next(), vi.next(), pairing);
                }
                Ok(())
            }
            _ if bi.raw.mnemonic() == Mnemonic::Int3 => Ok(()),
            _ => {
                self.reach(bi.next(), vi.next(), pairing);
                Ok(())
            }
        }
    }

    fn jump(&mut self, [bi, vi]: [&Insn; 2], b: &Target, v: &Target, pairing: Pairing) -> Result<(), Mismatch> {
        let entry = |object: &Object, target: &Target| match target {
            Target::External(symbol) => Some((symbol.name.clone(), symbol.offset)),
            Target::Local(node) => object
                .functions
                .get(node)
                .filter(|f| !is_part(f) && object.function_at(bi.node).map(|g| &g.name) != Some(&f.name))
                .map(|f| (f.name.clone(), 0)),
        };
        match (entry(self.base, b), entry(self.variant, v)) {
            (None, None) => {
                if let (Target::Local(b), Target::Local(v)) = (b, v) {
                    self.reach(*b, *v, pairing);
                }
                Ok(())
            }
            (Some(x), Some(y)) if x == y => {
                if x.0 == "__x86_return_thunk" {
                    return self.returns(bi, pairing);
                }
                self.arguments(bi, vi, &pairing)?;
                self.preserved(bi, &pairing)
            }
            (x, y) => self.mismatch(bi.node, format!("jumps to {x:?} against {y:?}")),
        }
    }

    fn finish(self) -> Result<Differences, Mismatch> {
        for (&node, insn) in &self.base.insns {
            let padding = insn.is_nop()
                || insn.raw.mnemonic() == Mnemonic::Int3
                || self.base.sections[node.section].name == ".static_call.text";
            let untouched = || {
                let name = self.base.function_at(node).map(|f| f.name.as_str());
                name.is_some_and(|name| self.untouched.contains(name.strip_suffix(".cold").unwrap_or(name)))
            };
            if !self.seen.contains(&node) && !padding && !untouched() {
                return self.mismatch(node, format!("`{}` is not reached by the comparison", insn.text()));
            }
        }
        // An instruction that stands for several of the variant has one constant
        // to offer: a copy that kept the deployed value disagrees with one that
        // did not (the compiler merged V with an equal constant).
        let mut differences = Differences::new();
        for (&node, places) in &self.constants {
            let mut places = places.values();
            let Some(first) = places.next() else { continue };
            if places.any(|other| other != first) {
                return self.mismatch(node, "copies of the instruction in the variant have different constants");
            }
            differences.extend(first.iter().map(|(field, other)| ((node, *field), *other)));
        }
        Ok(differences)
    }
}

/// The instructions of `block` from `from` to its end, without the branch,
/// call or return that ends it.
fn straight<'a, 'b>(block: &'b [&'a Insn], from: Node) -> &'b [&'a Insn] {
    let start = block.iter().position(|insn| insn.node == from).unwrap_or(block.len());
    let end = block.len() - usize::from(block.last().is_some_and(|insn| insn.ends_block()));
    &block[start.min(end)..end]
}
