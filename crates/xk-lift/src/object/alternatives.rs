//! Sites at which the kernel chooses among several pieces of code at boot
//! (arch/x86/include/asm/alternative.h), and constants that it fills in.
//!
//! In: the tables of an object. Out: for each site what any of the pieces may read, write
//! and call, and where control may go from there; and whether a site of another build is a
//! choice among the same pieces.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::{Object, RelocTarget};
use crate::insn::{Node, SymbolRef, Target};
use crate::semantics::gpr;
use crate::state::{RSP, STATUS};

/// A site, seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    /// General registers that a piece reads before it writes them. The stack pointer is one of
    /// them only where a piece computes with it: calls and pushes use what is below it.
    pub reads: Vec<usize>,
    /// Whether a piece reads status flags that it does not write first.
    pub reads_flags: bool,
    /// General registers that a piece writes, and whether all pieces do.
    pub writes: Vec<(usize, bool)>,
    /// Whether a piece calls something.
    pub calls: bool,
    /// The entry of `pv_ops` through which the original calls, by its offset.
    pub paravirtual: Option<u32>,
    /// The place after the site.
    pub behind: Node,
    /// Where control may go: after the site first, if it may.
    pub exits: Vec<Node>,
    pieces: Vec<Piece>,
}

/// One of the pieces of code, in a form that does not depend on where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    /// Feature and flags; `None` of the original.
    condition: Option<u32>,
    /// Each instruction without the fields that are filled in.
    instructions: Vec<Vec<u8>>,
    /// What is filled in.
    references: Vec<Option<SymbolRef>>,
}

impl Alternative {
    /// Whether `other`, a site of another build, is a choice among the same pieces. Where
    /// they go is compared by whoever follows the exits.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.pieces == other.pieces && self.exits.len() == other.exits.len()
    }
}

struct Code {
    raw: Instruction,
    bytes: Vec<u8>,
    /// What its relocated field refers to.
    reference: Option<RelocTarget>,
}

/// What a piece does to registers, as bits by their numbers.
#[derive(Default)]
struct Effects {
    reads: u16,
    reads_flags: bool,
    writes: u16,
    /// Those of `writes` that are written on every way through the piece.
    always: u16,
    calls: bool,
}

