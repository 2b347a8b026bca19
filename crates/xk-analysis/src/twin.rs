//! Two executions of the same instructions, side by side: with the deployed
//! constants, and with V unknown. What differs between them is *dirty*.
//!
//! In: instructions, one by one, with the seeds among them. Out: both states.
//! Refused: an instruction without semantics, a seed that may fault, code that
//! is not what the object says.

use std::collections::BTreeSet;

use thiserror::Error;
use xk_lift::flow::Live;
use xk_lift::insn::Insn;
use xk_lift::semantics::{step, Substitution, Unsupported};
use xk_lift::state::{Flag, State};
use xk_lift::term::Terms;
use xk_table::Fit;

use crate::constants::Field;
use crate::context::Context;
use crate::order;
use crate::product;
use crate::program::iv_term;

/// The number of memory among what can be dirty, after 16 registers and the flags.
pub(crate) const MEMORY: usize = 22;

/// An instruction that cannot be executed with and without V.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{instruction}` is not covered by the semantics")]
pub(crate) struct NotExecuted {
    /// The instruction, in words.
    pub instruction: String,
}

impl From<Unsupported> for NotExecuted {
    fn from(Unsupported(instruction): Unsupported) -> Self {
        Self { instruction }
    }
}

/// The actual and the wanted execution of some instructions, side by side.
pub(crate) struct Twin {
    pub terms: Terms,
    pub actual: State,
    pub wanted: State,
}

impl Twin {
    /// At the start: everything is unknown, and the same in both.
    pub fn new() -> Self {
        let mut terms = Terms::new();
        let actual = State::unknown(&mut terms);
        let wanted = State::unknown(&mut terms);
        Self { terms, actual, wanted }
    }

    /// Executes `insn` in both, with V for the constants of a seed in the wanted one.
    pub fn step(&mut self, context: &Context<'_>, insn: &Insn) -> Result<(), NotExecuted> {
        let refused = || Err(NotExecuted { instruction: insn.text() });
        // What runs there is not what the object says; and a fault would leave
        // in the middle of a seed.
        let faulting_seed = context.is_seed(insn) && context.object.fixups.contains_key(&insn.node);
        if context.object.in_alternative.contains(&insn.node) || faulting_seed {
            return refused();
        }
        let mut substitution = Substitution::default();
        if let Some(fit) = context.seeds.get(&(insn.node, Field::Immediate)) {
            substitution.immediate = Some(iv_term(&mut self.terms, fit));
        }
        let order = order::at(context.seeds, insn.node);
        if let Some((_, fit)) = order {
            substitution.immediate = Some(iv_term(&mut self.terms, fit));
        }
        if let Some(fit) = context.seeds.get(&(insn.node, Field::Displacement)) {
            substitution.displacement = Some(iv_term(&mut self.terms, fit));
        }
        if let Some(fit) = context.seeds.get(&(insn.node, Field::Pool)) {
            substitution.pool = Some(iv_term(&mut self.terms, fit));
        }
        step(&mut self.terms, &mut self.actual, insn, Substitution::default())?;
        step(&mut self.terms, &mut self.wanted, insn, substitution)?;
        if order.is_some_and(|(order, _)| !order::test(&mut self.terms, &mut self.wanted, order)) {
            return refused();
        }
        match context.seeds.get(&(insn.node, Field::Product)) {
            Some(fit) => self.product(context, insn, fit),
            None => Ok(()),
        }
    }

    /// Replaces the factor of the multiplication that ends at `insn`. Only
    /// possible when the execution began at the start of the chain.
    fn product(&mut self, context: &Context<'_>, insn: &Insn, fit: &Fit) -> Result<(), NotExecuted> {
        let deployed = fit.apply(context.default);
        let found = product::result(&mut self.terms, &self.wanted, insn);
        let found = found.filter(|p| p.factor == deployed);
        let found = found.ok_or_else(|| NotExecuted { instruction: insn.text() })?;
        let factor = iv_term(&mut self.terms, fit);
        product::replace(&mut self.terms, &mut self.wanted, insn, found.leaf, factor);
        Ok(())
    }

    /// Live registers, flags and memory that differ: numbers as of [`MEMORY`].
    pub fn dirty(&self, live: Live) -> BTreeSet<usize> {
        let mut dirty: BTreeSet<usize> =
            (0..16).filter(|&r| live.register(r) && self.actual.regs[r] != self.wanted.regs[r]).collect();
        for flag in Flag::ALL {
            if live.flag(flag) && self.actual.flag(flag) != self.wanted.flag(flag) {
                dirty.insert(16 + flag as usize);
            }
        }
        if self.actual.memory != self.wanted.memory {
            dirty.insert(MEMORY);
        }
        dirty
    }

    /// As it is now, without the terms.
    pub fn clone_states(&self) -> Self {
        Self { terms: Terms::default(), actual: self.actual.clone(), wanted: self.wanted.clone() }
    }
}

/// Whether executing one instruction (from `before` to `after`, without V in
/// its own constants) carried something dirty into a new place.
pub(crate) fn consumed(before: &Twin, after: &Twin, dirty: &BTreeSet<usize>) -> bool {
    let register = (0..16).any(|r| {
        let written = before.actual.regs[r] != after.actual.regs[r] || before.wanted.regs[r] != after.wanted.regs[r];
        written && after.actual.regs[r] != after.wanted.regs[r]
    });
    let flag = Flag::ALL.into_iter().any(|f| {
        let written = before.actual.flag(f) != after.actual.flag(f) || before.wanted.flag(f) != after.wanted.flag(f);
        // Undefined flags differ by construction; they count when nothing dirty
        // is around to blame them on, which cannot be.
        written && after.actual.flag(f) != after.wanted.flag(f) && !is_undefined(after, f)
    });
    let memory = before.actual.memory != after.actual.memory
        && !dirty.contains(&MEMORY)
        && after.actual.memory != after.wanted.memory;
    register || flag || memory || (dirty.contains(&MEMORY) && before.actual.memory != after.actual.memory)
}

fn is_undefined(twin: &Twin, flag: Flag) -> bool {
    matches!(
        twin.terms.node(twin.actual.flag(flag)),
        xk_lift::term::Node::Symbol(name) if name.starts_with("undefined")
    )
}
