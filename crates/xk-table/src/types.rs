//! The schema of a scope table. Readable JSON; versioned by [`SCHEMA`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fit::Fit;
use crate::incoherent::Incoherent;
use crate::ops::Program;
use crate::scopes::{Escape, Mode, Scope};
use crate::values::{Range, Values};

/// Version of the schema. Raised whenever a field changes meaning.
pub const SCHEMA: u32 = 2;

/// The kernel build that a table belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRef {
    /// `uname -r`, e.g. `6.12.117+deb12-amd64`.
    pub release: String,
    /// GNU build-id of vmlinux, lower-case hex (`/sys/kernel/notes`).
    pub build_id: String,
}

/// The constant as it stands in the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConstRef {
    /// Full ConstID: `path:Lline:value:index`.
    pub id: String,
    /// A unique name by which a person calls it, if it has one.
    pub name: Option<String>,
    /// The source line, verbatim.
    pub text: String,
    /// The token that is varied, verbatim: `32`, `(HZ/25)`, `HPAGE_PMD_NR`.
    pub token: String,
    /// Its value in this kernel's configuration.
    pub default: i64,
}

/// Where a function of the deployed kernel lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Symbol, e.g. `do_shrink_slab`.
    pub symbol: String,
    /// Module that contains it; `None` for vmlinux.
    pub module: Option<String>,
    /// Address relative to `_stext` (vmlinux) or to the start of the module's
    /// section `section`: tells two functions of one name apart.
    pub text_offset: u64,
    /// Section of the module that holds it; `.text` for vmlinux.
    pub section: String,
    /// The deployed bytes, lower-case hex.
    pub bytes: String,
    /// `ff` where running bytes must equal `bytes`, `00` where the kernel
    /// relocates or patches itself; as long as `bytes`.
    pub mask: String,
    /// Translation unit that it was compiled from, relative to the source tree.
    pub source: String,
}

/// A value that the constant gives to a static object, and nothing else does:
/// it is changed in memory, without a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataSite {
    /// Symbol of the object, e.g. `net_hotdata`.
    pub symbol: String,
    /// Module that contains it; `None` for vmlinux.
    pub module: Option<String>,
    /// Section that holds it, e.g. `.data`.
    pub section: String,
    /// Address of the object relative to `_stext` (vmlinux) or to the start of
    /// the module's section `section`: tells two objects of one name apart.
    pub section_offset: u64,
    /// Offset of the value in the object.
    pub offset: u32,
    /// Width of the value in bytes: 1, 2, 4 or 8.
    pub width: u8,
    /// The value that the object holds for V.
    pub fit: Fit,
    /// Translation unit that defines it, relative to the source tree.
    pub source: String,
}

/// When the operations run relative to the probed instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Before the instruction at the location (may be jump-optimised).
    Before,
    /// After it (always a breakpoint).
    After,
    /// Instead of it (always a breakpoint): the operations do what it would have
    /// done, from the state before it.
    Instead,
}

/// How the new state is obtained; the letters are the design's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// (a) a function of V alone.
    Value,
    /// (b) rematerialised from state that is still available.
    Rematerialise,
    /// (c) the old effect is inverted first.
    Invert,
}

/// What kprobes are expected to make of the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// Jump-optimised.
    Jump,
    /// Breakpoint.
    Int3,
}

fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// What is executed at a kernel address so that the state is the one that the
/// new value would have produced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Indirection {
    /// Offset of the probed instruction in the function.
    pub offset: u32,
    /// Length of that instruction in bytes.
    pub insn_len: u8,
    /// Before or after it.
    pub when: When,
    /// How the state is obtained.
    pub kind: Kind,
    /// What the prober is expected to do.
    pub probe: ProbeKind,
    /// Why a jump is not expected, when it is not.
    pub probe_reason: Option<String>,
    /// Bytes of whole instructions that one jump may replace, from 5 to 15; 0 if there
    /// are none. Padding after the function may be among them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub window: u8,
    /// Bytes of the window that lie before the probed instruction.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub window_lead: u8,
    /// Why there is no window, if that was analysed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_reason: Option<String>,
    /// The operations.
    pub program: Program,
}

