//! An instruction of an object file: decoded by iced, with its relocations
//! resolved to symbols so that two builds can be compared.

use iced_x86::{FlowControl, Formatter, GasFormatter, Instruction, InstructionInfoFactory, Mnemonic, OpAccess};

use crate::term::{BinOp, TermId, Terms};

/// The symbol whose address stands for V in a build whose compiler cannot know the value. `xk-const` compiles such
/// builds with it.
pub const OPAQUE: &str = "xk_opaque";
/// The object whose contents stand for V in a build whose compiler may not even assume that V stays the same.
pub const OPAQUE_OBJECT: &str = "xk_opaque_object";

/// A place that only the linker knows: symbol plus offset.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymbolRef {
    /// Symbol, section, or the text of a string literal.
    pub name: String,
    /// Offset from it.
    pub offset: i64,
}

impl SymbolRef {
    /// Its address as an unknown plus a constant. That of [`OPAQUE`] is V as its 32 low
    /// bits say, sign-extended: what a relocation of the kernel's code model can hold.
    pub fn term(&self, terms: &mut Terms) -> TermId {
        let base = if self.name == OPAQUE {
            let v = terms.v();
            let low = terms.extract(v, 0, 32);
            terms.sext(low, 64)
        } else {
            terms.symbol(format!("&{}", self.name), 64)
        };
        let offset = terms.constant(self.offset as u128, 64);
        terms.bin(BinOp::Add, base, offset)
    }
}

/// An instruction's place in an object: section index and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    /// Index of the section.
    pub section: usize,
    /// Offset in it.
    pub offset: u64,
}

/// Where a direct branch or call goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Into this object.
    Local(Node),
    /// To a symbol elsewhere.
    External(SymbolRef),
}

/// A decoded instruction.
#[derive(Debug, Clone)]
pub struct Insn {
    /// Where it is.
    pub node: Node,
    /// As decoded; the instruction pointer is the section offset.
    pub raw: Instruction,
    /// Symbol of the displacement, if relocated.
    pub displacement: Option<SymbolRef>,
    /// Where a displacement of four bytes stands in the instruction.
    pub displacement_at: Option<u8>,
    /// What the memory operand reads, if it is in a pool of constants.
    pub pool: Option<u64>,
    /// Symbol of the immediate, if relocated.
    pub immediate: Option<SymbolRef>,
    /// Target of a direct branch or call.
    pub target: Option<Target>,
}

impl Insn {
    /// AT&T syntax, as objdump prints it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut formatter = GasFormatter::new();
        let options = formatter.options_mut();
        options.set_uppercase_hex(false);
        options.set_space_after_operand_separator(false);
        options.set_branch_leading_zeros(false);
        let mut text = String::new();
        formatter.format(&self.raw, &mut text);
        for symbol in [&self.displacement, &self.immediate].into_iter().flatten() {
            text.push_str(&format!("  # {}{:+#x}", symbol.name, symbol.offset));
        }
        text
    }

    /// Length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // an instruction is never empty
    pub fn len(&self) -> u64 {
        self.raw.len() as u64
    }

    /// The place just after it.
    #[must_use]
    pub fn next(&self) -> Node {
        Node { section: self.node.section, offset: self.node.offset + self.len() }
    }

    /// Whether control may go on after it (calls do, as far as the
    /// instruction alone can tell).
    #[must_use]
    pub fn falls_through(&self) -> bool {
        !matches!(
            self.raw.flow_control(),
            FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Return
                | FlowControl::Exception
        ) && self.raw.mnemonic() != Mnemonic::Int3
    }

    /// Whether it is a no-op of any length.
    #[must_use]
    pub fn is_nop(&self) -> bool {
        self.raw.mnemonic() == Mnemonic::Nop
            // lea 0(%rsi),%rsi and friends do not occur in 64-bit kernels; xchg %ax,%ax does.
            || (self.raw.mnemonic() == Mnemonic::Xchg && self.raw.op0_register() == self.raw.op1_register()
                && self.raw.op0_register().size() != 4)
    }

    /// Whether it is a call, direct or not.
    #[must_use]
    pub fn is_call(&self) -> bool {
        matches!(self.raw.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
    }

    /// Whether it stores something.
    #[must_use]
    pub fn writes_memory(&self) -> bool {
        let mut factory = InstructionInfoFactory::new();
        let accesses = factory.info(&self.raw).used_memory().iter().map(|used| used.access());
        accesses.into_iter().any(|access| {
            !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess)
        })
    }

    /// Whether it ends a basic block.
    #[must_use]
    pub fn ends_block(&self) -> bool {
        self.raw.flow_control() != FlowControl::Next
    }
}
