//! A deployed object with the functions of V of its constants: what the construction and the proof of spans need to know.

use xk_lift::flow::{Flow, Live};
use xk_lift::insn::{Insn, Node};
use xk_lift::object::{Function, Object};
use xk_table::{Place, Range};

use crate::constants::{Field, Seeds};
use crate::proof::Solver;

/// What the construction and the proof of spans need to know.
pub struct Context<'a> {
    /// The deployed build of the unit.
    pub object: &'a Object,
    /// Its blocks and liveness.
    pub flow: &'a Flow,
    /// The constants that depend on V.
    pub seeds: &'a Seeds,
    /// Path of the unit, for messages.
    pub source: &'a str,
    /// The value of the deployed kernel.
    pub default: i64,
    /// Values for which to prove.
    pub range: Range,
    /// Decides the obligations.
    pub solver: &'a Solver,
}

impl Context<'_> {
    /// Where an instruction of `function` is, for messages.
    pub(crate) fn place(&self, function: &Function, node: Node) -> Place {
        Place {
            source: self.source.into(),
            function: function.name.clone(),
            offset: (node.offset - function.start.offset) as u32,
        }
    }

    /// Whether one of its constants follows V.
    pub(crate) fn is_seed(&self, insn: &Insn) -> bool {
        Field::ALL.iter().any(|&f| self.seeds.contains_key(&(insn.node, f)))
    }

    /// The live state before instruction `index` of `block`.
    pub(crate) fn live_before(&self, block: &[&Insn], index: usize) -> Live {
        match block.get(index) {
            Some(insn) => self.flow.live_in(insn.node),
            // Behind the block: what its last instruction falls into.
            None => block.last().map_or(Live::ALL, |last| self.flow.live_in(last.next())),
        }
    }
}
