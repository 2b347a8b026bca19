//! Basic blocks and liveness of an object's code.
//!
//! In: an [`Object`]. Out: where blocks begin, where paths meet and loops begin, and which
//! registers and flags may still be read at each instruction (`live.rs`).

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::insn::{Insn, Node, Target};
use crate::live::{liveness, CALLER_SAVED};
pub use crate::live::{Live, ARGUMENTS};
pub use crate::object::successors;
use crate::object::Object;
use crate::prototypes::Prototypes;

/// Blocks and liveness.
#[derive(Debug)]
pub struct Flow {
    leaders: BTreeSet<Node>,
    joins: HashSet<Node>,
    loops: HashSet<Node>,
    live_in: HashMap<Node, Live>,
}

impl Flow {
    /// Analyses `object`.
    #[must_use]
    pub fn new(object: &Object, prototypes: &Prototypes) -> Self {
        Self {
            leaders: leaders(object),
            joins: joins(object),
            loops: loops(object),
            live_in: liveness(object, prototypes),
        }
    }

    /// Whether a loop begins at `node`: every circle of control has such a place.
    #[must_use]
    pub fn is_loop(&self, node: Node) -> bool {
        self.loops.contains(&node)
    }

    /// Whether control reaches `node` in more than one way. Every loop has such a place.
    #[must_use]
    pub fn is_join(&self, node: Node) -> bool {
        self.joins.contains(&node)
    }

    /// What a call of the function that begins at `start` may read of the
    /// registers that a call need not preserve.
    #[must_use]
    pub fn callee_reads(&self, start: Node) -> Live {
        self.live_in(start).among(CALLER_SAVED)
    }

    /// Whether `node` begins a block: something may jump there.
    #[must_use]
    pub fn is_leader(&self, node: Node) -> bool {
        self.leaders.contains(&node)
    }

    /// What may be read at or after `node` before it is written.
    #[must_use]
    pub fn live_in(&self, node: Node) -> Live {
        self.live_in.get(&node).copied().unwrap_or(Live::ALL)
    }

    /// Whether something may jump to a byte strictly inside `from..to`.
    #[must_use]
    pub fn jumped_into(&self, section: usize, from: u64, to: u64) -> bool {
        let (low, high) = (Node { section, offset: from + 1 }, Node { section, offset: to });
        self.leaders.range(low..high).next().is_some()
    }

    /// The instructions of the block that contains `node`, in order. A call
    /// ends a block: what follows it starts from an unknown state.
    #[must_use]
    pub fn block<'a>(&self, object: &'a Object, node: Node) -> Vec<&'a Insn> {
        let section = node.section;
        let back = object.insns.range(Node { section, offset: 0 }..node).rev();
        let mut first = node;
        if !self.is_leader(node) {
            for (&before, insn) in back {
                if insn.next() != first || insn.ends_block() {
                    break;
                }
                first = before;
                if self.is_leader(before) {
                    break;
                }
            }
        }
        let mut block = Vec::new();
        let mut expected = first;
        for (&at, insn) in object.insns.range(first..) {
            if at != expected || (at != first && self.is_leader(at)) {
                break;
            }
            block.push(insn);
            expected = insn.next();
            if insn.ends_block() {
                break;
            }
        }
        block
    }
}

fn leaders(object: &Object) -> BTreeSet<Node> {
    let mut leaders: BTreeSet<Node> = object.functions.keys().copied().collect();
    for insn in object.insns.values() {
        if let Some(Target::Local(target)) = insn.target {
            leaders.insert(target);
        }
        if insn.ends_block() {
            leaders.insert(insn.next());
        }
    }
    for (node, (target, _)) in &object.jump_labels {
        leaders.insert(*target);
        if let Some(insn) = object.insns.get(node) {
            leaders.insert(insn.next());
        }
    }
    leaders.extend(object.fixups.values());
    leaders.extend(object.alternative_targets());
    leaders
}

/// Places that control reaches from more than one instruction, the start of a function
/// from its callers included.
fn joins(object: &Object) -> HashSet<Node> {
    let mut reached: HashMap<Node, u32> = object.functions.keys().map(|node| (*node, 1)).collect();
    let mut targets = object.alternative_targets();
    targets.extend(object.insns.values().flat_map(|insn| successors(object, insn)));
    targets.into_iter().for_each(|node| *reached.entry(node).or_default() += 1);
    reached.into_iter().filter(|(_, ways)| *ways > 1).map(|(node, _)| node).collect()
}

/// Targets of the edges that lead back to where a walk from the entries is coming from.
fn loops(object: &Object) -> HashSet<Node> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        Open,
        Done,
    }
    let mut marks: HashMap<Node, Mark> = HashMap::new();
    let mut found = HashSet::new();
    let starts: Vec<Node> = object.functions.keys().copied().chain(object.alternative_targets()).collect();
    for start in starts {
        let mut stack = vec![(start, false)];
        while let Some((node, left)) = stack.pop() {
            if left {
                marks.insert(node, Mark::Done);
                continue;
            }
            match marks.get(&node) {
                Some(Mark::Open) => _ = found.insert(node),
                Some(Mark::Done) => {}
                None => {
                    marks.insert(node, Mark::Open);
                    stack.push((node, true));
                    let next = object.insns.get(&node).map_or_else(Vec::new, |insn| successors(object, insn));
                    for to in next {
                        match marks.get(&to) {
                            Some(Mark::Open) => _ = found.insert(to),
                            Some(Mark::Done) => {}
                            None => stack.push((to, false)),
                        }
                    }
                }
            }
        }
    }
    found
}
