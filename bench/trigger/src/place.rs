//! Where to probe: two instructions of a function that the kernel really runs,
//! one that kprobes turn into a jump and one that stays a breakpoint.
//!
//! The updates that are measured write `rax` or the status flags, and the
//! kernel has to keep working. So both places are such that neither is read
//! before it is written again: the instruction at the place overwrites every
//! status flag and reads none, and on every path from it `rax` is overwritten
//! before it is read. This is decided from the running bytes, not assumed.

use std::collections::HashSet;

use anyhow::{Context, Result};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction, InstructionInfoFactory, OpAccess,
    Register, RflagsBits,
};

/// Bytes of the jump that replaces a breakpoint.
const JUMP_LEN: u64 = 5;
const STATUS_FLAGS: u32 =
    RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::CF | RflagsBits::PF;

/// An instruction to probe.
#[derive(Debug, Clone)]
pub struct Place {
    /// Offset in the function.
    pub offset: u32,
    /// Its length.
    pub insn_len: u8,
    /// The instruction, for people.
    pub text: String,
    /// Whole instructions from it on that are five bytes or more, together: bytes.
    pub window: u8,
}

/// The first place that becomes a jump, and the first that stays a breakpoint.
///
/// # Errors
/// When the function has no such places.
pub fn choose(code: &[u8]) -> Result<(Place, Place)> {
    let body = Body::decode(code);
    let mut free = body.insns.iter().filter(|insn| body.is_free(insn));
    let jump = free.clone().find(|insn| body.becomes_jump(insn)).context("no place in it becomes a jump")?;
    let int3 = free.find(|insn| body.stays_breakpoint(insn)).context("no place in it stays a breakpoint")?;
    Ok((body.place(jump), body.place(int3)))
}

/// Places that become jumps and that `rax` is dead at, no two of which share a byte of their windows; whether
/// the kernel agrees is for it to say. The status flags may be in use: for updates that write `rax` only.
#[must_use]
pub fn jumps(code: &[u8]) -> Vec<Place> {
    let body = Body::decode(code);
    let mut end = 0;
    let mut found = Vec::new();
    for insn in &body.insns {
        // A breakpoint where the function tracer has its call is another kind of probe.
        let usable = insn.ip() >= end.max(JUMP_LEN) && insn.flow_control() == FlowControl::Next;
        if usable && body.becomes_jump(insn) && body.rax_is_overwritten(insn.ip()) {
            let place = body.place(insn);
            end = insn.ip() + u64::from(place.window);
            found.push(place);
        }
    }
    found
}

struct Body {
    insns: Vec<Instruction>,
    targets: HashSet<u64>,
}

impl Body {
    fn decode(code: &[u8]) -> Self {
        let insns: Vec<_> = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter().collect();
        let targets = insns.iter().map(Instruction::near_branch_target).filter(|&target| target != 0).collect();
        Self { insns, targets }
    }

    fn place(&self, insn: &Instruction) -> Place {
        let mut text = String::new();
        GasFormatter::new().format(insn, &mut text);
        let window = self.window(insn).map_or(0, |window| window.iter().map(|insn| insn.len() as u8).sum());
        Place { offset: insn.ip() as u32, insn_len: insn.len() as u8, text, window }
    }

    fn at(&self, offset: u64) -> Option<(usize, &Instruction)> {
        let index = self.insns.binary_search_by_key(&offset, Instruction::ip).ok()?;
        Some((index, &self.insns[index]))
    }

    /// Writing `rax` and the status flags before it changes nothing.
    fn is_free(&self, insn: &Instruction) -> bool {
        // Undefined is overwritten too: nobody can rely on what was there.
        insn.rflags_modified() & STATUS_FLAGS == STATUS_FLAGS
            && insn.rflags_read() == RflagsBits::NONE
            && insn.flow_control() == FlowControl::Next
            && self.rax_is_dead(insn.ip())
    }

    fn rax_is_dead(&self, from: u64) -> bool {
        self.rax_is_lost(from, true)
    }

    /// As dead, but that it does not rely on what a call does: `__get_user_4` takes an address in it, and thunks
    /// keep it.
    fn rax_is_overwritten(&self, from: u64) -> bool {
        self.rax_is_lost(from, false)
    }

