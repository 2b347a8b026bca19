//! The forward slice of one frame: the instructions at which data that depend on the constant are alive.
//!
//! In: a prepared [`Frame`], and [`Sources`], the places of the frame that hold such data ("tainted" data) at the
//! beginning. Out: a [`Slice`]: the instructions at which tainted data are alive, the instructions that read them, and
//! what leaves the frame with its exits and tail calls. What calls do with tainted arguments is asked of [`Callees`].
//! Refused, with [`Unfollowed`]: a source that control does not reach, and an instruction that moves the stack pointer
//! by a tainted value, because slots of the frame could not be told apart after it.
//!
//! The computation is a data-flow analysis. Its state before an instruction is a [`Taint`]: every place that may be
//! tainted there. [`Slicer::transfer`] maps the state before an instruction to the state after it; states of paths that
//! meet are united. States only grow, so the fixed point exists. It over-approximates the flow of data, because each
//! rule keeps a place that might be tainted:
//!
//! - An instruction that reads a tainted place taints everything that it writes ([`Slicer::instruction`]).
//! - Only a definite overwrite removes a taint.
//! - A call is followed, or everything that it may return is tainted and the arguments are an escape (`call.rs`).
//! - A taint that leaves the frame for memory never ends before the frame ([`Taint::stored`]).
//!
//! The slice is thin: control dependence is not followed. An instruction that runs because of a tainted branch does not
//! hold the value.

mod call;
mod taint;

use std::collections::{BTreeMap, BTreeSet};

use crate::effect::Effect;
use crate::error::Unfollowed;
use crate::frame::{Act, Frame};
use crate::graph::Node;
use crate::location::{Access, Locations, Pointer, RegisterSet, Where};
use crate::value::Value;

use taint::Taint;
pub use taint::{EntryTaint, ExitTaint, Store};

/// What is tainted at the beginning of a slice. Instructions are named by their addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sources {
    /// When the function is entered.
    pub entry: EntryTaint,
    /// Before an instruction.
    pub before: BTreeMap<u64, Locations>,
    /// After an instruction.
    pub after: BTreeMap<u64, Locations>,
    /// Instructions whose stores are tainted.
    pub stores: BTreeSet<u64>,
    /// Calls whose callees have been sliced already, with what the callees return.
    pub calls: BTreeMap<u64, ExitTaint>,
}

/// What an instruction does with tainted data, from weak to strong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// It branches on them.
    Branch,
    /// It keeps them within the thread: in registers, in the frame, in a call.
    Thread,
    /// It stores them where other threads may see them.
    Memory,
}

/// A finished slice. Instructions are named by their index in [`crate::graph::Graph::nodes`].
#[derive(Debug, Clone, Default)]
pub struct Slice {
    /// Instructions before which a tainted place may still be read.
    pub alive: BTreeSet<usize>,
    /// Instructions that read tainted data.
    pub uses: BTreeMap<usize, Use>,
    /// What the frame leaves to its caller.
    pub exit: ExitTaint,
    /// Functions that take over the frame, with what is passed to them.
    pub tail_calls: BTreeMap<u64, EntryTaint>,
}

/// What the slice of one frame asks about the functions around it, and tells them.
pub trait Callees {
    /// What `callee` leaves to its caller if it is entered with `entry` from the call at `site`.
    fn exit_taint(&mut self, callee: u64, entry: &EntryTaint, site: u64) -> ExitTaint;

    /// The call at `site` passes `entry` to code that is not known; `what` describes it.
    fn passed_to_unknown(&mut self, site: u64, what: &str, entry: &EntryTaint);

    /// At `site`, a callee or another thread can reach a tainted object of the frame through memory.
    fn exposed(&mut self, site: u64);

    /// The name of an address, for messages.
    fn place_name(&self, address: u64) -> String;
}

/// Computes the slice of `frame` from `sources`.
///
/// # Errors
/// Why the frame cannot be followed.
pub fn slice(frame: &Frame, sources: &Sources, callees: &mut dyn Callees) -> Result<Slice, Unfollowed> {
    let mut slicer = Slicer { frame, sources, callees, slice: Slice::default() };
    let states = slicer.fixed_point()?;
    let mut slice = slicer.slice;
    slice.alive = alive(frame, &states);
    Ok(slice)
}

/// The instructions at which tainted data are alive, from the states before each instruction.
///
/// A tainted place is alive where an instruction may read it before it is overwritten. Liveness over-approximates the
/// reads, so an instruction that is left out cannot be followed by a consumer. After a store outside of the frame,
/// reads of the stored data are not known; so everything up to the exits is alive.
fn alive(frame: &Frame, states: &[Taint]) -> BTreeSet<usize> {
    let is_alive = |(at, state): &(usize, &Taint)| state.stored || state.locations.meets(&frame.live[*at]);
    states.iter().enumerate().filter(is_alive).map(|(at, _)| at).collect()
}

/// A slice that is being computed.
struct Slicer<'a> {
    frame: &'a Frame,
    sources: &'a Sources,
    callees: &'a mut dyn Callees,
    slice: Slice,
}

