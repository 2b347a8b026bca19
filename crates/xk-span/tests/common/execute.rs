//! Executes a critical span and the code after it twice from one random state, with different values where the update
//! writes. What differs between the two runs depends on the constant, whatever the rules of the slice say. No
//! instruction outside of the safe spans may read it.
//!
//! One path is followed. It ends where the two runs diverge, at a call that passes what differs, and at the end of the
//! function. `xk-lift` defines what instructions do; its own tests compare it with the processor.

use std::collections::BTreeMap;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use xk_lift::insn::{Insn, Node};
use xk_span::frame::Frame;
use xk_span::value::{gpr, Value, CALLER_SAVED, RSP};
use xk_span::world::World;
use xk_table::{OpCode, ScopeTable, When};
use xk_testing::{mix, Machine};

const STACK: u64 = 0xffff_c900_0010_0000;

/// What a register holds.
fn register(machine: &Machine, register: Register) -> Option<u64> {
    let (number, bytes) = gpr(register)?;
    let value = machine.regs[number];
    let high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
    Some(match (bytes, high) {
        (8, _) => value,
        (1, true) => value >> 8 & 0xff,
        _ => value & ((1 << (8 * bytes)) - 1),
    })
}

/// Executes an instruction that is no branch; `false` if it has no semantics.
fn step(machine: &mut Machine, raw: Instruction) -> bool {
    let node = Node { section: 0, offset: raw.ip() };
    machine.step(&Insn {
        node,
        raw,
        displacement: None,
        displacement_at: None,
        pool: None,
        immediate: None,
        target: None,
    })
}

/// Whether `insn` reads something that differs between the two machines.
fn reads_difference(insn: &Instruction, a: &Machine, b: &Machine, factory: &mut InstructionInfoFactory) -> bool {
    let reads =
        |access| matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
    let clears = matches!(insn.mnemonic(), Mnemonic::Xor | Mnemonic::Sub | Mnemonic::Sbb)
        && insn.op0_kind() == OpKind::Register
        && insn.op1_kind() == OpKind::Register
        && insn.op0_register() == insn.op1_register();
    let flags = {
        use iced_x86::RflagsBits as B;
        let bits = [(B::CF, 0), (B::PF, 2), (B::AF, 4), (B::ZF, 6), (B::SF, 7), (B::OF, 11)];
        let read = insn.rflags_read();
        bits.iter().filter(|(flag, _)| read & flag != 0).any(|(_, bit)| (a.flags ^ b.flags) >> bit & 1 == 1)
    };
    let info = factory.info(insn);
    let registers = info.used_registers().iter().filter(|used| reads(used.access()) && !clears);
    let registers = registers.into_iter().any(|used| register(a, used.register()) != register(b, used.register()));
    let memory = info.used_memory().iter().filter(|used| reads(used.access())).any(|used| {
        let address =
            |machine: &Machine| used.virtual_address(0, |name, _, _| Some(register(machine, name).unwrap_or(0)));
        let (Some(x), Some(y)) = (address(a), address(b)) else { return false };
        let size = used.memory_size().size() as u64;
        x != y || (0..size).any(|i| a.byte(x.wrapping_add(i)) != b.byte(y.wrapping_add(i)))
    });
    flags || registers || memory
}

/// What a run saw.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub steps: usize,
    /// Instructions inside that consumed a value.
    pub consumed: usize,
    /// Instructions outside that did.
    pub violations: Vec<String>,
    /// Instructions that ended a run because they have no semantics.
    pub unknown: usize,
}

/// Most instructions of one run.
const STEPS: usize = 400;
/// The registers that pass arguments.
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];

/// Two machines that execute the same path. The second one starts where the update runs, with other values.
struct Run {
    a: Machine,
    b: Option<Machine>,
    seen: Seen,
}

/// Runs critical span `index` of `table` from a random state.
pub fn run(world: &World, frame: &Frame, table: &ScopeTable, index: usize, seed: u64) -> Option<Seen> {
    let span = &table.spans[index];
    let base = xk_span::text::address(world, &table.functions[span.function]).ok()?;
    let (start, site) = (base + u64::from(span.start), base + u64::from(span.indirection.offset));
    let before = span.indirection.when == When::Before;
    let mut factory = InstructionInfoFactory::new();
    let mut run = Run { a: random(frame, start, seed)?, b: None, seen: Seen::default() };
    let mut at = start;
    for _ in 0..STEPS {
        let Some(node) = frame.graph.at(at).map(|i| &frame.graph.nodes[i]) else { break };
        if at == site && before && run.b.is_none() {
            run.b = Some(perturbed(&run.a, table, index, seed));
        }
        if !run.note_reads(world, table, at, &node.insn, &mut factory) {
            break;
        }
        let Some(next) = run.step(node) else { break };
        if at == site && !before && run.b.is_none() {
            run.b = Some(perturbed(&run.a, table, index, seed));
        }
        at = next;
    }
    Some(run.seen)
}

