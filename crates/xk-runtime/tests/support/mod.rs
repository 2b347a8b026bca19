//! Scope tables by hand for the functions of `kernel/test/target_text.S`, and
//! the module that contains them.

pub mod raw;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol};
use xk_runtime::AddressOf;
use xk_table::{
    hex, ConstRef, CriticalSpan, DataSite, Fit, Function, Indirection, KernelRef, Kind, Mode, Op, OpCode, ProbeKind,
    Program, Proof, Range, ScopeTable, Validation, When, SCHEMA,
};

pub const MODULE: &str = "xk_target";
pub const RAX: u8 = 0;
pub const RDX: u8 = 2;
pub const RSI: u8 = 6;
pub const RDI: u8 = 7;

/// One site of a hand-written table.
pub struct Site {
    pub symbol: &'static str,
    pub offset: u32,
    pub insn_len: u8,
    pub when: When,
    pub ivs: Vec<Fit>,
    pub ops: Vec<Op>,
}

impl Site {
    pub fn new(symbol: &'static str, offset: u32, insn_len: u8, ops: Vec<Op>) -> Self {
        let ivs = vec![Fit::linear(1, 0, 4)];
        Self { symbol, offset, insn_len, when: When::Before, ivs, ops }
    }
}

pub fn op(code: OpCode, width: u8) -> Op {
    Op { code, width, dst: 0, a: 0, b: 0, c: 0, imm: 0 }
}

pub fn set_register(register: u8) -> Vec<Op> {
    vec![op(OpCode::Iv, 4), Op { dst: register, ..op(OpCode::SetReg, 4) }]
}

/// The same, with what the analysis would have said about detours.
pub fn windowed(mut table: ScopeTable, windows: &[u8]) -> ScopeTable {
    for (span, &window) in table.spans.iter_mut().zip(windows) {
        span.indirection.window = window;
    }
    table
}

/// The table of a constant `name` whose sites are `sites`, in `module`.
pub fn table(module: &Path, name: &str, sites: Vec<Site>) -> ScopeTable {
    let mut functions: Vec<Function> = Vec::new();
    let spans = sites
        .into_iter()
        .map(|site| {
            let index = functions.iter().position(|f| f.symbol == site.symbol).unwrap_or_else(|| {
                functions.push(function(module, site.symbol));
                functions.len() - 1
            });
            CriticalSpan {
                function: index,
                start: site.offset,
                end: site.offset + 1,
                assembly: Vec::new(),
                expression: Vec::new(),
                ivs: site.ivs,
                indirection: Indirection {
                    offset: site.offset,
                    insn_len: site.insn_len,
                    when: site.when,
                    kind: Kind::Value,
                    probe: ProbeKind::Jump,
                    probe_reason: None,
                    window: 0,
                    window_lead: 0,
                    window_reason: None,
                    program: Program { ops: site.ops },
                },
                proof: Proof::Proved { solver: "by hand".into(), millis: 0 },
            }
        })
        .collect();
    ScopeTable {
        schema: SCHEMA,
        kernel: KernelRef { release: String::new(), build_id: String::new() },
        constant: ConstRef {
            id: format!("kernel/test/target_text.S:L1:{name}:0"),
            name: Some(name.to_owned()),
            text: String::new(),
            token: "32".into(),
            default: 32,
        },
        range: Range::of(1, 1000),
        functions,
        spans,
        data: Vec::new(),
        scopes: Vec::new(),
        mode: Mode::Global,
        escapes: Vec::new(),
        scoped: None,
        validation: Validation::default(),
        units: Vec::new(),
        stages: BTreeMap::new(),
    }
}

/// Bytes of a function in a module file, with everything masked that loading
/// the module changes: relocations, and returns, which become `ret; int3`.
pub fn function(module: &Path, symbol: &str) -> Function {
    let data = fs::read(module).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let found = file.symbols().find(|s| s.name() == Ok(symbol)).expect(symbol);
    let section = file.section_by_index(found.section_index().unwrap()).unwrap();
    let (start, end) = (found.address(), found.address() + found.size());
    let bytes = &section.data().unwrap()[start as usize..end as usize];
    let mut mask = vec![0xff; bytes.len()];
    for (at, _) in section.relocations().filter(|(at, _)| (start..end).contains(at)) {
        let at = (at - start) as usize;
        mask[at..at + 4].fill(0);
        // The opcode of a return, or of a call of the tracer, is patched with it.
        if matches!(bytes[at - 1], 0xe8 | 0xe9) {
            mask[at - 1] = 0;
        }
    }
    // The kernel seals functions of which nobody takes the address.
    if bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        mask[..4].fill(0);
    }
    Function {
        symbol: symbol.to_owned(),
        module: Some(MODULE.to_owned()),
        text_offset: start,
        section: ".text".into(),
        bytes: hex(bytes),
        mask: hex(&mask),
        source: "kernel/test/target_text.S".into(),
    }
}

/// Addresses from where the module was loaded; `/proc/kallsyms` would say the
/// same and take a second in an emulated guest.
pub struct Loaded;

impl AddressOf for Loaded {
    fn address(&self, function: &Function) -> Result<Option<u64>, String> {
        loaded_at(&function.section, function.text_offset)
    }

    fn data_address(&self, data: &DataSite) -> Result<Option<u64>, String> {
        loaded_at(&data.section, data.section_offset)
    }
}

fn loaded_at(section: &str, offset: u64) -> Result<Option<u64>, String> {
    let path = format!("/sys/module/{MODULE}/sections/{section}");
    if !Path::new(&path).exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let start = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).map_err(|e| e.to_string())?;
    Ok(Some(start + offset))
}
