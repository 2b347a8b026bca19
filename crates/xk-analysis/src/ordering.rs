//! Whether an update keeps to what other contexts may see of memory.
//!
//! In: the instructions of a span up to the update's point, and the operations. Out: the
//! proof obligation with memory as others share it, and what is read again; or the rule
//! that is broken. Interrupts, other processors and devices read and write memory between
//! any two accesses, so each read gives an unknown of its own, which nothing but that read
//! can know, and stores are compared one by one, in their order.
//!
//! What the machine does is what the instructions did before the update's point and then
//! what the operations do. That must be an execution of the code with V. So the accesses
//! of the operations are the last ones of that code, in its order; whatever the deployed
//! instructions have done of these must be reads whose results nothing uses; and all
//! earlier accesses must be the same. In particular:
//!
//! - Nothing is read again if the first reading is still used, or if there is an access
//!   between the two.
//! - A store of a value that depends on V is the update's own, instead of the
//!   instruction's: the default is never in memory.
//! - An instruction that reads and writes memory is never done by a load and a store.
//!
//! The function's own frame is exempt if none of its addresses escapes.

use std::collections::HashMap;

use iced_x86::{Mnemonic, OpAccess, OpKind, Register};
use thiserror::Error;
use xk_lift::flow::Live;
use xk_lift::insn::{Insn, Node};
use xk_lift::object::{Function, Object};
use xk_lift::state::{Access, Shared, State};
use xk_lift::term::{TermId, Terms};
use xk_table::{Fit, Program};

use crate::context::Context;
use crate::program::{execute, iv_term, Links};
use crate::proof::obligation_with;
use crate::twin::{NotExecuted, Twin};

/// An update in its block.
#[derive(Clone, Copy)]
pub(crate) struct Update<'a> {
    /// The function that holds it.
    pub function: &'a Function,
    /// Its basic block.
    pub block: &'a [&'a Insn],
    /// Where the span begins, as an index into the block.
    pub start: usize,
    /// Where the update runs.
    pub point: usize,
    /// The instruction just before that which it runs instead of.
    pub skipped: Option<usize>,
    /// What it does.
    pub program: &'a Program,
    /// Its values.
    pub ivs: &'a [Fit],
    /// The addresses in the instructions.
    pub links: &'a Links,
    /// What may be read after it.
    pub live: Live,
}

/// An update that keeps the rules, if the solver agrees.
pub(crate) struct Ordered {
    /// The negated obligation.
    pub query: String,
    /// Reads of the deployed instructions whose results are not used, one sentence each.
    pub visible: Vec<String>,
    /// Whether there is any access to memory that other contexts may see.
    pub shared: bool,
}

/// What others may see of an update that does not keep to the rules. Instructions are in words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BrokenRule {
    /// It is not known what an instruction does.
    #[error(transparent)]
    NotExecuted(#[from] NotExecuted),
    /// The update does more accesses than the code with V.
    #[error("it accesses memory that the instructions do not access")]
    NewAccess,
    /// An access before the update is another one with V.
    #[error("`{instruction}` {} what depends on the constant, before the update runs", if *.store { "stores" } else { "reads" })]
    TooLate {
        /// The instruction.
        instruction: String,
        /// Whether it writes.
        store: bool,
    },
    /// An access is missing.
    #[error("it leaves out the access of `{instruction}`")]
    Missing {
        /// The instruction.
        instruction: String,
    },
    /// A store is between a reading and its repetition.
    #[error("it repeats a read from before the store of `{instruction}`")]
    ReadAgain {
        /// The instruction that stores.
        instruction: String,
    },
    /// The update both reads and writes.
    #[error("it would read and write memory in two steps")]
    TwoSteps,
    /// The accesses are of other kinds or sizes.
    #[error("its accesses to memory differ from those of the instructions")]
    OtherAccesses,
}

