//! What both builds must do together: calls, returns, traps, accesses that may fault, what
//! the kernel patches, and instructions of which no more is known than their operands.
//!
//! Each takes the same inputs in both builds, in the same order and with the same memory;
//! what comes of it is then the same, whatever that is.

use iced_x86::{Mnemonic, Register};
use xk_lift::insn::Insn;
use xk_lift::semantics::is_immediate;
use xk_lift::state::Flag;
use xk_lift::term::TermId;

use super::relation::{clobbered, BASE, OTHER};
use super::side::{At, Kind};
use super::walk::{Pair, Step, Walk};

impl<'a> Walk<'a> {
    /// Both builds stand before an instruction of theirs.
    pub fn events(&mut self, mut pair: Pair, a: &'a Insn, b: &'a Insn) -> Step {
        let kinds = [self.sides[BASE].kind(a), self.sides[OTHER].kind(b)].map(|kind| kind.unwrap_or(Kind::Opaque));
        match kinds {
            [Kind::Branch(_), Kind::Branch(_)] => {
                // What was read of the same memory leads to the same place.
                self.unify(&mut pair);
                return self.branches(pair, a, b);
            }
            [Kind::Branch(_), _] => return self.fork(pair, BASE, a.node),
            [_, Kind::Branch(_)] => return self.fork(pair, OTHER, b.node),
            _ => {}
        }
        if kinds[BASE] != kinds[OTHER] {
            return self.mismatch(a.node, format!("`{}` against `{}`", a.text(), b.text()));
        }
        pair.trace[BASE].push(a.node);
        pair.trace[OTHER].push(b.node);
        if is_fence(a) && is_fence(b) {
            self.forget_flags(&mut pair);
            return self.cut(pair, (a.next(), b.next()));
        }
        match kinds[BASE] {
            Kind::Call => self.call(pair, a, b),
            Kind::Return => self.give_back(pair, a),
            Kind::Trap => self.trap(pair, a, b),
            Kind::StaticBranch => self.static_branch(pair, a, b),
            Kind::Faulting => self.faulting(pair, a, b),
            Kind::Patched => self.patched(pair, a, b),
            Kind::Opaque | Kind::Branch(_) => self.opaque(pair, a, b),
        }
    }

    fn static_branch(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
        let labels =
            [self.sides[BASE].object.jump_labels.get(&a.node), self.sides[OTHER].object.jump_labels.get(&b.node)];
        let [Some((to, key)), Some((other_to, other_key))] = labels else {
            return self.mismatch(a.node, "different static branches");
        };
        if key != other_key || a.is_nop() != b.is_nop() {
            return self.mismatch(a.node, "different static branches");
        }
        let mut taken = pair.clone();
        taken.at = [At::Place(*to), At::Place(*other_to)];
        self.follow(taken);
        pair.at = [At::Place(a.next()), At::Place(b.next())];
        self.follow(pair);
        Ok(())
    }

    fn trap(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
        let (base, other) = (self.sides[BASE].object, self.sides[OTHER].object);
        if a.raw.mnemonic() != b.raw.mnemonic() || base.bugs.get(&a.node) != other.bugs.get(&b.node) {
            return self.mismatch(a.node, format!("`{}` is reported differently", a.text()));
        }
        if !base.warnings.contains(&a.node) {
            return self.same_memory(&mut pair, a.node);
        }
        // What is printed may take locks and time, and touches no register.
        self.cut(pair, (a.next(), b.next()))
    }

    pub fn free(&mut self, pair: &Pair, register: usize) -> bool {
        let nothing = clobbered(&mut self.terms, register);
        [BASE, OTHER].iter().any(|&side| pair.states[side].regs[register] == nothing)
    }

    /// Another value in `register`: the same in both builds, or not.
    pub fn renew(&mut self, pair: &mut Pair, register: usize, same: bool) {
        let value = self.result(pair, 64);
        pair.states[BASE].regs[register] = value;
        pair.states[OTHER].regs[register] = if same { value } else { self.result(pair, 64) };
    }

    /// An unknown that comes of an event: foreign, as long as no address in the frame got out.
    pub fn result(&mut self, pair: &Pair, bits: u32) -> TermId {
        self.terms.fresh(if pair.escaped { "result" } else { "foreign result" }, bits)
    }

    /// From here on others may know an address in the frame, if one of these registers holds one.
    pub fn let_out(&mut self, pair: &mut Pair, registers: impl IntoIterator<Item = usize>) {
        for register in registers {
            for side in [BASE, OTHER] {
                let value = pair.states[side].regs[register];
                let nothing = clobbered(&mut self.terms, register);
                pair.escaped |= value != nothing && !self.terms.is_foreign(value);
            }
        }
        // What it stored before is what others see.
        pair.escaped |= [BASE, OTHER].iter().any(|&side| self.terms.lets_out(pair.states[side].memory));
    }

    pub fn forget_flags(&mut self, pair: &mut Pair) {
        for state in &mut pair.states {
            for flag in Flag::ALL {
                let unknown = self.terms.fresh("undefined", 1);
                state.set_flag(flag, unknown);
            }
        }
    }
}

/// A full barrier as the kernel writes it (arch/x86/include/asm/barrier.h): it adds nothing
/// to whatever lies on the stack.
fn is_fence(insn: &Insn) -> bool {
    let raw = &insn.raw;
    raw.has_lock_prefix()
        && raw.mnemonic() == Mnemonic::Add
        && raw.memory_base() == Register::RSP
        && raw.memory_index() == Register::None
        && is_immediate(raw.op_kind(1))
        && raw.immediate(1) == 0
}
