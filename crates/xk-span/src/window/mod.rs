//! Windows: the bytes that one jump may replace.
//!
//! A window is the smallest run of whole instructions from an address on that is at
//! least five bytes long. The jump that replaces it is padded to exactly that length, so
//! that one instruction stands where several stood; it goes to a stub that executes them
//! and jumps back after them. In: the whole address space. Out: the length, or why
//! nothing may be put there. See `docs/windows.md`.

pub mod exclude;
pub mod map;
mod reason;
mod short;
mod sites;

use std::collections::{HashMap, HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use crate::patches::Rewrite;
use crate::world::World;
use map::{Map, Part};
pub use reason::Reason;
pub use short::{Relay, Short};
pub use sites::fill;

/// Bytes of the jump.
pub const JUMP: u64 = 5;
/// Bytes of the longest instruction.
const LONGEST: u64 = 15;

/// What one jump may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Bytes before the instruction that was asked for: whole instructions, after which
    /// control goes on to it or leaves. Negative if it is one that does nothing, and the
    /// window begins after it.
    pub lead: i8,
    /// Bytes, from 5 to 15.
    pub len: u8,
    /// Whole instructions that are executed elsewhere.
    pub insns: u8,
    /// Bytes after them that are never executed: padding.
    pub padding: u8,
}

/// What an instruction allows after itself.
enum Then {
    /// The window may go on.
    Goes,
    /// It is the last one, and its return address is the window's end.
    Calls,
    /// It is the last one; what follows is not executed because of it.
    Ends,
}

/// What windows depend on, of a whole address space.
#[derive(Debug)]
pub struct Index {
    map: Map,
    /// Functions that get no window, by their first byte.
    refused: HashMap<u64, Reason>,
    /// Bytes that the kernel changes: start and end, by the start.
    sites: Vec<(u64, u64, Reason)>,
}

/// All windows of an address space.
#[derive(Debug, Clone, Copy)]
pub struct Windows<'a> {
    world: &'a World,
    index: &'a Index,
}

impl Index {
    /// Looks at everything once.
    #[must_use]
    pub fn new(world: &World) -> Self {
        let mut sites = Vec::new();
        for (&at, kind) in &world.patches.rewrites {
            let (len, reason) = match kind {
                Rewrite::Label => (length(world, at), Reason::JumpLabel),
                Rewrite::StaticCall => (length(world, at), Reason::StaticCall),
                Rewrite::Tracing => (JUMP, Reason::Tracing),
            };
            sites.push((at, at + len, reason));
        }
        for (&at, all) in &world.patches.alternatives {
            let len = all.iter().map(|one| one.len).max().unwrap_or(0);
            sites.push((at, at + u64::from(len), Reason::Alternative));
        }
        sites.sort();
        let map = Map::new(world);
        let changing: HashSet<&str> = exclude::changes_code().collect();
        let parts = map.parts().into_iter();
        let refused = parts.filter_map(|part| Some((part.start, refusal(world, &map, &changing, part.start)?)));
        Self { refused: refused.collect(), map, sites }
    }

    /// What was found about the code as a whole.
    #[must_use]
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// What the kernel changes in these bytes.
    fn changed(&self, start: u64, end: u64) -> Option<Reason> {
        // No site is longer than 255 bytes.
        let first = self.sites.partition_point(|(from, ..)| from.saturating_add(256) <= start);
        let near = self.sites[first..].iter().take_while(|(from, ..)| *from < end);
        near.into_iter().find(|(_, to, _)| *to > start).map(|(.., reason)| reason.clone())
    }
}

impl<'a> Windows<'a> {
    /// Those of `world`, which `index` was made of.
    #[must_use]
    pub const fn new(world: &'a World, index: &'a Index) -> Self {
        Self { world, index }
    }

    /// The window around an instruction: the one that begins there, or else the one that
    /// begins at the nearest instruction before it. Nothing enters a window but at its
    /// beginning, so whoever executes the instruction comes by there.
    ///
    /// # Errors
    /// Why there is none that begins at the instruction.
    pub fn at(&self, address: u64) -> Result<Window, Reason> {
        let part = self.index.map.part_of(address).ok_or(Reason::NoCode)?;
        if !self.index.map.begins(address) {
            return Err(Reason::NoInstruction);
        }
        if let Some(reason) = self.index.refused.get(&part.start) {
            return Err(reason.clone());
        }
        let reason = match self.run(address, address, part) {
            Ok(window) => return Ok(window),
            Err(reason) => reason,
        };
        if let Some(window) = self.after_entry(address, part) {
            return Ok(window);
        }
        self.leading(address, part).next().ok_or(reason)
    }

