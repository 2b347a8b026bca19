//! Basic blocks and liveness of an object's code.
//!
//! In: an [`Object`]. Out: where blocks begin, and which registers and flags
//! may still be read after each instruction. Liveness errs on the side of
//! "live": a call reads what its prototype passes, or what the callee's own
//! code may read if it is in the object, or every register, since assembly
//! helpers have conventions of their own. No call is taken to destroy a
//! register; flags never survive a call or a return.

use std::collections::{BTreeSet, HashMap};

use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, RflagsBits};

use crate::insn::{Insn, Node, Target};
use crate::object::Object;
use crate::prototypes::{is_transparent, Prototypes};
use crate::semantics::gpr;
use crate::state::{Flag, RSP};

/// Registers (bits 0..16) and flags (bits 16..22, in the order of [`Flag::ALL`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live(u32);

const ALL_REGISTERS: u32 = 0xffff;
/// rax, rcx, rdx, rsi, rdi, r8 to r11 (System V ABI).
const CALLER_SAVED: u32 = 0x0fc7;
/// The registers that pass arguments, in order.
pub const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];

impl Live {
    /// Everything.
    pub const ALL: Self = Self(0x3f_ffff);

    /// Whether register `number` may be read.
    #[must_use]
    pub fn register(self, number: usize) -> bool {
        self.0 >> number & 1 == 1
    }

    /// Whether `flag` may be read.
    #[must_use]
    pub fn flag(self, flag: Flag) -> bool {
        self.0 >> (16 + flag as usize) & 1 == 1
    }
}

/// Blocks and liveness.
#[derive(Debug)]
pub struct Flow {
    leaders: BTreeSet<Node>,
    live_in: HashMap<Node, Live>,
}

fn flag_bits(rflags: u32) -> u32 {
    let pairs = [
        (RflagsBits::CF, Flag::Cf),
        (RflagsBits::PF, Flag::Pf),
        (RflagsBits::AF, Flag::Af),
        (RflagsBits::ZF, Flag::Zf),
        (RflagsBits::SF, Flag::Sf),
        (RflagsBits::OF, Flag::Of),
    ];
    pairs.iter().filter(|(bit, _)| rflags & bit != 0).map(|(_, flag)| 1 << (16 + *flag as u32)).sum()
}

/// Where control may go after `insn`, within the object.
#[must_use]
pub fn successors(object: &Object, insn: &Insn) -> Vec<Node> {
    let mut next = Vec::new();
    let branch = matches!(insn.raw.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
    if let (true, Some(Target::Local(target))) = (branch, &insn.target) {
        next.push(*target);
    }
    if let Some((target, _)) = object.jump_labels.get(&insn.node) {
        next.push(*target);
        next.push(insn.next());
    }
    if let Some(fixup) = object.fixups.get(&insn.node) {
        next.push(*fixup);
    }
    // Where a jump stands, the kernel may put a no-op.
    if insn.falls_through() || object.warnings.contains(&insn.node) || object.in_alternative.contains(&insn.node) {
        next.push(insn.next());
    }
    next
}

impl Flow {
    /// Analyses `object`.
    #[must_use]
    pub fn new(object: &Object, prototypes: &Prototypes) -> Self {
        Self { leaders: leaders(object), live_in: liveness(object, prototypes) }
    }

    /// What a call of the function that begins at `start` may read of the
    /// registers that a call need not preserve.
    #[must_use]
    pub fn callee_reads(&self, start: Node) -> Live {
        Live(self.live_in(start).0 & CALLER_SAVED)
    }

    /// Whether `node` begins a block: something may jump there.
    #[must_use]
    pub fn is_leader(&self, node: Node) -> bool {
        self.leaders.contains(&node)
    }

    /// What may be read at or after `node` before it is written.
    #[must_use]
    pub fn live_in(&self, node: Node) -> Live {
        self.live_in.get(&node).copied().unwrap_or(Live::ALL)
    }

    /// Whether something may jump to a byte strictly inside `from..to`.
    #[must_use]
    pub fn jumped_into(&self, section: usize, from: u64, to: u64) -> bool {
        let (low, high) = (Node { section, offset: from + 1 }, Node { section, offset: to });
        self.leaders.range(low..high).next().is_some()
    }

    /// The instructions of the block that contains `node`, in order. A call
    /// ends a block: what follows it starts from an unknown state.
    #[must_use]
    pub fn block<'a>(&self, object: &'a Object, node: Node) -> Vec<&'a Insn> {
        let section = node.section;
        let back = object.insns.range(Node { section, offset: 0 }..node).rev();
        let mut first = node;
        if !self.is_leader(node) {
            for (&before, insn) in back {
                if insn.next() != first || insn.ends_block() {
                    break;
                }
                first = before;
                if self.is_leader(before) {
                    break;
                }
            }
        }
        let mut block = Vec::new();
        let mut expected = first;
        for (&at, insn) in object.insns.range(first..) {
            if at != expected || (at != first && self.is_leader(at)) {
                break;
            }
            block.push(insn);
            expected = insn.next();
            if insn.ends_block() {
                break;
            }
        }
        block
    }
}

fn leaders(object: &Object) -> BTreeSet<Node> {
    let mut leaders: BTreeSet<Node> = object.functions.keys().copied().collect();
    for insn in object.insns.values() {
        if let Some(Target::Local(target)) = insn.target {
            leaders.insert(target);
        }
        if insn.ends_block() {
            leaders.insert(insn.next());
        }
    }
    for (node, (target, _)) in &object.jump_labels {
        leaders.insert(*target);
        if let Some(insn) = object.insns.get(node) {
            leaders.insert(insn.next());
        }
    }
    leaders.extend(object.fixups.values());
    leaders.extend(object.alternative_targets());
    leaders
}

