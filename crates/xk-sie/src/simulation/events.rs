//! What both builds must do together: calls, returns, traps, accesses that may fault, what
//! the kernel patches, and instructions of which no more is known than their operands.
//!
//! Each takes the same inputs in both builds, in the same order and with the same memory;
//! what comes of it is then the same, whatever that is.

use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::claims::Effort;
use super::relation::{clobbered, BASE, OTHER};
use super::side::{At, Kind};
use super::walk::{Pair, Step, Walk, CALLEE_SAVED, SHOWN};
use crate::diff::Field;
use crate::flow::ARGUMENTS;
use crate::insn::{Insn, Target};
use crate::notes::Call;
use crate::object::Function;
use crate::prototypes::{conversions, is_transparent, Signature};
use crate::semantics::{gpr, is_immediate, operand_address, operand_value};
use crate::state::{Flag, REGISTERS, RSP};
use crate::term::TermId;

/// Registers that a call may change (System V ABI).
const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
const RAX: usize = 0;
const RDX: usize = 2;

/// What is called.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Callee {
    /// A function by its name, and the distance from its start.
    Named(String, i64),
    /// What an operand says.
    Computed(TermId),
}

impl<'a> Walk<'a> {
    /// Both builds stand before an instruction of theirs.
    pub fn events(&mut self, mut pair: Pair, a: &'a Insn, b: &'a Insn) -> Step {
        let kinds = [self.sides[BASE].kind(a), self.sides[OTHER].kind(b)].map(|kind| kind.unwrap_or(Kind::Opaque));
        match kinds {
            [Kind::Branch(_), Kind::Branch(_)] => return self.branches(pair, a, b),
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

    /// What a name says of its function, where only one has it.
    pub fn signature(&self, name: &str) -> Option<Signature> {
        self.rules.prototypes.signature(name)
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

    fn call(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
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
        // A call of the compiler's own follows the ABI, whatever is called.
        let compiled = self.noted([a, b]).is_some();
        self.results(&mut pair, name.as_deref(), compiled);
        self.cut(pair, after)
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
        let crate::term::Node::Symbol(symbol) = self.terms.node(pair.states[BASE].regs[register]) else { return None };
        let literal = symbol.strip_prefix('&').filter(|symbol| symbol.starts_with('"'))?;
        Some((named + conversions(literal)).min(6))
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

    /// What the compiler says that both calls pass.
    fn noted(&self, insns: [&Insn; 2]) -> Option<Call> {
        let [ours, theirs] = [BASE, OTHER].map(|side| self.sides[side].notes?.call(insns[side].node));
        ours.filter(|ours| Some(*ours) == theirs).cloned()
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

    /// What registers hold behind a call: the result is the same in both builds, and
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

    fn is_local(&self, name: &str) -> bool {
        self.sides[BASE].object.functions.values().any(|function| function.name == name && !function.weak)
    }

    fn free(&mut self, pair: &Pair, register: usize) -> bool {
        let nothing = clobbered(&mut self.terms, register);
        [BASE, OTHER].iter().any(|&side| pair.states[side].regs[register] == nothing)
    }

    /// Another value in `register`: the same in both builds, or not.
    fn renew(&mut self, pair: &mut Pair, register: usize, same: bool) {
        let value = self.terms.fresh("result", 64);
        pair.states[BASE].regs[register] = value;
        pair.states[OTHER].regs[register] = if same { value } else { self.terms.fresh("unrelated", 64) };
    }

    fn forget_flags(&mut self, pair: &mut Pair) {
        for state in &mut pair.states {
            for flag in Flag::ALL {
                let unknown = self.terms.fresh("undefined", 1);
                state.set_flag(flag, unknown);
            }
        }
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

    /// Both go to another function in the place of their own.
    pub fn leave(&mut self, mut pair: Pair, insns: [&Insn; 2], targets: [&Target; 2]) -> Step {
        let thunk = |target: &Target| matches!(target, Target::External(symbol) if symbol.name == "__x86_return_thunk");
        if targets.iter().all(|target| thunk(target)) {
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

    /// Where an operand lies in memory.
    fn address(&mut self, pair: &Pair, side: usize, insn: &Insn) -> Step<TermId> {
        let displacement = self.sides[side].replaced(&mut self.terms, insn.node, Field::Displacement);
        match operand_address(&mut self.terms, &pair.states[side], insn, displacement) {
            Ok(address) => Ok(address),
            Err(unsupported) => self.mismatch(insn.node, format!("`{}` is not covered", unsupported.0)),
        }
    }

    fn value(&mut self, pair: &mut Pair, side: usize, insn: &Insn, operand: u32) -> Step<TermId> {
        let immediate = self.sides[side].replaced(&mut self.terms, insn.node, Field::Immediate);
        match operand_value(&mut self.terms, &mut pair.states[side], insn, operand, immediate) {
            Ok(value) => Ok(value),
            Err(unsupported) => self.mismatch(insn.node, format!("`{}` is not covered", unsupported.0)),
        }
    }

    /// An access that may fault: it is made to the same place, in the same order.
    fn faulting(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
        let (base, other) = (self.sides[BASE].object, self.sides[OTHER].object);
        let (Some(&fixed), Some(&other_fixed)) = (base.fixups.get(&a.node), other.fixups.get(&b.node)) else {
            return self.mismatch(a.node, "different exception fixups");
        };
        let before = pair.clone();
        // As an instruction of which only the operands are known: what it writes is the same.
        self.operands(&mut pair, a, b)?;
        let mut faulted = before;
        faulted.facts = pair.facts.clone();
        self.same_memory(&mut faulted, a.node)?;
        self.forget_flags(&mut faulted);
        self.handler(&mut faulted, [a, b])?;
        if a.raw.has_rep_prefix() {
            // It stops somewhere in the middle, in both builds.
            for register in [1, 6, 7] {
                self.renew(&mut faulted, register, true);
            }
        }
        self.cut(faulted, (fixed, other_fixed))?;
        self.cut(pair, (a.next(), b.next()))
    }

    /// What the handlers of a fault do to registers
    /// (arch/x86/include/asm/extable_fixup_types.h, arch/x86/mm/extable.c).
    fn handler(&mut self, pair: &mut Pair, insns: [&Insn; 2]) -> Step {
        let handlers = [BASE, OTHER].map(|side| self.sides[side].object.handlers.get(&insns[side].node).copied());
        let [Some(ours), Some(theirs)] = handlers else {
            return self.mismatch(insns[BASE].node, "an exception fixup without a handler");
        };
        let parts = |[kind, middle, low, high]: [u8; 4]| {
            (kind, usize::from(middle & 0xf), middle >> 4, i16::from_le_bytes([low, high]))
        };
        let ((kind, register, flags, number), (other_kind, other, other_flags, other_number)) =
            (parts(ours), parts(theirs));
        if (kind, flags, number) != (other_kind, other_flags, other_number) {
            return self.mismatch(insns[BASE].node, "different exception fixups");
        }
        let value = match kind {
            DEFAULT | UACCESS | WRMSR => None,
            // The number of the trap, or zeros: the same in both builds.
            FAULT => {
                self.renew(pair, RAX, true);
                None
            }
            RDMSR => {
                self.renew(pair, RAX, true);
                self.renew(pair, RDX, true);
                None
            }
            WRMSR_SAFE | RDMSR_SAFE => Some(-EIO),
            IMM_REG => Some(number.into()),
            _ => return self.mismatch(insns[BASE].node, format!("an exception fixup of type {kind}")),
        };
        if let Some(value) = value {
            let value = self.terms.constant(value as u64 as u128, 64);
            pair.states[BASE].regs[register] = value;
            pair.states[OTHER].regs[other] = value;
        }
        for (bit, cleared) in [(1, RAX), (2, RDX)] {
            if flags & bit != 0 {
                let zero = self.terms.constant(0, 64);
                pair.states.iter_mut().for_each(|state| state.regs[cleared] = zero);
            }
        }
        Ok(())
    }

    /// An instruction of which no more is known than its operands.
    fn opaque(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
        if a.raw.flow_control() != FlowControl::Next || b.raw.flow_control() != FlowControl::Next {
            return self.mismatch(a.node, format!("`{}` is not covered", a.text()));
        }
        self.operands(&mut pair, a, b)?;
        self.cut(pair, (a.next(), b.next()))
    }

    /// The same operation on the same operands: its results are the same.
    fn operands(&mut self, pair: &mut Pair, a: &Insn, b: &Insn) -> Step {
        let differ = |walk: &Self| walk.mismatch(a.node, format!("`{}` against `{}`", a.text(), b.text()));
        let replaced = |field| self.sides[BASE].replacements.is_some_and(|all| all.contains_key(&(a.node, field)));
        if replaced(Field::Product) || replaced(Field::Pool) || !same_operation(a, b) {
            return differ(self);
        }
        self.same_memory(pair, a.node)?;
        if (a.raw.rflags_read() | b.raw.rflags_read()) & STATUS != 0 {
            for flag in Flag::ALL {
                let [x, y] = [BASE, OTHER].map(|side| pair.states[side].flag(flag));
                if !self.must_equal(pair, x, y)? {
                    return self.mismatch(a.node, format!("`{}` reads flags that may differ", a.text()));
                }
            }
        }
        let mut factory = InstructionInfoFactory::new();
        let accesses: Vec<OpAccess> = {
            let info = factory.info(&a.raw);
            (0..a.raw.op_count()).map(|i| info.op_access(i)).collect()
        };
        let mut written: Vec<(Register, Register)> = Vec::new();
        for operand in 0..a.raw.op_count() {
            let access = accesses[operand as usize];
            match (a.raw.op_kind(operand), b.raw.op_kind(operand)) {
                (OpKind::Memory, OpKind::Memory) => {
                    let (x, y) = (self.address(pair, BASE, a)?, self.address(pair, OTHER, b)?);
                    if !self.must_equal(pair, x, y)? {
                        return self.mismatch(a.node, format!("`{}`: the address may differ", a.text()));
                    }
                }
                (x, y) if is_value(x) && is_value(y) => {
                    let special = |insn: &Insn| {
                        insn.raw.op_kind(operand) == OpKind::Register && gpr(insn.raw.op_register(operand)).is_none()
                    };
                    if special(a) || special(b) {
                        if a.raw.op_register(operand) != b.raw.op_register(operand) {
                            return differ(self);
                        }
                        continue;
                    }
                    if reads(access) {
                        let (x, y) = (self.value(pair, BASE, a, operand)?, self.value(pair, OTHER, b, operand)?);
                        if self.terms.bits(x) != self.terms.bits(y) {
                            return differ(self);
                        }
                        if !self.must_equal(pair, x, y)? {
                            return self.mismatch(a.node, format!("`{}`: an operand may differ", a.text()));
                        }
                    }
                    if writes(access) {
                        let registers = (a.raw.op_register(operand), b.raw.op_register(operand));
                        if registers.0.size() != registers.1.size() {
                            return differ(self);
                        }
                        written.push(registers);
                    }
                }
                (x, y) if x == y => {}
                _ => return differ(self),
            }
        }
        self.implicit(pair, a, &written, &mut factory)?;
        self.write(pair, a, &written);
        Ok(())
    }

    /// Registers that the operation uses without naming them.
    fn implicit(
        &mut self,
        pair: &mut Pair,
        a: &Insn,
        written: &[(Register, Register)],
        factory: &mut InstructionInfoFactory,
    ) -> Step {
        let named: Vec<Register> = (0..a.raw.op_count())
            .filter(|&i| a.raw.op_kind(i) == OpKind::Register)
            .map(|i| a.raw.op_register(i).full_register())
            .chain([a.raw.memory_base(), a.raw.memory_index()].map(|r| r.full_register()))
            .collect();
        let used: Vec<(Register, OpAccess)> =
            factory.info(&a.raw).used_registers().iter().map(|used| (used.register(), used.access())).collect();
        let _ = written;
        for (register, access) in used {
            let Some((number, ..)) = gpr(register) else { continue };
            let implied = !named.contains(&register.full_register()) || implies(a, register);
            if !implied {
                continue;
            }
            if number == RSP {
                return self.mismatch(a.node, format!("`{}` is not covered", a.text()));
            }
            if reads(access) {
                let [x, y] = [BASE, OTHER].map(|side| pair.states[side].regs[number]);
                if !self.must_equal(pair, x, y)? {
                    return self.mismatch(a.node, format!("`{}`: {} may differ", a.text(), REGISTERS[number]));
                }
            }
            if writes(access) {
                self.renew(pair, number, true);
            }
        }
        Ok(())
    }

    fn write(&mut self, pair: &mut Pair, a: &Insn, written: &[(Register, Register)]) {
        for &(ours, theirs) in written {
            let (Some((x, bits, high)), Some((y, _, other_high))) = (gpr(ours), gpr(theirs)) else { continue };
            let value = self.terms.fresh("result", bits);
            for (side, number, high) in [(BASE, x, high), (OTHER, y, other_high)] {
                if high {
                    pair.states[side].set_high_byte(&mut self.terms, number, value);
                } else {
                    pair.states[side].set_reg(&mut self.terms, number, value);
                }
            }
        }
        if a.raw.rflags_modified() & STATUS != 0 {
            for flag in Flag::ALL {
                let value = self.terms.fresh("result", 1);
                pair.states.iter_mut().for_each(|state| state.set_flag(flag, value));
            }
        }
    }

    /// A site at which the kernel may put other instructions at boot: the same choice of
    /// instructions in both builds, which find the same in the registers that they name.
    fn patched(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
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
        let calls = ours.calls;
        if calls {
            let count = ours.paravirtual.and_then(|offset| self.rules.prototypes.paravirtual(offset));
            self.read_by(&mut pair, a, count)?;
        }
        for register in ours.reads.iter().copied() {
            let [x, y] = [BASE, OTHER].map(|side| pair.states[side].regs[register]);
            if register != RSP && !self.must_equal(&mut pair, x, y)? {
                return self.mismatch(a.node, format!("`{}`: {} may differ", a.text(), REGISTERS[register]));
            }
        }
        if calls {
            for register in CALLER_SAVED {
                let [x, y] = [BASE, OTHER].map(|side| pair.states[side].regs[register]);
                let same = self.claims.equal(&mut self.terms, &mut pair.facts, x, y, Effort::Welcome);
                self.renew(&mut pair, register, same || register == RAX);
            }
        }
        for &(register, always) in ours.writes.iter().filter(|(register, _)| *register != RSP) {
            let [x, y] = [BASE, OTHER].map(|side| pair.states[side].regs[register]);
            let same = always || self.claims.equal(&mut self.terms, &mut pair.facts, x, y, Effort::Welcome);
            self.renew(&mut pair, register, same);
        }
        self.forget_flags(&mut pair);
        for (to, other_to) in ours.exits.iter().zip(&theirs.exits) {
            self.cut(pair.clone(), (*to, *other_to))?;
        }
        Ok(())
    }
}

/// Types of exception fixups, as `EX_TYPE_*`.
const DEFAULT: u8 = 1;
const FAULT: u8 = 2;
const UACCESS: u8 = 3;
const WRMSR: u8 = 8;
const RDMSR: u8 = 9;
const WRMSR_SAFE: u8 = 10;
const RDMSR_SAFE: u8 = 11;
const IMM_REG: u8 = 17;
/// include/uapi/asm-generic/errno-base.h
const EIO: i64 = 5;

/// CF, PF, AF, ZF, SF and OF as iced numbers them.
const STATUS: u32 = {
    use iced_x86::RflagsBits as F;
    F::CF | F::PF | F::AF | F::ZF | F::SF | F::OF
};

/// The register through which a retpoline goes.
fn indirect(thunk: &str) -> Option<usize> {
    let suffix = thunk.strip_prefix("__x86_indirect_")?;
    REGISTERS.iter().position(|name| suffix.ends_with(&format!("_{name}")))
}

fn is_entry(terms: &crate::term::Terms, value: TermId) -> bool {
    matches!(terms.node(value), crate::term::Node::Symbol(name) if name.starts_with("entry "))
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

/// The same operation, whatever its operands.
fn same_operation(a: &Insn, b: &Insn) -> bool {
    let (x, y) = (&a.raw, &b.raw);
    let memory = |raw: &iced_x86::Instruction| (0..raw.op_count()).any(|i| raw.op_kind(i) == OpKind::Memory);
    x.mnemonic() == y.mnemonic()
        && x.op_count() == y.op_count()
        && x.has_lock_prefix() == y.has_lock_prefix()
        && x.has_rep_prefix() == y.has_rep_prefix()
        && x.has_repne_prefix() == y.has_repne_prefix()
        && x.segment_prefix() == y.segment_prefix()
        && (!memory(x) || x.memory_size() == y.memory_size())
}

fn is_value(kind: OpKind) -> bool {
    kind == OpKind::Register || is_immediate(kind)
}

/// Whether an instruction that names a register also uses it without naming it.
fn implies(insn: &Insn, register: Register) -> bool {
    let full = register.full_register();
    match insn.raw.mnemonic() {
        Mnemonic::Mul | Mnemonic::Imul | Mnemonic::Div | Mnemonic::Idiv if insn.raw.op_count() == 1 => {
            full == Register::RAX || full == Register::RDX
        }
        Mnemonic::Cmpxchg => full == Register::RAX,
        Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b => true,
        _ => insn.raw.has_rep_prefix(),
    }
}

/// A conditional write may leave what was there.
fn reads(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Write | OpAccess::None | OpAccess::NoMemAccess)
}

fn writes(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess)
}
