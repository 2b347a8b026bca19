//! Random states in which an instruction neither faults nor leaves the buffer.

use iced_x86::{Instruction, Mnemonic as M, OpKind, Register};
use xk_lift::state::{RBP, RSP};
use xk_lift::term::mask;

use crate::native::{Machine, BUFFER_LEN};
use xk_testing::Random;

const RAX: usize = 0;
const RDX: usize = 2;

pub fn memory_operand(raw: &Instruction) -> bool {
    (0..raw.op_count()).any(|i| raw.op_kind(i) == OpKind::Memory)
}

/// A random state in which the memory operand of `raw` and the stack pointer
/// point into the buffer. `None` when that cannot be arranged.
pub fn random_state(random: &mut Random, raw: &Instruction, buffer: u64) -> Option<Machine> {
    if raw.segment_prefix() == Register::FS {
        return None; // the base is the thread's
    }
    let mut regs: [u64; 16] = std::array::from_fn(|_| random.value());
    if random.below(4) == 0 {
        let (a, b) = (random.below(16), random.below(16));
        regs[a] = regs[b];
    }
    let middle = buffer + BUFFER_LEN / 2;
    regs[RSP] = middle + random.below(128) as u64;
    let target = middle + 8 * random.below(16) as u64;
    if memory_operand(raw) && raw.mnemonic() != M::Lea && raw.mnemonic() != M::Nop {
        point_to(&mut regs, raw, target, buffer)?;
    }
    // A count above the width is as likely as one below it.
    if (0..raw.op_count()).any(|i| raw.op_kind(i) == OpKind::Register && raw.op_register(i) == Register::CL) {
        let free = !memory_operand(raw) || (raw.memory_base() != Register::RCX && raw.memory_index() != Register::RCX);
        if free && random.below(2) == 0 {
            regs[1] = regs[1] & !0xff | random.below(256) as u64;
        }
    }
    if raw.mnemonic() == M::Leave {
        regs[RBP] = target;
    }
    let flags = random.next_u64() & 0x8d5;
    let memory = (0..BUFFER_LEN / 8).flat_map(|_| random.value().to_le_bytes()).collect();
    let mut machine = Machine { regs, flags, memory };
    let possible = match raw.mnemonic() {
        M::Div | M::Idiv => divisible(random, raw, &mut machine, buffer),
        M::Cmpxchg => {
            // Equal values are as likely as different ones.
            let bits = operand_bits(raw);
            if random.below(2) == 0 && free(raw, RAX) {
                let old = operand(&machine, raw, buffer)?;
                machine.regs[RAX] = machine.regs[RAX] & !(mask(bits) as u64) | old;
            }
            true
        }
        _ => true,
    };
    possible.then_some(machine)
}

/// Changes registers such that the memory operand of `raw` is at `target`, or at least in the buffer. `None` if that
/// cannot be arranged.
fn point_to(regs: &mut [u64; 16], raw: &Instruction, target: u64, buffer: u64) -> Option<()> {
    let displacement = raw.memory_displacement64();
    let (base, index) = (raw.memory_base(), raw.memory_index());
    let scale = u64::from(raw.memory_index_scale());
    let number = |r: Register| r.full_register().number();
    match (base, index) {
        (Register::None, Register::None) => {
            if !(buffer..buffer + BUFFER_LEN - 16).contains(&displacement) {
                return None;
            }
        }
        (Register::None, _) => {
            regs[number(index)] = target.wrapping_sub(displacement) / scale;
            if displacement % 8 != 0 {
                return None;
            }
        }
        (Register::RSP, Register::None) => {
            regs[RSP] = target.wrapping_sub(displacement);
        }
        _ if base == Register::RSP || base == index => return None,
        _ => {
            let offset = if index == Register::None { 0 } else { regs[number(index)].wrapping_mul(scale) };
            regs[number(base)] = target.wrapping_sub(offset).wrapping_sub(displacement);
        }
    }
    Some(())
}

/// Whether register `number` may change without moving the memory operand.
fn free(raw: &Instruction, number: usize) -> bool {
    !memory_operand(raw)
        || [raw.memory_base(), raw.memory_index()].iter().all(|r| !r.is_gpr() || r.full_register().number() != number)
}

