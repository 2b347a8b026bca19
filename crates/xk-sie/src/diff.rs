//! The structural diff of two builds of one translation unit.
//!
//! In: the deployed build and a variant. Out: the constants in which they
//! differ, and nothing else: the walk shows by lockstep simulation that the
//! variant is the deployed build with those constants replaced. Blocks may be
//! laid out in another order, registers may be renamed, encodings may change
//! length. Refused: everything else, naming the first pair of instructions
//! that does not match.
//!
//! The argument is a bisimulation. A *pairing* says which register of the
//! variant holds the value of which register of the deployed build, and memory
//! is equal. The walk starts at every function with the identity, requires
//! that paired instructions read paired registers, and pairs what they write.
//! Where paths meet, a pairing is the intersection of what arrives.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use iced_x86::{
    ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, RflagsBits,
};

use crate::blocks::{self, Equal};
use crate::flow::Flow;
use crate::insn::{Insn, Node, Target};
use crate::object::{Function, Object};
use crate::proof::Solver;
use crate::prototypes::{conversions, Prototypes};
use crate::semantics::{gpr, is_immediate};
use crate::term;

/// Which constant of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// The immediate operand.
    Immediate,
    /// The displacement of the memory operand.
    Displacement,
    /// The factor of a multiplication by a constant that ends here, however it
    /// is written ([`crate::product`]).
    Product,
}

impl Field {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Immediate, Self::Displacement, Self::Product];
}

/// A constant as it stands in the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Other {
    /// Its value.
    pub value: u64,
    /// How many low bits of it are determined: a variant may compute in a
    /// narrower register than the deployed code.
    pub bits: u32,
}

/// The constants of the deployed code that are others in the variant.
pub type Differences = BTreeMap<(Node, Field), Other>;

/// Where and why two builds do not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Place in the deployed build.
    pub base: Node,
    /// What differs.
    pub detail: String,
}

/// Low bits of a register that are known to be equal: 0, 8, 16, 32 or 64.
type Valid = u8;

/// For each register of the variant and each of the deployed build: how many
/// low bits of them are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pairing {
    registers: [[Valid; 16]; 16],
    /// Whether the status flags are equal.
    flags: bool,
    /// Registers of the deployed build and of the variant that a call of a C
    /// function clobbered and nothing wrote since: they pass no argument.
    junk: [u16; 2],
}

/// How the second of two instructions realises the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The same operation on operands of the same kinds.
    Same,
    /// The same branch with the opposite condition.
    Inverted,
    /// The same operation in fewer or more bits; only these low bits agree.
    Narrow(u32),
    /// `sub $-imm` for `add $imm` or the reverse: the same result in these low
    /// bits, other flags.
    Negated(u32),
    /// A zero idiom in one of the builds (`xor r,r` for `mov $0,r`, `test r,r`
    /// for `cmp $0,r`); the other has an immediate.
    Zero,
}

const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
const CALLEE_SAVED: [usize; 6] = [3, 5, 12, 13, 14, 15];

impl Pairing {
    fn identity() -> Self {
        Self {
            registers: std::array::from_fn(|v| std::array::from_fn(|b| if v == b { 64 } else { 0 })),
            flags: true,
            junk: [0; 2],
        }
    }

    fn valid(&self, base: usize, other: usize) -> Valid {
        self.registers[other][base]
    }

    /// Both registers are written: what they were equal to is gone.
    fn kill(&mut self, base: usize, other: usize) {
        self.junk[0] &= !(1 << base);
        self.junk[1] &= !(1 << other);
        self.registers[other] = [0; 16];
        for row in &mut self.registers {
            row[base] = 0;
        }
    }

    fn pair(&mut self, base: usize, other: usize, valid: Valid) {
        self.kill(base, other);
        self.registers[other][base] = valid;
    }

    fn meet(&self, with: &Self) -> Self {
        let registers =
            std::array::from_fn(|v| std::array::from_fn(|b| self.registers[v][b].min(with.registers[v][b])));
        let junk = [self.junk[0] & with.junk[0], self.junk[1] & with.junk[1]];
        Self { registers, flags: self.flags && with.flags, junk }
    }
}

/// Compares `variant` with `base`. `noreturns` are functions that do not
/// come back (`tools/objtool/noreturns.h` and what the unit defines).
///
/// # Errors
/// [`Mismatch`] when the variant is not the deployed code with constants replaced.
pub fn compare(base: &Object, variant: &Object, noreturns: &HashSet<String>) -> Result<Differences, Mismatch> {
    let rules = Rules { noreturns, prototypes: &Prototypes::default(), solver: None, expected: &Differences::new() };
    compare_with(base, variant, &rules)
}

/// What a comparison may use besides the two builds.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Functions that do not come back.
    pub noreturns: &'a HashSet<String>,
    /// How many registers a call passes.
    pub prototypes: &'a Prototypes,
    /// Decides whether blocks that do not match by instructions do the same;
    /// without it they do not match.
    pub solver: Option<&'a Solver>,
    /// The constants that the deployed code should have for this value, if a
    /// fit is known.
    pub expected: &'a Differences,
}

