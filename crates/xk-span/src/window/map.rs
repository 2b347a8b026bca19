//! One byte for each byte of code: where instructions begin, and where control may
//! arrive that does not come from the instruction before.
//!
//! In: the whole address space. Every symbol's range is decoded from its beginning to
//! the next symbol; what each instruction names, and what data and tables hold, is
//! marked if it is an address of code. Where decoding fails, or a jump goes between two
//! instructions, the range is said to be undecodable, and every offset in it is taken
//! as a branch that may exist.

use std::collections::HashSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use crate::world::World;

use super::exclude;

/// An instruction begins here.
const BEGINS: u8 = 1;
/// Control may arrive here from elsewhere.
const ENTERED: u8 = 2;

/// Code from one symbol to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// First byte.
    pub start: u64,
    /// First byte of the next symbol, or of no code.
    pub end: u64,
}

/// Flags of one region of code.
#[derive(Debug)]
struct Flags {
    start: u64,
    bytes: Vec<u8>,
    /// First bytes of symbols.
    cuts: Vec<u64>,
}

impl Flags {
    /// False if the address is not in this region.
    fn set(&mut self, address: u64, flag: u8) -> bool {
        let at = address.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let Some(byte) = at.and_then(|at| self.bytes.get_mut(at)) else { return false };
        *byte |= flag;
        true
    }
}

/// The whole.
#[derive(Debug, Default)]
pub struct Map {
    regions: Vec<Flags>,
    /// Beginnings of parts that are not all instructions.
    pub undecodable: HashSet<u64>,
    /// Beginnings of functions with jumps to places that are computed.
    pub computed: HashSet<u64>,
}

/// A branch within code: where it is, and where it goes.
type Branches = Vec<(u64, u64)>;

impl Map {
    /// Of everything in `world`.
    #[must_use]
    pub fn new(world: &World) -> Self {
        let mut this = Self::default();
        let symbols = world.functions().iter().map(|function| function.start);
        let mut cuts: Vec<u64> = symbols.chain(world.objects().iter().map(|(address, _)| *address)).collect();
        cuts.sort_unstable();
        cuts.dedup();
        for region in world.regions().iter().filter(|region| region.code) {
            let end = region.start + region.bytes.len() as u64;
            let known = cuts.partition_point(|cut| *cut <= region.start)..cuts.partition_point(|cut| *cut < end);
            let mut own = vec![region.start];
            own.extend(&cuts[known]);
            this.regions.push(Flags { start: region.start, bytes: vec![0; region.bytes.len()], cuts: own });
        }
        let mut branches = Branches::new();
        for part in this.parts() {
            this.read_part(world, part, &mut branches);
        }
        this.hold_branches(&branches);
        this.read_tables(world);
        this.read_data(world);
        this
    }

