//! The walk over pairs of instructions, one of each build.
//!
//! In: two objects. Out: the constants in which they differ. Refused: a function that only one build has, a pair that does
//! not match, and an instruction of the deployed build that no pair contains.
//!
//! For each pair the walk keeps what is equal there ([`Pairing`]). A pair is visited again when that gets weaker, until
//! nothing changes. An instruction of the deployed build may stand for several of the variant, if the compiler copied it;
//! all copies must have the same constants.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use iced_x86::{InstructionInfoFactory, Mnemonic};
use xk_lift::flow::Flow;
use xk_lift::insn::{Insn, Node, Target};
use xk_lift::object::{Object, AUXILIARY};
use xk_lift::state::STATUS;

use super::forms::Form;
use super::pairing::Pairing;
use super::{is_part, same, Mismatch, Rules};
use crate::constants::{Differences, Field, VariantConstant};

/// An instruction of the deployed build and the one of the variant that stands for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    pub base: Node,
    pub variant: Node,
}

/// A comparison under way. In its methods `ours` is an instruction of the deployed build, `theirs` one of the variant.
pub(super) struct Walk<'a> {
    pub base: &'a Object,
    pub variant: &'a Object,
    pub rules: Rules<'a>,
    /// Blocks and liveness of each build, once they are needed.
    flows: [OnceCell<Flow>; 2],
    /// What is equal before each pair.
    pub pairings: HashMap<Pair, Pairing>,
    /// The pair that the walk is at; none at the entries.
    pub at: Option<Pair>,
    /// From which pairs the walk came to each.
    arrivals: HashMap<Pair, HashSet<Option<Pair>>>,
    /// Pairs that do not match by instructions, and the pair from which both blocks were compared as a whole instead.
    pub compared_whole: HashMap<Pair, Pair>,
    /// Pairs to visit.
    work: Vec<Pair>,
    /// For each instruction of the deployed build and each instruction of the variant that stands for it: the constants
    /// that are others there.
    pub constants: BTreeMap<Node, BTreeMap<Node, BTreeMap<Field, VariantConstant>>>,
    /// Instructions of the deployed build that some pair contains.
    pub reached: BTreeSet<Node>,
    /// Names of functions that are the same in both builds.
    identical: HashSet<String>,
    pub info: InstructionInfoFactory,
}

impl<'a> Walk<'a> {
    pub fn new(base: &'a Object, variant: &'a Object, rules: Rules<'a>) -> Self {
        Walk {
            base,
            variant,
            rules,
            flows: Default::default(),
            pairings: HashMap::new(),
            at: None,
            arrivals: HashMap::new(),
            compared_whole: HashMap::new(),
            work: Vec::new(),
            constants: BTreeMap::new(),
            reached: BTreeSet::new(),
            identical: HashSet::new(),
            info: InstructionInfoFactory::new(),
        }
    }

    /// Compares the two builds.
    pub fn run(mut self) -> Result<Differences, Mismatch> {
        self.enter_functions()?;
        while let Some(pair) = self.work.pop() {
            self.visit(pair)?;
        }
        self.is_complete()?;
        self.differences()
    }

    /// Blocks and liveness of both builds; needed only where they differ.
    pub fn flows(&self) -> (&Flow, &Flow) {
        let [base, variant] = &self.flows;
        let flow = |object| Flow::new(object, self.rules.prototypes);
        let base = self.rules.flow.unwrap_or_else(|| base.get_or_init(|| flow(self.base)));
        (base, variant.get_or_init(|| flow(self.variant)))
    }

    pub fn mismatch<T>(&self, base: Node, detail: impl Into<String>) -> Result<T, Mismatch> {
        Err(Mismatch { base, detail: detail.into() })
    }

    /// Starts at the functions of the same name, unless they are the same byte for byte.
    fn enter_functions(&mut self) -> Result<(), Mismatch> {
        let named = |object: &Object| -> BTreeMap<String, Node> {
            object.functions.values().filter(|f| !is_part(f)).map(|f| (f.name.clone(), f.start)).collect()
        };
        let (ours, theirs) = (named(self.base), named(self.variant));
        for (name, &base) in &ours {
            let Some(&variant) = theirs.get(name) else {
                return self.mismatch(base, format!("{name} does not exist in the variant"));
            };
            let functions = (&self.base.functions[&base], &self.variant.functions[&variant]);
            if same::same(self.base, self.variant, functions.0, functions.1) {
                self.identical.insert(name.clone());
            } else {
                self.reach(base, variant, Pairing::identity());
            }
        }
        let auxiliary = |object: &Object| object.functions.values().find(|f| f.name == AUXILIARY).cloned();
        if let (Some(ours), Some(theirs)) = (auxiliary(self.base), auxiliary(self.variant)) {
            if same::same_code(self.base, self.variant, &ours, &theirs) {
                self.identical.insert(AUXILIARY.into());
            }
        }
        if let Some(name) = theirs.keys().find(|name| !ours.contains_key(*name)) {
            let node = Node { section: 0, offset: 0 };
            return self.mismatch(node, format!("{name} exists in the variant only"));
        }
        Ok(())
    }

