//! One of the two builds: executing it symbolically from one place to the next at which
//! the two have to agree, or at which paths meet or part.

use std::collections::BTreeMap;

use iced_x86::{FlowControl, Mnemonic, OpKind, Register};
use xk_lift::flow::Flow;
use xk_lift::insn::{Insn, Node, Target};
use xk_lift::notes::Notes;
use xk_lift::object::Object;
use xk_lift::semantics::{step, Substitution};
use xk_lift::state::{State, RSP};
use xk_lift::term::{BinOp, TermId, Terms};
use xk_table::{Fit, Order};

use super::calls::RAX;
use crate::constants::Field;
use crate::diff::is_part;
use crate::order;
use crate::product;
use crate::program::exact;

/// What stands in the place of a constant of the deployed code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacement {
    /// A value, at the width of the field.
    Value(u64),
    /// A function of V.
    Function(Fit),
    /// A function of V that is not known yet.
    Unknown,
}

/// The constants of the deployed code that follow V.
pub type Replacements = BTreeMap<(Node, Field), Replacement>;

/// The unknown function of V at a place.
pub(crate) fn unknown(node: Node, field: Field) -> String {
    format!("hole {} {:#x} {field:?}", node.section, node.offset)
}

/// A build of a unit.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub object: &'a Object,
    pub flow: &'a Flow,
    /// What the compiler says of it.
    pub notes: Option<&'a Notes>,
    /// Empty for the other build.
    pub replacements: Option<&'a Replacements>,
    /// Stop at loops only, not wherever paths meet.
    pub split: bool,
}

/// Where control is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum At {
    /// At a place for which there is a relation.
    Start(Node),
    /// Before an instruction to which control has come since.
    Place(Node),
    /// On its way out of the function, by the jump at a place.
    Leaving(Node, Target),
}

/// Why execution stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Before an instruction that both builds must come to.
    Event(Node),
    /// Where paths meet.
    Join(Node),
    /// At a jump out of the function.
    Leave(Node, Target),
    /// Behind the last instruction: a call there does not return.
    End(Node),
}

impl Stop {
    pub fn node(&self) -> Node {
        match self {
            Self::Event(node) | Self::Join(node) | Self::Leave(node, _) | Self::End(node) => *node,
        }
    }
}

const RCX: usize = 1;
const RDI: usize = 7;
/// Stores of a `rep stos` that are executed one by one.
const MOST_FILLED: u64 = 32;
/// Instructions that are executed before two paths are taken to run for ever.
const MOST_STEPS: usize = 20_000;

/// What an instruction is to the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A branch by flags, with its condition code.
    Branch(u8),
    /// A branch that the kernel patches: a no-op or a jump.
    StaticBranch,
    /// Direct or not.
    Call,
    /// To the caller.
    Return,
    /// `ud2` and `int3`.
    Trap,
    /// May fault and then continues elsewhere.
    Faulting,
    /// Whatever replaces it at boot.
    Patched,
    /// No more is known of it than its operands.
    Opaque,
}

/// Whether the stack pointer is aligned: how far it moves is not known.
fn aligns_stack(insn: &Insn) -> bool {
    insn.raw.mnemonic() == Mnemonic::And && insn.raw.op0_register() == Register::RSP
}

/// Whether a jump there returns (`-mfunction-return=thunk-extern`).
pub(crate) fn is_return(target: &Target) -> bool {
    matches!(target, Target::External(symbol) if symbol.name == "__x86_return_thunk")
}

