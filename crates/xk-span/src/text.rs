//! A function as a table holds it: where it is, its deployed bytes, and which of them a running kernel may have changed.
//! There is no rebuilt object to take the mask from. It follows from the tables of the image and from what relocation
//! may touch.

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};
use xk_table::{hex, Function};

use crate::error::NotRead;
use crate::world::World;

/// The function that begins at `start`.
#[must_use]
pub fn function(world: &World, start: u64) -> Function {
    let known = world.function_at(start);
    let length = known.map_or(0, |function| function.end - function.start) as usize;
    let text = trimmed(world.read(start, length).unwrap_or_default());
    let owner = known.map_or(0, |function| function.owner);
    let module = world.owners.get(owner).cloned().flatten();
    let placed = world.placed.iter().filter(|p| p.owner == owner && p.start <= start).max_by_key(|p| p.start);
    let (section, base) = match (&module, placed) {
        (Some(_), Some(placed)) => (placed.section.clone(), placed.start),
        _ => (".text".to_owned(), world.text_base),
    };
    Function {
        symbol: known.map_or("?", crate::world::Function::name).to_owned(),
        module,
        text_offset: start.wrapping_sub(base),
        section,
        bytes: hex(text),
        mask: hex(&mask(world, start, text)),
        source: String::new(),
    }
}

/// Where a function of a table is.
///
/// # Errors
/// When it is not in the address space.
pub fn address(world: &World, function: &Function) -> Result<u64, NotRead> {
    let missing = || NotRead { symbol: function.symbol.clone() };
    let start = match &function.module {
        None => world.text_base.wrapping_add(function.text_offset),
        Some(module) => {
            let owner = world.owners.iter().position(|owner| owner.as_ref() == Some(module)).ok_or_else(missing)?;
            let section = world.placed.iter().find(|p| p.owner == owner && p.section == function.section);
            section.ok_or_else(missing)?.start.wrapping_add(function.text_offset)
        }
    };
    world.function_at(start).map(|found| found.start).ok_or_else(missing)
}

/// Without the padding between functions.
fn trimmed(text: &[u8]) -> &[u8] {
    let padding = text.iter().rev().take_while(|byte| matches!(byte, 0xcc | 0x90)).count();
    &text[..text.len() - padding]
}

/// `ff` where running bytes must be these.
fn mask(world: &World, start: u64, text: &[u8]) -> Vec<u8> {
    let mut mask = vec![0xff; text.len()];
    let mut open = |from: u64, length: u64| {
        let from = from.saturating_sub(start) as usize;
        let to = from.saturating_add(length as usize).min(mask.len());
        mask[from.min(to)..to].fill(0);
    };
    let end = start + text.len() as u64;
    let mut decoder = Decoder::with_ip(64, text, start, DecoderOptions::NONE);
    while decoder.can_decode() {
        let insn = decoder.decode();
        let (at, length) = (insn.ip(), insn.len() as u64);
        let fields = decoder.get_constant_offsets(&insn);
        let sites = world.patches.sites.range((at, 0)..(insn.next_ip(), 0));
        for &(site, bytes) in sites {
            open(site, if bytes == 0 { length } else { u64::from(bytes) });
        }
        // Calls and jumps between functions may be redirected (call depth tracking,
        // return thunks, retpolines, tracing), and endbr64 may be sealed.
        let near = insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64;
        let leaves = near && !(start..end).contains(&insn.near_branch_target());
        if leaves || insn.mnemonic() == Mnemonic::Endbr64 {
            open(at, length);
        }
        // Addresses, relative or not: the kernel's own place is random.
        if fields.has_displacement() && fields.displacement_size() == 4 {
            let displacement = insn.memory_displacement64();
            if insn.is_ip_rel_memory_operand() || is_address(displacement) {
                open(at + fields.displacement_offset() as u64, 4);
            }
        }
        if fields.has_immediate() && insn.op_count() > 0 && !near {
            let value = insn.immediate(insn.op_count() - 1);
            if fields.immediate_size() >= 4 && is_address(value | u64::MAX << 32) && value >> 31 & 1 == 1 {
                open(at + fields.immediate_offset() as u64, fields.immediate_size() as u64);
            }
        }
    }
    // An instruction may begin before the site that is patched in it.
    for &(site, bytes) in world.patches.sites.range((start.saturating_sub(16), 0)..(end, 0)) {
        if site >= start && bytes > 0 {
            open(site, bytes.into());
        }
    }
    let fields = world.relocated.partition_point(|(at, _)| *at < start);
    for &(at, bytes) in world.relocated[fields..].iter().take_while(|(at, _)| *at < end) {
        open(at, bytes.into());
    }
    mask
}

/// Whether a number may be an address of the kernel.
fn is_address(value: u64) -> bool {
    (0xffff_ffff_8000_0000..0xffff_ffff_ff00_0000).contains(&value)
}
