//! Where a pair of instructions leads: the next pairs, with what is equal there.
//!
//! In: two instructions that do the same, and what is equal after them. Out: the pairs that the walk visits next. Refused:
//! control that goes to different places, indirect jumps, and exceptions that are handled differently.

use iced_x86::{FlowControl, Mnemonic};
use xk_lift::insn::{Insn, Target};
use xk_lift::object::Object;

use super::pairing::Pairing;
use super::walk::{Pair, Walk};
use super::{is_part, Mismatch};

impl Walk<'_> {
    /// Continues after a static branch, which the kernel patches (jump label): both ways are possible in both builds.
    /// `None` if neither instruction is one.
    pub(super) fn static_branch(
        &mut self,
        ours: &Insn,
        theirs: &Insn,
        pairing: Pairing,
    ) -> Option<Result<(), Mismatch>> {
        let labels = (self.base.jump_labels.get(&ours.node), self.variant.jump_labels.get(&theirs.node));
        match labels {
            (None, None) => None,
            (Some((our_target, our_key)), Some((their_target, their_key)))
                if our_key == their_key && ours.is_nop() == theirs.is_nop() =>
            {
                self.reach(*our_target, *their_target, pairing);
                self.reach(ours.next(), theirs.next(), pairing);
                Some(Ok(()))
            }
            _ => Some(self.mismatch(ours.node, "different static branches")),
        }
    }

    /// Continues after any other pair. `inverted`: the conditional branches are taken in opposite cases.
    pub(super) fn successors(
        &mut self,
        ours: &Insn,
        theirs: &Insn,
        mut pairing: Pairing,
        inverted: bool,
    ) -> Result<(), Mismatch> {
        self.fault(ours, theirs, pairing)?;
        if ours.is_call() {
            return self.call(ours, theirs, &mut pairing);
        }
        match ours.raw.flow_control() {
            FlowControl::ConditionalBranch => self.branch(ours, theirs, pairing, inverted),
            FlowControl::UnconditionalBranch => {
                let (Some(our_target), Some(their_target)) = (&ours.target, &theirs.target) else {
                    return self.mismatch(ours.node, "jump without target");
                };
                self.jump([ours, theirs], our_target, their_target, pairing)
            }
            FlowControl::IndirectBranch => self.mismatch(ours.node, "indirect jump"),
            FlowControl::Return => self.returns(ours, pairing),
            FlowControl::Exception if !self.base.warnings.contains(&ours.node) => Ok(()),
            _ if ours.raw.mnemonic() == Mnemonic::Int3 => Ok(()),
            _ => {
                self.reach(ours.next(), theirs.next(), pairing);
                Ok(())
            }
        }
    }

    /// Continues where the kernel continues if the instruction faults (`__ex_table`).
    fn fault(&mut self, ours: &Insn, theirs: &Insn, pairing: Pairing) -> Result<(), Mismatch> {
        let handlers = (self.base.handlers.get(&ours.node), self.variant.handlers.get(&theirs.node));
        match (self.base.fixups.get(&ours.node), self.variant.fixups.get(&theirs.node)) {
            (None, None) => Ok(()),
            (Some(&our_fixup), Some(&their_fixup)) if handlers.0 == handlers.1 => {
                // A fault comes before the writes of the instruction.
                let pair = Pair { base: ours.node, variant: theirs.node };
                let before = self.pairings.get(&pair).map_or(pairing, |before| before.meet(&pairing));
                self.reach(our_fixup, their_fixup, before);
                Ok(())
            }
            _ => self.mismatch(ours.node, "different exception fixups"),
        }
    }

    fn branch(&mut self, ours: &Insn, theirs: &Insn, pairing: Pairing, inverted: bool) -> Result<(), Mismatch> {
        let (Some(our_target), Some(their_target)) = (&ours.target, &theirs.target) else {
            return self.mismatch(ours.node, "branch without target");
        };
        let (our_next, their_next) = (Target::Local(ours.next()), Target::Local(theirs.next()));
        let pairs = if inverted {
            [(our_target, &their_next), (&our_next, their_target)]
        } else {
            [(our_target, their_target), (&our_next, &their_next)]
        };
        for (our_way, their_way) in pairs {
            self.jump([ours, theirs], our_way, their_way, pairing)?;
        }
        Ok(())
    }

    /// Continues at two targets within the functions. A jump to another function is a tail call: everything that the other
    /// function may read, and everything that the caller gets back, must be equal.
    fn jump(
        &mut self,
        [ours, theirs]: [&Insn; 2],
        our_target: &Target,
        their_target: &Target,
        pairing: Pairing,
    ) -> Result<(), Mismatch> {
        let entered = |object: &Object, target: &Target| match target {
            Target::External(symbol) => Some((symbol.name.clone(), symbol.offset)),
            Target::Local(node) => object
                .functions
                .get(node)
                .filter(|f| !is_part(f) && object.function_at(ours.node).map(|own| &own.name) != Some(&f.name))
                .map(|f| (f.name.clone(), 0)),
        };
        match (entered(self.base, our_target), entered(self.variant, their_target)) {
            (None, None) => {
                if let (Target::Local(base), Target::Local(variant)) = (our_target, their_target) {
                    self.reach(*base, *variant, pairing);
                }
                Ok(())
            }
            (Some(function), Some(other)) if function == other => {
                if function.0 == "__x86_return_thunk" {
                    return self.returns(ours, pairing);
                }
                self.arguments(ours, theirs, &pairing)?;
                self.preserved(ours, &pairing)
            }
            (function, other) => self.mismatch(ours.node, format!("jumps to {function:?} against {other:?}")),
        }
    }
}