impl<'a> Side<'a> {
    pub fn insn(&self, node: Node) -> Option<&'a Insn> {
        self.object.insns.get(&node)
    }

    /// What `insn` is, if the two builds must come to it together.
    pub fn kind(&self, insn: &Insn) -> Option<Kind> {
        let raw = &insn.raw;
        if self.object.in_alternative.contains(&insn.node) {
            return Some(Kind::Patched);
        }
        if self.object.jump_labels.contains_key(&insn.node) {
            return Some(Kind::StaticBranch);
        }
        match raw.flow_control() {
            FlowControl::ConditionalBranch => {
                return Some((raw.condition_code() as u8).checked_sub(1).map_or(Kind::Opaque, Kind::Branch));
            }
            FlowControl::Call | FlowControl::IndirectCall => return Some(Kind::Call),
            FlowControl::Return => return Some(Kind::Return),
            FlowControl::Exception => return Some(Kind::Trap),
            FlowControl::Next | FlowControl::UnconditionalBranch => {}
            _ => return Some(Kind::Opaque),
        }
        if raw.mnemonic() == Mnemonic::Int3 {
            return Some(Kind::Trap);
        }
        if self.object.fixups.contains_key(&insn.node) {
            return Some(Kind::Faulting);
        }
        let in_memory = (0..raw.op_count()).any(|i| raw.op_kind(i) == OpKind::Memory);
        let exchanges = raw.mnemonic() == Mnemonic::Xchg && in_memory;
        (raw.has_lock_prefix() || exchanges || raw.has_rep_prefix() && raw.mnemonic() != Mnemonic::Nop)
            .then_some(Kind::Opaque)
    }

    /// Executes from `at` to the next stop. Where paths meet it stops, unless it starts there.
    /// The instructions that were executed are added to `trace`.
    pub fn run(&self, terms: &mut Terms, state: &mut State, at: &At, trace: &mut Vec<Node>) -> Result<Stop, Node> {
        let (mut node, mut arrived) = match at {
            At::Start(node) => (*node, false),
            At::Place(node) => (*node, true),
            At::Leaving(node, target) => return Ok(Stop::Leave(*node, target.clone())),
        };
        for _ in 0..MOST_STEPS {
            if arrived && self.meets(node) {
                return Ok(Stop::Join(node));
            }
            arrived = true;
            let Some(insn) = self.insn(node) else { return Ok(Stop::End(node)) };
            if self.object.goes_to(insn, "__fentry__") {
                trace.push(node);
                node = insn.next();
                continue;
            }
            if let Some(kind) = self.kind(insn) {
                if kind == Kind::Opaque && self.fill(terms, state, insn) {
                    trace.push(node);
                    node = insn.next();
                    continue;
                }
                return Ok(Stop::Event(node));
            }
            if let (FlowControl::UnconditionalBranch, Some(target)) = (insn.raw.flow_control(), &insn.target) {
                match self.within(node, target) {
                    Some(to) => {
                        trace.push(node);
                        node = to;
                        continue;
                    }
                    None => return Ok(Stop::Leave(node, target.clone())),
                }
            }
            if !self.step(terms, state, insn) {
                return Ok(Stop::Event(node));
            }
            trace.push(node);
            node = insn.next();
        }
        Err(node)
    }

    /// Executes a `rep stos` that stores a known, small number of times: the compiler may store one by one in the other
    /// build, or before other stores. `false` if `insn` is none.
    fn fill(&self, terms: &mut Terms, state: &mut State, insn: &Insn) -> bool {
        let bits = match insn.raw.mnemonic() {
            Mnemonic::Stosb => 8,
            Mnemonic::Stosw => 16,
            Mnemonic::Stosd => 32,
            Mnemonic::Stosq => 64,
            _ => return false,
        };
        let count = terms.as_const(state.regs[RCX]).and_then(|count| u64::try_from(count).ok());
        let Some(count) = count.filter(|&count| count <= MOST_FILLED) else { return false };
        let usual = insn.raw.has_rep_prefix() && insn.raw.op0_kind() == OpKind::MemoryESRDI;
        if !usual || self.turns_direction(insn.node) {
            return false;
        }
        let value = state.reg(terms, RAX, bits);
        for _ in 0..count {
            state.store(terms, state.regs[RDI], value);
            let bytes = terms.constant(u128::from(bits / 8), 64);
            state.regs[RDI] = terms.bin(BinOp::Add, state.regs[RDI], bytes);
        }
        state.regs[RCX] = terms.constant(0, 64);
        true
    }

    /// Whether the function of an instruction changes the direction flag, which is clear at each entry (System V ABI).
    fn turns_direction(&self, node: Node) -> bool {
        let Some(function) = self.object.function_at(node) else { return true };
        let end = Node { offset: function.start.offset + function.size, ..function.start };
        let changes = |insn: &Insn| matches!(insn.raw.mnemonic(), Mnemonic::Std | Mnemonic::Popf | Mnemonic::Popfq);
        self.object.insns.range(function.start..end).any(|(_, insn)| changes(insn))
    }

    fn meets(&self, node: Node) -> bool {
        if self.split {
            self.flow.is_loop(node)
        } else {
            self.flow.is_join(node)
        }
    }

    /// Where a jump from `node` goes, if it stays in the function. A jump to the first
    /// instruction of another function is a tail call.
    pub fn within(&self, node: Node, target: &Target) -> Option<Node> {
        let Target::Local(to) = target else { return None };
        let leaves = self.object.functions.get(to).is_some_and(|function| {
            !is_part(function) && self.object.function_at(node).map(|own| &own.name) != Some(&function.name)
        });
        (!leaves).then_some(*to)
    }

    /// Executes one instruction, with its constants replaced; `false` when the semantics
    /// do not cover it.
    pub fn step(&self, terms: &mut Terms, state: &mut State, insn: &Insn) -> bool {
        let order = self.order(insn.node);
        let substitution = Substitution {
            immediate: self.replaced(terms, insn.node, order.map_or(Field::Immediate, Field::Order)),
            displacement: self.replaced(terms, insn.node, Field::Displacement),
            pool: self.replaced(terms, insn.node, Field::Pool),
        };
        let before = state.clone();
        if step(terms, state, insn, substitution).is_err() {
            *state = before;
            return false;
        }
        if order.is_some_and(|order| !order::test(terms, state, order)) {
            *state = before;
            return false;
        }
        if let Some(frame) = state.frame.as_ref().filter(|_| aligns_stack(insn)) {
            state.regs[RSP] = frame.tops[1];
        }
        if let Some(factor) = self.replaced(terms, insn.node, Field::Product) {
            // The whole chain must have been executed, as where the update was proved.
            let deployed = self.factor(insn.node);
            let found = product::result(terms, state, insn);
            let Some(found) = found.filter(|found| Some(found.factor) == deployed) else {
                *state = before;
                return false;
            };
            product::replace(terms, state, insn, found.leaf, factor);
        }
        true
    }

    /// The factor of the multiplication by a constant that ends at `node`.
    fn factor(&self, node: Node) -> Option<u64> {
        let block = self.flow.block(self.object, node);
        let end = block.iter().position(|insn| insn.node == node)?;
        product::chain(&block, end).map(|(_, factor, _)| factor)
    }

    /// The test for order in the place of a comparison's test for equality.
    pub fn order(&self, node: Node) -> Option<Order> {
        let replacements = self.replacements?;
        Order::ALL.into_iter().find(|order| replacements.contains_key(&(node, Field::Order(*order))))
    }

    /// What stands in the place of a constant, 64 bits wide.
    pub fn replaced(&self, terms: &mut Terms, node: Node, field: Field) -> Option<TermId> {
        Some(match self.replacements?.get(&(node, field))? {
            Replacement::Value(value) => terms.constant((*value).into(), 64),
            Replacement::Function(fit) => exact(terms, fit),
            Replacement::Unknown => terms.symbol(unknown(node, field), 64),
        })
    }
}
