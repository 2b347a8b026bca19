//! Sites at which the kernel may put other instructions at boot.

use super::calls::{CALLER_SAVED, RAX};
use super::claims::Effort;
use super::opaque::{DEFAULT, UACCESS};
use super::relation::{BASE, OTHER};
use super::walk::{Pair, Step, Walk};
use xk_lift::flow::ARGUMENTS;
use xk_lift::insn::Insn;
use xk_lift::object::Alternative;
use xk_lift::state::{Flag, REGISTERS, RSP};

impl<'a> Walk<'a> {
    /// A site at which the kernel may put other instructions at boot: the same choice of
    /// instructions in both builds, which find the same in the registers that they name.
    pub fn patched(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
        let (base, other) = (self.sides[BASE].object, self.sides[OTHER].object);
        if let (Some(x), Some(y)) = (base.runtime_constant(a.node), other.runtime_constant(b.node)) {
            if x != y {
                return self.mismatch(a.node, "different constants of the running kernel");
            }
            return self.opaque(pair, a, b);
        }
        let (Some(ours), Some(theirs)) = (base.alternative(a.node), other.alternative(b.node)) else {
            return self.mismatch(a.node, format!("`{}` may be replaced by the kernel", a.text()));
        };
        if !ours.same(&theirs) {
            return self.mismatch(a.node, "different alternatives");
        }
        self.same_memory(&mut pair, a.node)?;
        let (Some(faults), Some(_)) = (self.faults(BASE, a, &ours), self.faults(OTHER, b, &theirs)) else {
            return self.mismatch(a.node, format!("`{}`: a fault goes elsewhere", a.text()));
        };
        self.read_by_pieces(&mut pair, a, &ours)?;
        let read = if ours.calls { &ARGUMENTS[..] } else { &[] };
        self.let_out(&mut pair, ours.reads.iter().chain(read).copied());
        // It is not known how far a piece came that faults.
        if ours.calls {
            for register in CALLER_SAVED {
                let same = register == RAX && !faults || self.is_same(&mut pair, register);
                self.renew(&mut pair, register, same);
            }
        }
        for &(register, always) in ours.writes.iter().filter(|(register, _)| *register != RSP) {
            let same = always && !faults || self.is_same(&mut pair, register);
            self.renew(&mut pair, register, same);
        }
        self.forget_flags(&mut pair);
        for (to, other_to) in ours.exits.iter().zip(&theirs.exits) {
            self.cut(pair.clone(), (*to, *other_to))?;
        }
        Ok(())
    }

    /// Whether a fault at the site is expected; `None` if what follows then is not covered.
    fn faults(&self, side: usize, insn: &Insn, site: &Alternative) -> Option<bool> {
        let object = self.sides[side].object;
        let mut expected = false;
        for (node, to) in object.fixups.iter().filter(|(node, _)| (insn.node..site.behind).contains(*node)) {
            expected = true;
            // These handlers change no register, unless a flag says so.
            let harmless = |[kind, middle, ..]: &[u8; 4]| matches!(*kind, DEFAULT | UACCESS) && middle >> 4 == 0;
            if !object.handlers.get(node).is_some_and(harmless) || !site.exits.contains(to) {
                return None;
            }
        }
        Some(expected)
    }

    /// What the pieces of a site may read is the same in both builds.
    fn read_by_pieces(&mut self, pair: &mut Pair, a: &Insn, site: &Alternative) -> Step {
        if site.calls {
            let count = site.paravirtual.and_then(|offset| self.rules.prototypes.paravirtual(offset));
            self.read_by(pair, a, count)?;
        }
        for register in site.reads.iter().copied() {
            let [x, y] = [BASE, OTHER].map(|side| pair.states[side].regs[register]);
            if !self.must_equal(pair, x, y)? {
                return self.mismatch(a.node, format!("`{}`: {} may differ", a.text(), REGISTERS[register]));
            }
        }
        if site.reads_flags {
            for flag in Flag::ALL {
                let [x, y] = [BASE, OTHER].map(|side| pair.states[side].flag(flag));
                if !self.must_equal(pair, x, y)? {
                    return self.mismatch(a.node, format!("`{}` reads flags that may differ", a.text()));
                }
            }
        }
        Ok(())
    }

    /// Whether a register holds the same in both builds.
    fn is_same(&mut self, pair: &mut Pair, register: usize) -> bool {
        let [x, y] = [BASE, OTHER].map(|side| pair.states[side].regs[register]);
        self.claims.equal(&mut self.terms, &mut pair.facts, x, y, Effort::Welcome)
    }

    /// What a call at a site that the kernel patches may read: so many arguments, or all.
    fn read_by(&mut self, pair: &mut Pair, a: &Insn, count: Option<usize>) -> Step {
        for register in ARGUMENTS.into_iter().take(count.unwrap_or(6)) {
            let [x, y] = [BASE, OTHER].map(|side| pair.states[side].regs[register]);
            if !self.free(pair, register) && !self.must_equal(pair, x, y)? {
                return self.mismatch(a.node, format!("`{}`: {} may differ", a.text(), REGISTERS[register]));
            }
        }
        Ok(())
    }
}