/// Checks every access to memory that other contexts may see.
///
/// # Errors
/// The rule that is broken.
pub(crate) fn memory_rules(context: &Context<'_>, update: Update<'_>) -> Result<Ordered, BrokenRule> {
    let mut run = Execution::new(context, update)?;
    let kept = run.earlier_accesses()?;
    let Matched { mut pairs, readings } = run.matched(kept)?;
    let vain = (kept..run.done().len()).map(|at| run.instruction(at));
    let visible = vain.map(|text| format!("`{text}` reads in vain: the update reads again")).collect();
    let mut wanted = run.twin.wanted.clone();
    let terms = &mut run.twin.terms;
    replace(terms, &mut wanted, &mut pairs, &readings);
    let query = obligation_with(terms, &run.updated, &wanted, update.live, context.range, update.ivs, &pairs);
    Ok(Ordered { query, visible, shared: !run.by.is_empty() })
}

/// The span and the update, executed with a record of every access that other contexts may see.
struct Execution<'a> {
    update: Update<'a>,
    twin: Twin,
    /// The deployed instructions, then the operations.
    updated: State,
    /// How many accesses of `updated` the deployed instructions do.
    before: usize,
    /// The instruction of each access of the code with V.
    by: Vec<usize>,
}

/// The accesses of the operations with those of the code with V that they stand for.
struct Matched {
    /// What must be equal: addresses, and values that are stored.
    pairs: Vec<(TermId, TermId)>,
    /// For each reading of the code with V, that of the operations.
    readings: HashMap<TermId, TermId>,
}

impl<'a> Execution<'a> {
    fn new(context: &Context<'_>, update: Update<'a>) -> Result<Self, BrokenRule> {
        let own = is_private(context.object, update.function);
        let mut twin = Twin::new();
        let rsp = twin.terms.symbol("rsp", 64);
        let shared = Shared { own: own.then_some(rsp), accesses: Vec::new(), of_update: false };
        twin.actual.shared = Some(shared.clone());
        twin.wanted.shared = Some(shared);
        let mut updated = None;
        let mut by = Vec::new();
        for (insn, index) in update.block[update.start..update.point].iter().zip(update.start..) {
            if update.skipped == Some(index) {
                updated = Some(twin.actual.clone());
            }
            twin.step(context, insn)?;
            if is_locked(insn) {
                barrier(&mut twin);
            }
            by.resize(accesses(&twin.wanted).len(), index);
        }
        let mut updated = updated.unwrap_or_else(|| twin.actual.clone());
        let before = accesses(&updated).len();
        if let Some(shared) = &mut updated.shared {
            shared.of_update = true;
        }
        let value = |fit| {
            let iv = iv_term(&mut twin.terms, fit);
            twin.terms.zext(iv, 64)
        };
        let values: Vec<TermId> = update.ivs.iter().map(value).collect();
        execute(&mut twin.terms, &mut updated, update.program, &values, update.links);
        Ok(Self { update, twin, updated, before, by })
    }

    /// The accesses of the deployed instructions.
    fn done(&self) -> &[Access] {
        &accesses(&self.updated)[..self.before]
    }

    /// The accesses of the operations.
    fn again(&self) -> &[Access] {
        &accesses(&self.updated)[self.before..]
    }

    /// The accesses of the code with V.
    fn wanted(&self) -> &[Access] {
        accesses(&self.twin.wanted)
    }

    /// The instruction of an access of the code with V, in words.
    fn instruction(&self, access: usize) -> String {
        self.update.block[self.by[access]].text()
    }

    /// How many accesses the code with V does before those that the operations do. They must be those of the deployed
    /// instructions, and whatever these have done besides must be readings.
    fn earlier_accesses(&self) -> Result<usize, BrokenRule> {
        let (done, again, wanted) = (self.done(), self.again(), self.wanted());
        let Some(kept) = wanted.len().checked_sub(again.len()) else {
            return Err(BrokenRule::NewAccess);
        };
        if let Some(at) = (0..kept.min(done.len())).find(|&at| done[at] != wanted[at]) {
            return Err(BrokenRule::TooLate { instruction: self.instruction(at), store: wanted[at].store });
        }
        if done.len() < kept {
            return Err(BrokenRule::Missing { instruction: self.instruction(done.len()) });
        }
        if let Some(at) = (kept..done.len()).find(|&at| done[at].store) {
            let instruction = self.instruction(at);
            return Err(match done[at] == wanted[at] {
                true => BrokenRule::ReadAgain { instruction },
                false => BrokenRule::TooLate { instruction, store: true },
            });
        }
        if again.iter().any(|access| access.store) && again.iter().any(|access| !access.store) {
            return Err(BrokenRule::TwoSteps);
        }
        Ok(kept)
    }

