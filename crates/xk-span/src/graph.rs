//! The control-flow graph of one frame: a function with the parts that the compiler
//! split off, and with the instructions that may run in the place of others.
//!
//! In: the address of a function. Out: its reachable instructions and where control
//! goes from each. Refused, with the reason: code that cannot be followed, such as a
//! jump through a table.

use std::collections::{BTreeSet, HashMap};

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use xk_lift::prototypes::is_transparent;

use crate::error::Unfollowed;
use crate::world::World;

/// Instructions of one frame; nothing in the kernel that is compiled comes near.
const LARGEST: usize = 60_000;

/// Who is called, or takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    /// The code at this address.
    Direct(u64),
    /// Only the machine knows.
    Indirect,
}

/// An instruction with its ways out.
#[derive(Debug, Clone)]
pub struct Node {
    /// As decoded, at its address.
    pub insn: Instruction,
    /// The instruction of the function in whose place it may run; else its own address.
    pub site: u64,
    /// Instructions of the frame that may be next.
    pub next: Vec<usize>,
    /// Called function.
    pub call: Option<Callee>,
    /// Function that takes over the frame.
    pub tail: Option<Callee>,
    /// It returns from the frame.
    pub returns: bool,
    /// A call that does not come back.
    pub stops: bool,
}

/// The graph.
#[derive(Debug)]
pub struct Graph {
    /// The function.
    pub entry: u64,
    /// Its instructions, by address; the entry need not be first.
    pub nodes: Vec<Node>,
    /// The functions (with parts) that they belong to, by address.
    pub parts: BTreeSet<u64>,
    index: HashMap<u64, usize>,
}

/// What a branch to `address` from the frame means.
enum To {
    Inside(u64),
    Elsewhere(Callee),
}

struct Builder<'a> {
    world: &'a World,
    entry: u64,
    parts: BTreeSet<u64>,
    nodes: HashMap<u64, (Node, Vec<u64>)>,
    todo: Vec<u64>,
}

impl Graph {
    /// The graph of the frame that `entry` opens.
    ///
    /// # Errors
    /// Why it cannot be followed.
    pub fn new(world: &World, entry: u64) -> Result<Self, Unfollowed> {
        if world.patches.incomplete {
            return Err(Unfollowed::Patches);
        }
        let mut builder =
            Builder { world, entry, parts: BTreeSet::from([entry]), nodes: HashMap::new(), todo: vec![entry] };
        while let Some(at) = builder.todo.pop() {
            if !builder.nodes.contains_key(&at) {
                builder.add(at)?;
            }
            if builder.nodes.len() > LARGEST {
                return Err(Unfollowed::TooLarge(LARGEST));
            }
        }
        let Builder { nodes, parts, .. } = builder;
        let mut all: Vec<(u64, (Node, Vec<u64>))> = nodes.into_iter().collect();
        all.sort_by_key(|(at, _)| *at);
        let index: HashMap<u64, usize> = all.iter().enumerate().map(|(i, (at, _))| (*at, i)).collect();
        let linked = all.into_iter().map(|(_, (mut node, next))| {
            node.next = next.iter().filter_map(|to| index.get(to).copied()).collect();
            node.next.sort_unstable();
            node.next.dedup();
            node
        });
        Ok(Self { entry, nodes: linked.collect(), parts, index })
    }

    /// The node at an address.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<usize> {
        self.index.get(&address).copied()
    }

    /// The node of the entry.
    #[must_use]
    pub fn first(&self) -> usize {
        self.at(self.entry).unwrap_or(0)
    }

    /// For each node, those before it.
    #[must_use]
    pub fn before(&self) -> Vec<Vec<usize>> {
        let mut before = vec![Vec::new(); self.nodes.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            for &next in &node.next {
                before[next].push(i);
            }
        }
        before
    }
}