/// An instruction in which a transformed value stands as a number: other bytes there are
/// another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// Offset of the instruction in the function.
    pub offset: u32,
    /// Its length in bytes.
    pub insn_len: u8,
    /// Where in it the number stands.
    pub field: u8,
    /// Bytes of the number: 1, 2, 4 or 8.
    pub size: u8,
    /// Bytes to which the processor sign-extends it: 1, 2, 4 or 8.
    pub width: u8,
    /// Index into [`CriticalSpan::ivs`].
    pub iv: usize,
}

impl Patch {
    /// Whether the number in the instruction would mean this value.
    #[must_use]
    pub fn has_room(&self, iv: u64) -> bool {
        let bits = |bytes: u8| u32::from(bytes.clamp(1, 8)) * 8;
        let spare = 64 - bits(self.size);
        let meant = ((iv << spare) as i64 >> spare) as u64;
        (iv ^ meant) << (64 - bits(self.width)) == 0
    }
}

/// How the instructions of a span hold the value themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InPlace {
    /// All instructions of the span that depend on the constant, in their order.
    pub patches: Vec<Patch>,
    /// The values for which every number has room: a part of the hull of the table's values.
    pub range: Range,
    /// The evidence.
    pub proof: Proof,
}

/// How sure we are; three different words, never mixed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Proof {
    /// A solver showed that no state and no value in the range differ.
    Proved {
        /// Solver and version.
        solver: String,
        /// Milliseconds that it took.
        millis: u64,
    },
}

/// One occurrence of the constant in the deployed machine code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriticalSpan {
    /// Index into [`ScopeTable::functions`].
    pub function: usize,
    /// Offset of the first instruction.
    pub start: u32,
    /// Offset just after the last instruction.
    pub end: u32,
    /// The instructions, one per line, as annotated assembly.
    pub assembly: Vec<AsmLine>,
    /// The symbolic state expression in words: `eax = cl < 1 ? V : 2·V`.
    pub expression: Vec<String>,
    /// The transformed values, in the order of the program's IV slots.
    pub ivs: Vec<Fit>,
    /// What to do about it.
    pub indirection: Indirection,
    /// The evidence.
    pub proof: Proof,
    /// How it can be done without an update, by changing the instructions themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlace>,
    /// Why that is not possible, if that was analysed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_reason: Option<String>,
    /// Why it may be done in no other way: other contexts could observe the steps of the
    /// update in memory. The proof of the update assumes that nothing else accesses memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_in_place: Option<String>,
    /// What the update does to memory besides what the code with V does: reads alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub visible: Vec<String>,
}

/// One instruction of a critical span, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsmLine {
    /// Offset in the function.
    pub offset: u32,
    /// AT&T syntax, as objdump prints it.
    pub text: String,
    /// Index of the IV that this instruction materialises, if any.
    pub iv: Option<usize>,
    /// The test for order that the update puts in the place of this instruction's test for equality.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
}

/// A test for order: what the zero flag of a comparison says instead of "equal".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// At least the value, signed.
    AtLeast,
    /// At most the value, signed.
    AtMost,
    /// At least the value, unsigned.
    AboveOrEqual,
    /// At most the value, unsigned.
    BelowOrEqual,
}

impl Order {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::AtLeast, Self::AtMost, Self::AboveOrEqual, Self::BelowOrEqual];

    /// Whether it is of signed numbers.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::AtLeast | Self::AtMost)
    }

    /// Whether what is tested is expected to come to the value from below.
    #[must_use]
    pub const fn is_upwards(self) -> bool {
        matches!(self, Self::AtLeast | Self::AboveOrEqual)
    }

    /// That of numbers which come from the other side.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::AtLeast => Self::AtMost,
            Self::AtMost => Self::AtLeast,
            Self::AboveOrEqual => Self::BelowOrEqual,
            Self::BelowOrEqual => Self::AboveOrEqual,
        }
    }

    /// The test in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::AtLeast => "at least (signed)",
            Self::AtMost => "at most (signed)",
            Self::AboveOrEqual => "at least (unsigned)",
            Self::BelowOrEqual => "at most (unsigned)",
        }
    }
}

