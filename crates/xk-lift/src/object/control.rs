//! Where control may go after an instruction, with the places that the kernel patches.

use iced_x86::FlowControl;

use super::Object;
use crate::insn::{Insn, Node, Target};

/// Where control may go after `insn`, within the object.
#[must_use]
pub fn successors(object: &Object, insn: &Insn) -> Vec<Node> {
    let mut next = Vec::new();
    let branch = matches!(insn.raw.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
    if let (true, Some(Target::Local(target))) = (branch, &insn.target) {
        next.push(*target);
    }
    if let Some((target, _)) = object.jump_labels.get(&insn.node) {
        next.push(*target);
        next.push(insn.next());
    }
    if let Some(fixup) = object.fixups.get(&insn.node) {
        next.push(*fixup);
    }
    // The kernel may replace a jump by a no-op.
    if insn.falls_through() || object.warnings.contains(&insn.node) || object.in_alternative.contains(&insn.node) {
        next.push(insn.next());
    }
    next
}
