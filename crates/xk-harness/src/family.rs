//! Scope tables, made by hand, for the constants of `kernel/atomic`. A site is a move of 32 that a no-op of five bytes
//! follows. A safe span is a whole function, or the code from the first constant to the last one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use object::{Object, ObjectSection, ObjectSymbol};
use xk_runtime::{AddressError, AddressOf};
use xk_table::{
    hex, ConstRef, CriticalSpan, DataSite, Fit, Function, InPlace, Indirection, KernelRef, Kind, Mode, Op, OpCode,
    Patch, ProbeKind, Program, Proof, Range, Scope, ScopeTable, Values, When, SCHEMA,
};

use crate::atomic::MODULE;

/// `mov $32,%eax; nopl 0(%rax,%rax,1)`
const CONSTANT: [u8; 10] = [0xb8, 32, 0, 0, 0, 0x0f, 0x1f, 0x44, 0, 0];
const NOP_AT: usize = 5;
const MOVE_LEN: u32 = NOP_AT as u32;
const NOP_LEN: u8 = 5;
/// The smallest number of bytes that a jump replaces.
const JUMP_LEN: u8 = 5;
const RAX: u8 = 0;
/// The default of the constants.
const DEFAULT: i64 = 32;
const RANGE: Range = Range::of(0, 1_000_000);
const SOURCE: &str = "kernel/atomic/spans.c";

/// A constant: the functions that contain it, and the functions in whose frames its values stay.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Name of the constant.
    pub name: &'static str,
    /// Functions that contain it, and how often.
    pub functions: &'static [(&'static str, usize)],
    /// Functions without it that are inside.
    pub frames: &'static [&'static str],
    /// The weakest transition that keeps the promise.
    pub mode: Mode,
    /// The safe span is not the whole function.
    pub narrow: bool,
}