/// A machine in a random state that agrees with what is known of the registers before the instruction at `start`.
fn random(frame: &Frame, start: u64, seed: u64) -> Option<Machine> {
    let values = frame.values[frame.graph.at(start)?].as_ref()?;
    let register = |n: usize| {
        let value = mix(seed ^ (n as u64) << 8, 0);
        match values.reg(n) {
            Value::Frame(at) => STACK.wrapping_add(i64::from(at) as u64),
            Value::SomeFrame => STACK - 0x1000,
            _ if value & 0x300 == 0 => value >> 56,
            _ => value,
        }
    };
    let mut machine = Machine {
        seed,
        regs: std::array::from_fn(register),
        flags: mix(seed ^ 77, 0) & 0x8d5,
        memory: BTreeMap::new(),
    };
    machine.regs[RSP] = STACK.wrapping_add(i64::from(values.stack()?) as u64);
    Some(machine)
}

impl Run {
    /// Notes whether the instruction reads what differs; `false` if it does so outside of the safe spans.
    fn note_reads(
        &mut self,
        world: &World,
        table: &ScopeTable,
        at: u64,
        insn: &Instruction,
        factory: &mut InstructionInfoFactory,
    ) -> bool {
        let Some(b) = &self.b else { return true };
        self.seen.steps += 1;
        if !reads_difference(insn, &self.a, b, factory) {
            return true;
        }
        if super::inside(world, table, at) {
            self.seen.consumed += 1;
            return true;
        }
        self.seen.violations.push(format!("{}: {insn}", world.place_name(at)));
        false
    }

    /// Executes an instruction; the address of the next one, unless the run ends here.
    fn step(&mut self, node: &xk_span::graph::Node) -> Option<u64> {
        let insn = node.insn;
        match insn.flow_control() {
            FlowControl::Next => {
                let known = step(&mut self.a, insn) && self.b.as_mut().is_none_or(|b| step(b, insn));
                if !known {
                    self.seen.unknown += 1;
                    return None;
                }
                Some(insn.next_ip())
            }
            FlowControl::ConditionalBranch if node.tail.is_none() => {
                let code = (insn.condition_code() as u8).checked_sub(1)?;
                let taken = self.a.holds(code);
                if self.b.as_ref().is_some_and(|b| b.holds(code) != taken) {
                    return None;
                }
                Some(if taken { insn.near_branch_target() } else { insn.next_ip() })
            }
            FlowControl::UnconditionalBranch if node.tail.is_none() && !node.returns => Some(insn.near_branch_target()),
            FlowControl::Call | FlowControl::IndirectCall if !node.stops => self.call(node),
            _ => None,
        }
    }

    /// Skips a call. The callee is not followed, so the run ends if what differs is passed, or may be reached.
    fn call(&mut self, node: &xk_span::graph::Node) -> Option<u64> {
        if let Some(b) = &self.b {
            let passed = ARGUMENTS.iter().any(|&n| self.a.regs[n] != b.regs[n]);
            if passed || self.a.memory != b.memory {
                return None;
            }
        }
        if node.call.is_some() {
            for n in CALLER_SAVED.numbers() {
                let value = mix(self.a.seed ^ node.insn.ip() ^ (n as u64) << 48, 0);
                self.a.regs[n] = value;
                self.b.iter_mut().for_each(|b| b.regs[n] = value);
            }
            self.b.iter_mut().for_each(|b| b.flags = self.a.flags);
        }
        Some(node.insn.next_ip())
    }
}

/// The machine with other values where the update writes.
fn perturbed(a: &Machine, table: &ScopeTable, index: usize, seed: u64) -> Machine {
    let mut b = a.clone();
    for op in &table.spans[index].indirection.program.ops {
        match op.code {
            OpCode::SetReg => {
                let other = mix(seed ^ 0x5555 ^ u64::from(op.dst), 0);
                let mask = if op.width == 8 { u64::MAX } else { (1 << (8 * op.width)) - 1 };
                b.regs[usize::from(op.dst & 15)] ^= other & mask;
            }
            OpCode::SetFlags => b.flags ^= mix(seed ^ 0x7777, 0) & op.imm as u64,
            _ => {}
        }
    }
    b
}