    /// Matches the accesses of the operations with the last ones of the code with V.
    fn matched(&self, kept: usize) -> Result<Matched, BrokenRule> {
        let mut matched = Matched { pairs: Vec::new(), readings: HashMap::new() };
        for (ours, theirs) in self.again().iter().zip(&self.wanted()[kept..]) {
            if ours.store != theirs.store || self.twin.terms.bits(ours.value) != self.twin.terms.bits(theirs.value) {
                return Err(BrokenRule::OtherAccesses);
            }
            matched.pairs.push((ours.address, theirs.address));
            if ours.store {
                matched.pairs.push((ours.value, theirs.value));
            } else {
                matched.readings.insert(theirs.value, ours.value);
            }
        }
        Ok(matched)
    }
}

/// The code with V reads when the update does.
fn replace(terms: &mut Terms, wanted: &mut State, pairs: &mut [(TermId, TermId)], readings: &HashMap<TermId, TermId>) {
    let State { regs, flags, memory, .. } = wanted;
    let pairs = pairs.iter_mut().map(|(_, theirs)| theirs);
    for term in regs.iter_mut().chain(flags).chain([memory]).chain(pairs) {
        *term = terms.substitute(*term, readings);
    }
}

fn accesses(state: &State) -> &[Access] {
    state.shared.as_ref().map_or(&[], |shared| &shared.accesses)
}

/// Other processors see a locked instruction, wherever it writes to.
fn barrier(twin: &mut Twin) {
    let nothing = twin.terms.constant(0, 64);
    for state in [&mut twin.actual, &mut twin.wanted] {
        if let Some(shared) = &mut state.shared {
            shared.accesses.push(Access { address: nothing, value: nothing, store: true });
        }
    }
}

fn is_locked(insn: &Insn) -> bool {
    let in_memory = (0..insn.raw.op_count()).any(|i| insn.raw.op_kind(i) == OpKind::Memory);
    insn.raw.has_lock_prefix() || insn.raw.mnemonic() == Mnemonic::Xchg && in_memory
}

/// Whether no address in the frame of `function` escapes: its stack pointer is only ever
/// moved, and used as the base of an access.
fn is_private(object: &Object, function: &Function) -> bool {
    let parts = object.functions.values().filter(|part| part.whole() == function.whole());
    let mut insns = parts.flat_map(|part| {
        let end = Node { offset: part.start.offset + part.size, ..part.start };
        object.insns.range(part.start..end).map(|(_, insn)| insn)
    });
    !insns.any(gives_address)
}

/// Whether it makes an address in the frame from the stack pointer, in another register or in memory.
fn gives_address(insn: &Insn) -> bool {
    let raw = &insn.raw;
    let is_stack = |register: Register| register.is_gpr() && register.full_register() == Register::RSP;
    let mut factory = iced_x86::InstructionInfoFactory::new();
    let info = factory.info(raw);
    let written = |i: u32| !matches!(info.op_access(i), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
    let into_itself = raw.op_count() > 0 && raw.op_kind(0) == OpKind::Register && is_stack(raw.op_register(0));
    let alone = (1..raw.op_count()).all(|i| !written(i));
    if into_itself && alone && raw.mnemonic() != Mnemonic::Push {
        return false;
    }
    let taken = (0..raw.op_count()).any(|i| raw.op_kind(i) == OpKind::Register && is_stack(raw.op_register(i)));
    let made = raw.mnemonic() == Mnemonic::Lea && (is_stack(raw.memory_base()) || is_stack(raw.memory_index()));
    taken || made
}