/// Compares `variant` with `base`; blocks that do not match by instructions
/// are compared as a whole ([`crate::blocks`]).
///
/// # Errors
/// [`Mismatch`] when the variant is not the deployed code with constants replaced.
pub fn compare_with(base: &Object, variant: &Object, rules: &Rules<'_>) -> Result<Differences, Mismatch> {
    let mut walk = Walk {
        base,
        variant,
        rules: *rules,
        flows: OnceCell::new(),
        pairings: HashMap::new(),
        work: Vec::new(),
        constants: BTreeMap::new(),
        seen: BTreeSet::new(),
        info: InstructionInfoFactory::new(),
    };
    walk.roots()?;
    while let Some((b, v)) = walk.work.pop() {
        walk.visit(b, v)?;
    }
    walk.finish()
}

struct Walk<'a> {
    base: &'a Object,
    variant: &'a Object,
    rules: Rules<'a>,
    flows: OnceCell<(Flow, Flow)>,
    pairings: HashMap<(Node, Node), Pairing>,
    work: Vec<(Node, Node)>,
    /// For each instruction of the deployed build and each instruction of the
    /// variant that stands for it: the constants that are others there.
    constants: BTreeMap<Node, BTreeMap<Node, BTreeMap<Field, Other>>>,
    seen: BTreeSet<Node>,
    info: InstructionInfoFactory,
}

/// Follows no-ops and jumps: they do not change the state.
fn settle(object: &Object, mut node: Node, seen: &mut BTreeSet<Node>) -> Node {
    for _ in 0..object.insns.len() {
        let Some(insn) = object.insns.get(&node) else { return node };
        if object.jump_labels.contains_key(&node) {
            return node;
        }
        if insn.is_nop() {
            seen.insert(node);
            node = insn.next();
        } else if let (Mnemonic::Jmp, Some(Target::Local(target))) = (insn.raw.mnemonic(), &insn.target) {
            // A jump to the first instruction of another function is a tail call.
            if object.functions.contains_key(target) && !is_part(&object.functions[target]) {
                return node;
            }
            seen.insert(node);
            node = *target;
        } else {
            return node;
        }
    }
    node
}

/// A part of a function that the compiler moved away, entered by jumps only.
fn is_part(function: &Function) -> bool {
    function.name.contains(".cold")
}