    /// Bytes from `start` on that a jump may replace, at most 15: whole instructions, the first of which holds `start`.
    /// The run that [`Windows::at`] found is part of it. Nothing enters it either.
    #[must_use]
    pub fn longest(&self, start: u64, least: u8) -> u8 {
        let Some(part) = self.index.map.part_of(start) else { return least };
        let longer =
            (least + 1..=LONGEST as u8).map_while(|len| self.run(start, start + u64::from(len) - 1, part).ok());
        longer.map(|window| window.len).last().unwrap_or(least)
    }

    /// Every window that holds the instruction at an address, the one that [`Windows::at`]
    /// prefers first.
    #[must_use]
    pub fn all(&self, address: u64) -> Vec<Window> {
        let part = self.index.map.part_of(address).filter(|_| self.index.map.begins(address));
        let Some(part) = part.filter(|part| !self.index.refused.contains_key(&part.start)) else { return Vec::new() };
        self.run(address, address, part).into_iter().chain(self.leading(address, part)).collect()
    }

    /// Windows that begin before an instruction, the nearest first.
    fn leading(&self, address: u64, part: Part) -> impl Iterator<Item = Window> + '_ {
        let first = self.before(address, part).filter(|_| !self.index.map.entered(address));
        let starts = std::iter::successors(first, move |start| self.before(*start, part));
        let near = starts.take_while(move |start| address - start < LONGEST);
        near.filter_map(move |start| self.run(start, address, part).ok())
    }

    /// The window after `endbr64` and the tracer's five bytes, if one of them was asked
    /// for. Only these lie between the entry and the window, and nothing branches to them.
    fn after_entry(&self, address: u64, part: Part) -> Option<Window> {
        let mut at = address;
        loop {
            let insn = self.insn(at)?;
            let traced = self.world.patches.rewrites.get(&at) == Some(&Rewrite::Tracing);
            if !traced && insn.mnemonic() != Mnemonic::Endbr64 {
                break;
            }
            at = insn.next_ip();
            if at >= part.end || self.index.map.entered(at) {
                return None;
            }
        }
        if at == address {
            return None;
        }
        let window = self.run(at, at, part).ok()?;
        Some(Window { lead: -i8::try_from(at - address).ok()?, ..window })
    }

    /// The instruction that ends where another one begins.
    fn before(&self, address: u64, part: Part) -> Option<u64> {
        let at = (part.start..address).rev().take(LONGEST as usize).find(|at| self.index.map.begins(*at))?;
        (self.insn(at)?.next_ip() == address).then_some(at)
    }

    /// The smallest run of whole instructions from `start` on that is long enough and
    /// holds the instruction at `address`.
    fn run(&self, start: u64, address: u64, part: Part) -> Result<Window, Reason> {
        self.run_of(JUMP, start, address, part)
    }

    /// The same for a run of at least `least` bytes.
    fn run_of(&self, least: u64, start: u64, address: u64, part: Part) -> Result<Window, Reason> {
        let mut end = start;
        let mut insns = 0;
        while end - start < least || end <= address {
            if end >= part.end {
                return Err(Reason::Ends);
            }
            let insn = self.insn(end).ok_or(Reason::Undecodable)?;
            let then = self.may_move(&insn)?;
            insns += 1;
            end = insn.next_ip();
            let over = match then {
                Then::Goes => false,
                Then::Calls if end - start < least => return Err(Reason::Position(insn.to_string())),
                Then::Calls | Then::Ends => true,
            };
            if over {
                // Control does not come from here to the instruction that was asked for.
                if end <= address {
                    return Err(Reason::Ends);
                }
                let behind = end;
                if matches!(then, Then::Ends) {
                    end = self.padding(least, start, behind, part)?;
                }
                return self.window(start, address, insns, behind, end);
            }
        }
        self.window(start, address, insns, end, end)
    }

    fn window(&self, start: u64, address: u64, insns: u8, behind: u64, end: u64) -> Result<Window, Reason> {
        if end - start > LONGEST {
            return Err(Reason::TooLong);
        }
        if let Some(at) = (start + 1..end).find(|at| self.index.map.entered(*at)) {
            return Err(Reason::Entered(at - start));
        }
        let lead = (address - start) as i8;
        Ok(Window { lead, len: (end - start) as u8, insns, padding: (end - behind) as u8 })
    }

    fn insn(&self, at: u64) -> Option<Instruction> {
        let insn = Decoder::with_ip(64, self.world.code(at)?, at, DecoderOptions::NONE).decode();
        (!insn.is_invalid()).then_some(insn)
    }

    /// Whether an instruction may be executed elsewhere.
    fn may_move(&self, insn: &Instruction) -> Result<Then, Reason> {
        let (start, end) = (insn.ip(), insn.next_ip());
        if let Some(reason) = self.index.changed(start, end) {
            return Err(reason);
        }
        let text = || insn.to_string();
        if (start..end).any(|at| self.world.patches.fixups.contains_key(&at)) {
            return Err(Reason::Faults(text()));
        }
        if matches!(insn.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Endbr32) {
            return Err(Reason::Landing);
        }
        if exclude::stays(insn) {
            return Err(Reason::Position(text()));
        }
        let near = insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64;
        match insn.flow_control() {
            FlowControl::Next => Ok(Then::Goes),
            FlowControl::ConditionalBranch if near => Ok(Then::Goes),
            FlowControl::Call if near => Ok(Then::Calls),
            FlowControl::UnconditionalBranch if near => Ok(Then::Ends),
            FlowControl::Return if matches!(insn.mnemonic(), Mnemonic::Ret) => Ok(Then::Ends),
            FlowControl::IndirectBranch | FlowControl::IndirectCall => Err(Reason::Indirect(text())),
            FlowControl::Exception | FlowControl::Interrupt => Err(Reason::Trap(text())),
            _ => Err(Reason::Position(text())),
        }
    }

    /// The end of a window whose last instruction ends at `behind`: padding makes it long
    /// enough, if it is long enough at all.
    fn padding(&self, least: u64, start: u64, behind: u64, part: Part) -> Result<u64, Reason> {
        let mut end = behind;
        while end - start < least {
            if end >= part.end {
                return Err(Reason::Ends);
            }
            let insn = self.insn(end).filter(is_padding).ok_or(Reason::Ends)?;
            if let Some(reason) = self.index.changed(insn.ip(), insn.next_ip()) {
                return Err(reason);
            }
            end = insn.next_ip();
        }
        if end > part.end {
            return Err(Reason::Ends);
        }
        Ok(end)
    }
}