struct Effect {
    reads: u32,
    kills: u32,
    /// The function of the object that is called, if its code says what it reads.
    callee: Option<Node>,
}

impl Effect {
    fn of(reads: u32, kills: u32) -> Self {
        Self { reads, kills, callee: None }
    }
}

/// What a direct call reads: by its prototype, or by the callee's code.
fn call(object: &Object, insn: &Insn, prototypes: &Prototypes, kills: u32) -> Effect {
    let name = match &insn.target {
        Some(Target::External(symbol)) if symbol.offset == 0 => Some(symbol.name.as_str()),
        Some(Target::Local(node)) => object.functions.get(node).map(|f| f.name.as_str()),
        _ => None,
    };
    if name.is_some_and(is_transparent) {
        return Effect::of(1 << RSP, kills);
    }
    if let Some(count) = name.and_then(|name| prototypes.arguments(name)) {
        let passed = ARGUMENTS.iter().take(count).fold(1 << RSP, |bits, register| bits | 1 << register);
        return Effect::of(passed, kills);
    }
    match &insn.target {
        // A weak function may be another one in the end.
        Some(Target::Local(node)) if object.functions.get(node).is_some_and(|f| !f.weak) => {
            Effect { callee: Some(*node), ..Effect::of(1 << RSP, kills) }
        }
        _ => Effect::of(ALL_REGISTERS, kills),
    }
}

fn effect(object: &Object, insn: &Insn, prototypes: &Prototypes, factory: &mut InstructionInfoFactory) -> Effect {
    let flags = 0x3f << 16;
    if object.goes_to(insn, "__fentry__") {
        return Effect::of(0, 0);
    }
    if insn.is_call() {
        return call(object, insn, prototypes, flags);
    }
    if object.in_alternative.contains(&insn.node) {
        // Whatever the replacement reads.
        return Effect::of(ALL_REGISTERS | flag_bits(insn.raw.rflags_read()), 0);
    }
    let leaves = match insn.raw.flow_control() {
        FlowControl::Return | FlowControl::IndirectBranch => true,
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            matches!(insn.target, Some(Target::External(_)))
        }
        _ => false,
    };
    if leaves && insn.raw.flow_control() != FlowControl::ConditionalBranch {
        return Effect::of(ALL_REGISTERS, flags);
    }
    let raw = &insn.raw;
    // The flags survive a shift by zero, the registers a repeated string
    // operation with count zero.
    let may_do_nothing = raw.has_rep_prefix()
        || raw.has_repne_prefix()
        || (matches!(
            raw.mnemonic(),
            Mnemonic::Shl
                | Mnemonic::Sal
                | Mnemonic::Shr
                | Mnemonic::Sar
                | Mnemonic::Rol
                | Mnemonic::Ror
                | Mnemonic::Rcl
                | Mnemonic::Rcr
                | Mnemonic::Shld
                | Mnemonic::Shrd
        ) && raw.op_kind(raw.op_count() - 1) == OpKind::Register);
    let mut result = Effect {
        reads: flag_bits(raw.rflags_read()) | if leaves { ALL_REGISTERS } else { 0 },
        kills: if may_do_nothing { 0 } else { flag_bits(raw.rflags_modified()) },
        callee: None,
    };
    for used in factory.info(raw).used_registers() {
        let Some((number, bits, _)) = gpr(used.register()) else { continue };
        match used.access() {
            OpAccess::Write if bits >= 32 && !may_do_nothing => result.kills |= 1 << number,
            OpAccess::Write => result.reads |= 1 << number,
            _ => result.reads |= 1 << number,
        }
    }
    result
}

/// What is read behind an instruction: at other instructions, by their place in the
/// order, and outside of the object.
struct Behind {
    at: Vec<usize>,
    /// The function that is called, if its code says what it reads.
    callee: Option<usize>,
    effect: Effect,
}

fn liveness(object: &Object, prototypes: &Prototypes) -> HashMap<Node, Live> {
    let mut factory = InstructionInfoFactory::new();
    // Against the flow of control, so that few rounds are needed.
    let places: HashMap<Node, usize> = object.insns.keys().rev().enumerate().map(|(at, node)| (*node, at)).collect();
    let code: Vec<Behind> = object
        .insns
        .values()
        .rev()
        .map(|insn| {
            let mut effect = effect(object, insn, prototypes, &mut factory);
            let next = successors(object, insn);
            let at: Vec<usize> = next.iter().filter_map(|node| places.get(node).copied()).collect();
            if at.len() < next.len() {
                // Whatever is there may read everything.
                effect.reads |= Live::ALL.0 & !effect.kills;
            }
            Behind { at, callee: effect.callee.and_then(|start| places.get(&start).copied()), effect }
        })
        .collect();
    let mut live = vec![Live::default(); code.len()];
    loop {
        let mut changed = false;
        for (at, Behind { at: next, callee, effect }) in code.iter().enumerate() {
            let out = next.iter().fold(0, |acc, &next| acc | live[next].0);
            let callee = callee.map_or(0, |start| live[start].0 & CALLER_SAVED);
            let new = Live(out & !effect.kills | effect.reads | callee);
            if live[at] != new {
                live[at] = new;
                changed = true;
            }
        }
        if !changed {
            return object.insns.keys().rev().copied().zip(live).collect();
        }
    }
}