impl Builder<'_> {
    /// Adds the instruction at an address, and the addresses that control may go to from it.
    fn add(&mut self, at: u64) -> Result<(), Unfollowed> {
        let insn = self.decode(at)?;
        let site = self.world.patches.replaced(at).map_or(at, |(site, _)| site);
        let mut node = Node { insn, site, next: Vec::new(), call: None, tail: None, returns: false, stops: false };
        let mut next = Vec::new();
        let falls_through = self.follow(&mut node, &mut next)?;
        let patches = &self.world.patches;
        let label = patches.labels.get(&at);
        next.extend(label);
        next.extend(patches.fixups.get(&at));
        for alternative in patches.alternatives.get(&at).into_iter().flatten() {
            next.push(if alternative.with_len == 0 { at + u64::from(alternative.len) } else { alternative.with });
        }
        // The kernel may replace the jump of a jump label by a no-op, and the other way round.
        if falls_through || label.is_some() {
            next.push(self.after(&node));
        }
        self.todo.extend(&next);
        self.nodes.insert(at, (node, next));
        Ok(())
    }

    fn decode(&self, at: u64) -> Result<Instruction, Unfollowed> {
        let code = self.world.code(at).ok_or_else(|| Unfollowed::NoCode(self.world.place_name(at)))?;
        let insn = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        if insn.is_invalid() {
            return Err(Unfollowed::NotInstruction(self.world.place_name(at)));
        }
        Ok(insn)
    }

    /// Records where the instruction itself sends control. Returns whether control may go on after it.
    fn follow(&mut self, node: &mut Node, next: &mut Vec<u64>) -> Result<bool, Unfollowed> {
        let (insn, at) = (node.insn, node.insn.ip());
        Ok(match insn.flow_control() {
            FlowControl::Next => true,
            FlowControl::Return => {
                node.returns = true;
                false
            }
            FlowControl::Call | FlowControl::IndirectCall => self.call(node),
            FlowControl::UnconditionalBranch => {
                self.jump(node, next);
                false
            }
            FlowControl::ConditionalBranch => {
                self.jump(node, next);
                true
            }
            FlowControl::IndirectBranch => {
                node.tail = Some(Callee::Indirect);
                false
            }
            FlowControl::Exception => self.world.patches.warnings.contains(&at),
            // int3 is padding. Other interrupts, and transactions, are refused.
            FlowControl::Interrupt if insn.mnemonic() == Mnemonic::Int3 => false,
            _ => return Err(Unfollowed::Nowhere { place: self.world.place_name(at), insn }),
        })
    }

    /// The address after an instruction. After the last instruction of a replacement, it is the one after the code that
    /// is replaced.
    fn after(&self, node: &Node) -> u64 {
        let after = node.insn.next_ip();
        let replaced = |address| self.world.patches.replaced(address);
        match replaced(node.insn.ip()) {
            Some((_, resume)) if replaced(after).map(|(site, _)| site) != Some(node.site) => resume,
            _ => after,
        }
    }

    /// Whether control comes back from a call.
    fn call(&self, node: &mut Node) -> bool {
        if !is_near(&node.insn) {
            node.call = Some(Callee::Indirect);
            return true;
        }
        let target = node.insn.near_branch_target();
        let function = self.world.function_at(target);
        let is = |what: &dyn Fn(&str) -> bool| function.is_some_and(|f| f.names.iter().any(|name| what(name)));
        if is(&|name| name == "__fentry__" || is_transparent(name)) {
            return true;
        }
        if is(&|name| name.starts_with("__x86_indirect_")) {
            node.call = Some(Callee::Indirect);
            return true;
        }
        node.call = Some(Callee::Direct(target));
        node.stops = is(&|name| self.world.noreturns.contains(name)) || self.ends(node.insn.next_ip());
        !node.stops
    }

    /// Whether the function that holds the byte before `address` ends there.
    fn ends(&self, address: u64) -> bool {
        self.world.function_of(address - 1).is_some_and(|function| function.end == address)
    }

    fn jump(&mut self, node: &mut Node, next: &mut Vec<u64>) {
        let target = node.insn.near_branch_target();
        match self.to(node.site, target) {
            To::Inside(address) => next.push(address),
            To::Elsewhere(Callee::Direct(address))
                if self.world.function_at(address).is_some_and(|f| f.called("__x86_return_thunk").is_some()) =>
            {
                node.returns = true;
            }
            To::Elsewhere(callee) => node.tail = Some(callee),
        }
    }

    fn to(&mut self, from: u64, target: u64) -> To {
        let home = self.world.function_of(from).map(|function| function.start);
        let Some(function) = self.world.function_of(target).or_else(|| self.world.function_at(target)) else {
            return To::Inside(target);
        };
        if home == Some(function.start) || self.parts.contains(&function.start) && target != self.entry {
            return To::Inside(target);
        }
        if function.called("__x86_indirect_").is_some() {
            return To::Elsewhere(Callee::Indirect);
        }
        if function.start == target && !function.is_cold() {
            return To::Elsewhere(Callee::Direct(target));
        }
        // Into the middle of it: the frame goes on there.
        self.parts.insert(function.start);
        To::Inside(target)
    }
}

/// Whether it is a direct call.
fn is_near(insn: &Instruction) -> bool {
    insn.code() != Code::INVALID && matches!(insn.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32)
}
