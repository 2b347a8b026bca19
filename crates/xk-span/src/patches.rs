//! The places in its code that the kernel changes by itself, and those where control
//! goes on without a branch that could be seen: alternatives, jump labels, static
//! calls, exception tables, warnings.
//!
//! In: the tables of an image or of a linked module. A running kernel has dropped some
//! of them together with what they describe; what it still needs for its own patching
//! must be there; otherwise [`Patches::incomplete`] is set, and no branch is relied on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use xk_kernel::{Image, Module};

/// A table's bytes at their address.
type Table = (u64, Vec<u8>);

/// The tables of one owner.
#[derive(Debug, Default)]
pub struct Tables {
    alternatives: Option<Table>,
    labels: Option<Table>,
    fixups: Option<Table>,
    warnings: Option<Table>,
    static_calls: Option<Table>,
    tracing: Option<Table>,
    /// Lock prefixes.
    locks: Option<Table>,
    /// `s32` fields relative to themselves that name an instruction.
    whole: Vec<Table>,
    /// The same for fields of this many bytes within an instruction.
    runtime: Vec<(Table, u8)>,
    /// Whether everything that running code depends on was found.
    complete: bool,
}

const WHOLE: [&str; 4] = [".retpoline_sites", ".return_sites", ".call_sites", ".ibt_endbr_seal"];

/// Bytes that a section of runtime constants describes (asm/runtime-const.h).
fn runtime(section: &str) -> Option<u8> {
    match section.split_once("runtime_") {
        Some(("", rest)) if rest.starts_with("ptr_") => Some(8),
        Some(("", rest)) if rest.starts_with("shift_") => Some(1),
        _ => None,
    }
}

impl Tables {
    /// Of a kernel.
    #[must_use]
    pub fn of_image(image: &Image) -> Self {
        let section = |name: &str| image.section(name).map(|(start, bytes)| (start, bytes.to_vec()));
        let between = |start: &str, stop: &str| {
            let address = |name| image.symbols(name).into_iter().find(|s| s.module.is_none()).map(|s| s.address);
            let (start, stop) = (address(start)?, address(stop)?);
            Some((start, image.read(start, stop.checked_sub(start)? as usize).ok()?))
        };
        let names = ["runtime_shift_d_hash_shift", "runtime_ptr_dentry_hashtable", "runtime_ptr_USER_PTR_MAX"];
        let constants = names.into_iter().filter_map(|name| Some((section(name)?, runtime(name)?)));
        let labels = between("__start___jump_table", "__stop___jump_table");
        let fixups = section("__ex_table").or_else(|| between("__start___ex_table", "__stop___ex_table"));
        Self {
            alternatives: section(".altinstructions"),
            complete: labels.is_some() && fixups.is_some(),
            labels,
            fixups,
            warnings: section("__bug_table").or_else(|| between("__start___bug_table", "__stop___bug_table")),
            static_calls: between("__start_static_call_sites", "__stop_static_call_sites"),
            tracing: image.section(".init.data").and_then(|_| between("__start_mcount_loc", "__stop_mcount_loc")),
            locks: section(".smp_locks"),
            whole: WHOLE.into_iter().filter_map(section).collect(),
            runtime: constants.collect(),
        }
    }

    /// Of a module whose sections are at `starts`, read after it was linked.
    pub fn of_module(module: &Module, starts: &[u64], read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Self {
        let section = |name: &str| {
            let index = module.sections.iter().position(|section| section.name == name && section.allocated)?;
            let start = *starts.get(index)?;
            Some((start, read(start, module.sections[index].data.len())?))
        };
        let constants = module.sections.iter().filter_map(|s| Some((section(&s.name)?, runtime(&s.name)?)));
        Self {
            alternatives: section(".altinstructions"),
            labels: section("__jump_table"),
            fixups: section("__ex_table"),
            warnings: section("__bug_table"),
            static_calls: section(".static_call_sites"),
            tracing: section("__mcount_loc"),
            locks: section(".smp_locks"),
            whole: WHOLE.into_iter().filter_map(section).collect(),
            runtime: constants.collect(),
            complete: true,
        }
    }
}

/// Instructions that may run in the place of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alternative {
    /// Bytes that are replaced.
    pub len: u8,
    /// The replacement.
    pub with: u64,
    /// Its bytes; the rest is filled with no-ops.
    pub with_len: u8,
}

/// What the kernel rewrites at a place while it runs, and not only while it boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewrite {
    /// The instruction there: a no-op or a jump.
    Label,
    /// The instruction there: a call, or what stands in its place.
    StaticCall,
    /// Five bytes at the entry of a function: a no-op or the call of a tracer.
    Tracing,
}