/// A scope table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScopeTable {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Kernel build.
    pub kernel: KernelRef,
    /// Constant.
    pub constant: ConstRef,
    /// Values for which everything below holds.
    pub values: Values,
    /// Functions that contain critical spans or safe spans, each once.
    pub functions: Vec<Function>,
    /// Every occurrence of the constant in the deployed code.
    pub spans: Vec<CriticalSpan>,
    /// Every static object that it initialises.
    #[serde(default)]
    pub data: Vec<DataSite>,
    /// Safe spans: where a thread is under the influence of a value.
    #[serde(default)]
    pub scopes: Vec<Scope>,
    /// The weakest transition that keeps the promise; the strongest if that was not
    /// analysed.
    #[serde(default)]
    pub mode: Mode,
    /// Where a value outlives its frame, which no transition covers.
    #[serde(default)]
    pub escapes: Vec<Escape>,
    /// What computed the safe spans, as a fingerprint of the analysis and the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scoped: Option<String>,
    /// Translation units that were rebuilt, with what was found in each.
    pub units: Vec<Unit>,
    /// Seconds by stage of the analysis.
    pub stages: BTreeMap<String, f64>,
}

/// A translation unit that mentions the constant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Path relative to the source tree.
    pub source: String,
    /// Module that it belongs to; `None` for vmlinux.
    pub module: Option<String>,
    /// Functions compared with the deployed image.
    pub functions: usize,
    /// Critical spans found in it.
    pub spans: usize,
}

impl ScopeTable {
    /// Whether an update tests for order what the code tests for equality: then the value may only change while no
    /// number is alive that is compared with it, in the table's mode or a stronger one.
    #[must_use]
    pub fn tests_for_order(&self) -> bool {
        self.spans.iter().any(|span| span.assembly.iter().any(|line| line.order.is_some()))
    }

    /// Why no update may be used, but only instructions that hold the value: the first
    /// span that says so.
    #[must_use]
    pub fn only_in_place(&self) -> Option<&str> {
        self.spans.iter().find_map(|span| span.only_in_place.as_deref())
    }

    /// The values that fit into all instructions that can hold one, accepted or not; `None`
    /// when there are no such instructions.
    #[must_use]
    pub fn in_place_range(&self) -> Option<Range> {
        let ranges = self.spans.iter().filter_map(|span| span.in_place.as_ref().map(|in_place| in_place.range));
        ranges.reduce(|a, b| Range::of(a.min.max(b.min), a.max.min(b.max)))
    }
}

impl Indirection {
    /// The bytes of the window in the function, if there is one.
    #[must_use]
    pub fn window_range(&self) -> Option<std::ops::Range<u32>> {
        let start = self.offset.checked_sub(self.window_lead.into())?;
        (self.window > 0).then(|| start..start + u32::from(self.window))
    }
}

impl Function {
    /// The deployed bytes.
    ///
    /// # Errors
    /// [`Incoherent::NotHex`].
    pub fn text(&self) -> Result<Vec<u8>, Incoherent> {
        unhex(&self.bytes).ok_or_else(|| Incoherent::NotHex { symbol: self.symbol.clone(), field: "bytes are" })
    }

    /// The mask of [`Function::text`].
    ///
    /// # Errors
    /// [`Incoherent::NotHex`].
    pub fn text_mask(&self) -> Result<Vec<u8>, Incoherent> {
        unhex(&self.mask).ok_or_else(|| Incoherent::NotHex { symbol: self.symbol.clone(), field: "mask is" })
    }
}

/// Lower-case hex of `bytes`.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.bytes().all(|digit| digit.is_ascii_hexdigit()) || text.len() % 2 != 0 {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}