impl Effects {
    fn of(code: &[Code]) -> Self {
        let mut factory = InstructionInfoFactory::new();
        let mut effects = Self::default();
        let (mut flags_written, mut straight) = (0, true);
        for Code { raw, .. } in code {
            for used in factory.info(raw).used_registers() {
                let Some((number, bits, _)) = gpr(used.register()) else { continue };
                if number == RSP && is_stack_operation(raw) {
                    continue;
                }
                let bit = 1 << number;
                let whole = used.access() == OpAccess::Write && bits >= 32;
                if !whole && effects.always & bit == 0 {
                    effects.reads |= bit;
                }
                if !matches!(used.access(), OpAccess::Read | OpAccess::CondRead) {
                    effects.writes |= bit;
                    effects.always |= if straight { bit } else { 0 };
                }
            }
            // What `pushf` saves of them is not specified, in any build, so no code may use it.
            if !matches!(raw.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq) {
                effects.reads_flags |= raw.rflags_read() & STATUS & !flags_written != 0;
            }
            flags_written |= if straight { raw.rflags_modified() } else { 0 };
            effects.calls |= matches!(raw.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
            straight &= !jumps(raw);
        }
        effects
    }
}

fn jumps(raw: &Instruction) -> bool {
    matches!(raw.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
}

/// Whether an instruction uses the stack only as one, below what is there.
fn is_stack_operation(raw: &Instruction) -> bool {
    let named = (0..raw.op_count())
        .any(|i| raw.op_kind(i) == OpKind::Register && raw.op_register(i).full_register() == Register::RSP);
    raw.is_stack_instruction() && !named && raw.memory_base() != Register::RSP && raw.memory_index() != Register::RSP
}

impl Object {
    /// The name of the constant that the kernel fills in at boot into the instruction at
    /// `node` (arch/x86/include/asm/runtime-const.h).
    #[must_use]
    pub fn runtime_constant(&self, node: Node) -> Option<&str> {
        let end = self.insns.get(&node)?.next();
        let found = self.runtime_constants.iter().position(|site| node <= site.at && site.at < end)?;
        self.runtime_names.get(found).map(String::as_str)
    }

    /// The site that begins at `node`.
    #[must_use]
    pub fn alternative(&self, node: Node) -> Option<Alternative> {
        let entries = self.choices.get(&node)?;
        let length = entries.iter().map(|&(section, at)| self.sections[section].data[at as usize + 12]).max()?;
        let original = self.code(node.section, node.offset, u64::from(length));
        let mut choices = vec![(None, original)];
        for &(section, at) in entries {
            let condition = u32::from_le_bytes(self.word(section, at + 8)?);
            let [replacement] = self.word::<1>(section, at + 13)?;
            let code = match self.place(section, at + 4) {
                Some(place) if replacement > 0 => self.code(place.section, place.offset, u64::from(replacement)),
                _ => Vec::new(),
            };
            choices.push((Some(condition), code));
        }
        let behind = Node { section: node.section, offset: node.offset + u64::from(length) };
        Some(self.summary(&choices, behind))
    }

    fn code(&self, section: usize, offset: u64, length: u64) -> Vec<Code> {
        let Some(holder) = self.sections.get(section) else { return Vec::new() };
        let Some(bytes) = holder.data.get(offset as usize..(offset + length) as usize) else { return Vec::new() };
        let mut decoder = Decoder::with_ip(64, bytes, offset, DecoderOptions::NONE);
        let mut code = Vec::new();
        while decoder.can_decode() {
            let raw = decoder.decode();
            let (from, to) = (raw.ip(), raw.next_ip());
            let field = holder.relocations.range(from..to).next();
            let mut bytes = bytes[(from - offset) as usize..(to - offset) as usize].to_vec();
            if let Some((&at, relocation)) = field {
                let at = (at - from) as usize;
                let end = (at + usize::from(relocation.size)).min(bytes.len());
                bytes[at..end].fill(0);
            }
            let reference = field.and_then(|(&at, _)| self.field(section, at, to));
            code.push(Code { raw, bytes, reference });
        }
        code
    }

    fn summary(&self, choices: &[(Option<u32>, Vec<Code>)], behind: Node) -> Alternative {
        let (mut reads, mut reads_flags, mut calls, mut falls) = (0u16, false, false, false);
        let mut written = Vec::new();
        let mut exits = Vec::new();
        let mut pieces = Vec::new();
        for (condition, code) in choices {
            let effects = Effects::of(code);
            (reads, reads_flags, calls) =
                (reads | effects.reads, reads_flags || effects.reads_flags, calls || effects.calls);
            let mut piece = Piece { condition: *condition, instructions: vec![], references: vec![] };
            for Code { raw, bytes, reference } in code {
                let to = self.jump(raw, reference.as_ref(), behind.section, condition.is_some()).filter(|_| jumps(raw));
                // Where a jump goes is an exit, and no part of the piece.
                let (mut bytes, mut reference) = (bytes.clone(), reference.as_ref().map(|to| self.symbol_ref(to)));
                if let Some(Target::Local(node)) = to {
                    exits.push(node);
                    (bytes, reference) = (format!("{:?}", raw.mnemonic()).into_bytes(), None);
                }
                piece.instructions.push(bytes);
                piece.references.push(reference);
            }
            falls |= code.last().is_none_or(|last| last.raw.flow_control() != FlowControl::UnconditionalBranch);
            written.push((effects.writes, effects.always));
            pieces.push(piece);
        }
        if falls {
            exits.insert(0, behind);
        }
        let numbers = |bits: u16| (0..16).filter(move |number| bits >> number & 1 == 1);
        let any = written.iter().fold(0, |any, (writes, _)| any | writes);
        let all = written.iter().fold(u16::MAX, |all, (_, always)| all & always);
        let writes = numbers(any).map(|number| (number, all >> number & 1 == 1)).collect();
        let paravirtual = choices.first().and_then(|(_, code)| match &code[..] {
            [Code { raw, reference: Some(RelocTarget::Symbol(symbol)), .. }]
                if symbol.name == "pv_ops" && raw.flow_control() == FlowControl::IndirectCall =>
            {
                u32::try_from(symbol.offset).ok()
            }
            _ => None,
        });
        Alternative { reads: numbers(reads).collect(), reads_flags, writes, calls, paravirtual, behind, exits, pieces }
    }

    /// Where a jump of a piece goes.
    fn jump(&self, raw: &Instruction, reference: Option<&RelocTarget>, section: usize, moved: bool) -> Option<Target> {
        match reference {
            Some(RelocTarget::Section { section, offset }) => {
                Some(Target::Local(Node { section: *section, offset: *offset as u64 }))
            }
            Some(RelocTarget::Symbol(symbol)) => Some(Target::External(symbol.clone())),
            // A replacement's jump within itself would have to be looked at closer.
            None if moved => None,
            None => Some(Target::Local(Node { section, offset: raw.near_branch_target() })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAX: u16 = 1 << 0;
    const RCX: u16 = 1 << 1;
    const RBX: u16 = 1 << 3;

    fn effects(bytes: &[u8]) -> Effects {
        let decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
        let code: Vec<Code> = decoder.into_iter().map(|raw| Code { raw, bytes: vec![], reference: None }).collect();
        assert!(code.iter().all(|code| !code.raw.is_invalid()));
        Effects::of(&code)
    }

    #[test]
    fn what_a_jump_may_skip_is_not_always_written() {
        // xor %ebx,%ebx; je 1f; mov $1,%eax; 1: mov %eax,%ecx
        let piece = effects(&[0x31, 0xdb, 0x74, 0x05, 0xb8, 1, 0, 0, 0, 0x89, 0xc1]);
        assert_eq!((piece.writes, piece.always), (RAX | RBX | RCX, RBX));
        assert_eq!(piece.reads, RAX, "where it was skipped, the last instruction reads what was there");
        assert!(!piece.reads_flags, "xor writes them first");
    }

    #[test]
    fn flags_from_before_are_read() {
        // adc %eax,%eax; pushf; pop %rax
        assert!(effects(&[0x11, 0xc0]).reads_flags);
        assert!(!effects(&[0x9c, 0x58]).reads_flags);
    }

    #[test]
    fn the_stack_pointer_is_read_where_it_is_an_operand() {
        // push %rbx; pop %rax, then mov 8(%rsp),%rax
        assert_eq!(effects(&[0x53, 0x58]).reads, RBX);
        assert_eq!(effects(&[0x48, 0x8b, 0x44, 0x24, 8]).reads, 1 << RSP);
    }
}