const fn task(name: &'static str, functions: &'static [(&'static str, usize)]) -> Family {
    Family { name, functions, frames: &[], mode: Mode::Task, narrow: false }
}

/// The constants that threads use; each function is in one of them.
pub const FAMILIES: [Family; 10] = [
    Family { narrow: true, ..task("BALANCE", &[("xk_atomic_balance", 2)]) },
    Family { frames: &["xk_atomic_agree"], ..task("AGREE", &[("xk_atomic_first", 1), ("xk_atomic_second", 1)]) },
    task("OBJECT", &[("xk_atomic_object", 1), ("xk_atomic_later", 1), ("xk_atomic_consume", 1)]),
    task("RECURSE", &[("xk_atomic_recurse", 2)]),
    task("SOFTIRQ", &[("xk_atomic_softirq", 1), ("xk_atomic_in_softirq", 1)]),
    task("HARDIRQ", &[("xk_atomic_hardirq", 1), ("xk_atomic_in_hardirq", 1)]),
    task("NMI", &[("xk_atomic_nmi", 1), ("xk_atomic_in_nmi", 1)]),
    task("SLEEP", &[("xk_atomic_sleep", 2)]),
    task("DESCEND", &[("xk_atomic_descend", 2)]),
    Family { mode: Mode::Global, ..task("ELSEWHERE", &[("xk_atomic_elsewhere", 1), ("xk_atomic_in_elsewhere", 1)]) },
];

/// Further constants that tests use by name: one that a process holds until it is
/// released, the two halves of `AGREE` as separate constants, and one that NMIs read
/// during a stop.
const OTHERS: [Family; 4] = [
    task("HOLD", &[("xk_atomic_hold", 2), ("xk_atomic_exit_inside", 1), ("xk_atomic_value", 1)]),
    Family { frames: &["xk_atomic_agree"], ..task("FIRST", &[("xk_atomic_first", 1)]) },
    Family { frames: &["xk_atomic_agree"], ..task("SECOND", &[("xk_atomic_second", 1)]) },
    task("STOP", &[("xk_atomic_in_stop", 1)]),
];

/// The family of this name.
///
/// # Errors
/// When there is none.
pub fn family(name: &str) -> Result<Family> {
    let mut all = FAMILIES.iter().chain(&OTHERS);
    all.find(|family| family.name == name).copied().with_context(|| format!("no family is called {name}"))
}

/// The scope table of a family, from the module's file.
///
/// # Errors
/// When the module does not contain the functions as they are described.
pub fn table(module: &Path, family: &Family) -> Result<ScopeTable> {
    let data = fs::read(module).with_context(|| module.display().to_string())?;
    let file = object::File::parse(&*data)?;
    let mut table = empty_table(family.name, DEFAULT, family.mode);
    for &(symbol, expected) in family.functions {
        let (function, text) = function_in(&file, MODULE, symbol, SOURCE)?;
        let offsets: Vec<u32> = sites(&text);
        if offsets.len() != expected {
            bail!("{symbol} has {} constants instead of {expected}", offsets.len());
        }
        let index = table.functions.len();
        let first = table.spans.len();
        table.functions.push(function);
        table.spans.extend(offsets.iter().map(|&offset| in_place(site(index, offset, NOP_LEN))));
        let whole = [0, u32::try_from(text.len())?];
        let range = match (family.narrow, offsets.first(), offsets.last()) {
            (true, Some(&first), Some(&last)) => [first - MOVE_LEN, last + u32::from(NOP_LEN)],
            _ => whole,
        };
        table.scopes.push(scope(index, range, (first..table.spans.len()).collect()));
    }
    for symbol in family.frames {
        let (function, text) = function_in(&file, MODULE, symbol, SOURCE)?;
        let all = (0..table.spans.len()).collect();
        table.scopes.push(scope(table.functions.len(), [0, u32::try_from(text.len())?], all));
        table.functions.push(function);
    }
    Ok(table)
}

/// The offsets of the no-ops after the constants.
fn sites(text: &[u8]) -> Vec<u32> {
    let places = text.windows(CONSTANT.len()).enumerate().filter(|(_, window)| *window == CONSTANT);
    places.map(|(at, _)| (at + NOP_AT) as u32).collect()
}

fn scope(function: usize, range: [u32; 2], spans: Vec<usize>) -> Scope {
    Scope { function, ranges: vec![range], spans, ..Scope::default() }
}

/// A critical span that is one instruction, before which `eax` becomes V.
#[must_use]
pub fn site(function: usize, offset: u32, insn_len: u8) -> CriticalSpan {
    let op = |code| Op { code, width: 4, dst: RAX, a: 0, b: 0, c: 0, imm: 0 };
    CriticalSpan {
        function,
        start: offset,
        end: offset + u32::from(insn_len),
        assembly: Vec::new(),
        expression: Vec::new(),
        ivs: vec![Fit::linear(1, 0, 4)],
        indirection: Indirection {
            offset,
            insn_len,
            when: When::Before,
            kind: Kind::Value,
            probe: ProbeKind::Jump,
            probe_reason: None,
            window: if insn_len >= JUMP_LEN { insn_len } else { 0 },
            window_lead: 0,
            window_reason: None,
            program: Program { ops: vec![op(OpCode::Iv), op(OpCode::SetReg)] },
        },
        proof: Proof::Proved { solver: "by hand".into(), millis: 0 },
        in_place: None,
        in_place_reason: None,
        only_in_place: None,
        visible: Vec::new(),
    }
}

/// The same span with the move before it, which holds the constant.
fn in_place(span: CriticalSpan) -> CriticalSpan {
    let start = span.start - MOVE_LEN;
    let patch = Patch { offset: start, insn_len: MOVE_LEN as u8, field: 1, size: 4, width: 4, iv: 0 };
    let held = InPlace { patches: vec![patch], range: RANGE, proof: span.proof.clone() };
    CriticalSpan { start, in_place: Some(held), ..span }
}

/// A table without sites.
#[must_use]
pub fn empty_table(name: &str, default: i64, mode: Mode) -> ScopeTable {
    ScopeTable {
        schema: SCHEMA,
        kernel: KernelRef { release: String::new(), build_id: String::new() },
        constant: ConstRef {
            id: format!("by hand:L1:{name}:0"),
            name: Some(name.to_owned()),
            text: String::new(),
            token: default.to_string(),
            default,
        },
        values: Values { proved: Some(RANGE), ..Values::default() },
        functions: Vec::new(),
        spans: Vec::new(),
        data: Vec::new(),
        scopes: Vec::new(),
        mode,
        escapes: Vec::new(),
        scoped: None,
        units: Vec::new(),
        stages: BTreeMap::new(),
    }
}

/// What `-mindirect-branch-cs-prefix` puts before a call of a retpoline of `r8` to `r15`.
const CS_PREFIX: u8 = 0x2e;

/// A function of a module's file as a table holds it. The mask excludes what loading changes.
///
/// # Errors
/// When the file does not contain it.
pub fn function(module: &Path, symbol: &str, source: &str) -> Result<Function> {
    let data = fs::read(module).with_context(|| module.display().to_string())?;
    let name = module.file_stem().and_then(|name| name.to_str()).with_context(|| module.display().to_string())?;
    Ok(function_in(&object::File::parse(&*data)?, name, symbol, source)?.0)
}

/// Likewise, with its bytes.
fn function_in(file: &object::File<'_>, module: &str, symbol: &str, source: &str) -> Result<(Function, Vec<u8>)> {
    let found = file.symbols().find(|s| s.name() == Ok(symbol)).with_context(|| format!("no function {symbol}"))?;
    let section = file.section_by_index(found.section_index().with_context(|| symbol.to_owned())?)?;
    let (start, end) = (found.address(), found.address() + found.size());
    let data = section.data()?;
    let bytes = data.get(start as usize..end as usize).with_context(|| format!("{symbol} is cut off"))?.to_vec();
    let mut mask = vec![0xff; bytes.len()];
    for (at, _) in section.relocations().filter(|(at, _)| (start..end).contains(at)) {
        let at = (at - start) as usize;
        mask[at..at + 4].fill(0);
        // A return, and a call of the tracer, are patched with their opcodes.
        if at > 0 && matches!(bytes[at - 1], 0xe8 | 0xe9) {
            mask[at - 1] = 0;
            // So is an indirect call, which has a prefix where the register's number takes one bit more.
            if at > 1 && bytes[at - 2] == CS_PREFIX {
                mask[at - 2] = 0;
            }
        }
    }
    // The kernel seals functions whose address is not taken.
    if bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        mask[..4].fill(0);
    }
    let function = Function {
        symbol: symbol.to_owned(),
        module: Some(module.to_owned()),
        text_offset: start,
        section: ".text".into(),
        bytes: hex(&bytes),
        mask: hex(&mask),
        source: source.to_owned(),
    };
    Ok((function, bytes))
}

/// Addresses in the loaded module.
#[derive(Debug, Clone, Copy)]
pub struct Loaded;

impl AddressOf for Loaded {
    fn address(&self, function: &Function) -> Result<Option<u64>, AddressError> {
        let Some(module) = &function.module else {
            return Err(AddressError::NotInModule { symbol: function.symbol.clone() });
        };
        let file = PathBuf::from(format!("/sys/module/{module}/sections/{}", function.section));
        let Ok(text) = fs::read_to_string(&file) else { return Ok(None) };
        let text = text.trim();
        let start = u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .map_err(|_| AddressError::NotAnAddress { file, text: text.to_owned() })?;
        Ok(Some(start + function.text_offset))
    }

    fn data_address(&self, data: &DataSite) -> Result<Option<u64>, AddressError> {
        Err(AddressError::NoObjects { symbol: data.symbol.clone() })
    }
}