impl Walk<'_> {
    fn mismatch<T>(&self, base: Node, detail: impl Into<String>) -> Result<T, Mismatch> {
        Err(Mismatch { base, detail: detail.into() })
    }

    fn roots(&mut self) -> Result<(), Mismatch> {
        let named = |object: &Object| -> BTreeMap<String, Node> {
            object.functions.values().filter(|f| !is_part(f)).map(|f| (f.name.clone(), f.start)).collect()
        };
        let (ours, theirs) = (named(self.base), named(self.variant));
        for (name, &node) in &ours {
            match theirs.get(name) {
                Some(&other) => self.reach(node, other, Pairing::identity()),
                None => return self.mismatch(node, format!("{name} does not exist in the variant")),
            }
        }
        if let Some(name) = theirs.keys().find(|name| !ours.contains_key(*name)) {
            let node = Node { section: 0, offset: 0 };
            return self.mismatch(node, format!("{name} exists in the variant only"));
        }
        Ok(())
    }

    fn reach(&mut self, base: Node, variant: Node, pairing: Pairing) {
        let mut ignored = BTreeSet::new();
        let base = settle(self.base, base, &mut self.seen);
        let variant = settle(self.variant, variant, &mut ignored);
        let new = match self.pairings.get(&(base, variant)) {
            Some(old) => {
                let met = old.meet(&pairing);
                if met == *old {
                    return;
                }
                met
            }
            None => pairing,
        };
        self.pairings.insert((base, variant), new);
        self.work.push((base, variant));
    }

    fn visit(&mut self, b: Node, v: Node) -> Result<(), Mismatch> {
        let (bi, vi) = match (self.base.insns.get(&b), self.variant.insns.get(&v)) {
            (Some(bi), Some(vi)) => (bi, vi),
            (None, None) => return Ok(()), // behind the end of both: a call that does not return
            _ => return self.mismatch(b, "one of the builds ends here"),
        };
        self.seen.insert(b);
        let mut pairing = self.pairings[&(b, v)];
        if let Some(result) = self.jump_label(bi, vi, pairing) {
            return result;
        }
        match self.lockstep(bi, vi, &mut pairing) {
            Ok(form) => self.successors(bi, vi, pairing, form == Form::Inverted),
            Err(mismatch) => self.summarise(b, v).unwrap_or(Err(mismatch)),
        }
    }

    /// Pairs one instruction with another and updates the pairing.
    fn lockstep(&mut self, bi: &Insn, vi: &Insn, pairing: &mut Pairing) -> Result<Form, Mismatch> {
        let form = self.form(bi, vi)?;
        self.constants.entry(bi.node).or_default().insert(vi.node, BTreeMap::new());
        if (bi.raw.rflags_read() | vi.raw.rflags_read()) & STATUS != 0 && !pairing.flags {
            return self.mismatch(bi.node, format!("`{}` reads flags that may differ", bi.text()));
        }
        self.operands(bi, vi, pairing, form)?;
        self.flags(bi, vi, pairing, form);
        Ok(form)
    }

    /// Compares the rest of the two blocks as a whole, from where the walk
    /// entered them. `None` when that is not possible or shows no equivalence.
    fn summarise(&mut self, b: Node, v: Node) -> Option<Result<(), Mismatch>> {
        let solver = self.rules.solver?;
        let (base, variant) = (self.base, self.variant);
        let (base_flow, variant_flow) = self.flows.get_or_init(|| (Flow::new(base), Flow::new(variant)));
        let base_block = base_flow.block(base, b);
        let variant_block = variant_flow.block(variant, v);
        // The earliest place in both blocks at which the walk paired them.
        let entered = |x: &&Insn| {
            variant_block.iter().find_map(|y| self.pairings.get(&(x.node, y.node)).map(|p| (x.node, y.node, *p)))
        };
        let (from_b, from_v, entry) = base_block.iter().find_map(entered)?;
        let base_piece = straight(&base_block, from_b);
        let variant_piece = straight(&variant_block, from_v);
        let special = |object: &Object, insns: &[&Insn]| {
            insns.iter().any(|i| {
                object.jump_labels.contains_key(&i.node)
                    || object.fixups.contains_key(&i.node)
                    || object.in_alternative.contains(&i.node)
            })
        };
        if special(base, base_piece) || special(variant, variant_piece) || base_piece.is_empty() {
            return None;
        }
        let end = |piece: &[&Insn], from: Node| piece.last().map_or(from, |insn| insn.next());
        let (to_b, to_v) = (end(base_piece, from_b), end(variant_piece, from_v));
        let inside: Vec<Node> = base_piece.iter().map(|insn| insn.node).collect();
        if !inside.contains(&b) {
            return None; // the branch itself does not match
        }
        let live = variant_flow.live_in(to_v);
        let equal = Equal { registers: entry.registers, flags: entry.flags };
        let copy: Vec<Node> = variant_piece.iter().map(|insn| insn.node).collect();
        let mut recorded = Differences::new();
        for node in &inside {
            let places = self.constants.get(node).into_iter().flatten().filter(|(place, _)| copy.contains(place));
            recorded.extend(places.flat_map(|(_, fields)| fields.iter().map(|(f, o)| ((*node, *f), *o))));
        }
        let known = [self.rules.expected, &recorded];
        let summary = known.iter().find_map(|k| blocks::compare(base_piece, variant_piece, equal, live, k, solver))?;
        // What the walk recorded on its way to the mismatch was a misreading.
        for node in &inside {
            let places = self.constants.entry(*node).or_default();
            places.retain(|place, _| !copy.contains(place));
            let fields = summary.differences.iter().filter(|((n, _), _)| n == node);
            places.insert(from_v, fields.map(|((_, field), other)| (*field, *other)).collect());
        }
        self.seen.extend(inside);
        let junk = [entry.junk[0] & !self.written(base_piece), entry.junk[1] & !self.written(variant_piece)];
        let pairing = Pairing { registers: summary.exit.registers, flags: summary.exit.flags, junk };
        self.reach(to_b, to_v, pairing);
        Some(Ok(()))
    }

    fn jump_label(&mut self, bi: &Insn, vi: &Insn, pairing: Pairing) -> Option<Result<(), Mismatch>> {
        let labels = (self.base.jump_labels.get(&bi.node), self.variant.jump_labels.get(&vi.node));
        match labels {
            (None, None) => None,
            (Some((bt, bk)), Some((vt, vk))) if bk == vk && bi.is_nop() == vi.is_nop() => {
                let (bt, vt) = (*bt, *vt);
                self.reach(bt, vt, pairing);
                self.reach(bi.next(), vi.next(), pairing);
                Some(Ok(()))
            }
            _ => Some(self.mismatch(bi.node, "different static branches")),
        }
    }

    /// Whether `vi` does what `bi` does, and how.
    fn form(&self, bi: &Insn, vi: &Insn) -> Result<Form, Mismatch> {
        let (b, v) = (&bi.raw, &vi.raw);
        let differ = || self.mismatch(bi.node, format!("`{}` against `{}`", bi.text(), vi.text()));
        let same_prefixes = b.has_lock_prefix() == v.has_lock_prefix()
            && b.has_rep_prefix() == v.has_rep_prefix()
            && b.has_repne_prefix() == v.has_repne_prefix()
            && b.segment_prefix() == v.segment_prefix();
        if !same_prefixes {
            return differ();
        }
        if b.mnemonic() != v.mnemonic() {
            if b.flow_control() == FlowControl::ConditionalBranch && v.flow_control() == FlowControl::ConditionalBranch
            {
                let code = |c: ConditionCode| (c as u8).checked_sub(1);
                if let (Some(x), Some(y)) = (code(b.condition_code()), code(v.condition_code())) {
                    if x ^ 1 == y {
                        return Ok(Form::Inverted);
                    }
                }
            }
            if let Some(bits) = negated(b, v) {
                return Ok(Form::Negated(bits));
            }
            return if zero_idiom(b, v) || zero_idiom(v, b) { Ok(Form::Zero) } else { differ() };
        }
        if b.op_count() != v.op_count() {
            return differ();
        }
        let mut narrow = None;
        for i in 0..b.op_count() {
            let (bk, vk) = (b.op_kind(i), v.op_kind(i));
            let same = match bk {
                OpKind::Register if vk == OpKind::Register => {
                    let (br, vr) = (b.op_register(i), v.op_register(i));
                    let high = |r| gpr(r).is_some_and(|(_, _, high)| high);
                    if br.is_gpr() && vr.is_gpr() && br.size() != vr.size() && low_bits_suffice(b) {
                        narrow = Some(br.size().min(vr.size()) as u32 * 8);
                    }
                    (br.size() == vr.size() || narrow.is_some())
                        && high(br) == high(vr)
                        && (br.is_gpr() && vr.is_gpr() || br == vr)
                }
                OpKind::Memory => vk == OpKind::Memory && b.memory_size() == v.memory_size(),
                kind if is_immediate(kind) => is_immediate(vk),
                kind => kind == vk,
            };
            if !same {
                return differ();
            }
        }
        Ok(narrow.map_or(Form::Same, Form::Narrow))
    }

    fn flags(&self, bi: &Insn, vi: &Insn, pairing: &mut Pairing, form: Form) {
        let modified = bi.raw.rflags_modified() & STATUS;
        match form {
            Form::Narrow(_) | Form::Negated(_) => pairing.flags = false,
            // test and cmp with zero leave the same flags; xor and mov do not.
            Form::Zero => pairing.flags = modified != 0 && vi.raw.rflags_modified() & STATUS != 0,
            _ if modified == STATUS => pairing.flags = true,
            _ => {}
        }
    }

    fn operands(&mut self, bi: &Insn, vi: &Insn, pairing: &mut Pairing, form: Form) -> Result<(), Mismatch> {
        if form == Form::Zero {
            return self.zero(bi, vi, pairing);
        }
        let narrow = if let Form::Narrow(bits) | Form::Negated(bits) = form { bits } else { 64 };
        let (b, v) = (&bi.raw, &vi.raw);
        let mut writes: Vec<(usize, usize, Valid)> = Vec::new();
        let mut explicit = Explicit::default();
        // `xor %eax,%eax` and `sub %eax,%eax` do not read.
        let clears = matches!(b.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
            && b.op_kind(1) == OpKind::Register
            && b.op0_register() == b.op1_register()
            && v.op0_register() == v.op1_register();
        let accesses: Vec<OpAccess> = {
            let info = self.info.info(b);
            (0..b.op_count()).map(|i| info.op_access(i)).collect()
        };
        for i in 0..b.op_count() {
            match b.op_kind(i) {
                OpKind::Register => {
                    let (br, vr) = (b.op_register(i), v.op_register(i));
                    let (Some((bn, bits, high)), Some((vn, ..))) = (gpr(br), gpr(vr)) else { continue };
                    let access = accesses[i as usize];
                    explicit.note(br, access);
                    let used = bits.min(narrow);
                    let needed: Valid = if high { 16 } else { used as u8 };
                    if !clears && reads(access) && pairing.valid(bn, vn) < needed {
                        return self.unpaired(bi, vi);
                    }
                    if writes_operand(access) {
                        let old = pairing.valid(bn, vn);
                        let same_width = br.size() == vr.size();
                        let valid = match used {
                            // ah … bh: the low byte is what it was.
                            8 if high => old,
                            // 32 bits clear the rest in both builds, or in one of them.
                            32 if same_width => 64,
                            32 | 64 => used as u8,
                            _ if same_width => old.max(used as u8),
                            _ => used as u8,
                        };
                        writes.push((bn, vn, valid));
                    }
                }
                OpKind::Memory => self.memory_operand(bi, vi, pairing, &mut explicit)?,
                kind if is_immediate(kind) => self.immediate(bi, vi, i, form)?,
                _ => {}
            }
        }
        self.implicit(bi, vi, pairing, &explicit, &mut writes)?;
        for (bn, vn, valid) in writes {
            pairing.pair(bn, vn, valid);
        }
        Ok(())
    }

    /// One build has an immediate where the other has a zero idiom.
    fn zero(&mut self, bi: &Insn, vi: &Insn, pairing: &mut Pairing) -> Result<(), Mismatch> {
        let (b, v) = (&bi.raw, &vi.raw);
        let (Some((bn, ..)), Some((vn, ..))) = (gpr(b.op0_register()), gpr(v.op0_register())) else {
            return self.unpaired(bi, vi);
        };
        let compares = matches!(b.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
        if compares && pairing.valid(bn, vn) < 64 {
            return self.unpaired(bi, vi);
        }
        if !compares {
            pairing.pair(bn, vn, 64);
        }
        if !is_immediate(b.op_kind(1)) {
            return self.mismatch(bi.node, format!("`{}` has no immediate for another value", bi.text()));
        }
        if b.immediate(1) != 0 {
            self.record(bi, vi, Field::Immediate, Other { value: 0, bits: 64 });
        }
        Ok(())
    }

    fn unpaired<T>(&self, bi: &Insn, vi: &Insn) -> Result<T, Mismatch> {
        let detail = format!("`{}` against `{}`: they read registers that may differ", bi.text(), vi.text());
        self.mismatch(bi.node, detail)
    }

    fn memory_operand(
        &mut self,
        bi: &Insn,
        vi: &Insn,
        pairing: &Pairing,
        explicit: &mut Explicit,
    ) -> Result<(), Mismatch> {
        let (b, v) = (&bi.raw, &vi.raw);
        let registers = [(b.memory_base(), v.memory_base()), (b.memory_index(), v.memory_index())];
        for (br, vr) in registers {
            explicit.note(br, OpAccess::Read);
            match (gpr(br), gpr(vr)) {
                (Some((bn, bits, _)), Some((vn, other_bits, _))) => {
                    if bits != other_bits || pairing.valid(bn, vn) < 64 {
                        return self.unpaired(bi, vi);
                    }
                }
                (None, None) if br == vr => {}
                _ => return self.unpaired(bi, vi),
            }
        }
        let scales = b.memory_index() == Register::None || b.memory_index_scale() == v.memory_index_scale();
        let names = bi.displacement.as_ref().map(|s| &s.name) == vi.displacement.as_ref().map(|s| &s.name);
        if !scales || !names {
            return self.mismatch(bi.node, format!("`{}` against `{}`", bi.text(), vi.text()));
        }
        let place = |insn: &Insn| match &insn.displacement {
            Some(symbol) => symbol.offset as u64,
            None => insn.raw.memory_displacement64(),
        };
        if place(bi) != place(vi) {
            if matches!(b.memory_base(), Register::RSP) {
                return self.mismatch(bi.node, "the stack frame has another layout");
            }
            self.record(bi, vi, Field::Displacement, Other { value: place(vi), bits: 64 });
        }
        Ok(())
    }

    fn immediate(&mut self, bi: &Insn, vi: &Insn, operand: u32, form: Form) -> Result<(), Mismatch> {
        let bits = if let Form::Narrow(bits) | Form::Negated(bits) = form { bits } else { 64 };
        if bi.immediate != vi.immediate {
            return self.mismatch(bi.node, format!("`{}` against `{}`", bi.text(), vi.text()));
        }
        let (x, y) = (bi.raw.immediate(operand), vi.raw.immediate(operand));
        let y = if let Form::Negated(_) = form { y.wrapping_neg() } else { y };
        let kept = term::mask(bits) as u64;
        if bi.immediate.is_none() && x & kept != y & kept {
            if bi.raw.op0_register() == Register::RSP {
                return self.mismatch(bi.node, "the stack frame has another size");
            }
            self.record(bi, vi, Field::Immediate, Other { value: y, bits });
        }
        Ok(())
    }

    fn record(&mut self, bi: &Insn, vi: &Insn, field: Field, other: Other) {
        self.constants.entry(bi.node).or_default().entry(vi.node).or_default().insert(field, other);
    }

    /// Registers that the operation uses without naming them.
    fn implicit(
        &mut self,
        bi: &Insn,
        vi: &Insn,
        pairing: &Pairing,
        explicit: &Explicit,
        writes: &mut Vec<(usize, usize, Valid)>,
    ) -> Result<(), Mismatch> {
        if bi.is_call() || bi.raw.flow_control() == FlowControl::Return {
            return Ok(());
        }
        let used: Vec<(Register, OpAccess)> =
            self.info.info(&bi.raw).used_registers().iter().map(|r| (r.register(), r.access())).collect();
        for (register, access) in used {
            if explicit.accounts_for(register, access) {
                continue;
            }
            let Some((number, bits, _)) = gpr(register) else { continue };
            let old = pairing.valid(number, number);
            if reads(access) && old < 64 {
                return self.unpaired(bi, vi);
            }
            if writes_operand(access) {
                writes.push((number, number, if bits >= 32 { 64 } else { old }));
            }
        }
        Ok(())
    }

    fn successors(&mut self, bi: &Insn, vi: &Insn, mut pairing: Pairing, inverted: bool) -> Result<(), Mismatch> {
        match (self.base.fixups.get(&bi.node), self.variant.fixups.get(&vi.node)) {
            (None, None) => {}
            (Some(&b), Some(&v)) if self.base.handlers.get(&bi.node) == self.variant.handlers.get(&vi.node) => {
                // A fault comes before the writes of the instruction.
                let before = self.pairings[&(bi.node, vi.node)];
                self.reach(b, v, before.meet(&pairing));
            }
            _ => return self.mismatch(bi.node, "different exception fixups"),
        }
        if bi.is_call() {
            return self.call(bi, vi, &mut pairing);
        }
        match bi.raw.flow_control() {
            FlowControl::ConditionalBranch => {
                let (Some(bt), Some(vt)) = (&bi.target, &vi.target) else {
                    return self.mismatch(bi.node, "branch without target");
                };
                let (bn, vn) = (Target::Local(bi.next()), Target::Local(vi.next()));
                let pairs = if inverted { [(bt, &vn), (&bn, vt)] } else { [(bt, vt), (&bn, &vn)] };
                for (b, v) in pairs {
                    self.jump(bi, b, v, pairing)?;
                }
                Ok(())
            }
            FlowControl::UnconditionalBranch => {
                let (Some(bt), Some(vt)) = (bi.target.clone(), vi.target.clone()) else {
                    return self.mismatch(bi.node, "jump without target");
                };
                self.jump(bi, &bt, &vt, pairing)
            }
            FlowControl::IndirectBranch => self.mismatch(bi.node, "indirect jump"),
            FlowControl::Return => self.returns(bi, pairing),
            FlowControl::Exception => {
                if self.base.warnings.contains(&bi.node) {
                    self.reach(bi.next(), vi.next(), pairing);
                }
                Ok(())
            }
            _ if bi.raw.mnemonic() == Mnemonic::Int3 => Ok(()),
            _ => {
                self.reach(bi.next(), vi.next(), pairing);
                Ok(())
            }
        }
    }

    fn jump(&mut self, bi: &Insn, b: &Target, v: &Target, pairing: Pairing) -> Result<(), Mismatch> {
        let entry = |object: &Object, target: &Target| match target {
            Target::External(symbol) => Some((symbol.name.clone(), symbol.offset)),
            Target::Local(node) => object
                .functions
                .get(node)
                .filter(|f| !is_part(f) && object.function_at(bi.node).map(|g| &g.name) != Some(&f.name))
                .map(|f| (f.name.clone(), 0)),
        };
        match (entry(self.base, b), entry(self.variant, v)) {
            (None, None) => {
                if let (Target::Local(b), Target::Local(v)) = (b, v) {
                    self.reach(*b, *v, pairing);
                }
                Ok(())
            }
            (Some(x), Some(y)) if x == y => {
                if x.0 == "__x86_return_thunk" {
                    return self.returns(bi, pairing);
                }
                self.arguments(bi, &pairing)?;
                self.preserved(bi, &pairing)
            }
            (x, y) => self.mismatch(bi.node, format!("jumps to {x:?} against {y:?}")),
        }
    }

    /// Registers that some of `insns` write, as bits.
    fn written(&mut self, insns: &[&Insn]) -> u16 {
        let mut bits = 0;
        for insn in insns {
            for used in self.info.info(&insn.raw).used_registers() {
                let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
                if let (true, Some((number, ..))) = (writes, gpr(used.register())) {
                    bits |= 1 << number;
                }
            }
        }
        bits
    }

    /// Nothing that a callee may read can differ.
    fn arguments(&self, bi: &Insn, pairing: &Pairing) -> Result<(), Mismatch> {
        let passed = self.callee(self.base, bi).filter(|(_, offset)| *offset == 0);
        let passed =
            passed.and_then(|(name, _)| self.rules.prototypes.arguments(&name).or_else(|| self.formatted(bi, &name)));
        if let Some(count) = passed {
            // A known C prototype: what it does not pass may hold anything.
            let mut read = ARGUMENTS.into_iter().take(count).chain([RSP_NUMBER]);
            return match read.find(|&r| pairing.valid(r, r) < 64) {
                Some(register) => {
                    let name = crate::state::REGISTERS[register];
                    self.mismatch(bi.node, format!("`{}`: {name} may differ", bi.text()))
                }
                None => Ok(()),
            };
        }
        for register in ARGUMENTS.into_iter().chain([0, RSP_NUMBER]) {
            // rax carries the number of vector registers of a variadic call and
            // arguments of helpers in assembly; elsewhere it is free.
            let junk = (pairing.junk[0] | pairing.junk[1]) >> register & 1 == 1;
            let matters =
                !junk && register != 0 || self.base.goes_to(bi, "__") || self.base.goes_to(bi, "preempt_schedule");
            if matters && pairing.valid(register, register) < 64 {
                let name = crate::state::REGISTERS[register];
                return self.mismatch(bi.node, format!("`{}`: {name} may differ", bi.text()));
            }
        }
        self.thunk_target(bi, pairing)
    }

    /// How many arguments a call of a printf-like function passes, when its
    /// format is a literal that is loaded in the same block.
    fn formatted(&self, bi: &Insn, name: &str) -> Option<usize> {
        const PRINTS: [&str; 6] =
            ["_printk", "__dynamic_pr_debug", "__warn_printk", "seq_printf", "snprintf", "scnprintf"];
        let named = self.rules.prototypes.variadic(name).filter(|_| PRINTS.contains(&name))?;
        let register = *ARGUMENTS.get(named.checked_sub(1)?)?;
        let (flow, _) = self.flows.get_or_init(|| (Flow::new(self.base), Flow::new(self.variant)));
        let block = flow.block(self.base, bi.node);
        let last = block.iter().rev().skip(1).find(|insn| self.info_writes(insn, register))?;
        let literal = last.immediate.as_ref().filter(|symbol| symbol.name.starts_with('"'))?;
        Some((named + conversions(&literal.name)).min(6))
    }

    fn info_writes(&self, insn: &Insn, register: usize) -> bool {
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&insn.raw);
        info.used_registers().iter().any(|used| {
            let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
            writes && gpr(used.register()).is_some_and(|(number, ..)| number == register)
        })
    }

    /// A retpoline jumps to what the register in its name holds.
    fn thunk_target(&self, bi: &Insn, pairing: &Pairing) -> Result<(), Mismatch> {
        let Some(Target::External(symbol)) = &bi.target else { return Ok(()) };
        let Some(suffix) = symbol.name.strip_prefix("__x86_indirect_") else { return Ok(()) };
        let named = crate::state::REGISTERS.iter().position(|name| suffix.ends_with(&format!("_{name}")));
        match named {
            Some(register) if pairing.valid(register, register) < 64 => {
                self.mismatch(bi.node, format!("`{}`: the target may differ", bi.text()))
            }
            _ => Ok(()),
        }
    }

    fn returns(&self, bi: &Insn, pairing: Pairing) -> Result<(), Mismatch> {
        self.preserved(bi, &pairing)?;
        if pairing.valid(0, 0) < 64 {
            return self.mismatch(bi.node, "return: rax may differ");
        }
        Ok(())
    }

    /// What the caller gets back unchanged, also through a tail call.
    fn preserved(&self, bi: &Insn, pairing: &Pairing) -> Result<(), Mismatch> {
        for register in CALLEE_SAVED.into_iter().chain([RSP_NUMBER]) {
            if pairing.valid(register, register) < 64 {
                let name = crate::state::REGISTERS[register];
                return self.mismatch(bi.node, format!("return: {name} may differ"));
            }
        }
        Ok(())
    }

    fn callee(&self, object: &Object, insn: &Insn) -> Option<(String, i64)> {
        match insn.target.as_ref()? {
            Target::External(symbol) => Some((symbol.name.clone(), symbol.offset)),
            Target::Local(node) => {
                let function = object.function_at(*node)?;
                Some((function.name.clone(), (node.offset - function.start.offset) as i64))
            }
        }
    }

    fn call(&mut self, bi: &Insn, vi: &Insn, pairing: &mut Pairing) -> Result<(), Mismatch> {
        let (b, v) = (self.callee(self.base, bi), self.callee(self.variant, vi));
        if b != v {
            return self.mismatch(bi.node, format!("calls {b:?} against {v:?}"));
        }
        let name = b.map(|(name, _)| name).unwrap_or_default();
        if name == "__fentry__" {
            self.reach(bi.next(), vi.next(), *pairing);
            return Ok(());
        }
        // void __stack_chk_fail(void): whatever the registers hold, it is no argument.
        if name == "__stack_chk_fail" {
            return Ok(());
        }
        self.arguments(bi, pairing)?;
        if self.rules.noreturns.contains(&name) {
            return Ok(());
        }
        // What a call clobbers, compiled code does not read before it writes it
        // (System V ABI): pairing it with itself claims nothing anyone relies on.
        // Helpers in assembly keep what they do not name: r10 and r11, the only
        // ones that may differ before a call, differ behind it.
        for register in CALLER_SAVED {
            let valid = if matches!(register, 10 | 11) { pairing.valid(register, register) } else { 64 };
            pairing.pair(register, register, valid);
        }
        // Only of a C function is it certain that it clobbers them; rax and rdx
        // may hold its result.
        if self.rules.prototypes.is_function(&name) {
            let clobbered = CALLER_SAVED.iter().filter(|&&r| r != 0 && r != 2).fold(0, |bits, &r| bits | 1 << r);
            pairing.junk = [clobbered; 2];
        }
        self.reach(bi.next(), vi.next(), *pairing);
        Ok(())
    }

    fn finish(self) -> Result<Differences, Mismatch> {
        for (&node, insn) in &self.base.insns {
            let padding = insn.is_nop()
                || insn.raw.mnemonic() == Mnemonic::Int3
                || self.base.sections[node.section].name == ".static_call.text";
            if !self.seen.contains(&node) && !padding {
                return self.mismatch(node, format!("`{}` is not reached by the comparison", insn.text()));
            }
        }
        // An instruction that stands for several of the variant has one constant
        // to offer: a copy that kept the deployed value disagrees with one that
        // did not (the compiler merged V with an equal constant).
        let mut differences = Differences::new();
        for (&node, places) in &self.constants {
            let mut places = places.values();
            let Some(first) = places.next() else { continue };
            if places.any(|other| other != first) {
                return self.mismatch(node, "copies of the instruction in the variant have different constants");
            }
            differences.extend(first.iter().map(|(field, other)| ((node, *field), *other)));
        }
        Ok(differences)
    }
}

