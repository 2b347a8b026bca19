//! The operands of paired instructions: what they read must be equal, what
//! they write becomes equal, and constants that differ are recorded.

use std::collections::HashSet;

use iced_x86::{FlowControl, Mnemonic, OpAccess, OpKind, Register};
use xk_lift::insn::Insn;
use xk_lift::semantics::{gpr, is_immediate};
use xk_lift::term;

use super::forms::Form;
use super::pairing::{Pairing, Valid};
use super::walk::Walk;
use super::Mismatch;
use crate::constants::{Field, VariantConstant};

impl Walk<'_> {
    pub(super) fn operands(
        &mut self,
        ours: &Insn,
        theirs: &Insn,
        pairing: &mut Pairing,
        form: Form,
    ) -> Result<(), Mismatch> {
        if form == Form::Zero {
            return self.zero(ours, theirs, pairing);
        }
        let narrow = if let Form::Narrow(bits) | Form::Negated(bits) = form { bits } else { 64 };
        let (b, v) = (&ours.raw, &theirs.raw);
        let mut writes: Vec<(usize, usize, Valid)> = Vec::new();
        let mut explicit = Explicit::default();
        // `xor %eax,%eax` and `sub %eax,%eax` do not read.
        let clears = matches!(b.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
            && b.op_kind(1) == OpKind::Register
            && b.op0_register() == b.op1_register()
            && v.op0_register() == v.op1_register();
        let accesses: Vec<OpAccess> = {
            let info = self.info.info(b);
            (0..b.op_count()).map(|i| info.op_access(i)).collect()
        };
        for i in 0..b.op_count() {
            match b.op_kind(i) {
                OpKind::Register => {
                    let (br, vr) = (b.op_register(i), v.op_register(i));
                    let (Some((bn, bits, high)), Some((vn, ..))) = (gpr(br), gpr(vr)) else { continue };
                    let access = accesses[i as usize];
                    explicit.note(br, access);
                    let used = bits.min(narrow);
                    let needed: Valid = if high { 16 } else { used as u8 };
                    if !clears && reads(access) && pairing.valid(bn, vn) < needed {
                        return self.unpaired(ours, theirs);
                    }
                    if writes_operand(access) {
                        let old = pairing.valid(bn, vn);
                        let same_width = br.size() == vr.size();
                        let valid = match used {
                            // ah … bh: the low byte is what it was.
                            8 if high => old,
                            // 32 bits clear the rest in both builds, or in one of them.
                            32 if same_width => 64,
                            32 | 64 => used as u8,
                            _ if same_width => old.max(used as u8),
                            _ => used as u8,
                        };
                        writes.push((bn, vn, valid));
                    }
                }
                OpKind::Memory => self.memory_operand(ours, theirs, pairing, &mut explicit)?,
                kind if is_immediate(kind) => self.immediate(ours, theirs, i, form)?,
                _ => {}
            }
        }
        self.implicit(ours, theirs, pairing, &explicit, &mut writes)?;
        for (bn, vn, valid) in writes {
            pairing.pair(bn, vn, valid);
        }
        Ok(())
    }

    /// One build has an immediate where the other has a zero idiom.
    fn zero(&mut self, ours: &Insn, theirs: &Insn, pairing: &mut Pairing) -> Result<(), Mismatch> {
        let (b, v) = (&ours.raw, &theirs.raw);
        let (Some((bn, ..)), Some((vn, ..))) = (gpr(b.op0_register()), gpr(v.op0_register())) else {
            return self.unpaired(ours, theirs);
        };
        let compares = matches!(b.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
        if compares && pairing.valid(bn, vn) < 64 {
            return self.unpaired(ours, theirs);
        }
        if !compares {
            pairing.pair(bn, vn, 64);
        }
        if !is_immediate(b.op_kind(1)) {
            return self.mismatch(ours.node, format!("`{}` has no immediate for another value", ours.text()));
        }
        if b.immediate(1) != 0 {
            self.record(ours, theirs, Field::Immediate, VariantConstant { value: 0, bits: 64 });
        }
        Ok(())
    }

    fn unpaired<T>(&self, ours: &Insn, theirs: &Insn) -> Result<T, Mismatch> {
        let detail = format!("`{}` against `{}`: they read registers that may differ", ours.text(), theirs.text());
        self.mismatch(ours.node, detail)
    }

    fn memory_operand(
        &mut self,
        ours: &Insn,
        theirs: &Insn,
        pairing: &Pairing,
        explicit: &mut Explicit,
    ) -> Result<(), Mismatch> {
        let (b, v) = (&ours.raw, &theirs.raw);
        let registers = [(b.memory_base(), v.memory_base()), (b.memory_index(), v.memory_index())];
        for (br, vr) in registers {
            explicit.note(br, OpAccess::Read);
            match (gpr(br), gpr(vr)) {
                (Some((bn, bits, _)), Some((vn, other_bits, _))) => {
                    if bits != other_bits || pairing.valid(bn, vn) < 64 {
                        return self.unpaired(ours, theirs);
                    }
                }
                (None, None) if br == vr => {}
                _ => return self.unpaired(ours, theirs),
            }
        }
        let scales = b.memory_index() == Register::None || b.memory_index_scale() == v.memory_index_scale();
        if let (Some(x), Some(y), true) =
            (ours.pool, theirs.pool, matches!(b.mnemonic(), Mnemonic::Mov | Mnemonic::Movzx))
        {
            let bits = b.memory_size().size() as u32 * 8;
            let kept = term::mask(bits) as u64;
            if x & kept != y & kept {
                self.record(ours, theirs, Field::Pool, VariantConstant { value: y & kept, bits });
            }
            return Ok(());
        }
        let names = ours.displacement.as_ref().map(|s| &s.name) == theirs.displacement.as_ref().map(|s| &s.name);
        if !scales || !names {
            return self.mismatch(ours.node, format!("`{}` against `{}`", ours.text(), theirs.text()));
        }
        let place = |insn: &Insn| match &insn.displacement {
            Some(symbol) => symbol.offset as u64,
            None => insn.raw.memory_displacement64(),
        };
        if place(ours) != place(theirs) {
            if matches!(b.memory_base(), Register::RSP) {
                return self.mismatch(ours.node, "the stack frame has another layout");
            }
            self.record(ours, theirs, Field::Displacement, VariantConstant { value: place(theirs), bits: 64 });
        }
        Ok(())
    }

    fn immediate(&mut self, ours: &Insn, theirs: &Insn, operand: u32, form: Form) -> Result<(), Mismatch> {
        let bits = if let Form::Narrow(bits) | Form::Negated(bits) = form { bits } else { 64 };
        if ours.immediate != theirs.immediate {
            return self.mismatch(ours.node, format!("`{}` against `{}`", ours.text(), theirs.text()));
        }
        let (x, y) = (ours.raw.immediate(operand), theirs.raw.immediate(operand));
        let y = if let Form::Negated(_) = form { y.wrapping_neg() } else { y };
        let kept = term::mask(bits) as u64;
        if ours.immediate.is_none() && x & kept != y & kept {
            if ours.raw.op0_register() == Register::RSP {
                return self.mismatch(ours.node, "the stack frame has another size");
            }
            self.record(ours, theirs, Field::Immediate, VariantConstant { value: y, bits });
        }
        Ok(())
    }

    fn record(&mut self, ours: &Insn, theirs: &Insn, field: Field, other: VariantConstant) {
        self.constants.entry(ours.node).or_default().entry(theirs.node).or_default().insert(field, other);
    }

    /// Registers that the operation uses without naming them.
    fn implicit(
        &mut self,
        ours: &Insn,
        theirs: &Insn,
        pairing: &Pairing,
        explicit: &Explicit,
        writes: &mut Vec<(usize, usize, Valid)>,
    ) -> Result<(), Mismatch> {
        if ours.is_call() || ours.raw.flow_control() == FlowControl::Return {
            return Ok(());
        }
        let used: Vec<(Register, OpAccess)> =
            self.info.info(&ours.raw).used_registers().iter().map(|r| (r.register(), r.access())).collect();
        for (register, access) in used {
            if explicit.accounts_for(register, access) {
                continue;
            }
            let Some((number, bits, _)) = gpr(register) else { continue };
            let old = pairing.valid(number, number);
            if reads(access) && old < 64 {
                return self.unpaired(ours, theirs);
            }
            if writes_operand(access) {
                writes.push((number, number, if bits >= 32 { 64 } else { old }));
            }
        }
        Ok(())
    }
}

/// A conditional write may leave what was there.
fn reads(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Write | OpAccess::None | OpAccess::NoMemAccess)
}

fn writes_operand(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess)
}

/// The registers that the operands of an instruction name, and how they are used.
#[derive(Default)]
struct Explicit {
    read: HashSet<Register>,
    written: HashSet<Register>,
}

impl Explicit {
    fn note(&mut self, register: Register, access: OpAccess) {
        if reads(access) {
            self.read.insert(register.full_register());
        }
        if writes_operand(access) {
            self.written.insert(register.full_register());
        }
    }

    /// Whether the operands explain this use; if not, the instruction also
    /// means the register without naming it (`mul %rdx` writes rdx).
    fn accounts_for(&self, register: Register, access: OpAccess) -> bool {
        let register = register.full_register();
        let named = self.read.contains(&register) || self.written.contains(&register);
        named
            && (!reads(access) || self.read.contains(&register))
            && (!writes_operand(access) || self.written.contains(&register))
    }
}
