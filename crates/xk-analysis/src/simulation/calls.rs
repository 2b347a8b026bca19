//! Calls, tail calls and returns: what is called, what it may read, and what it leaves.

use super::claims::Effort;
use super::relation::{clobbered, BASE, OTHER};
use super::side::is_return;
use super::walk::{Pair, Step, Walk, CALLEE_SAVED, SHOWN};
use xk_lift::flow::ARGUMENTS;
use xk_lift::insn::{Insn, Target};
use xk_lift::notes::Call;
use xk_lift::object::Function;
use xk_lift::prototypes::{conversions, is_transparent, Signature};
use xk_lift::semantics::operand_value;
use xk_lift::state::{REGISTERS, RSP};
use xk_lift::term::TermId;

/// Registers that a call may change (System V ABI).
pub(crate) const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
pub(crate) const RAX: usize = 0;
pub(crate) const RDX: usize = 2;

/// What is called.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Callee {
    /// A function by its name, and the distance from its start.
    Named(String, i64),
    /// What an operand says.
    Computed(TermId),
}

impl<'a> Walk<'a> {
    pub fn call(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
        let name = self.same_callee(&mut pair, [a, b], [a.target.as_ref(), b.target.as_ref()])?;
        let after = (a.next(), b.next());
        match name.as_deref() {
            Some(name) if is_transparent(name) => {
                self.forget_flags(&mut pair);
                return self.cut(pair, after);
            }
            // void __stack_chk_fail(void): whatever the registers hold, it is no argument.
            Some("__stack_chk_fail") => return Ok(()),
            _ => {}
        }
        self.same_memory(&mut pair, a.node)?;
        let local = self.local_callees(a.target.as_ref(), b.target.as_ref());
        self.arguments(&mut pair, [a, b], name.as_deref(), local)?;
        if name.as_deref().is_some_and(|name| self.rules.noreturns.contains(name)) {
            return Ok(());
        }
        self.let_out(&mut pair, ARGUMENTS.into_iter().chain([RAX]));
        // A call of the compiler's own follows the ABI, whatever is called.
        let compiled = self.noted([a, b]).is_some();
        self.results(&mut pair, name.as_deref(), compiled);
        self.cut(pair, after)
    }

    /// Both go to another function in the place of their own.
    pub fn leave(&mut self, mut pair: Pair, insns: [&Insn; 2], targets: [&Target; 2]) -> Step {
        if targets.into_iter().all(is_return) {
            return self.give_back(pair, insns[BASE]);
        }
        let name = self.same_callee(&mut pair, insns, targets.map(Some))?;
        self.same_memory(&mut pair, insns[BASE].node)?;
        let local = self.local_callees(Some(targets[BASE]), Some(targets[OTHER]));
        self.restored(&mut pair, insns[BASE])?;
        self.arguments(&mut pair, insns, name.as_deref(), local)?;
        let changed = |side: usize| pair.states[side].frame.as_ref().is_some_and(|frame| frame.arguments_changed);
        if changed(BASE) || changed(OTHER) {
            return self.mismatch(insns[BASE].node, "a tail call passes arguments on the stack");
        }
        Ok(())
    }

    /// Both return: the caller finds its registers, its stack, and the same result.
    pub fn give_back(&mut self, mut pair: Pair, a: &Insn) -> Step {
        self.same_memory(&mut pair, a.node)?;
        self.restored(&mut pair, a)?;
        let base = self.name.split('.').next().unwrap_or(self.name);
        let result = self.rules.prototypes.result(base);
        let wanted = match result {
            Some(0) => vec![],
            Some(bits) => vec![(RAX, bits)],
            None => vec![(RAX, 64), (RDX, 64)],
        };
        for (register, bits) in wanted {
            let [x, y] = [BASE, OTHER].map(|side| pair.states[side].regs[register]);
            let (x, y) = (self.terms.extract(x, 0, bits.into()), self.terms.extract(y, 0, bits.into()));
            if !self.must_equal(&mut pair, x, y)? {
                let (x, y) = (self.terms.show(x, SHOWN), self.terms.show(y, SHOWN));
                return self.mismatch(a.node, format!("{} may differ at the return: {x} / {y}", REGISTERS[register]));
            }
        }
        Ok(())
    }

    /// Each build gives back the preserved registers and the stack pointer as it found them.
    fn restored(&mut self, pair: &mut Pair, a: &Insn) -> Step {
        for side in [BASE, OTHER] {
            for register in CALLEE_SAVED.into_iter().chain([RSP]) {
                let entry = if register == RSP { self.top(side) } else { self.preserved(side, register) };
                let now = pair.states[side].regs[register];
                if !self.must_equal(pair, entry, now)? {
                    return self.mismatch(a.node, format!("{} is not given back", REGISTERS[register]));
                }
            }
        }
        Ok(())
    }

