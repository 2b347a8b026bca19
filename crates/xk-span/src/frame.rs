//! A frame, prepared for any number of slices: graph, values, effects, liveness.

use iced_x86::InstructionInfoFactory;

use crate::calls::{results, Call};
use crate::effect::Effect;
use crate::error::Unfollowed;
use crate::graph::{Callee, Graph};
use crate::location::Locations;
use crate::value::{published, taken, values, Value, Values};
use crate::world::World;

/// What an instruction does.
#[derive(Debug)]
pub enum Act {
    /// Not a call.
    Plain(Box<Effect>),
    /// A call, or a jump that hands the frame over.
    Call(Box<Call>),
}

/// A prepared frame.
#[derive(Debug)]
pub struct Frame {
    /// Its instructions.
    pub graph: Graph,
    /// Values before each; `None` where control never comes.
    pub values: Vec<Option<Values>>,
    /// What each does.
    pub acts: Vec<Act>,
    /// What may be read at or after each before it is overwritten.
    pub live: Vec<Locations>,
    /// What the function may give back.
    pub results: Locations,
    /// The lowest byte of the frame whose address others may have.
    pub reachable: Option<i32>,
    /// The address that an instruction stores where others may find it.
    pub published: Vec<Option<Value>>,
}

impl Frame {
    /// Prepares the frame that `entry` opens.
    ///
    /// # Errors
    /// Why it cannot be followed.
    pub fn new(world: &World, entry: u64) -> Result<Self, Unfollowed> {
        let graph = Graph::new(world, entry)?;
        // Some thunks of assembly have no symbol of their own.
        let function = world.function_at(entry);
        let mut factory = InstructionInfoFactory::new();
        let known =
            values(world, &graph, function.and_then(|function| world.prototype(function)), &mut |insn, values| {
                Effect::changes(insn, values, &mut factory)
            });
        let pairs = || graph.nodes.iter().zip(&known).filter_map(|(node, values)| Some((node, values.as_ref()?)));
        let reachable = pairs().filter_map(|(node, values)| taken(&node.insn, values)).min();
        let mut acts = Vec::with_capacity(graph.nodes.len());
        for (node, values) in graph.nodes.iter().zip(&known) {
            let act = match (node.call.or(node.tail), values) {
                (Some(callee), _) => Act::Call(Box::new(Call::new(world, callee, &node.insn, values.as_ref()))),
                (None, Some(values)) => Act::Plain(Box::new(Effect::of(&node.insn, values, reachable, &mut factory))),
                (None, None) => Act::Plain(Box::default()),
            };
            if node.tail == Some(Callee::Indirect) && values.as_ref().and_then(Values::stack) != Some(0) {
                return Err(Unfollowed::JumpTable(world.place_name(node.insn.ip())));
            }
            acts.push(act);
        }
        let stored = graph.nodes.iter().zip(&known);
        let published = stored.map(|(node, values)| published(&node.insn, values.as_ref()?, reachable)).collect();
        let mut this = Self {
            results: function.map_or_else(Locations::all_registers, |function| results(world, function)),
            live: Vec::new(),
            graph,
            values: known,
            acts,
            reachable,
            published,
        };
        this.live = this.liveness();
        Ok(this)
    }

    /// What the call at node `at` may read.
    #[must_use]
    pub fn call_reads(&self, at: usize, call: &Call) -> Locations {
        let mut reads = call.reads.clone();
        reads.slots_from = self.reachable;
        if let Some(stack) = self.values[at].as_ref().and_then(Values::stack) {
            // A jump hands over what its own caller put on the stack.
            let first = if self.graph.nodes[at].tail.is_some() { stack + 8 } else { stack };
            reads.add_slots(first, call.stack);
        } else if call.stack > 0 {
            reads.slots_from = Some(i32::MIN);
        }
        reads
    }

    /// The lowest byte of the frame whose address is in memory.
    #[must_use]
    pub fn stored(&self) -> Option<i32> {
        let addresses = self.published.iter().filter_map(|value| match value {
            Some(Value::Frame(at)) => Some(*at),
            Some(Value::SomeFrame) => Some(i32::MIN),
            _ => None,
        });
        addresses.min()
    }

    fn liveness(&self) -> Vec<Locations> {
        let before = self.graph.before();
        let mut live: Vec<Locations> = vec![Locations::default(); self.graph.nodes.len()];
        let mut todo: std::collections::BTreeSet<usize> = (0..live.len()).collect();
        while let Some(at) = todo.pop_last() {
            let node = &self.graph.nodes[at];
            let mut now = Locations::default();
            for &next in &node.next {
                now.add(&live[next]);
            }
            if node.returns {
                now.add(&self.results);
            }
            match &self.acts[at] {
                Act::Plain(effect) => {
                    now.remove(&effect.kills);
                    now.add(&effect.reads);
                }
                Act::Call(call) => {
                    // What is left of a conditional jump to another function may fall through.
                    if node.tail.is_none() {
                        now.remove(&call.kills);
                    }
                    now.add(&self.call_reads(at, call));
                    now.flags |= node.insn.rflags_read();
                }
            }
            if live[at].add(&now) {
                todo.extend(&before[at]);
            }
        }
        live
    }
}
