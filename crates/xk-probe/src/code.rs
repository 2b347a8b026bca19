//! The code of a kernel and of some of its modules, by function and by instruction.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction, Mnemonic, OpKind};
use xk_const::glob;
use xk_kernel::{Image, ImageError};
use xk_span::patches::{Alternative, Rewrite};
use xk_span::taken::taken;
use xk_span::window::{Index, Reason, Windows};
use xk_span::world::{Function, World};

use crate::operand::Operand;
use crate::place::Class;

/// Bytes of the longest instruction.
const LONGEST: u64 = 15;

/// Code, as it lies in the image.
#[derive(Debug)]
pub(crate) struct Code {
    world: World,
    index: Index,
}

impl Code {
    pub(crate) fn new(image: &Image, modules: &[&str]) -> Result<Self, ImageError> {
        let world = World::new(image, modules, std::collections::HashSet::new())?;
        let index = Index::new(&world);
        Ok(Self { world, index })
    }

    pub(crate) fn windows(&self) -> Windows<'_> {
        Windows::new(&self.world, &self.index)
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Number of a module; vmlinux is 0.
    pub(crate) fn owner(&self, module: Option<&str>) -> Option<usize> {
        let known = |owner: &Option<String>| owner.as_deref() == module;
        self.world.owners.iter().position(known)
    }

    pub(crate) fn module(&self, function: &Function) -> Option<&str> {
        self.world.owners.get(function.owner)?.as_deref()
    }

    /// The functions of a module that have this name.
    pub(crate) fn named(&self, name: &str, owner: usize) -> Vec<&Function> {
        self.world.named(name).filter(|function| function.owner == owner).collect()
    }

    /// The functions of a module that are code after boot; not the room before functions.
    pub(crate) fn functions(&self, owner: usize) -> impl Iterator<Item = &Function> {
        let is_code = |function: &&Function| {
            !self.world.is_over(function.start) && function.called("__pfx_").is_none() && self.length(function) > 0
        };
        self.world.functions().iter().filter(move |function| function.owner == owner).filter(is_code)
    }

    /// Bytes of a function up to the next symbol.
    pub(crate) fn length(&self, function: &Function) -> u64 {
        self.index.map().part_of(function.start).map_or(0, |part| part.end - function.start)
    }

    /// Whether an instruction begins at an address.
    pub(crate) fn begins(&self, address: u64) -> bool {
        self.index.map().begins(address)
    }

    /// The instruction at an address.
    pub(crate) fn instruction(&self, address: u64) -> Option<Instruction> {
        let decoded = Decoder::with_ip(64, self.world.code(address)?, address, DecoderOptions::NONE).decode();
        (!decoded.is_invalid()).then_some(decoded)
    }

    /// The nearest instructions before and after an address in a function.
    pub(crate) fn near(&self, function: &Function, address: u64) -> Vec<u64> {
        let end = function.start + self.length(function);
        let before = (function.start..address).rev().take(LONGEST as usize).find(|at| self.begins(*at));
        let after = (address + 1..end).take(LONGEST as usize).find(|at| self.begins(*at));
        before.into_iter().chain(after).collect()
    }

    /// Whether the function tracer changes the instruction at an address.
    pub(crate) fn is_traced(&self, address: u64) -> bool {
        self.world.patches.rewrites.get(&address) == Some(&Rewrite::Tracing)
    }

    /// Why the kernel's rules forbid any probe at an address, whatever keeps windows away: it switches the instruction
    /// there, or has chosen an alternative, so that it is not known where instructions begin after its first byte.
    pub(crate) fn changes(&self, address: u64) -> Option<Reason> {
        let patches = &self.world.patches;
        match patches.rewrites.get(&address) {
            Some(Rewrite::Label) => return Some(Reason::JumpLabel),
            Some(Rewrite::StaticCall) => return Some(Reason::StaticCall),
            Some(Rewrite::Tracing) | None => {}
        }
        let near = patches.alternatives.range(address.saturating_sub(u64::from(u8::MAX))..address);
        let covers = |(site, all): (&u64, &Vec<Alternative>)| all.iter().any(|one| address - site < u64::from(one.len));
        near.into_iter().any(covers).then_some(Reason::Alternative)
    }

    /// Where an indirect call or jump finds its target; addresses in code are moved by `shift`.
    pub(crate) fn operand(&self, insn: &Instruction, shift: u64) -> Option<Operand> {
        let thunk = near(insn).and_then(|target| self.world.function_at(target));
        thunk.and_then(|thunk| Operand::of_thunk(&thunk.names)).or_else(|| Operand::of(insn, shift))
    }