    /// Both go to the same function; its name, if it has one.
    fn same_callee(
        &mut self,
        pair: &mut Pair,
        insns: [&Insn; 2],
        targets: [Option<&Target>; 2],
    ) -> Step<Option<String>> {
        let [a, b] = insns;
        let callees = [BASE, OTHER].map(|side| self.callee(pair, side, insns[side], targets[side]));
        match callees {
            [Some(Callee::Named(name, offset)), Some(Callee::Named(other, other_offset))]
                if name == other && offset == other_offset =>
            {
                Ok(Some(name))
            }
            [Some(Callee::Computed(x)), Some(Callee::Computed(y))] if self.must_equal(pair, x, y)? => Ok(None),
            _ => self.mismatch(a.node, format!("`{}` against `{}`: another function", a.text(), b.text())),
        }
    }

    fn callee(&mut self, pair: &Pair, side: usize, insn: &Insn, target: Option<&Target>) -> Option<Callee> {
        match target {
            Some(Target::External(symbol)) => match indirect(&symbol.name) {
                Some(register) => Some(Callee::Computed(pair.states[side].regs[register])),
                None => Some(Callee::Named(symbol.name.clone(), symbol.offset)),
            },
            Some(Target::Local(node)) => {
                let function = self.sides[side].object.function_at(*node)?;
                Some(Callee::Named(function.name.clone(), (node.offset - function.start.offset) as i64))
            }
            None => {
                let mut state = pair.states[side].clone();
                operand_value(&mut self.terms, &mut state, insn, 0, None).ok().map(Callee::Computed)
            }
        }
    }

    /// What a name says of its function, where only one has it.
    pub fn signature(&self, name: &str) -> Option<Signature> {
        self.rules.prototypes.signature(name)
    }

    /// The functions that are called, where their code is at hand and no other can take
    /// their place.
    fn local_callees(&self, a: Option<&Target>, b: Option<&Target>) -> Option<[Function; 2]> {
        let find = |side: usize, target: Option<&Target>| match target {
            Some(Target::Local(node)) => self.sides[side].object.functions.get(node).filter(|f| !f.weak).cloned(),
            _ => None,
        };
        Some([find(BASE, a)?, find(OTHER, b)?])
    }

    fn is_local(&self, name: &str) -> bool {
        self.sides[BASE].object.functions.values().any(|function| function.name == name && !function.weak)
    }

    /// Nothing that a callee may read can differ.
    fn arguments(
        &mut self,
        pair: &mut Pair,
        insns: [&Insn; 2],
        name: Option<&str>,
        local: Option<[Function; 2]>,
    ) -> Step {
        let a = insns[BASE];
        let noted = self.noted(insns);
        let passed = match &noted {
            Some(call) => Some(call.registers.clone()),
            None => self.passed(pair, name, &local),
        };
        let helper = name.is_some_and(|name| !self.rules.prototypes.is_function(name) && local.is_none());
        let wanted = match passed {
            Some(passed) => passed,
            None => {
                let mut all: Vec<(usize, u8)> = ARGUMENTS.into_iter().map(|register| (register, 64)).collect();
                // Arguments of helpers in assembly.
                if helper && name.is_some_and(|name| name.starts_with("__")) {
                    all.push((RAX, 64));
                }
                let unused: Vec<usize> = ARGUMENTS.into_iter().filter(|&register| self.free(pair, register)).collect();
                all.retain(|(register, _)| !unused.contains(register));
                all
            }
        };
        for (register, bits) in wanted {
            let [x, y] = [BASE, OTHER].map(|side| pair.states[side].regs[register]);
            let (x, y) = (self.terms.extract(x, 0, bits.into()), self.terms.extract(y, 0, bits.into()));
            if !self.must_equal(pair, x, y)? {
                let callee = name.unwrap_or("an unknown function");
                let (x, y) = (self.terms.show(x, SHOWN), self.terms.show(y, SHOWN));
                return self.mismatch(
                    a.node,
                    format!("{} may differ, which {callee} may read: {x} / {y}", REGISTERS[register]),
                );
            }
        }
        let on_stack = match noted {
            Some(call) => Some(call.on_stack),
            None => name.and_then(|name| self.signature(name)).map(|known| known.arguments.len().saturating_sub(6)),
        };
        self.stack_arguments(pair, a, on_stack)
    }

    /// Registers that a call passes, with the bits that count; `None` when it may be all.
    fn passed(&self, pair: &Pair, name: Option<&str>, local: &Option<[Function; 2]>) -> Option<Vec<(usize, u8)>> {
        let signature = name.and_then(|name| self.signature(name));
        let width = |register: usize| {
            let at = ARGUMENTS.iter().position(|&argument| argument == register);
            at.zip(signature.as_ref()).and_then(|(at, signature)| signature.arguments.get(at).copied()).unwrap_or(64)
        };
        if let Some(functions) = local {
            // Its own code says what it reads, whatever other functions of that name do.
            let reads = |register: usize| {
                [BASE, OTHER]
                    .iter()
                    .any(|&side| self.sides[side].flow.callee_reads(functions[side].start).register(register))
            };
            return Some(CALLER_SAVED.into_iter().filter(|&r| reads(r)).map(|r| (r, width(r))).collect());
        }
        if let Some(signature) = &signature {
            return Some(ARGUMENTS.into_iter().zip(signature.arguments.iter().copied()).collect());
        }
        let count = name.and_then(|name| self.formatted(pair, name))?;
        Some(ARGUMENTS.into_iter().take(count).map(|register| (register, 64)).collect())
    }

