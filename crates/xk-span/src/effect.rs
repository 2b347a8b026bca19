//! What an instruction reads, writes and surely overwrites, as iced's tables say: every
//! instruction is covered, also those that nobody thought of.

use std::collections::BTreeSet;

use iced_x86::{ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind};

use crate::value::{gpr, Changes, Values, Where, RSP};

/// Everything but the general registers and the flags: vector registers, control
/// registers. One place, never overwritten.
pub const OTHERS: u32 = 1 << 16;

/// Registers, status flags and bytes of the frame.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Locs {
    /// General registers by number, and [`OTHERS`].
    pub regs: u32,
    /// Bits of rflags.
    pub flags: u32,
    /// Bytes of the frame.
    pub slots: BTreeSet<i32>,
    /// Every byte of the frame from here on.
    pub frame: Option<i32>,
}

impl Locs {
    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regs == 0 && self.flags == 0 && self.slots.is_empty() && self.frame.is_none()
    }

    /// Whether both hold something.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let slots = |a: &Self, b: &Self| match b.frame {
            Some(from) => a.frame.is_some() || a.slots.range(from..).next().is_some(),
            None => a.slots.iter().any(|slot| b.slots.contains(slot)),
        };
        self.regs & other.regs != 0 || self.flags & other.flags != 0 || slots(self, other) || slots(other, self)
    }

    /// Takes over what `other` holds; whether that was new.
    pub fn add(&mut self, other: &Self) -> bool {
        let before = (self.regs, self.flags, self.slots.len(), self.frame);
        self.regs |= other.regs;
        self.flags |= other.flags;
        self.slots.extend(&other.slots);
        self.frame = self.frame.into_iter().chain(other.frame).min();
        before != (self.regs, self.flags, self.slots.len(), self.frame)
    }

    /// Removes what `other` surely holds.
    pub fn remove(&mut self, other: &Self) {
        self.regs &= !other.regs;
        self.flags &= !other.flags;
        for slot in &other.slots {
            self.slots.remove(slot);
        }
    }

    /// Bytes of the frame.
    pub fn add_slots(&mut self, at: i32, bytes: i32) {
        self.slots.extend(at..at.saturating_add(bytes.clamp(0, 256)));
        if bytes > 256 {
            self.frame = self.frame.into_iter().chain([at]).min();
        }
    }
}

/// An operand in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// Where.
    pub place: Where,
    /// Bytes; 0 if that is not known.
    pub bytes: i32,
}

/// The effect of one instruction that is no call.
#[derive(Debug, Clone, Default)]
pub struct Effect {
    /// May be read.
    pub reads: Locs,
    /// Surely overwritten.
    pub kills: Locs,
    /// May be written.
    pub writes: Locs,
    /// Memory outside of the frame that is read.
    pub loads: Vec<Access>,
    /// Memory outside of the frame that is written.
    pub stores: Vec<Access>,
    /// It writes the stack pointer, and not only by pushing or popping.
    pub stack_pointer: bool,
    /// It pops: what the compiler saved, of which nobody has an address.
    pub pops: bool,
}