/// Everything that was found.
#[derive(Debug, Clone, Default)]
pub struct Patches {
    /// By the place that is replaced.
    pub alternatives: BTreeMap<u64, Vec<Alternative>>,
    /// Replacements: end, and the place that is replaced.
    pub replacements: BTreeMap<u64, (u64, u64)>,
    /// A no-op or jump, and where the jump goes.
    pub labels: HashMap<u64, u64>,
    /// Where a faulting instruction continues.
    pub fixups: HashMap<u64, u64>,
    /// `ud2` that continues after itself.
    pub warnings: HashSet<u64>,
    /// Ranges that may differ in a running kernel: address and length; 0 stands for
    /// the instruction there.
    pub sites: BTreeSet<(u64, u8)>,
    /// Which of them are rewritten again and again.
    pub rewrites: HashMap<u64, Rewrite>,
    /// Whether a running kernel may take branches that are not known.
    pub incomplete: bool,
}

fn relative(table: &Table, at: usize) -> Option<u64> {
    let field = table.1.get(at..at.checked_add(4)?)?;
    let offset = i32::from_le_bytes(field.try_into().ok()?);
    Some((table.0 + at as u64).wrapping_add(i64::from(offset) as u64))
}

fn entries(table: Option<&Table>, size: usize) -> impl Iterator<Item = (&Table, usize)> {
    table.into_iter().flat_map(move |table| (0..table.1.len() / size).map(move |n| (table, n * size)))
}

impl Patches {
    /// Adds the tables of one owner.
    pub fn read(&mut self, tables: &Tables) {
        self.incomplete |= !tables.complete;
        // include/linux/jump_label.h: s32 code, s32 target, long key.
        for (table, at) in entries(tables.labels.as_ref(), 16) {
            if let (Some(code), Some(target)) = (relative(table, at), relative(table, at + 4)) {
                self.labels.insert(code, target);
                self.rewrite(code, 0, Rewrite::Label);
            }
        }
        // arch/x86/include/asm/extable.h: int insn, fixup, data.
        for (table, at) in entries(tables.fixups.as_ref(), 12) {
            if let (Some(code), Some(fixup)) = (relative(table, at), relative(table, at + 4)) {
                self.fixups.insert(code, fixup);
            }
        }
        // include/asm-generic/bug.h: s32 address, s32 file, u16 line, u16 flags.
        for (table, at) in entries(tables.warnings.as_ref(), 12) {
            let warning = table.1.get(at + 10).is_some_and(|flags| flags & 1 == 1);
            if let (Some(code), true) = (relative(table, at), warning) {
                self.warnings.insert(code);
            }
        }
        self.read_alternatives(tables);
        // include/linux/static_call_types.h: s32 address, s32 key and flags.
        for (table, at) in entries(tables.static_calls.as_ref(), 8) {
            if let Some(code) = relative(table, at) {
                self.rewrite(code, 0, Rewrite::StaticCall);
            }
        }
        for (table, at) in entries(tables.tracing.as_ref(), 8) {
            let field: Option<[u8; 8]> = table.1.get(at..at + 8).and_then(|field| field.try_into().ok());
            if let Some(field) = field {
                self.rewrite(u64::from_le_bytes(field), 5, Rewrite::Tracing);
            }
        }
        for (table, at) in entries(tables.locks.as_ref(), 4) {
            self.sites.extend(relative(table, at).map(|code| (code, 1)));
        }
        for table in &tables.whole {
            self.sites.extend(entries(Some(table), 4).filter_map(|(table, at)| Some((relative(table, at)?, 0))));
        }
        for (table, len) in &tables.runtime {
            self.sites.extend(entries(Some(table), 4).filter_map(|(table, at)| Some((relative(table, at)?, *len))));
        }
    }

    fn rewrite(&mut self, code: u64, bytes: u8, kind: Rewrite) {
        self.sites.insert((code, bytes));
        self.rewrites.insert(code, kind);
    }

    /// arch/x86/include/asm/alternative.h: s32 instr, s32 repl, u32 feature and flags,
    /// u8 instrlen, u8 replacementlen.
    fn read_alternatives(&mut self, tables: &Tables) {
        for (table, at) in entries(tables.alternatives.as_ref(), 14) {
            let (Some(code), Some(with)) = (relative(table, at), relative(table, at + 4)) else { continue };
            let (Some(&len), Some(&with_len)) = (table.1.get(at + 12), table.1.get(at + 13)) else { continue };
            self.alternatives.entry(code).or_default().push(Alternative { len, with, with_len });
            if with_len > 0 {
                self.replacements.insert(with, (with + u64::from(with_len), code));
            }
            self.sites.insert((code, len));
        }
    }

    /// The place that the replacement at `address` replaces, with the place after it.
    #[must_use]
    pub fn replaced(&self, address: u64) -> Option<(u64, u64)> {
        let (_, &(end, code)) = self.replacements.range(..=address).next_back()?;
        let len = self.alternatives.get(&code)?.iter().map(|alternative| alternative.len).max()?;
        (address < end).then_some((code, code + u64::from(len)))
    }
}