/// The instructions of `block` from `from` to its end, without the branch,
/// call or return that ends it.
fn straight<'a, 'b>(block: &'b [&'a Insn], from: Node) -> &'b [&'a Insn] {
    let start = block.iter().position(|insn| insn.node == from).unwrap_or(block.len());
    let end = block.len() - usize::from(block.last().is_some_and(|insn| insn.ends_block()));
    &block[start.min(end)..end]
}

/// A conditional write may leave what was there.
fn reads(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Write | OpAccess::None | OpAccess::NoMemAccess)
}

fn writes_operand(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess)
}

/// The registers that the operands of an instruction name, and how they are used.
#[derive(Default)]
struct Explicit {
    read: HashSet<Register>,
    written: HashSet<Register>,
}

impl Explicit {
    fn note(&mut self, register: Register, access: OpAccess) {
        if reads(access) {
            self.read.insert(register.full_register());
        }
        if writes_operand(access) {
            self.written.insert(register.full_register());
        }
    }

    /// Whether the operands explain this use; if not, the instruction also
    /// means the register without naming it (`mul %rdx` writes rdx).
    fn accounts_for(&self, register: Register, access: OpAccess) -> bool {
        let register = register.full_register();
        let named = self.read.contains(&register) || self.written.contains(&register);
        named
            && (!reads(access) || self.read.contains(&register))
            && (!writes_operand(access) || self.written.contains(&register))
    }
}