fn may_read(access: OpAccess) -> bool {
    matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn may_write(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// Whether `insn` may leave its outputs as they were: a shift by a count that may be
/// zero, a repeated string instruction.
fn may_do_nothing(insn: &Instruction) -> bool {
    use Mnemonic as M;
    let shift = matches!(
        insn.mnemonic(),
        M::Shl | M::Sal | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr | M::Shld | M::Shrd
    );
    insn.has_rep_prefix()
        || insn.has_repne_prefix()
        // cmov; a byte that setcc writes is never the whole register.
        || insn.condition_code() != ConditionCode::None
        || (shift && insn.op_kind(insn.op_count().saturating_sub(1)) == OpKind::Register)
}

/// `xor %eax,%eax` and the like: the result does not depend on the register.
fn clears(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Xor | Mnemonic::Sub | Mnemonic::Sbb)
        && insn.op0_kind() == OpKind::Register
        && insn.op1_kind() == OpKind::Register
        && insn.op0_register() == insn.op1_register()
}

impl Effect {
    /// Of `insn` in a state.
    pub fn of(
        insn: &Instruction,
        values: &Values,
        reachable: Option<i32>,
        factory: &mut InstructionInfoFactory,
    ) -> Self {
        let mut this = Self::default();
        let nothing = may_do_nothing(insn);
        let moves_stack = insn.is_stack_instruction();
        let info = factory.info(insn);
        for used in info.used_registers() {
            let access = used.access();
            let (bit, bytes) = match gpr(used.register()) {
                Some((RSP, _)) if moves_stack => continue,
                // Which copy of memory is meant is no matter of values.
                None if used.register().is_segment_register() => continue,
                Some((number, bytes)) => (1 << number, bytes),
                None => (OTHERS, 0),
            };
            if may_read(access) && !(clears(insn) && bit != OTHERS) {
                this.reads.regs |= bit;
            }
            if may_write(access) {
                this.writes.regs |= bit;
                let whole = bytes >= 4 && matches!(access, OpAccess::Write | OpAccess::ReadWrite);
                if whole && !nothing {
                    this.kills.regs |= bit;
                }
            }
        }
        for used in info.used_memory() {
            let place = values.locate(used.base(), used.index(), used.displacement() as i64, used.segment());
            let bytes =
                if insn.has_rep_prefix() || insn.has_repne_prefix() { 0 } else { used.memory_size().size() as i32 };
            this.touch(Access { place, bytes }, used.access(), nothing, reachable);
        }
        this.pops = insn.mnemonic() == Mnemonic::Pop;
        this.reads.flags = insn.rflags_read();
        this.writes.flags = insn.rflags_modified();
        if !nothing {
            this.kills.flags = insn.rflags_modified();
        }
        this.stack_pointer = !moves_stack && this.writes.regs >> RSP & 1 == 1;
        this
    }

    fn touch(&mut self, access: Access, how: OpAccess, nothing: bool, reachable: Option<i32>) {
        let mut locs = Locs::default();
        match access.place {
            Where::Frame(at) if access.bytes > 0 => locs.add_slots(at, access.bytes),
            Where::Frame(at) => locs.frame = Some(at),
            Where::SomeFrame => locs.frame = Some(i32::MIN),
            // What nothing is known about may be an address of the frame.
            Where::Based(..) => locs.frame = reachable,
            _ => {}
        }
        let outside = !matches!(access.place, Where::Frame(_) | Where::SomeFrame);
        if may_read(how) {
            self.reads.add(&locs);
            self.loads.extend(outside.then_some(access));
        }
        if may_write(how) {
            self.writes.add(&locs);
            self.stores.extend(outside.then_some(access));
            if !nothing && matches!(how, OpAccess::Write | OpAccess::ReadWrite) && !outside {
                self.kills.slots.extend(&locs.slots);
            }
        }
    }

    /// Registers that may change, and stores, for the analysis of values.
    #[must_use]
    pub fn changes(insn: &Instruction, values: &Values, factory: &mut InstructionInfoFactory) -> Changes {
        let info = factory.info(insn);
        let registers = info.used_registers().iter().filter(|used| may_write(used.access()));
        let written = registers.filter_map(|used| gpr(used.register())).fold(0, |bits, (number, _)| bits | 1 << number);
        let memory = info.used_memory().iter().filter(|used| may_write(used.access()));
        let repeated = insn.has_rep_prefix() || insn.has_repne_prefix();
        let stores = memory.map(|used| {
            let place = values.locate(used.base(), used.index(), used.displacement() as i64, used.segment());
            match place {
                Where::Frame(_) if repeated => (Where::SomeFrame, 0),
                _ => (place, used.memory_size().size() as i32),
            }
        });
        (written, stores.collect())
    }
}
