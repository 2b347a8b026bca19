//! Critical spans: where a constant enters the machine state, and where an update can take its place.
//!
//! In: the deployed object, its flow, and the seeds (instructions with a constant that follows V). Out: for each group of
//! seeds that form one expression a proved [`CriticalSpan`]. Refused: a group for which no location has a proof.
//!
//! Per basic block: seeds are divided into groups (`group.rs`); for each group the locations are listed where its update
//! may run (`location.rs`); and for each location spans are tried, the shortest first, until an update is generated and
//! proved (`search.rs`). Groups, locations and spans are guesses. None of them can make a wrong tune: a span is accepted
//! only if the solver finds no state and no V for which the deployed instructions followed by the update differ from the
//! instructions with V. A bad guess is refuted, and the constant is refused if no guess is left.

mod group;
mod location;
mod search;

use std::collections::BTreeSet;

use xk_lift::insn::Node;
use xk_table::{CriticalSpan, Refusal};

use crate::context::Context;
use crate::crowd::crowd;
use search::{Earlier, Search};

impl Context<'_> {
    /// All critical spans of the object; `function` indices are those of `functions`.
    ///
    /// # Errors
    /// The refusal of the first group of seeds without a proof.
    pub fn spans(&self, functions: &[String]) -> Result<Vec<CriticalSpan>, Refusal> {
        let mut spans = Vec::new();
        let mut done: BTreeSet<Node> = BTreeSet::new();
        for &(node, _) in self.seeds.keys() {
            if done.contains(&node) {
                continue;
            }
            let Some(function) = self.object.function_at(node) else { continue };
            let function_index = functions.iter().position(|f| *f == function.name).unwrap_or_default();
            let block = self.flow.block(self.object, node);
            let mut earlier = Earlier::default();
            for group in self.groups(function, &block)? {
                let search = Search { context: self, function, function_index, block: &block, group, earlier };
                let (span, location) = search.run()?;
                spans.push(span);
                earlier = Earlier { settled: location.point(), carrier: Some(location.insn) };
            }
            done.extend(block.iter().map(|insn| insn.node));
        }
        crowd(&mut spans);
        Ok(spans)
    }
}