    /// How many arguments a call of a printf-like function passes, when its format is a
    /// literal.
    fn formatted(&self, pair: &Pair, name: &str) -> Option<usize> {
        const PRINTS: [&str; 6] =
            ["_printk", "__dynamic_pr_debug", "__warn_printk", "seq_printf", "snprintf", "scnprintf"];
        let named = self.rules.prototypes.variadic(name).filter(|_| PRINTS.contains(&name))?;
        let register = *ARGUMENTS.get(named.checked_sub(1)?)?;
        let xk_lift::term::Node::Symbol(symbol) = self.terms.node(pair.states[BASE].regs[register]) else {
            return None;
        };
        let literal = symbol.strip_prefix('&').filter(|symbol| symbol.starts_with('"'))?;
        Some((named + conversions(literal)).min(6))
    }

    /// What the compiler says that both calls pass.
    fn noted(&self, insns: [&Insn; 2]) -> Option<Call> {
        let [ours, theirs] = [BASE, OTHER].map(|side| self.sides[side].notes?.call(insns[side].node));
        ours.filter(|ours| Some(*ours) == theirs).cloned()
    }

    /// Arguments that were pushed: they are the callee's from now on.
    fn stack_arguments(&mut self, pair: &mut Pair, a: &Insn, count: Option<usize>) -> Step {
        let mut values: [Vec<TermId>; 2] = [Vec::new(), Vec::new()];
        for side in [BASE, OTHER] {
            let state = &mut pair.states[side];
            let Some(frame) = &mut state.frame else { return Ok(()) };
            let Some(mut at) = frame.place(&self.terms, state.regs[RSP]) else {
                return self.mismatch(a.node, "the stack pointer is not known");
            };
            while let Some(value) =
                frame.pushed.get(&at).copied().filter(|_| count.is_none_or(|count| values[side].len() < count))
            {
                // A register that is saved for the caller, not passed.
                if is_entry(&self.terms, value) {
                    break;
                }
                values[side].push(value);
                pair.escaped |= !self.terms.is_foreign(value);
                frame.pushed.remove(&at);
                frame.slots.remove(&at);
                at += 8;
            }
        }
        let [ours, theirs] = values;
        if ours.len() != theirs.len() || count.is_some_and(|count| ours.len() < count) {
            return self.mismatch(a.node, format!("`{}`: arguments on the stack", a.text()));
        }
        for (x, y) in ours.into_iter().zip(theirs) {
            if !self.must_equal(pair, x, y)? {
                return self.mismatch(a.node, format!("`{}`: an argument on the stack may differ", a.text()));
            }
        }
        Ok(())
    }

    /// What registers hold after a call: the result is the same in both builds, and
    /// compiled code does not read what a call clobbers before it writes it.
    fn results(&mut self, pair: &mut Pair, name: Option<&str>, compiled: bool) {
        let known = |name: &str| compiled || self.rules.prototypes.is_function(name) || self.is_local(name);
        let helper = name.is_some_and(|name| !known(name));
        let result = name.and_then(|name| self.rules.prototypes.result(name));
        for register in CALLER_SAVED {
            if helper {
                // It may preserve what it does not name: only what was the same is the same.
                let [x, y] = [BASE, OTHER].map(|side| pair.states[side].regs[register]);
                let same = self.claims.equal(&mut self.terms, &mut pair.facts, x, y, Effort::Welcome);
                let same = same || register == RAX && self.free(pair, RAX);
                self.renew(pair, register, same);
                continue;
            }
            match (register, result) {
                (RAX, Some(1..)) => self.renew(pair, RAX, true),
                (RAX | RDX, None) => self.renew(pair, register, true),
                _ => {
                    for side in [BASE, OTHER] {
                        pair.states[side].regs[register] = clobbered(&mut self.terms, register);
                    }
                }
            }
        }
        self.forget_flags(pair);
    }
}

/// The register through which a retpoline goes.
fn indirect(thunk: &str) -> Option<usize> {
    let suffix = thunk.strip_prefix("__x86_indirect_")?;
    REGISTERS.iter().position(|name| suffix.ends_with(&format!("_{name}")))
}

fn is_entry(terms: &xk_lift::term::Terms, value: TermId) -> bool {
    matches!(terms.node(value), xk_lift::term::Node::Symbol(name) if name.starts_with("entry "))
}