    fn rax_is_lost(&self, from: u64, in_calls: bool) -> bool {
        let mut factory = InstructionInfoFactory::new();
        let mut seen = HashSet::new();
        let mut open = vec![from];
        while let Some(offset) = open.pop() {
            if !seen.insert(offset) {
                continue;
            }
            let Some((_, insn)) = self.at(offset) else { return false };
            let info = factory.info(insn);
            let uses = info.used_registers().iter().filter(|used| used.register().full_register() == Register::RAX);
            let mut written = false;
            for used in uses {
                match used.access() {
                    // 32 bits clear the upper half; less would keep some.
                    OpAccess::Write if matches!(used.register(), Register::RAX | Register::EAX) => written = true,
                    _ => return false,
                }
            }
            if written {
                continue;
            }
            match insn.flow_control() {
                FlowControl::Next => open.push(insn.next_ip()),
                FlowControl::UnconditionalBranch => open.push(insn.near_branch_target()),
                FlowControl::ConditionalBranch => open.extend([insn.next_ip(), insn.near_branch_target()]),
                // A callee takes no argument in rax, and returns in it.
                FlowControl::Call if in_calls => {}
                _ => return false,
            }
        }
        true
    }

    /// The instructions that a jump at `insn` would overwrite.
    fn window(&self, insn: &Instruction) -> Option<&[Instruction]> {
        let (first, _) = self.at(insn.ip())?;
        let last = (first..self.insns.len()).find(|&i| self.insns[i].next_ip() >= insn.ip() + JUMP_LEN)?;
        Some(&self.insns[first..=last])
    }

    fn becomes_jump(&self, insn: &Instruction) -> bool {
        self.window(insn).is_some_and(|window| {
            window.iter().all(|insn| insn.flow_control() == FlowControl::Next)
                && window[1..].iter().all(|insn| !self.targets.contains(&insn.ip()))
        })
    }

    /// Kprobes do not move conditional branches.
    fn stays_breakpoint(&self, insn: &Instruction) -> bool {
        self.window(insn)
            .is_some_and(|window| window.iter().any(|insn| insn.flow_control() == FlowControl::ConditionalBranch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_dead_state_only() {
        let code = [
            0x48, 0x83, 0xec, 0x60, // sub $0x60,%rsp: rax is read later
            0x48, 0x89, 0xc3, // mov %rax,%rbx
            0x48, 0x83, 0xec, 0x60, // +7: sub $0x60,%rsp
            0x31, 0xc0, // +11: xor %eax,%eax
            0x48, 0x39, 0xd1, // +13: cmp %rdx,%rcx
            0x73, 0x00, // jae +18
            0xb8, 1, 0, 0, 0, // +18: mov $1,%eax
            0xc3,
        ];
        let (jump, int3) = choose(&code).unwrap();
        assert_eq!((jump.offset, jump.insn_len, jump.text.as_str()), (7, 4, "sub $0x60,%rsp"));
        assert_eq!((int3.offset, int3.insn_len), (13, 3));
    }

    #[test]
    fn jumps_do_not_overlap_nor_rely_on_calls() {
        let code = [
            0x0f, 0x1f, 0x44, 0, 0, // the function tracer's
            0x48, 0x89, 0xd1, // +5: mov %rdx,%rcx
            0x48, 0x89, 0xf7, // +8: mov %rsi,%rdi
            0x48, 0x89, 0xfa, // +11: mov %rdi,%rdx
            0x31, 0xc0, // +14: xor %eax,%eax
            0x48, 0x89, 0xd1, // +16: mov %rdx,%rcx
            0xe8, 0, 0, 0, 0, // +19: a call may take rax
            0xc3,
        ];
        let offsets: Vec<_> = jumps(&code).iter().map(|place| (place.offset, place.window)).collect();
        assert_eq!(offsets, [(5, 6), (11, 5)]);
    }

    #[test]
    fn a_window_that_is_jumped_into_becomes_no_jump() {
        let code = [
            0x48, 0x83, 0xec, 0x60, // sub $0x60,%rsp
            0x31, 0xc0, // +4: xor %eax,%eax, a target
            0xeb, 0xfc, // jmp +4
        ];
        assert!(choose(&code).is_err());
    }
}