    /// Every stretch of code between symbols.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        let of = |flags: &Flags| {
            let end = flags.start + flags.bytes.len() as u64;
            let ends = flags.cuts.iter().skip(1).copied().chain([end]);
            flags.cuts.iter().zip(ends).map(|(start, end)| Part { start: *start, end }).collect::<Vec<_>>()
        };
        self.regions.iter().flat_map(of).filter(|part| part.start < part.end).collect()
    }

    /// The stretch that holds an address.
    #[must_use]
    pub fn part_of(&self, address: u64) -> Option<Part> {
        let flags = &self.regions[self.region(address)?];
        let next = flags.cuts.partition_point(|cut| *cut <= address);
        let end = flags.cuts.get(next).copied().unwrap_or(flags.start + flags.bytes.len() as u64);
        Some(Part { start: *flags.cuts.get(next.checked_sub(1)?)?, end })
    }

    /// Whether an instruction begins at an address.
    #[must_use]
    pub fn begins(&self, address: u64) -> bool {
        self.flag(address) & BEGINS != 0
    }

    /// Whether control may arrive at an address from elsewhere.
    #[must_use]
    pub fn entered(&self, address: u64) -> bool {
        self.flag(address) & ENTERED != 0
    }

    fn region(&self, address: u64) -> Option<usize> {
        let index = self.regions.partition_point(|flags| flags.start <= address).checked_sub(1)?;
        let flags = &self.regions[index];
        (address - flags.start < flags.bytes.len() as u64).then_some(index)
    }

    fn flag(&self, address: u64) -> u8 {
        self.region(address).map_or(0, |index| {
            let flags = &self.regions[index];
            flags.bytes[(address - flags.start) as usize]
        })
    }

    fn set(&mut self, address: u64, flag: u8) {
        if let Some(index) = self.region(address) {
            self.regions[index].set(address, flag);
        }
    }

    /// The same for an address that is most likely in this region.
    fn set_near(&mut self, region: usize, address: u64, flag: u8) {
        if !self.regions[region].set(address, flag) {
            self.set(address, flag);
        }
    }

    fn read_part(&mut self, world: &World, part: Part, branches: &mut Branches) {
        let Some(code) = world.read(part.start, (part.end - part.start) as usize) else { return };
        let Some(region) = self.region(part.start) else { return };
        let names = world.function_at(part.start).map_or(&[][..], |function| &function.names);
        let calls = exclude::may_tail_call(world, names);
        let mut decoder = Decoder::with_ip(64, code, part.start, DecoderOptions::NONE);
        let mut insn = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut insn);
            if insn.is_invalid() {
                self.give_up(part, code);
                return;
            }
            self.set_near(region, insn.ip(), BEGINS);
            if let Some(target) = near(&insn) {
                self.set_near(region, target, ENTERED);
                branches.push((part.start, target));
            }
            for address in named(&insn) {
                self.set(address, ENTERED);
            }
            if jumps_anywhere(world, &insn, calls) {
                self.computed.insert(part.start);
            }
        }
    }

    /// Anything in `part` may be a branch.
    fn give_up(&mut self, part: Part, code: &[u8]) {
        if !self.undecodable.insert(part.start) {
            return;
        }
        for at in 0..code.len() {
            let mut decoder = Decoder::with_ip(64, &code[at..], part.start + at as u64, DecoderOptions::NONE);
            let insn = decoder.decode();
            for address in near(&insn).into_iter().chain(named(&insn)) {
                self.set(address, ENTERED);
            }
        }
    }

    /// A branch that goes between two instructions: its target is not what it was
    /// decoded as, or it is not one itself.
    fn hold_branches(&mut self, branches: &Branches) {
        let wild: Vec<(u64, u64)> =
            branches.iter().filter(|(_, to)| self.region(*to).is_some() && !self.begins(*to)).copied().collect();
        self.undecodable.extend(wild.iter().map(|(from, _)| *from));
        let there: Vec<u64> = wild.iter().filter_map(|(_, to)| Some(self.part_of(*to)?.start)).collect();
        self.undecodable.extend(there);
    }

    /// Where the kernel's own tables send control.
    fn read_tables(&mut self, world: &World) {
        let patches = &world.patches;
        let ends =
            patches.alternatives.iter().flat_map(|(site, all)| all.iter().map(move |one| site + u64::from(one.len)));
        let continued = patches.labels.values().chain(patches.fixups.values()).copied();
        let traps = patches.warnings.iter().map(|trap| trap + 2);
        for address in ends.chain(continued).chain(traps).collect::<Vec<_>>() {
            self.set(address, ENTERED);
        }
    }

    /// Addresses in data, aligned or not, but for lists of what may be traced or probed.
    fn read_data(&mut self, world: &World) {
        let bounds: Vec<(u64, u64)> =
            self.regions.iter().map(|flags| (flags.start, flags.start + flags.bytes.len() as u64)).collect();
        let (Some(low), Some(high)) =
            (bounds.iter().map(|(start, _)| *start).min(), bounds.iter().map(|(_, end)| *end).max())
        else {
            return;
        };
        let data = world.regions().iter().filter(|region| !region.code).chain(&world.tables);
        for region in data {
            for (at, field) in region.bytes.windows(8).enumerate() {
                let Ok(field) = field.try_into() else { continue };
                let address = u64::from_le_bytes(field);
                let place = region.start + at as u64;
                if (low..high).contains(&address) && !world.listed.iter().any(|list| list.contains(&place)) {
                    self.set(address, ENTERED);
                }
            }
        }
    }
}

/// Where a direct call or jump goes.
fn near(insn: &Instruction) -> Option<u64> {
    let near = insn.op_count() > 0
        && matches!(insn.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16);
    near.then(|| insn.near_branch_target())
}

/// What an instruction holds that may be an address.
pub(crate) fn named(insn: &Instruction) -> impl Iterator<Item = u64> + '_ {
    let memory = (0..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Memory);
    let displacement = memory.then(|| insn.memory_displacement64());
    let immediates = (0..insn.op_count()).filter_map(|n| match insn.op_kind(n) {
        OpKind::Immediate64 | OpKind::Immediate32to64 => Some(insn.immediate(n)),
        // `mov $address,%eax` and the like; the kernel is in the last two gigabytes.
        OpKind::Immediate32 => Some(insn.immediate(n) | 0xffff_ffff << 32),
        _ => None,
    });
    displacement.into_iter().chain(immediates)
}

/// Whether an instruction is a jump to a place that is computed in this function: not
/// what the compiler makes of a call in the last place.
fn jumps_anywhere(world: &World, insn: &Instruction, calls: bool) -> bool {
    if insn.flow_control() == FlowControl::IndirectBranch {
        return true;
    }
    let thunk = |target: u64| world.function_at(target).is_some_and(|f| f.called("__x86_indirect_").is_some());
    let jump = matches!(insn.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch);
    !calls && jump && near(insn).is_some_and(thunk)
}
