//! Tests for order in the places of tests for equality.
//!
//! A compiler that knows the constant may compile `depth > 4` to `depth == 5` ([`crate::equality`]). An update
//! can compute the test that the source asks for: after the comparison the zero flag says that the number is
//! *at least* 5, so the branch that follows goes where the source goes in every state. Which test that is
//! cannot be seen in the deployed code. So each one is tried, and the proof against the volatile build decides.

use std::collections::BTreeMap;

use xk_lift::flow::Flow;
use xk_lift::insn::Node;
use xk_lift::object::Object;
use xk_lift::state::{Flag, FlagsOrigin, State};
use xk_lift::term::{BinOp, TermId, Terms};
use xk_table::{Fit, Order, Range};

use crate::constants::{Field, Seeds};

/// Most ways to place tests that are tried: each takes a proof.
const MOST_TRIED: usize = 24;

/// The test for order at an instruction, with the function of V that it compares with.
#[must_use]
pub fn at(seeds: &Seeds, node: Node) -> Option<(Order, &Fit)> {
    Order::ALL.into_iter().find_map(|order| Some((order, seeds.get(&(node, Field::Order(order)))?)))
}

/// Makes the zero flag of a comparison that was just executed say `order`; `false` if it was none.
#[must_use]
pub fn test(terms: &mut Terms, state: &mut State, order: Order) -> bool {
    let Some(FlagsOrigin::Sub(number, value)) = state.flags_origin else { return false };
    let holds = reached(terms, order, number, value);
    state.set_flag(Flag::Zf, holds);
    state.flags_origin = None;
    true
}

/// Whether `number` has reached `value`, in the sense of `order`.
pub(crate) fn reached(terms: &mut Terms, order: Order, number: TermId, value: TermId) -> TermId {
    let fails = match order {
        Order::AtLeast => terms.bin(BinOp::Slt, number, value),
        Order::AtMost => terms.bin(BinOp::Slt, value, number),
        Order::AboveOrEqual => terms.bin(BinOp::Ult, number, value),
        Order::BelowOrEqual => terms.bin(BinOp::Ult, value, number),
    };
    terms.not(fails)
}

/// The functions of V with tests for equality as the compiler wrote them.
#[must_use]
pub fn as_compiled(seeds: &Seeds) -> Seeds {
    let plain = |field| if let Field::Order(_) = field { Field::Immediate } else { field };
    seeds.iter().map(|(&(node, field), &fit)| ((node, plain(field)), fit)).collect()
}

/// Ways to put tests for order in the places of `tests`, which are branches: functions of V to try. None if
/// a branch does not follow a comparison with a number that follows V.
#[must_use]
pub fn candidates(object: &Object, flow: &Flow, seeds: &Seeds, tests: &[Node]) -> Vec<Seeds> {
    let comparisons: Option<Vec<Node>> = tests.iter().map(|&branch| comparison(object, flow, seeds, branch)).collect();
    let Some(mut comparisons) = comparisons else { return Vec::new() };
    comparisons.sort_unstable();
    comparisons.dedup();
    if comparisons.is_empty() {
        return Vec::new();
    }
    // One test everywhere first: a constant is a bound from above, or from below.
    let mut ways: Vec<BTreeMap<Node, Order>> =
        Order::ALL.map(|order| comparisons.iter().map(|&node| (node, order)).collect()).into();
    for way in assignments(&comparisons) {
        if ways.len() == MOST_TRIED {
            break;
        }
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways.iter().map(|way| placed(seeds, way)).collect()
}

/// `range` without the end that numbers count to.
#[must_use]
pub fn without_last(seeds: &Seeds, range: Range) -> Range {
    let any = |upwards: bool| {
        let is = |field: &Field| matches!(field, Field::Order(order) if order.is_upwards() == upwards);
        i64::from(seeds.keys().any(|(_, field)| is(field)))
    };
    Range::of(range.min + any(false), range.max - any(true))
}

/// All ways to give each comparison a test for order or leave it as it is, except leaving all.
fn assignments(comparisons: &[Node]) -> Vec<BTreeMap<Node, Order>> {
    let mut ways = vec![BTreeMap::new()];
    for &node in comparisons {
        if ways.len() > MOST_TRIED {
            break;
        }
        let longer = |way: &BTreeMap<Node, Order>| {
            let way = way.clone();
            Order::ALL.map(|order| way.clone().into_iter().chain([(node, order)]).collect())
        };
        ways.extend(ways.iter().flat_map(longer).collect::<Vec<_>>());
    }
    ways.retain(|way| !way.is_empty());
    ways
}

/// The functions of V with `order` tested at `node`; nothing if no number there follows V.
#[must_use]
pub fn with(seeds: &Seeds, node: Node, order: Order) -> Option<Seeds> {
    seeds.contains_key(&(node, Field::Immediate)).then(|| placed(seeds, &BTreeMap::from([(node, order)])))
}

fn placed(seeds: &Seeds, way: &BTreeMap<Node, Order>) -> Seeds {
    let field = |node, field| match way.get(&node) {
        Some(&order) if field == Field::Immediate => Field::Order(order),
        _ => field,
    };
    seeds.iter().map(|(&(node, old), &fit)| ((node, field(node, old)), fit)).collect()
}

/// The comparison whose zero flag a branch tests, if it is one with a number that follows V.
fn comparison(object: &Object, flow: &Flow, seeds: &Seeds, branch: Node) -> Option<Node> {
    let block = flow.block(object, branch);
    let end = block.iter().position(|insn| insn.node == branch)?;
    let writes = |raw: &iced_x86::Instruction| raw.rflags_modified() & Flag::Zf.iced() != 0;
    let comparison = block[..end].iter().rev().find(|insn| writes(&insn.raw))?;
    seeds.contains_key(&(comparison.node, Field::Immediate)).then_some(comparison.node)
}
