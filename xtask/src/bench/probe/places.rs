//! Which instructions the benchmark probes, as the guest reads them: the instructions of one function that jumps of
//! xk.ko reach, with what the kernel's own probes would be there, and instructions of vmlinux drawn at random.
//!
//! They are found here because the analysis of the image takes long where instructions are emulated. Addresses are
//! distances from `_printk`.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use anyhow::{Context, Result};
use iced_x86::{FlowControl, Instruction};
use xk_kernel::Image;
use xk_probe::{Found, Operand, Place, Reach, Resolver};
use xk_span::window::map::Part;
use xk_span::window::Index;
use xk_span::world::World;

use crate::bench::coverage::{instructions, stock};
use crate::draw::Random;

/// The code of a kernel.
pub struct Code {
    world: World,
    index: Index,
    resolver: Resolver,
    anchor: u64,
}

/// Instructions that were drawn.
pub struct Drawn {
    /// They, in the order in which they were drawn.
    pub found: Vec<Found>,
    /// How many were drawn that cannot be probed.
    pub left_out: usize,
}

impl Code {
    /// Reads it.
    ///
    /// # Errors
    /// When the image cannot be read.
    pub fn new(image: &Image) -> Result<Self> {
        let world = World::new(image, &[], HashSet::new())?;
        let index = Index::new(&world);
        let resolver = Resolver::new(image, &[], None)?;
        let anchor = image.symbols("_printk").into_iter().find(|symbol| symbol.module.is_none());
        let anchor = anchor.context("the image has no _printk")?.address;
        Ok(Self { world, index, resolver, anchor })
    }

    /// The instructions of a function that jumps reach: its name, then a line for each of kind, distance, window, lead,
    /// offset and text.
    ///
    /// # Errors
    /// When there is no such function.
    pub fn of_function(&self, name: &str) -> Result<String> {
        let function = self.world.named(name).next().with_context(|| format!("the kernel has no {name}"))?;
        let part = self.index.map().part_of(function.start).context("it has no code")?;
        let kinds = self.kinds(part);
        let resolved = self.resolver.resolve(&Place::parse(&format!("{name}@any"), None)?)?;
        let mut text = format!("{name}\n");
        for found in resolved.found.iter().filter(|found| matches!(found.reach, Reach::Jump(_))) {
            let kind = kinds.get(&found.address).copied().unwrap_or("other");
            _ = writeln!(text, "{kind} {} {} {}", self.line(found), found.offset, found.text);
        }
        Ok(text)
    }