    /// Continues at a pair with what is equal there. It is visited if that is less than on earlier paths.
    pub fn reach(&mut self, base: Node, variant: Node, pairing: Pairing) {
        let mut ignored = BTreeSet::new();
        let base = skip_jumps(self.base, base, &mut self.reached);
        let variant = skip_jumps(self.variant, variant, &mut ignored);
        let pair = Pair { base, variant };
        let is_new_way = self.arrivals.entry(pair).or_default().insert(self.at);
        let met = self.pairings.get(&pair).map_or(pairing, |old| old.meet(&pairing));
        let is_weaker = self.pairings.insert(pair, met) != Some(met);
        // What was shown of a block as a whole holds from where it was entered, and from nowhere else.
        if is_weaker || is_new_way && self.compared_whole.contains_key(&pair) {
            self.work.push(pair);
        }
        if is_weaker {
            let shown_from_here = self.compared_whole.iter().filter(|(_, entry)| **entry == pair);
            self.work.extend(shown_from_here.map(|(pair, _)| *pair));
        }
    }

    /// The earliest pair from which the walk can only have come to `pair`, straight through both blocks: what is shown
    /// from there holds for everything that arrives at `pair`.
    pub fn entry_of(&self, pair: Pair, base: &[&Insn], variant: &[&Insn]) -> Pair {
        let inside = |block: &[&Insn], node: Node| block.iter().any(|insn| insn.node == node);
        let mut entry = pair;
        while let Some(ways) = self.arrivals.get(&entry) {
            let mut ways = ways.iter();
            let (Some(Some(from)), None) = (ways.next(), ways.next()) else { break };
            let comes_before = from.base < entry.base && from.variant < entry.variant;
            if !comes_before || !inside(base, from.base) || !inside(variant, from.variant) {
                break;
            }
            entry = *from;
        }
        entry
    }

    /// Compares the instructions of a pair, and continues with their successors.
    fn visit(&mut self, pair: Pair) -> Result<(), Mismatch> {
        let (ours, theirs) = match (self.base.insns.get(&pair.base), self.variant.insns.get(&pair.variant)) {
            (Some(ours), Some(theirs)) => (ours, theirs),
            // After the end of both: the last call does not return.
            (None, None) => return Ok(()),
            _ => return self.mismatch(pair.base, "one of the builds ends here"),
        };
        self.reached.insert(pair.base);
        self.at = Some(pair);
        let mut pairing = self.pairings[&pair];
        if let Some(result) = self.static_branch(ours, theirs, pairing) {
            return result;
        }
        match self.lockstep(ours, theirs, &mut pairing) {
            Ok(form) => self.successors(ours, theirs, pairing, form == Form::Inverted),
            Err(mismatch) => self.compare_whole(pair).unwrap_or(Err(mismatch)),
        }
    }

    /// Pairs one instruction with another and updates the pairing.
    fn lockstep(&mut self, ours: &Insn, theirs: &Insn, pairing: &mut Pairing) -> Result<Form, Mismatch> {
        let form = self.form(ours, theirs)?;
        self.constants.entry(ours.node).or_default().insert(theirs.node, BTreeMap::new());
        if (ours.raw.rflags_read() | theirs.raw.rflags_read()) & STATUS != 0 && !pairing.flags {
            return self.mismatch(ours.node, format!("`{}` reads flags that may differ", ours.text()));
        }
        self.operands(ours, theirs, pairing, form)?;
        self.flags(ours, theirs, pairing, form);
        Ok(form)
    }

    /// Whether every instruction of the deployed build was compared. Padding is never executed, and what is the same in
    /// both builds needs no comparison.
    fn is_complete(&self) -> Result<(), Mismatch> {
        for (&node, insn) in &self.base.insns {
            let is_padding = insn.is_nop()
                || insn.raw.mnemonic() == Mnemonic::Int3
                || self.base.sections[node.section].name == ".static_call.text";
            let is_identical = || {
                let name = self.base.function_at(node).map(|f| f.name.as_str());
                name.is_some_and(|name| self.identical.contains(name.strip_suffix(".cold").unwrap_or(name)))
            };
            if !self.reached.contains(&node) && !is_padding && !is_identical() {
                return self.mismatch(node, format!("`{}` is not reached by the comparison", insn.text()));
            }
        }
        Ok(())
    }

    /// The constants that differ. An instruction that stands for several of the variant has one constant to offer: a copy
    /// that kept the deployed value disagrees with one that did not (the compiler merged V with an equal constant).
    fn differences(&self) -> Result<Differences, Mismatch> {
        let mut differences = Differences::new();
        for (&node, copies) in &self.constants {
            let mut copies = copies.values();
            let Some(first) = copies.next() else { continue };
            if copies.any(|other| other != first) {
                return self.mismatch(node, "copies of the instruction in the variant have different constants");
            }
            differences.extend(first.iter().map(|(field, other)| ((node, *field), *other)));
        }
        Ok(differences)
    }
}

/// Follows no-ops and jumps from `node`: they do not change the state. Adds them to `skipped`.
fn skip_jumps(object: &Object, mut node: Node, skipped: &mut BTreeSet<Node>) -> Node {
    // At most once over each instruction: jumps may form a loop.
    for _ in 0..object.insns.len() {
        let Some(insn) = object.insns.get(&node) else { return node };
        if object.jump_labels.contains_key(&node) {
            return node;
        }
        if insn.is_nop() {
            skipped.insert(node);
            node = insn.next();
        } else if let (Mnemonic::Jmp, Some(Target::Local(target))) = (insn.raw.mnemonic(), &insn.target) {
            // A jump to the first instruction of another function is a tail call.
            if object.functions.get(target).is_some_and(|function| !is_part(function)) {
                return node;
            }
            skipped.insert(node);
            node = *target;
        } else {
            return node;
        }
    }
    node
}
