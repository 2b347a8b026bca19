//! Whether one instruction does what another does, and how.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use xk_lift::insn::Insn;
use xk_lift::semantics::{gpr, is_immediate};
use xk_lift::state::STATUS;

use super::pairing::Pairing;
use super::walk::Walk;
use super::Mismatch;

/// How the second of two instructions realises the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The same operation on operands of the same kinds.
    Same,
    /// The same branch with the opposite condition.
    Inverted,
    /// The same operation in fewer or more bits; only these low bits agree.
    Narrow(u32),
    /// `sub $-imm` for `add $imm` or the reverse: the same result in these low
    /// bits, other flags.
    Negated(u32),
    /// A zero idiom in one of the builds (`xor r,r` for `mov $0,r`, `test r,r`
    /// for `cmp $0,r`); the other has an immediate.
    Zero,
}

impl Walk<'_> {
    /// Whether `theirs` does what `ours` does, and how.
    pub(super) fn form(&self, ours: &Insn, theirs: &Insn) -> Result<Form, Mismatch> {
        let (b, v) = (&ours.raw, &theirs.raw);
        let differ = || self.mismatch(ours.node, format!("`{}` against `{}`", ours.text(), theirs.text()));
        let same_prefixes = b.has_lock_prefix() == v.has_lock_prefix()
            && b.has_rep_prefix() == v.has_rep_prefix()
            && b.has_repne_prefix() == v.has_repne_prefix()
            && b.segment_prefix() == v.segment_prefix();
        if !same_prefixes {
            return differ();
        }
        if b.mnemonic() != v.mnemonic() {
            if b.flow_control() == FlowControl::ConditionalBranch && v.flow_control() == FlowControl::ConditionalBranch
            {
                if let (Some(x), Some(y)) = (condition(ours), condition(theirs)) {
                    if x ^ 1 == y {
                        return Ok(Form::Inverted);
                    }
                }
            }
            if let Some(bits) = negated(b, v) {
                return Ok(Form::Negated(bits));
            }
            return if zero_idiom(b, v) || zero_idiom(v, b) { Ok(Form::Zero) } else { differ() };
        }
        if b.op_count() != v.op_count() {
            return differ();
        }
        let mut narrow = None;
        for i in 0..b.op_count() {
            let (bk, vk) = (b.op_kind(i), v.op_kind(i));
            let same = match bk {
                OpKind::Register if vk == OpKind::Register => {
                    let (br, vr) = (b.op_register(i), v.op_register(i));
                    let high = |r| gpr(r).is_some_and(|(_, _, high)| high);
                    if br.is_gpr() && vr.is_gpr() && br.size() != vr.size() && low_bits_suffice(b) {
                        narrow = Some(br.size().min(vr.size()) as u32 * 8);
                    }
                    (br.size() == vr.size() || narrow.is_some())
                        && high(br) == high(vr)
                        && (br.is_gpr() && vr.is_gpr() || br == vr)
                }
                OpKind::Memory => vk == OpKind::Memory && b.memory_size() == v.memory_size(),
                kind if is_immediate(kind) => is_immediate(vk),
                kind => kind == vk,
            };
            if !same {
                return differ();
            }
        }
        Ok(narrow.map_or(Form::Same, Form::Narrow))
    }

    pub(super) fn flags(&self, ours: &Insn, theirs: &Insn, pairing: &mut Pairing, form: Form) {
        let modified = ours.raw.rflags_modified() & STATUS;
        match form {
            Form::Narrow(_) | Form::Negated(_) => pairing.flags = false,
            // test and cmp with zero leave the same flags; xor and mov do not.
            Form::Zero => pairing.flags = modified != 0 && theirs.raw.rflags_modified() & STATUS != 0,
            // What was in the flags may still be there, in both builds: a constant count is replaced.
            _ if may_leave_flags(&theirs.raw) => {}
            _ if modified == STATUS => pairing.flags = true,
            _ => {}
        }
    }
}

/// Whether an instruction that modifies the flags leaves them as they were for some count: shifts and
/// rotations by zero, repeated string operations of zero elements (Intel SDM, volume 2).
pub(crate) fn may_leave_flags(insn: &Instruction) -> bool {
    use Mnemonic as M;
    let shifts = matches!(
        insn.mnemonic(),
        M::Shl | M::Sal | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr | M::Shld | M::Shrd
    );
    let count = insn.op_count().saturating_sub(1);
    // The processor masks the count by the width of the operand.
    let mask = if insn.op0_register().size() == 8 || insn.memory_size().size() == 8 { 63 } else { 31 };
    let nothing = is_immediate(insn.op_kind(count)) && insn.immediate(count) & mask == 0;
    shifts && (insn.op_kind(count) == OpKind::Register || nothing) || insn.has_rep_prefix() || insn.has_repne_prefix()
}

/// Whether the low bits of the result depend on the low bits of the operands
/// alone.
fn low_bits_suffice(insn: &Instruction) -> bool {
    use Mnemonic as M;
    match insn.mnemonic() {
        M::Add | M::Sub | M::And | M::Or | M::Xor | M::Mov | M::Not | M::Neg => true,
        // With one operand it also computes the high half.
        M::Imul => insn.op_count() >= 2,
        _ => false,
    }
}

/// The low bits in which `v` computes what `b` computes by the opposite
/// operation on the opposite immediate.
fn negated(b: &Instruction, v: &Instruction) -> Option<u32> {
    let opposite =
        matches!((b.mnemonic(), v.mnemonic()), (Mnemonic::Add, Mnemonic::Sub) | (Mnemonic::Sub, Mnemonic::Add));
    let immediates = opposite && is_immediate(b.op_kind(1)) && is_immediate(v.op_kind(1));
    let (Some((_, x, false)), Some((_, y, false))) = (gpr(b.op0_register()), gpr(v.op0_register())) else {
        return None;
    };
    (immediates && b.op_kind(0) == OpKind::Register && v.op_kind(0) == OpKind::Register).then_some(x.min(y))
}

/// Whether `v` does what `b` does with the immediate 0, apart from flags:
/// `xor r,r` for `mov $imm,r`, `test r,r` for `cmp $imm,r`.
fn zero_idiom(b: &Instruction, v: &Instruction) -> bool {
    let same_register = v.op_count() == 2
        && v.op_kind(0) == OpKind::Register
        && v.op_kind(1) == OpKind::Register
        && v.op0_register() == v.op1_register();
    let immediate = b.op_count() == 2 && b.op_kind(0) == OpKind::Register && is_immediate(b.op_kind(1));
    let sizes = match (b.mnemonic(), v.mnemonic()) {
        // Both clear or set the whole register.
        (Mnemonic::Mov, Mnemonic::Xor) => b.op0_register().size() >= 4 && v.op0_register().size() >= 4,
        (Mnemonic::Cmp, Mnemonic::Test) => b.op0_register().size() == v.op0_register().size(),
        _ => false,
    };
    same_register && immediate && sizes
}

/// The condition code of a conditional branch that decides by flags.
pub(super) fn condition(insn: &Insn) -> Option<u8> {
    let branches = insn.raw.flow_control() == FlowControl::ConditionalBranch;
    (insn.raw.condition_code() as u8).checked_sub(1).filter(|_| branches)
}
