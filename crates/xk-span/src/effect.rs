//! What an instruction reads, writes and definitely overwrites, by iced's tables. They cover every instruction, so no
//! list of instructions here can be incomplete.

use iced_x86::{ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind};

use crate::location::{Access, Locations, RegisterSet, Where};
use crate::value::{gpr, Changes, Values, RSP};

/// The effect of one instruction that is not a call.
#[derive(Debug, Clone, Default)]
pub struct Effect {
    /// May be read.
    pub reads: Locations,
    /// Definitely overwritten.
    pub kills: Locations,
    /// May be written.
    pub writes: Locations,
    /// Memory outside of the frame that is read.
    pub loads: Vec<Access>,
    /// Memory outside of the frame that is written.
    pub stores: Vec<Access>,
    /// It writes the stack pointer, and not only by pushing or popping.
    pub stack_pointer: bool,
    /// It pops a slot that the compiler saved a register in. No pointer reaches such a slot.
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
            let (register, bytes) = match gpr(used.register()) {
                Some((RSP, _)) if moves_stack => continue,
                // A segment register selects the copy of a per-CPU object. It holds no tainted data.
                None if used.register().is_segment_register() => continue,
                Some((number, bytes)) => (RegisterSet::of(number), bytes),
                None => (RegisterSet::OTHERS, 0),
            };
            if may_read(access) && !(clears(insn) && register != RegisterSet::OTHERS) {
                this.reads.registers |= register;
            }
            if may_write(access) {
                this.writes.registers |= register;
                let whole = bytes >= 4 && matches!(access, OpAccess::Write | OpAccess::ReadWrite);
                if whole && !nothing {
                    this.kills.registers |= register;
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
        this.stack_pointer = !moves_stack && this.writes.registers.contains(RSP);
        this
    }

    fn touch(&mut self, access: Access, how: OpAccess, nothing: bool, reachable: Option<i32>) {
        let locations = match access.place {
            // A register of which nothing is known may hold an address of the frame that was taken.
            Where::Based(..) => Locations { slots_from: reachable, ..Locations::default() },
            _ => Locations::of_access(access),
        };
        let outside = !access.is_in_frame();
        if may_read(how) {
            self.reads.add(&locations);
            self.loads.extend(outside.then_some(access));
        }
        if may_write(how) {
            self.writes.add(&locations);
            self.stores.extend(outside.then_some(access));
            if !nothing && matches!(how, OpAccess::Write | OpAccess::ReadWrite) && !outside {
                self.kills.slots.extend(&locations.slots);
            }
        }
    }

    /// Registers that may change, and stores, for the analysis of values.
    #[must_use]
    pub fn changes(insn: &Instruction, values: &Values, factory: &mut InstructionInfoFactory) -> Changes {
        let info = factory.info(insn);
        let registers = info.used_registers().iter().filter(|used| may_write(used.access()));
        let registers = registers.filter_map(|used| Some(gpr(used.register())?.0)).collect();
        let memory = info.used_memory().iter().filter(|used| may_write(used.access()));
        let repeated = insn.has_rep_prefix() || insn.has_repne_prefix();
        let stores = memory.map(|used| {
            let place = values.locate(used.base(), used.index(), used.displacement() as i64, used.segment());
            match place {
                Where::Frame(_) if repeated => Access { place: Where::SomeFrame, bytes: 0 },
                _ => Access { place, bytes: used.memory_size().size() as i32 },
            }
        });
        Changes { registers, stores: stores.collect() }
    }
}