fn operand_bits(raw: &Instruction) -> u32 {
    match raw.op0_kind() {
        OpKind::Register => raw.op0_register().size() as u32 * 8,
        _ => raw.memory_size().size() as u32 * 8,
    }
}

/// What the first operand holds, a register or memory in the buffer.
fn operand(machine: &Machine, raw: &Instruction, buffer: u64) -> Option<u64> {
    let register = |r: Register| machine.regs[r.full_register().number()];
    let bits = operand_bits(raw);
    let whole = if raw.op0_kind() == OpKind::Register {
        let high = matches!(raw.op0_register(), Register::AH | Register::CH | Register::DH | Register::BH);
        register(raw.op0_register()) >> if high { 8 } else { 0 }
    } else {
        let part = |r: Register| if r.is_gpr() { register(r) } else { 0 };
        let index = part(raw.memory_index()).wrapping_mul(raw.memory_index_scale().into());
        let address = part(raw.memory_base()).wrapping_add(index).wrapping_add(raw.memory_displacement64());
        let at = address.wrapping_sub(buffer) as usize;
        u64::from_le_bytes(machine.memory.get(at..at.checked_add(8)?)?.try_into().unwrap())
    };
    Some(whole & mask(bits) as u64)
}

/// Arranges a division that does not fault, if that is possible.
fn divisible(random: &mut Random, raw: &Instruction, machine: &mut Machine, buffer: u64) -> bool {
    let bits = operand_bits(raw);
    let signed = raw.mnemonic() == M::Idiv;
    let cut = |value: u128| value & mask(bits);
    let wide = |value: u64| {
        if signed {
            let shift = 64 - bits;
            i128::from((value << shift) as i64 >> shift)
        } else {
            i128::from(value)
        }
    };
    for _ in 0..32 {
        let Some(divisor) = operand(machine, raw, buffer).map(wide) else { return false };
        if divisor != 0 && free(raw, RAX) && free(raw, RDX) {
            // A quotient that fits and a remainder that belongs to it.
            let quotient = wide(cut(u128::from(random.value())) as u64);
            let rest = i128::from(random.value()) % divisor.abs();
            let rest = if (quotient < 0) != (divisor < 0) { -rest } else { rest };
            let dividend = quotient.wrapping_mul(divisor).wrapping_add(rest) as u128;
            let (low, high) = (cut(dividend) as u64, cut(dividend >> bits) as u64);
            let keep = |old: u64| old & !(mask(bits) as u64);
            if bits == 8 {
                machine.regs[RAX] = machine.regs[RAX] & !0xffff | high << 8 | low;
            } else {
                machine.regs[RAX] = keep(machine.regs[RAX]) | low;
                machine.regs[RDX] = keep(machine.regs[RDX]) | high;
            }
        }
        // The divisor may have been part of the dividend.
        if !faults(machine, raw, buffer) {
            return true;
        }
        if raw.op0_kind() == OpKind::Register {
            machine.regs[raw.op0_register().full_register().number()] = random.value();
        }
    }
    false
}

fn faults(machine: &Machine, raw: &Instruction, buffer: u64) -> bool {
    let bits = operand_bits(raw);
    let Some(divisor) = operand(machine, raw, buffer) else { return true };
    let (low, high) = match bits {
        8 => (machine.regs[RAX] & 0xff, machine.regs[RAX] >> 8 & 0xff),
        _ => (machine.regs[RAX] & mask(bits) as u64, machine.regs[RDX] & mask(bits) as u64),
    };
    let dividend = u128::from(high) << bits | u128::from(low);
    if raw.mnemonic() == M::Div {
        return dividend.checked_div(divisor.into()).is_none_or(|q| q > mask(bits));
    }
    let signed = |value: u128, bits: u32| (value << (128 - bits)) as i128 >> (128 - bits);
    let quotient = signed(dividend, 2 * bits).checked_div(signed(divisor.into(), bits));
    quotient.is_none_or(|q| q != signed(q as u128 & mask(bits), bits))
}
