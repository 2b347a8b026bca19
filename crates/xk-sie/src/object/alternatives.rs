//! Sites at which the kernel chooses among several pieces of code at boot
//! (arch/x86/include/asm/alternative.h), and constants that it fills in.
//!
//! In: the tables of an object. Out: for each site what any of the pieces may read, write
//! and call, and where control may go from there; and whether a site of another build is a
//! choice among the same pieces.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess};

use super::{Object, RelocTarget};
use crate::insn::{Node, SymbolRef, Target};
use crate::semantics::gpr;

/// A site, seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    /// General registers that a piece reads before it writes them.
    pub reads: Vec<usize>,
    /// General registers that a piece writes, and whether all pieces do.
    pub writes: Vec<(usize, bool)>,
    /// Whether a piece calls something.
    pub calls: bool,
    /// The entry of `pv_ops` through which the original calls, by its offset.
    pub paravirtual: Option<u32>,
    /// Where control may go: behind the site first, if it may.
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
        let mut factory = InstructionInfoFactory::new();
        let (mut reads, mut calls, mut falls) = (0u16, false, false);
        let mut written = Vec::new();
        let mut exits = Vec::new();
        let mut pieces = Vec::new();
        for (condition, code) in choices {
            let mut writes = 0u16;
            let mut piece = Piece { condition: *condition, instructions: vec![], references: vec![] };
            for Code { raw, bytes, reference } in code {
                for used in factory.info(raw).used_registers() {
                    let Some((number, bits, _)) = gpr(used.register()) else { continue };
                    let bit = 1 << number;
                    let only_writes = used.access() == OpAccess::Write && bits >= 32;
                    if !only_writes && writes & bit == 0 {
                        reads |= bit;
                    }
                    if !matches!(used.access(), OpAccess::Read | OpAccess::CondRead) {
                        writes |= bit;
                    }
                }
                calls |= matches!(raw.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
                let jumps =
                    matches!(raw.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
                let to = self.jump(raw, reference.as_ref(), behind.section, condition.is_some()).filter(|_| jumps);
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
            written.push(writes);
            pieces.push(piece);
        }
        if falls {
            exits.insert(0, behind);
        }
        let numbers = |bits: u16| (0..16).filter(move |number| bits >> number & 1 == 1);
        let any = written.iter().fold(0, |all, writes| all | writes);
        let all = written.iter().fold(u16::MAX, |all, writes| all & writes);
        let writes = numbers(any).map(|number| (number, all >> number & 1 == 1)).collect();
        let paravirtual = choices.first().and_then(|(_, code)| match &code[..] {
            [Code { raw, reference: Some(RelocTarget::Symbol(symbol)), .. }]
                if symbol.name == "pv_ops" && raw.flow_control() == FlowControl::IndirectCall =>
            {
                u32::try_from(symbol.offset).ok()
            }
            _ => None,
        });
        Alternative { reads: numbers(reads).collect(), writes, calls, paravirtual, exits, pieces }
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
