//! Calls, tail calls and returns: what the other side may read must be equal.

use iced_x86::{InstructionInfoFactory, OpAccess};
use xk_lift::flow::ARGUMENTS;
use xk_lift::insn::{Insn, Node, Target};
use xk_lift::object::Object;
use xk_lift::prototypes::{conversions, is_transparent};
use xk_lift::semantics::gpr;
use xk_lift::state::RSP;

use super::pairing::Pairing;
use super::walk::Walk;
use super::Mismatch;

const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
const CALLEE_SAVED: [usize; 6] = [3, 5, 12, 13, 14, 15];

impl Walk<'_> {
    /// Registers that some of `insns` write, as bits.
    pub(super) fn written(&mut self, insns: &[&Insn]) -> u16 {
        let mut bits = 0;
        for insn in insns {
            for used in self.info.info(&insn.raw).used_registers() {
                let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
                if let (true, Some((number, ..))) = (writes, gpr(used.register())) {
                    bits |= 1 << number;
                }
            }
        }
        bits
    }

    /// Nothing that a callee may read can differ.
    pub(super) fn arguments(&self, ours: &Insn, theirs: &Insn, pairing: &Pairing) -> Result<(), Mismatch> {
        // Its own code says more than what BTF says of functions of that name.
        if let Some(read) = self.read_by_callee(ours, theirs) {
            return match CALLER_SAVED.into_iter().chain([RSP]).find(|&r| read(r) && pairing.valid(r, r) < 64) {
                Some(register) => {
                    let name = xk_lift::state::REGISTERS[register];
                    self.mismatch(ours.node, format!("`{}`: {name} may differ", ours.text()))
                }
                None => Ok(()),
            };
        }
        let passed = self.callee(self.base, ours).filter(|(_, offset)| *offset == 0);
        let passed =
            passed.and_then(|(name, _)| self.rules.prototypes.arguments(&name).or_else(|| self.formatted(ours, &name)));
        if let Some(count) = passed {
            // A known C prototype: what it does not pass may hold anything.
            let mut read = ARGUMENTS.into_iter().take(count).chain([RSP]);
            return match read.find(|&r| pairing.valid(r, r) < 64) {
                Some(register) => {
                    let name = xk_lift::state::REGISTERS[register];
                    self.mismatch(ours.node, format!("`{}`: {name} may differ", ours.text()))
                }
                None => Ok(()),
            };
        }
        for register in ARGUMENTS.into_iter().chain([0, RSP]) {
            // rax carries the number of vector registers of a variadic call and
            // arguments of helpers in assembly; elsewhere it is free.
            let junk = (pairing.junk[0] | pairing.junk[1]) >> register & 1 == 1;
            let matters = !junk && register != 0 || self.base.goes_to(ours, "__");
            if matters && pairing.valid(register, register) < 64 {
                let name = xk_lift::state::REGISTERS[register];
                return self.mismatch(ours.node, format!("`{}`: {name} may differ", ours.text()));
            }
        }
        self.thunk_target(ours, pairing)
    }

    /// What the function that is called may read, when both builds contain its
    /// code: clones of the compiler have no prototype.
    fn read_by_callee(&self, ours: &Insn, theirs: &Insn) -> Option<impl Fn(usize) -> bool + use<>> {
        let (Some(Target::Local(b)), Some(Target::Local(v))) = (&ours.target, &theirs.target) else { return None };
        let known = |object: &Object, node: &Node| object.functions.get(node).is_some_and(|f| !f.weak);
        if !known(self.base, b) || !known(self.variant, v) {
            return None;
        }
        let (base, variant) = self.flows();
        let (base, variant) = (base.callee_reads(*b), variant.callee_reads(*v));
        Some(move |register| register == RSP || base.register(register) || variant.register(register))
    }

    /// How many arguments a call of a printf-like function passes, when its
    /// format is a literal that is loaded in the same block.
    fn formatted(&self, ours: &Insn, name: &str) -> Option<usize> {
        const PRINTS: [&str; 6] =
            ["_printk", "__dynamic_pr_debug", "__warn_printk", "seq_printf", "snprintf", "scnprintf"];
        let named = self.rules.prototypes.variadic(name).filter(|_| PRINTS.contains(&name))?;
        let register = *ARGUMENTS.get(named.checked_sub(1)?)?;
        let (flow, _) = self.flows();
        let block = flow.block(self.base, ours.node);
        let last = block.iter().rev().skip(1).find(|insn| self.info_writes(insn, register))?;
        let literal = last.immediate.as_ref().filter(|symbol| symbol.name.starts_with('"'))?;
        Some((named + conversions(&literal.name)).min(6))
    }

    fn info_writes(&self, insn: &Insn, register: usize) -> bool {
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&insn.raw);
        info.used_registers().iter().any(|used| {
            let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
            writes && gpr(used.register()).is_some_and(|(number, ..)| number == register)
        })
    }

    /// A retpoline jumps to what the register in its name holds.
    fn thunk_target(&self, ours: &Insn, pairing: &Pairing) -> Result<(), Mismatch> {
        let Some(Target::External(symbol)) = &ours.target else { return Ok(()) };
        let Some(suffix) = symbol.name.strip_prefix("__x86_indirect_") else { return Ok(()) };
        let named = xk_lift::state::REGISTERS.iter().position(|name| suffix.ends_with(&format!("_{name}")));
        match named {
            Some(register) if pairing.valid(register, register) < 64 => {
                self.mismatch(ours.node, format!("`{}`: the target may differ", ours.text()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn returns(&self, ours: &Insn, pairing: Pairing) -> Result<(), Mismatch> {
        self.preserved(ours, &pairing)?;
        let function = self.base.function_at(ours.node).and_then(|f| f.name.split('.').next());
        if function.is_some_and(|name| self.rules.prototypes.returns_nothing(name)) {
            return Ok(());
        }
        if pairing.valid(0, 0) < 64 {
            return self.mismatch(ours.node, "return: rax may differ");
        }
        let in_rax = function.is_some_and(|name| self.rules.prototypes.returns_in_rax(name));
        if !in_rax && pairing.valid(2, 2) < 64 {
            return self.mismatch(ours.node, "return: rdx may differ, and may be part of the result");
        }
        Ok(())
    }

    /// What the caller gets back unchanged, also through a tail call.
    pub(super) fn preserved(&self, ours: &Insn, pairing: &Pairing) -> Result<(), Mismatch> {
        for register in CALLEE_SAVED.into_iter().chain([RSP]) {
            if pairing.valid(register, register) < 64 {
                let name = xk_lift::state::REGISTERS[register];
                return self.mismatch(ours.node, format!("return: {name} may differ"));
            }
        }
        Ok(())
    }

    fn callee(&self, object: &Object, insn: &Insn) -> Option<(String, i64)> {
        match insn.target.as_ref()? {
            Target::External(symbol) => Some((symbol.name.clone(), symbol.offset)),
            Target::Local(node) => {
                let function = object.function_at(*node)?;
                Some((function.name.clone(), (node.offset - function.start.offset) as i64))
            }
        }
    }

    pub(super) fn call(&mut self, ours: &Insn, theirs: &Insn, pairing: &mut Pairing) -> Result<(), Mismatch> {
        let (b, v) = (self.callee(self.base, ours), self.callee(self.variant, theirs));
        if b != v {
            return self.mismatch(ours.node, format!("calls {b:?} against {v:?}"));
        }
        let name = b.map(|(name, _)| name).unwrap_or_default();
        if name == "__fentry__" {
            self.reach(ours.next(), theirs.next(), *pairing);
            return Ok(());
        }
        if is_transparent(&name) {
            self.reach(ours.next(), theirs.next(), *pairing);
            return Ok(());
        }
        // void __stack_chk_fail(void): whatever the registers hold, it is no argument.
        if name == "__stack_chk_fail" {
            return Ok(());
        }
        self.arguments(ours, theirs, pairing)?;
        if self.rules.noreturns.contains(&name) {
            return Ok(());
        }
        // What a call clobbers, compiled code does not read before it writes it
        // (System V ABI): pairing it with itself claims nothing anyone relies on.
        // Helpers in assembly keep what they do not name: r10 and r11, the only
        // ones that may differ before a call, differ after it.
        for register in CALLER_SAVED {
            let valid = if matches!(register, 10 | 11) { pairing.valid(register, register) } else { 64 };
            pairing.pair(register, register, valid);
        }
        // Only of a C function is it certain that it clobbers them; rax and rdx
        // may hold its result.
        if self.rules.prototypes.is_function(&name) {
            let clobbered = CALLER_SAVED.iter().filter(|&&r| r != 0 && r != 2).fold(0, |bits, &r| bits | 1 << r);
            pairing.junk = [clobbered; 2];
        }
        self.reach(ours.next(), theirs.next(), *pairing);
        Ok(())
    }
}
