//! Instructions of which no more is known than their operands, and accesses that may fault.

use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use xk_lift::insn::Insn;
use xk_lift::semantics::{gpr, is_immediate, operand_address, operand_value};
use xk_lift::state::{Flag, REGISTERS, RSP, STATUS};
use xk_lift::term::TermId;

use super::calls::{RAX, RDX};
use super::relation::{BASE, OTHER};
use super::walk::{Pair, Step, Walk};
use crate::constants::Field;
use crate::diff::forms::may_leave_flags;

/// Types of exception fixups, as `EX_TYPE_*`.
pub(crate) const DEFAULT: u8 = 1;
const FAULT: u8 = 2;
pub(crate) const UACCESS: u8 = 3;
const WRMSR: u8 = 8;
const RDMSR: u8 = 9;
const WRMSR_SAFE: u8 = 10;
const RDMSR_SAFE: u8 = 11;
const IMM_REG: u8 = 17;
/// include/uapi/asm-generic/errno-base.h
const EIO: i64 = 5;

impl<'a> Walk<'a> {
    /// An instruction of which no more is known than its operands.
    pub fn opaque(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
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
        let order = self.sides[BASE].order(a.node).is_some();
        if replaced(Field::Product) || replaced(Field::Pool) || order || !same_operation(a, b) {
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
        for (operand, access) in (0..).zip(accesses) {
            match (a.raw.op_kind(operand), b.raw.op_kind(operand)) {
                (OpKind::Memory, OpKind::Memory) => {
                    let (x, y) = (self.address(pair, BASE, a)?, self.address(pair, OTHER, b)?);
                    if !self.must_equal(pair, x, y)? {
                        return self.mismatch(a.node, format!("`{}`: the address may differ", a.text()));
                    }
                    let bytes = a.raw.memory_size().size();
                    let private = [(BASE, x), (OTHER, y)].into_iter().any(|(side, address)| {
                        let frame = pair.states[side].frame.as_ref();
                        frame.is_some_and(|frame| frame.is_touched(&self.terms, address, bytes))
                    });
                    // What is there is not compared.
                    if private {
                        return self.mismatch(a.node, format!("`{}` uses a spill slot", a.text()));
                    }
                }
                (x, y) if is_value(x) && is_value(y) => {
                    written.extend(self.operand(pair, [a, b], operand, access)?);
                }
                (x, y) if x == y => {}
                _ => return differ(self),
            }
        }
        let kept = passed_on(a, &mut factory);
        let other_kept = passed_on(b, &mut factory);
        self.let_out(pair, kept.into_iter().chain(other_kept));
        self.implicit(pair, a, &mut factory)?;
        self.write(pair, a, &written);
        Ok(())
    }

    /// A register or an immediate. Out: the registers to write, of both builds, if it is
    /// written.
    fn operand(
        &mut self,
        pair: &mut Pair,
        [a, b]: [&Insn; 2],
        operand: u32,
        access: OpAccess,
    ) -> Step<Option<(Register, Register)>> {
        let differ = |walk: &Self| walk.mismatch(a.node, format!("`{}` against `{}`", a.text(), b.text()));
        let special =
            |insn: &Insn| insn.raw.op_kind(operand) == OpKind::Register && gpr(insn.raw.op_register(operand)).is_none();
        let registers = (a.raw.op_register(operand), b.raw.op_register(operand));
        if special(a) || special(b) {
            return if registers.0 == registers.1 { Ok(None) } else { differ(self) };
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
        if !writes(access) {
            return Ok(None);
        }
        if registers.0.size() != registers.1.size() {
            return differ(self);
        }
        Ok(Some(registers))
    }

    /// Registers that the operation uses without naming them.
    fn implicit(&mut self, pair: &mut Pair, a: &Insn, factory: &mut InstructionInfoFactory) -> Step {
        let named: Vec<Register> = (0..a.raw.op_count())
            .filter(|&i| a.raw.op_kind(i) == OpKind::Register)
            .map(|i| a.raw.op_register(i).full_register())
            .chain([a.raw.memory_base(), a.raw.memory_index()].map(|r| r.full_register()))
            .collect();
        let used: Vec<(Register, OpAccess)> =
            factory.info(&a.raw).used_registers().iter().map(|used| (used.register(), used.access())).collect();
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
            let value = self.result(pair, bits);
            for (side, number, high) in [(BASE, x, high), (OTHER, y, other_high)] {
                if high {
                    pair.states[side].set_high_byte(&mut self.terms, number, value);
                } else {
                    pair.states[side].set_reg(&mut self.terms, number, value);
                }
            }
        }
        let defined = a.raw.rflags_written() | a.raw.rflags_cleared() | a.raw.rflags_set();
        for flag in Flag::ALL.into_iter().filter(|flag| a.raw.rflags_modified() & flag.iced() != 0) {
            let same = defined & flag.iced() != 0 && !may_leave_flags(&a.raw);
            let value = self.terms.fresh("result", 1);
            let other = if same { value } else { self.terms.fresh("undefined", 1) };
            pair.states[BASE].set_flag(flag, value);
            pair.states[OTHER].set_flag(flag, other);
        }
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
    pub fn faulting(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
        let (base, other) = (self.sides[BASE].object, self.sides[OTHER].object);
        let (Some(&fixed), Some(&other_fixed)) = (base.fixups.get(&a.node), other.fixups.get(&b.node)) else {
            return self.mismatch(a.node, "different exception fixups");
        };
        let before = pair.clone();
        // As an instruction of which only the operands are known: what it writes is the same.
        self.operands(&mut pair, a, b)?;
        let mut faulted = before;
        faulted.facts = pair.facts.clone();
        faulted.escaped = pair.escaped;
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

/// Registers whose values an instruction may store or compute with. Where it accesses memory is
/// no such value.
fn passed_on(insn: &Insn, factory: &mut InstructionInfoFactory) -> Vec<usize> {
    use Register as R;
    let raw = &insn.raw;
    let named = |register: R| {
        (0..raw.op_count())
            .any(|i| raw.op_kind(i) == OpKind::Register && raw.op_register(i).full_register() == register)
    };
    let addresses = |register: R| {
        let strings = raw.is_string_instruction() && matches!(register, R::RSI | R::RDI | R::RCX);
        strings || [raw.memory_base(), raw.memory_index()].iter().any(|used| used.full_register() == register)
    };
    let used: Vec<R> = factory.info(raw).used_registers().iter().map(|used| used.register().full_register()).collect();
    let passed = used.into_iter().filter(|&register| named(register) || !addresses(register));
    passed.filter_map(|register| gpr(register).map(|(number, ..)| number)).collect()
}

/// A conditional write may leave what was there.
fn reads(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Write | OpAccess::None | OpAccess::NoMemAccess)
}

fn writes(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess)
}
