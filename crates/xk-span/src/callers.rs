//! Who calls a function: every direct call and jump between functions, and every
//! function whose address is taken.
//!
//! In: the address space. Out: an index, made in one pass over the code. A value that
//! is returned goes to all of them.

use std::collections::HashSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

use crate::world::{Function, Region, World};

/// The index.
#[derive(Debug, Clone, Default)]
pub struct Callers {
    /// Target and instruction, sorted.
    refs: Vec<(u64, u64)>,
    /// Functions whose address is somewhere in code or data.
    taken: HashSet<u64>,
    /// The data could not be read: anybody may have the address of anything.
    blind: bool,
}

impl Callers {
    /// Of everything in `world`.
    #[must_use]
    pub fn new(world: &World) -> Self {
        let mut this = Self { blind: world.blind, ..Self::default() };
        this.add(world, world.regions().iter());
        this
    }

    /// This index, which is of the kernel alone, with the modules of `world`: the same kernel with
    /// modules. Nothing of the kernel refers to them.
    #[must_use]
    pub fn with_modules(mut self, world: &World) -> Self {
        self.add(world, world.module_regions());
        self
    }

    fn add<'a>(&mut self, world: &World, regions: impl Iterator<Item = &'a Region>) {
        for region in regions {
            if region.code {
                self.read_code(world, region.start, &region.bytes);
            } else {
                self.read_data(world, region.start, &region.bytes);
            }
        }
        // Mostly sorted already.
        self.refs.sort();
        self.refs.dedup();
    }

    fn read_code(&mut self, world: &World, start: u64, bytes: &[u8]) {
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let first = world.functions().partition_point(|function| function.start < start);
        let mut starts = world.functions()[first..].iter().map(|function| function.start).peekable();
        let mut insn = iced_x86::Instruction::default();
        let mut home = start;
        while decoder.can_decode() {
            // Data between functions may swallow the beginning of the next one.
            let at = decoder.ip();
            while starts.peek().is_some_and(|&next| next < at) {
                home = starts.next().unwrap_or(home);
            }
            decoder.decode_out(&mut insn);
            if let Some(&next) = starts.peek().filter(|&&next| next > at && next < insn.next_ip()) {
                let position = (next - start) as usize;
                if decoder.set_position(position).is_ok() {
                    decoder.set_ip(next);
                }
                continue;
            }
            while starts.peek().is_some_and(|&next| next <= at) {
                home = starts.next().unwrap_or(home);
            }
            let own = home..starts.peek().copied().unwrap_or(u64::MAX);
            self.read(world, &insn, &own);
        }
    }

    fn read(&mut self, world: &World, insn: &iced_x86::Instruction, own: &std::ops::Range<u64>) {
        match insn.flow_control() {
            FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                if matches!(insn.op0_kind(), OpKind::NearBranch64) {
                    let target = insn.near_branch_target();
                    if insn.flow_control() == FlowControl::Call || !own.contains(&target) {
                        self.refs.push((target, insn.ip()));
                    }
                }
            }
            _ => {
                let mut take = |address: u64| {
                    if world.function_at(address).is_some() {
                        self.taken.insert(address);
                    }
                };
                if insn.is_ip_rel_memory_operand() {
                    take(insn.ip_rel_memory_address());
                }
                for n in 0..insn.op_count() {
                    if matches!(insn.op_kind(n), OpKind::Immediate64 | OpKind::Immediate32to64) {
                        take(insn.immediate(n));
                    }
                }
            }
        }
    }

    fn read_data(&mut self, world: &World, start: u64, bytes: &[u8]) {
        for (n, word) in bytes.chunks_exact(8).enumerate() {
            let at = start + 8 * n as u64;
            if world.listed.iter().any(|range| range.contains(&at)) {
                continue;
            }
            let address = u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
            if address >> 47 == 0x1_ffff && world.function_at(address).is_some() {
                self.taken.insert(address);
            }
        }
    }

    /// The instructions that call `function`, jump to it, or jump into it.
    pub fn of<'a>(&'a self, function: &'a Function) -> impl Iterator<Item = u64> + 'a {
        let from = self.refs.partition_point(|(target, _)| *target < function.start);
        let refs = self.refs[from..].iter().take_while(|(target, _)| *target < function.end.max(function.start + 1));
        refs.map(|(_, site)| *site)
    }

    /// Whether the address of the function is taken.
    #[must_use]
    pub fn is_taken(&self, start: u64) -> bool {
        self.blind || self.taken.contains(&start)
    }

    /// The function whose frame the instruction at `address` belongs to.
    #[must_use]
    pub fn root<'a>(&self, world: &'a World, address: u64) -> Option<&'a Function> {
        let address = world.patches.replaced(address).map_or(address, |(site, _)| site);
        let function = world.function_of(address)?;
        if !function.is_cold() {
            return Some(function);
        }
        let parents: Vec<&Function> = self.of(function).filter_map(|site| world.function_of(site)).collect();
        // A part may be entered from other parts, too.
        let named = parents.iter().find(|parent| parent.names.iter().any(|name| name == function.whole()));
        named.or(parents.iter().find(|parent| !parent.is_cold())).copied()
    }
}