    /// What the kernel's own probes would be, by address.
    fn kinds(&self, part: Part) -> BTreeMap<u64, &'static str> {
        let probes = stock::Probes::new(&self.world);
        let insns = instructions(&self.world, part);
        let stock = probes.function(&self.world, part, &insns);
        let kind = |insn: &Instruction| match stock.at(insn) {
            stock::Reach::Jump => "jump",
            // A preemptible kernel never lets the copy of an instruction jump back, which the rules call boosting.
            stock::Reach::Boost | stock::Reach::Trap if insn.flow_control() == FlowControl::Next => "stepped",
            stock::Reach::Boost | stock::Reach::Trap if branches(insn) => "emulated",
            _ => "other",
        };
        insns.iter().map(|insn| (insn.ip(), kind(insn))).collect()
    }

    fn line(&self, found: &Found) -> String {
        let probe = found.probe(0);
        let distance = probe.address.wrapping_sub(self.anchor) as i64;
        let (window, lead) = (probe.window, probe.window_lead);
        format!("{distance},{window},{lead},{},{}", probe.host, probe.host_window)
    }

    /// Every indirect call of vmlinux that can be probed: a line for each of place, cookie, and whether kprobes would
    /// emulate it wrongly; and how many cannot be.
    ///
    /// # Errors
    /// When there is none.
    pub fn calls(&self) -> Result<(String, usize)> {
        let resolved = self.resolver.resolve(&Place::parse("*@indirect-call", None)?)?;
        let mut text = String::new();
        for found in &resolved.found {
            let cookie = found.operand.map_or(0, Operand::cookie);
            _ = writeln!(text, "{} {cookie} {}", self.line(found), u8::from(found.long_call));
        }
        Ok((text, resolved.left_out))
    }

    /// The functions whose address is taken, a line for each.
    ///
    /// # Errors
    /// As of [`Resolver::taken`].
    pub fn taken(&self) -> Result<String> {
        let distance = |address: u64| address.wrapping_sub(self.anchor) as i64;
        Ok(self.resolver.taken()?.into_iter().map(|address| format!("{}\n", distance(address))).collect())
    }

    /// The instructions that a place names.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, place: &Place) -> Result<Vec<Found>> {
        Ok(self.resolver.resolve(place)?.found)
    }

    /// Every instruction of every function that is there once the kernel has started.
    fn all(&self) -> Vec<u64> {
        let mut all = Vec::new();
        for part in self.index.map().parts() {
            let Some(function) = self.world.function_at(part.start) else { continue };
            if function.called("__pfx_").is_none() && !self.world.is_over(part.start) {
                all.extend(instructions(&self.world, part).iter().map(Instruction::ip));
            }
        }
        all
    }

    /// Draws instructions, each once. Leaves out only what cannot be probed.
    ///
    /// # Errors
    /// When there are not so many.
    pub fn draw(&self, number: usize, seed: u64) -> Result<Drawn> {
        let mut random = Random::of("probe", seed);
        let mut all = self.all();
        let mut known = HashSet::new();
        let mut drawn = Drawn { found: Vec::new(), left_out: 0 };
        while drawn.found.len() < number {
            let index = random.below(all.len() as u64) as usize;
            anyhow::ensure!(!all.is_empty(), "the kernel has {} instructions that can be probed", drawn.found.len());
            let resolved = self.resolver.resolve(&Place::Address(all.swap_remove(index)))?;
            let found = resolved.found.into_iter().next().context("an address is one instruction")?;
            if matches!(found.reach, Reach::Nothing(_)) {
                drawn.left_out += 1;
            } else if known.insert(found.address) {
                drawn.found.push(found);
            }
        }
        Ok(drawn)
    }

    /// A line for each: place, and whether kprobes would emulate it wrongly.
    pub fn lines(&self, all: &[Found]) -> String {
        all.iter().map(|found| format!("{} {}\n", self.line(found), u8::from(found.long_call))).collect()
    }

    /// The distance of an address from `_printk`.
    pub fn distance(&self, address: u64) -> i64 {
        address.wrapping_sub(self.anchor) as i64
    }

    /// An instruction after the window of another one that is executed exactly as often: control goes through both, one
    /// after the other, and neither comes from elsewhere nor leaves between them. None of them accesses memory of user
    /// space: it may fault, and a kprobe there is hit again when the instruction is repeated.
    pub fn companion(&self, found: &Found) -> Option<u64> {
        let part = self.index.map().part_of(found.address)?;
        let (Reach::Jump(window) | Reach::Short(window, _)) = &found.reach else { return None };
        let end = found.address - u64::from(window.lead.unsigned_abs()) + u64::from(window.len);
        let all = instructions(&self.world, part);
        let after = all.iter().skip_while(|insn| insn.ip() != found.address);
        let straight = after.take_while(|insn| {
            let enters = insn.ip() != found.address && self.index.map().entered(insn.ip());
            let faults = self.world.patches.fixups.contains_key(&insn.ip());
            !enters && !faults && insn.flow_control() == FlowControl::Next
        });
        straight.map(Instruction::ip).find(|at| *at >= end)
    }
}

/// Whether it is a direct branch, or a call.
fn branches(insn: &Instruction) -> bool {
    use FlowControl as F;
    matches!(insn.flow_control(), F::ConditionalBranch | F::UnconditionalBranch | F::Call)
}