impl<'a> Slicer<'a> {
    /// The states before all instructions.
    fn fixed_point(&mut self) -> Result<Vec<Taint>, Unfollowed> {
        let graph = &self.frame.graph;
        let mut states = vec![Taint::default(); graph.nodes.len()];
        states[graph.first()].locations.add(&self.sources.entry.locations());
        let mut todo = self.source_nodes()?;
        for (&address, tainted) in &self.sources.before {
            let node = graph.at(address).ok_or(Unfollowed::NotReached(address))?;
            states[node].locations.add(tainted);
        }
        while let Some(at) = todo.pop_first() {
            let after = self.transfer(at, &states[at])?;
            for &next in &graph.nodes[at].next {
                if states[next].join(&after) {
                    todo.insert(next);
                }
            }
        }
        Ok(states)
    }

    /// The instructions at which something is tainted at the beginning, the entry included.
    fn source_nodes(&self) -> Result<BTreeSet<usize>, Unfollowed> {
        let Sources { entry: _, before, after, stores, calls } = self.sources;
        let graph = &self.frame.graph;
        let addresses = before.keys().chain(after.keys()).chain(stores).chain(calls.keys());
        let nodes = addresses.map(|&address| graph.at(address).ok_or(Unfollowed::NotReached(address)));
        nodes.chain([Ok(graph.first())]).collect()
    }

    /// The state after an instruction, from the state before it.
    fn transfer(&mut self, at: usize, before: &Taint) -> Result<Taint, Unfollowed> {
        let node = self.node(at);
        let address = node.insn.ip();
        // Without values, control does not come here.
        let Some(values) = &self.frame.values[at] else { return Ok(Taint::default()) };
        let mut after = match (&self.frame.acts[at], self.sources.calls.get(&address)) {
            (Act::Plain(effect), _) => self.instruction(at, effect, before)?,
            (Act::Call(call), Some(exit)) => self.sliced_call(at, call, exit, values, before),
            (Act::Call(call), None) => self.call(at, call, values, before),
        };
        if node.returns {
            self.leave_to_caller(after.locations.registers, after.locations.flags);
        }
        if let Some(tainted) = self.sources.after.get(&address) {
            after.locations.add(tainted);
        }
        Ok(after)
    }

    /// The state after an instruction that is not a call.
    fn instruction(&mut self, at: usize, effect: &Effect, before: &Taint) -> Result<Taint, Unfollowed> {
        let node = self.node(at);
        let reads_tainted = self.reads_tainted(effect, before);
        let stores_source = self.sources.stores.contains(&node.insn.ip());
        self.note_published_object(at);
        let mut after = before.clone();
        after.locations.remove(&effect.kills);
        if reads_tainted && effect.stack_pointer {
            return Err(Unfollowed::StackPointer(self.callees.place_name(node.insn.ip())));
        }
        if reads_tainted {
            after.locations.add(&effect.writes);
        } else if stores_source {
            after.locations.add(&effect.writes.in_frame());
        } else {
            return Ok(after);
        }
        let is_branch = node.insn.flow_control() == iced_x86::FlowControl::ConditionalBranch;
        self.note_use(at, if is_branch { Use::Branch } else { Use::Thread });
        for &access in &effect.stores {
            self.store(at, Store::new(node.site, access), &mut after);
        }
        Ok(after)
    }

    /// Whether an instruction reads a tainted place, also as an address.
    fn reads_tainted(&self, effect: &Effect, before: &Taint) -> bool {
        // A pop reads a slot that the compiler saved a register in, and no pointer reaches such slots. So the tainted
        // object whose offset is not known (`slots_from`) cannot be there; single tainted bytes can.
        let reads = match before.locations.slots_from {
            Some(_) if effect.pops => effect.reads.meets(&Locations { slots_from: None, ..before.locations.clone() }),
            _ => effect.reads.meets(&before.locations),
        };
        let loads = |load: &Access| {
            self.is_tainted_object(load.place) || before.cells.iter().any(|cell| cell.has_name_of(*load))
        };
        reads || effect.loads.iter().any(loads)
    }

    /// Whether a place is in an object of a caller's frame that the caller had stored tainted data into.
    fn is_tainted_object(&self, place: Where) -> bool {
        match place {
            Where::Object(Pointer { parameter: Some(register), .. }) => {
                self.sources.entry.pointees.contains(register.into())
            }
            _ => false,
        }
    }

    /// Reports an instruction that stores the address of a tainted object of a caller's frame.
    fn note_published_object(&mut self, at: usize) {
        if let Some(Value::Pointer(pointer)) = self.frame.published[at] {
            if self.is_tainted_object(Where::Object(pointer)) {
                self.callees.exposed(self.node(at).site);
            }
        }
    }

    /// Records a tainted store outside of the frame.
    fn store(&mut self, at: usize, store: Store, after: &mut Taint) {
        self.note_use(at, Use::Memory);
        after.stored = true;
        after.cells.insert(store.access);
        self.slice.exit.stores.insert(store);
    }

    /// Records what control takes back to the caller in the registers and flags that return a result.
    fn leave_to_caller(&mut self, registers: RegisterSet, flags: u32) {
        self.slice.exit.registers |= registers & self.frame.results.registers;
        self.slice.exit.flags |= flags & self.frame.results.flags;
    }

    fn note_use(&mut self, at: usize, how: Use) {
        let known = self.slice.uses.entry(at).or_insert(how);
        *known = (*known).max(how);
    }

    fn node(&self, at: usize) -> &'a Node {
        &self.frame.graph.nodes[at]
    }
}