    /// The functions whose address is taken.
    pub(crate) fn taken(&self) -> Vec<&Function> {
        taken(&self.world, self.index.map()).into_iter().filter_map(|at| self.world.function_at(at)).collect()
    }

    /// The instructions of a function, without the padding after the last.
    pub(crate) fn instructions(&self, function: &Function) -> Vec<Instruction> {
        let code = self.world.read(function.start, self.length(function) as usize).unwrap_or_default();
        let decoder = Decoder::with_ip(64, code, function.start, DecoderOptions::NONE);
        let mut all: Vec<Instruction> = decoder.into_iter().take_while(|insn| !insn.is_invalid()).collect();
        while all.last().is_some_and(|insn| matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)) {
            all.pop();
        }
        all
    }

    /// The addresses of the instructions of a class in a function.
    pub(crate) fn of_class(&self, function: &Function, class: &Class) -> Vec<u64> {
        let all = self.instructions(function);
        let is_entry = |insn: &&Instruction| insn.mnemonic() == Mnemonic::Endbr64 || self.is_traced(insn.ip());
        match class {
            Class::Entry => all.iter().take(1).map(Instruction::ip).collect(),
            Class::Body => all.iter().skip_while(is_entry).take(1).map(Instruction::ip).collect(),
            Class::Any => all.iter().map(Instruction::ip).collect(),
            // `Fields` knows them.
            Class::Field(_) => Vec::new(),
            Class::Return | Class::Call | Class::IndirectCall => {
                let is_it = |insn: &&Instruction| self.class(function, insn).as_ref() == Some(class);
                all.iter().filter(is_it).map(Instruction::ip).collect()
            }
            Class::CallOf(callee) => {
                let calls = |insn: &&Instruction| {
                    self.class(function, insn) == Some(Class::Call)
                        && near(insn).is_some_and(|target| self.is_named(target, callee))
                };
                all.iter().filter(calls).map(Instruction::ip).collect()
            }
        }
    }

    /// Whether a function begins at an address with a name that matches a pattern.
    fn is_named(&self, address: u64, pattern: &str) -> bool {
        self.world.function_at(address).is_some_and(|found| found.names.iter().any(|name| glob(pattern, name)))
    }

    /// Whether an instruction returns or calls.
    fn class(&self, function: &Function, insn: &Instruction) -> Option<Class> {
        let target = near(insn);
        match insn.flow_control() {
            _ if self.is_traced(insn.ip()) => None,
            FlowControl::Return => Some(Class::Return),
            FlowControl::IndirectCall | FlowControl::IndirectBranch => Some(Class::IndirectCall),
            FlowControl::Call => Some(self.called(target?).unwrap_or(Class::Call)),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let target = self.world.function_at(target?)?;
                let elsewhere = target.start != function.start && target.whole() != function.whole();
                self.called(target.start).or_else(|| elsewhere.then_some(Class::Call))
            }
            _ => None,
        }
    }

    /// What a branch to a thunk is.
    fn called(&self, target: u64) -> Option<Class> {
        let thunk = self.world.function_at(target)?;
        if thunk.called("__x86_indirect_").is_some() {
            return Some(Class::IndirectCall);
        }
        thunk.names.iter().any(|name| name.ends_with("_return_thunk")).then_some(Class::Return)
    }

    /// An instruction in AT&T syntax, with the name of what it branches to.
    pub(crate) fn text(&self, insn: &Instruction) -> String {
        let mut formatter = GasFormatter::new();
        let options = formatter.options_mut();
        options.set_uppercase_hex(false);
        options.set_space_after_operand_separator(false);
        options.set_branch_leading_zeros(false);
        let mut text = String::new();
        match near(insn) {
            Some(target) => {
                formatter.format_mnemonic(insn, &mut text);
                text.push(' ');
                text.push_str(&self.name(target));
            }
            None => formatter.format(insn, &mut text),
        }
        text
    }

    /// `[module:]function[+offset]`
    pub(crate) fn name(&self, address: u64) -> String {
        let Some(function) = self.world.function_of(address) else { return format!("{address:#x}") };
        let module = self.module(function).map_or_else(String::new, |module| format!("{module}:"));
        // The first thunk shares its address with the end of a section.
        let name = function.called("__x86_indirect_thunk").unwrap_or(function.name());
        match address - function.start {
            0 => format!("{module}{name}"),
            offset => format!("{module}{name}+{offset:#x}"),
        }
    }
}

/// Where a direct branch goes.
fn near(insn: &Instruction) -> Option<u64> {
    (insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64).then(|| insn.near_branch_target())
}
