//! What the kernel's own probes would be, by the rules of Linux 6.12:
//! `check_kprobe_address_safe` (kernel/kprobes.c), `can_probe`, `prepare_emulation`, `can_boost` and
//! `can_optimize`, `copy_optimized_instructions` (arch/x86/kernel/kprobes/).

use std::collections::HashSet;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use xk_lift::probe::{may_boost, JUMP_LEN};
use xk_span::patches::Rewrite;
use xk_span::window::map::Part;
use xk_span::world::World;

/// What a probe at an instruction becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// A jump.
    Jump,
    /// The function tracer calls it.
    Tracer,
    /// One trap: the instruction runs out of line and comes back by a jump.
    Boost,
    /// Traps: emulated or stepped.
    Trap,
    /// Not let in.
    None,
}

/// Sections that are on the kernel's list as a whole.
const LISTED: [&str; 4] = [".noinstr.text", ".entry.text", ".kprobes.text", ".cpuidle.text"];

/// The rules, for a world.
pub struct Probes {
    /// Lock prefixes that the kernel may change (`alternatives_text_reserved`).
    locks: HashSet<u64>,
}

/// The rules, for a function.
pub struct Function<'a> {
    world: &'a World,
    probes: &'a Probes,
    insns: &'a [Instruction],
    end: u64,
    closed: bool,
    /// The exception table has one of its instructions.
    faults: bool,
    /// Where its own jumps go.
    targets: Vec<u64>,
}

impl Probes {
    pub fn new(world: &World) -> Self {
        let lock = |&&(at, len): &&(u64, u8)| len == 1 && world.code(at).is_some_and(|code| code[0] == 0xf0);
        Self { locks: world.patches.sites.iter().filter(lock).map(|(at, _)| *at).collect() }
    }

    pub fn function<'a>(&'a self, world: &'a World, part: Part, insns: &'a [Instruction]) -> Function<'a> {
        let listed = world
            .closed
            .iter()
            .any(|(range, name)| range.contains(&part.start) && LISTED.iter().any(|listed| name.starts_with(listed)));
        let mut targets: Vec<u64> =
            insns.iter().filter(|insn| jumps(insn)).map(Instruction::near_branch_target).collect();
        targets.sort_unstable();
        Function {
            world,
            probes: self,
            insns,
            end: part.end,
            closed: listed || world.blacklist.contains(&part.start),
            faults: insns.iter().any(|insn| world.patches.fixups.contains_key(&insn.ip())),
            targets,
        }
    }
}

/// Whether it is a direct jump (`insn_jump_into_range`; calls do not count).
fn jumps(insn: &Instruction) -> bool {
    let branch = matches!(insn.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch);
    branch && insn.op0_kind() == OpKind::NearBranch64
}

impl Function<'_> {
    /// What a probe at one of its instructions becomes.
    pub fn at(&self, insn: &Instruction) -> Reach {
        if self.closed || self.switched(insn.ip(), insn.next_ip()) || !emulates(insn) {
            return Reach::None;
        }
        let traced = |at| self.world.patches.rewrites.get(&at) == Some(&Rewrite::Tracing);
        let first = self.insns.first().is_some_and(|first| first.ip() == insn.ip());
        // A probe at endbr64 is one behind it (arch_adjust_kprobe_addr).
        if traced(insn.ip()) || first && insn.mnemonic() == Mnemonic::Endbr64 && traced(insn.next_ip()) {
            return Reach::Tracer;
        }
        if self.jumps_there(insn.ip()) {
            return Reach::Jump;
        }
        if self.boosts(insn) {
            Reach::Boost
        } else {
            Reach::Trap
        }
    }

    fn boosts(&self, insn: &Instruction) -> bool {
        let bytes = self.world.code(insn.ip()).and_then(|code| code.get(..insn.len())).unwrap_or(&[]);
        !self.world.patches.fixups.contains_key(&insn.ip()) && may_boost(bytes)
    }

    /// A jump label or a static call.
    fn switched(&self, start: u64, end: u64) -> bool {
        let sites = self.world.patches.sites.range((start.saturating_sub(15), 0)..(end, 0));
        sites.into_iter().any(|(at, _)| {
            let kind = self.world.patches.rewrites.get(at);
            let len = || self.insns.iter().find(|insn| insn.ip() == *at).map_or(0, Instruction::len) as u64;
            matches!(kind, Some(Rewrite::Label | Rewrite::StaticCall)) && at + len() > start
        })
    }

    fn jumps_there(&self, at: u64) -> bool {
        let from = self.insns.partition_point(|insn| insn.ip() < at);
        if self.faults || self.end - at < JUMP_LEN {
            return false;
        }
        let mut end = at;
        for insn in &self.insns[from..] {
            let locked = (insn.ip()..insn.next_ip()).any(|at| self.probes.locks.contains(&at));
            let traced = self.world.patches.rewrites.contains_key(&insn.ip());
            if !self.boosts(insn) || locked || traced || self.switched(insn.ip(), insn.next_ip()) {
                return false;
            }
            end = insn.next_ip();
            if end - at >= JUMP_LEN {
                break;
            }
        }
        if end - at < JUMP_LEN {
            return false;
        }
        // insn_jump_into_range: from the second byte on, four bytes, both ends included.
        let first = self.targets.partition_point(|target| *target <= at);
        self.targets.get(first).is_none_or(|target| *target > at + JUMP_LEN)
    }
}

/// Whether `can_probe` and `prepare_emulation` take it: no traps, nothing far, no indirect call or jump
/// through memory, no instruction of virtual machines.
fn emulates(insn: &Instruction) -> bool {
    use Mnemonic as M;
    let through_memory = matches!(insn.flow_control(), FlowControl::IndirectBranch | FlowControl::IndirectCall)
        && insn.op0_kind() != OpKind::Register;
    let trap = matches!(insn.flow_control(), FlowControl::Exception | FlowControl::Interrupt);
    let refused =
        matches!(insn.mnemonic(), M::Iret | M::Iretd | M::Iretq | M::Vmcall | M::Vmlaunch | M::Vmresume | M::Vmxoff);
    !through_memory && !trap && !refused
}
