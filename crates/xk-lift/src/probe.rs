//! What kprobes will make of a probe: a jump, a breakpoint, or nothing.
//!
//! The rules are those of `arch/x86/kernel/kprobes/{core,opt}.c` (Linux 6.12):
//! `check_kprobe_address_safe`, `can_optimize`, `copy_optimized_instructions`
//! and `can_boost`. The kernel decides again when the probe is armed.

use crate::flow::Flow;
use crate::insn::{Insn, Node};
use crate::object::{Function, Object};

/// Length of the jump that replaces a breakpoint.
pub const JUMP_LEN: u64 = 5;

/// Sections whose functions must not be probed
/// (`include/asm-generic/vmlinux.lds.h`).
const UNPROBEABLE_SECTIONS: [&str; 4] = [".noinstr.text", ".kprobes.text", ".entry.text", ".cpuidle.text"];

/// Why the instruction at `insn` cannot carry a probe, if it cannot.
#[must_use]
pub fn unprobeable(object: &Object, function: &Function, insn: &Insn) -> Option<String> {
    let section = &object.sections[insn.node.section].name;
    if UNPROBEABLE_SECTIONS.iter().any(|s| section.starts_with(s)) {
        return Some(format!("section {section} must not be probed"));
    }
    if object.blacklist.contains(&function.name) {
        return Some(format!("{} is on the kprobe blacklist", function.name));
    }
    let (from, to) = (insn.node.offset, insn.node.offset + insn.len());
    let overlaps = |at: Node, len: u64| at.section == insn.node.section && at.offset < to && from < at.offset + len;
    if object.alternatives.iter().any(|site| overlaps(site.at, site.len)) {
        return Some("an alternative is patched here".into());
    }
    if object.jump_labels.contains_key(&insn.node) {
        return Some("a jump label is patched here".into());
    }
    if object.lock_prefixes.iter().any(|&at| overlaps(at, 1)) {
        return Some("a lock prefix is patched here".into());
    }
    if object.goes_to(insn, "__SCT__") || object.goes_to(insn, "__fentry__") {
        return Some("a static call or ftrace site is patched here".into());
    }
    // An exception table entry and a bug entry belong to the instruction's own address.
    if object.fixups.contains_key(&insn.node) || object.warnings.contains(&insn.node) {
        return Some("the instruction may fault or trap on purpose".into());
    }
    None
}

/// Why a probe on `insn` stays a breakpoint; `None` when a jump is expected.
#[must_use]
pub fn not_optimised(object: &Object, flow: &Flow, function: &Function, insn: &Insn) -> Option<String> {
    let end = Node { section: function.start.section, offset: function.start.offset + function.size };
    if object.insns.range(function.start..end).any(|(node, _)| object.fixups.contains_key(node)) {
        return Some("the function has an exception table entry".into());
    }
    let mut covered = 0;
    let mut node = insn.node;
    while covered < JUMP_LEN {
        let Some(next) = object.insns.get(&node).filter(|_| node < end) else {
            return Some("fewer than five bytes to the end of the function".into());
        };
        if !boostable(object, next) {
            return Some(format!("`{}` cannot be executed out of line without a trap", next.text()));
        }
        if let Some(reason) = reserved(object, next) {
            return Some(reason);
        }
        covered += next.len();
        node = next.next();
    }
    if flow.jumped_into(insn.node.section, insn.node.offset, insn.node.offset + JUMP_LEN + 1) {
        return Some("a jump goes into the five bytes".into());
    }
    None
}

fn reserved(object: &Object, insn: &Insn) -> Option<String> {
    if object.jump_labels.contains_key(&insn.node) {
        return Some("a jump label lies in the five bytes".into());
    }
    let (from, to) = (insn.node.offset, insn.node.offset + insn.len());
    // Only the lock prefixes are reserved (alternatives_text_reserved).
    if insn.raw.has_lock_prefix() {
        return Some("a lock prefix that the kernel patches lies in the five bytes".into());
    }
    let inside = object
        .alternatives
        .iter()
        .any(|site| site.at.section == insn.node.section && site.at.offset < to && from < site.at.offset + site.len);
    inside.then(|| "an alternative lies in the five bytes".into())
}

/// Two-byte opcodes (0f xx) that may run out of line: `twobyte_is_boostable`,
/// one word per row, bit n for opcode row + n.
pub const TWO_BYTE_BOOSTABLE: [u16; 16] = [
    0x034c, // 00
    0x8000, // 10
    0x000f, // 20
    0x0002, // 30
    0xffff, // 40
    0x0000, // 50
    0xcfff, // 60
    0xc0f0, // 70
    0x0000, // 80
    0xffff, // 90
    0xbb3b, // a0
    0xf8ff, // b0
    0xff03, // c0
    0xbb2e, // d0
    0xbb26, // e0
    0x772e, // f0
];

fn boostable(object: &Object, insn: &Insn) -> bool {
    let section = &object.sections[insn.node.section].data;
    let start = insn.node.offset as usize;
    may_boost(section.get(start..start + insn.raw.len()).unwrap_or(&[]))
}

/// Whether an instruction may run out of line without a second trap (`can_boost`); its
/// address is not in the exception table.
#[must_use]
pub fn may_boost(bytes: &[u8]) -> bool {
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            0x2e | 0x67 => return false,
            0x26 | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0xf0 | 0xf2 | 0xf3 | 0x40..=0x4f => at += 1,
            _ => break,
        }
    }
    let (Some(&opcode), second) = (bytes.get(at), bytes.get(at + 1).copied().unwrap_or(0)) else { return false };
    let reg = second >> 3 & 7;
    match opcode {
        0x0f if matches!(second, 0x38 | 0x3a) => false,
        0x0f => TWO_BYTE_BOOSTABLE[usize::from(second >> 4)] >> (second & 15) & 1 == 1,
        0x62 | 0x70..=0x7f | 0x9a | 0xcc..=0xce | 0xd6 | 0xd8..=0xdf | 0xe0..=0xe3 | 0xe8..=0xe9 | 0xeb => false,
        0xf0..=0xf4 => false,
        0xc0..=0xc1 | 0xd0..=0xd3 => reg != 6,
        0xf6..=0xf7 => reg != 1,
        0xfe => reg <= 1,
        0xff => matches!(reg, 0 | 1 | 4),
        _ => true,
    }
}