/// Why nothing may be put into the function at `start` at all.
fn refusal(world: &World, map: &Map, changing: &HashSet<&str>, start: u64) -> Option<Reason> {
    if world.is_over(start) {
        return Some(Reason::Boot);
    }
    if world.patches.incomplete || world.forgotten || world.blind {
        return Some(Reason::Unknown);
    }
    // What has no name is not known to be a function, nor which one.
    let Some(function) = world.function_at(start) else { return Some(Reason::Undecodable) };
    if let Some((_, name)) = world.closed.iter().find(|(range, _)| range.contains(&start)) {
        return Some(Reason::Section(name.clone()));
    }
    if world.blacklist.contains(&start) || is_part_of_listed(world, &function.names) {
        return Some(Reason::Blacklisted);
    }
    if let Some(reason) = exclude::by_name(&function.names, changing) {
        return Some(reason);
    }
    if !exclude::is_compiled(world, &function.names) {
        return Some(Reason::Assembly);
    }
    if map.undecodable.contains(&start) {
        return Some(Reason::Undecodable);
    }
    map.computed.contains(&start).then_some(Reason::Computed)
}

/// Whether a function of the kprobe blacklist has the name up to the first dot: kprobes treat parts and clones as the
/// function that they were made of (`within_kprobe_blacklist` of Linux 6.12).
fn is_part_of_listed(world: &World, names: &[String]) -> bool {
    let whole = names.iter().filter_map(|name| name.split_once('.').map(|(whole, _)| whole));
    whole.flat_map(|whole| world.named(whole)).any(|function| world.blacklist.contains(&function.start))
}

/// What compilers and linkers fill gaps with.
fn is_padding(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

/// Length of the instruction at an address.
fn length(world: &World, at: u64) -> u64 {
    let insn = world.code(at).map(|code| Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode());
    // Where nothing can be decoded, as much as the kernel could write.
    insn.filter(|insn| !insn.is_invalid()).map_or(JUMP, |insn| insn.len() as u64)
}