/// CF, PF, AF, ZF, SF, OF as iced numbers them.
const STATUS: u32 = RflagsBits::CF | RflagsBits::PF | RflagsBits::AF | RflagsBits::ZF | RflagsBits::SF | RflagsBits::OF;

/// Whether the low bits of the result depend on the low bits of the operands
/// alone.
fn low_bits_suffice(insn: &Instruction) -> bool {
    use Mnemonic as M;
    match insn.mnemonic() {
        M::Add | M::Sub | M::And | M::Or | M::Xor | M::Mov | M::Not | M::Neg => true,
        // With one operand it also computes the high half.
        M::Imul => insn.op_count() >= 2,
        _ => false,
    }
}

/// The low bits in which `v` computes what `b` computes by the opposite
/// operation on the opposite immediate.
fn negated(b: &Instruction, v: &Instruction) -> Option<u32> {
    let opposite =
        matches!((b.mnemonic(), v.mnemonic()), (Mnemonic::Add, Mnemonic::Sub) | (Mnemonic::Sub, Mnemonic::Add));
    let immediates = opposite && is_immediate(b.op_kind(1)) && is_immediate(v.op_kind(1));
    let (Some((_, x, false)), Some((_, y, false))) = (gpr(b.op0_register()), gpr(v.op0_register())) else {
        return None;
    };
    (immediates && b.op_kind(0) == OpKind::Register && v.op_kind(0) == OpKind::Register).then_some(x.min(y))
}

/// Whether `v` does what `b` does with the immediate 0, apart from flags:
/// `xor r,r` for `mov $imm,r`, `test r,r` for `cmp $imm,r`.
fn zero_idiom(b: &Instruction, v: &Instruction) -> bool {
    let same_register = v.op_count() == 2
        && v.op_kind(0) == OpKind::Register
        && v.op_kind(1) == OpKind::Register
        && v.op0_register() == v.op1_register();
    let immediate = b.op_count() == 2 && b.op_kind(0) == OpKind::Register && is_immediate(b.op_kind(1));
    let sizes = match (b.mnemonic(), v.mnemonic()) {
        // Both clear or set the whole register.
        (Mnemonic::Mov, Mnemonic::Xor) => b.op0_register().size() >= 4 && v.op0_register().size() >= 4,
        (Mnemonic::Cmp, Mnemonic::Test) => b.op0_register().size() == v.op0_register().size(),
        _ => false,
    };
    same_register && immediate && sizes
}

const RSP_NUMBER: usize = crate::state::RSP;
