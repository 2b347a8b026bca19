//! How far a number can have come that an update tests for order.
//!
//! A loop that counts to the constant goes on only while its counter is less than V, and code behind the test may
//! rely on that. V does not change while the counter is alive: safe spans cover the life of every number that an
//! update tests for order (`docs/spans.md`). So nothing is assumed of a register that does not go to the test.
//!
//! In: the tests for order in a function of the deployed build. Out: *bounds* for each: the register that is tested
//! has come no further than V, or than the last value of all; or is short of it; or has not gone round. Bounds are
//! guesses. A relation has those that hold on every path to it, as shown by the solver from the bounds where the path
//! begins.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use iced_x86::{InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use xk_lift::flow::successors;
use xk_lift::insn::{Insn, Node};
use xk_lift::object::{Function, Object};
use xk_lift::semantics::{gpr, is_immediate};
use xk_lift::state::State;
use xk_lift::term::{mask, sign_extend, Bits, TermId, Terms};
use xk_table::{Order, Range};

use super::claims::Effort;
use super::relation::{Relation, BASE};
use super::side::{Replacement, Side};
use super::walk::{Pair, Walk, CALLEE_SAVED};
use crate::constants::Field;
use crate::order;

/// A register of the deployed build, and how far it has come in the sense of `order`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bound {
    /// The test.
    node: Node,
    order: Order,
    register: usize,
    bits: Bits,
    /// What the test compares with for the last value of all; else for V.
    last: Option<u128>,
    /// It is short of that.
    short: bool,
    /// The instructions before which the register holds what comes to the test.
    alive: Rc<BTreeSet<Node>>,
}

impl Bound {
    /// Those that may hold in the function `name` of a build whose constants are replaced like this, for V in `range`.
    pub fn all(side: &Side<'_>, name: &str, range: Range) -> Vec<Self> {
        let here = |node: Node| side.object.function_at(node).is_some_and(|function| function.whole() == name);
        let replacements = side.replacements.into_iter().flatten().filter(|((node, _), _)| here(*node));
        replacements.flat_map(|at| Self::of(side, range, at)).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn of(side: &Side<'_>, range: Range, (&(node, field), replacement): (&(Node, Field), &Replacement)) -> Vec<Self> {
        let (Field::Order(order), Replacement::Function(fit)) = (field, replacement) else { return Vec::new() };
        let Some(raw) = side.object.insns.get(&node).map(|insn| insn.raw) else { return Vec::new() };
        let number = gpr(raw.op0_register()).filter(|_| raw.op0_kind() == OpKind::Register);
        let Some((register, bits, false)) = number else { return Vec::new() };
        let [a, b] = [range.min, range.max].map(|end| u128::from(fit.apply(end)) & mask(bits));
        let signed = |number: u128| sign_extend(number, bits, 128) as i128;
        let less = if order.is_signed() { signed(a) < signed(b) } else { a < b };
        let last = if less == order.is_upwards() { b } else { a };
        let alive = Rc::new(alive(side.object, node, register));
        let bound = |last, short| Self { node, order, register, bits, last, short, alive: Rc::clone(&alive) };
        let lowest = match order.opposite() {
            Order::AtMost => 1 << (bits - 1),
            Order::AtLeast => mask(bits) >> 1,
            Order::BelowOrEqual => 0,
            Order::AboveOrEqual => mask(bits),
        };
        let begun = Self { order: order.opposite(), ..bound(Some(lowest), true) };
        vec![bound(None, false), bound(None, true), bound(Some(last), false), bound(Some(last), true), begun]
    }

    fn holds(&self, side: &Side<'_>, terms: &mut Terms, state: &State) -> Option<TermId> {
        let number = terms.extract(state.regs[self.register], 0, self.bits);
        let limit = match self.last {
            Some(last) => terms.constant(last, self.bits),
            None => {
                let limit = side.replaced(terms, self.node, Field::Order(self.order))?;
                terms.extract(limit, 0, self.bits)
            }
        };
        Some(if self.short {
            let reached = order::reached(terms, self.order, number, limit);
            terms.not(reached)
        } else {
            order::reached(terms, self.order, limit, number)
        })
    }
}

/// The instructions of a function before which `register` holds what the one at `test` reads of it, or a number
/// that becomes it by counting.
fn alive(object: &Object, test: Node, register: usize) -> BTreeSet<Node> {
    let name = object.function_at(test).map_or("", Function::whole);
    let mut before: BTreeMap<Node, Vec<&Insn>> = BTreeMap::new();
    for function in object.functions.values().filter(|function| function.whole() == name) {
        let end = Node { offset: function.start.offset + function.size, ..function.start };
        for insn in object.insns.range(function.start..end).map(|(_, insn)| insn) {
            successors(object, insn).into_iter().for_each(|next| before.entry(next).or_default().push(insn));
        }
    }
    let mut factory = InstructionInfoFactory::new();
    let mut alive = BTreeSet::new();
    let mut todo = vec![test];
    while let Some(node) = todo.pop() {
        if !alive.insert(node) {
            continue;
        }
        let keeps = |insn: &&&Insn| counts(insn, register) || !writes(insn, register, &mut factory);
        todo.extend(before.get(&node).into_iter().flatten().filter(keeps).map(|insn| insn.node));
    }
    alive
}

/// Whether an instruction adds a number to the register.
fn counts(insn: &Insn, register: usize) -> bool {
    let raw = &insn.raw;
    let itself = |operand: Register| gpr(operand).is_some_and(|(number, bits, _)| number == register && bits >= 32);
    let own = raw.op_count() > 0 && raw.op0_kind() == OpKind::Register && itself(raw.op0_register());
    own && match raw.mnemonic() {
        Mnemonic::Inc | Mnemonic::Dec => true,
        Mnemonic::Add | Mnemonic::Sub => is_immediate(raw.op1_kind()),
        Mnemonic::Lea => itself(raw.memory_base()) && raw.memory_index() == Register::None,
        _ => false,
    }
}

fn writes(insn: &Insn, register: usize, factory: &mut InstructionInfoFactory) -> bool {
    let written = |used: &iced_x86::UsedRegister| {
        !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess)
            && gpr(used.register()).is_some_and(|(number, ..)| number == register)
    };
    insn.is_call() && !CALLEE_SAVED.contains(&register) || factory.info(&insn.raw).used_registers().iter().any(written)
}

impl Walk<'_> {
    /// The bounds that hold now at `node`, of those that `before`, what held at the same places, has.
    pub fn bounded(&mut self, pair: &mut Pair, node: Node, before: Option<&Relation>) -> Vec<Bound> {
        let mut bounds = before.map_or_else(|| self.bounds.clone(), |before| before.bounds.clone());
        let yes = self.terms.constant(1, 1);
        bounds.retain(|bound| {
            if !bound.alive.contains(&node) {
                return false;
            }
            let holds = bound.holds(&self.sides[BASE], &mut self.terms, &pair.states[BASE]);
            holds.is_some_and(|holds| self.claims.equal(&mut self.terms, &mut pair.facts, holds, yes, Effort::Welcome))
        });
        bounds
    }

    /// Assumes the bounds of the relation at which a path begins.
    pub fn assume_bounds(&mut self, pair: &mut Pair, bounds: &[Bound]) {
        for bound in bounds {
            let holds = bound.holds(&self.sides[BASE], &mut self.terms, &pair.states[BASE]);
            if let Some(holds) = holds.filter(|holds| self.terms.as_const(*holds).is_none()) {
                pair.facts.assume(&mut self.terms, holds, true);
            }
        }
    }
}
