//! Scope tables by hand for the functions of `kernel/test/target_text.S`, and
//! the module that contains them.

pub mod raw;
pub mod target;

use std::fs;
use std::path::Path;

use xk_harness::empty_table;
use xk_runtime::{AddressError, AddressOf, NoAddress, SymbolKind};
use xk_table::{
    CriticalSpan, DataSite, Fit, Function, InPlace, Indirection, Mode, Op, OpCode, Patch, Program, Range, ScopeTable,
    Values, When,
};

pub const MODULE: &str = "xk_target";
pub const RAX: u8 = 0;
pub const RDX: u8 = 2;
pub const RSI: u8 = 6;
pub const RDI: u8 = 7;

/// One site of a hand-written table.
pub struct SiteSpec {
    pub symbol: &'static str,
    pub offset: u32,
    pub insn_len: u8,
    pub when: When,
    pub ivs: Vec<Fit>,
    pub ops: Vec<Op>,
}

impl SiteSpec {
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
#[allow(dead_code)] // not used by the tests of probes
pub fn windowed(mut table: ScopeTable, windows: &[u8]) -> ScopeTable {
    for (span, &window) in table.spans.iter_mut().zip(windows) {
        span.indirection.window = window;
    }
    table
}

/// The same, with what the analysis would have said about instructions that hold the
/// value: of each site, from its span's start on.
#[allow(dead_code)] // only used by the tests of patches
pub fn held(mut table: ScopeTable, patches: &[&[Patch]]) -> ScopeTable {
    for (span, patches) in table.spans.iter_mut().zip(patches) {
        let Some(first) = patches.first() else { continue };
        span.start = first.offset;
        let room = |value: &i64| patches.iter().all(|p| p.has_room(span.ivs[p.iv].apply(*value)));
        let max = (1..=1000).take_while(room).last().unwrap();
        let range = Range::of(1, max);
        span.in_place = Some(InPlace { patches: patches.to_vec(), range, proof: span.proof.clone() });
    }
    table
}

/// The table of a constant `name` whose sites are `sites`, in `module`.
pub fn table(module: &Path, name: &str, sites: Vec<SiteSpec>) -> ScopeTable {
    let mut functions: Vec<Function> = Vec::new();
    let spans = sites
        .into_iter()
        .map(|site| {
            let index = functions.iter().position(|f| f.symbol == site.symbol).unwrap_or_else(|| {
                functions.push(function(module, site.symbol));
                functions.len() - 1
            });
            let plain = xk_harness::site(index, site.offset, site.insn_len);
            let program = Program { ops: site.ops };
            let indirection = Indirection { when: site.when, window: 0, program, ..plain.indirection };
            CriticalSpan { ivs: site.ivs, indirection, ..plain }
        })
        .collect();
    ScopeTable { values: Values::proved(1, 1000), functions, spans, ..empty_table(name, 32, Mode::Global) }
}

/// A function of the module.
pub fn function(module: &Path, symbol: &str) -> Function {
    xk_harness::function(module, symbol, "kernel/test/target_text.S").unwrap()
}

/// The value at `offset` in an object of the target module.
#[allow(dead_code)] // not used by the tests of detours and patches
pub fn object(symbol: &str, offset: u32, width: u8) -> DataSite {
    use ::object::{Object, ObjectSection, ObjectSymbol};
    let data = fs::read(target::target_module()).unwrap();
    let file = ::object::File::parse(&*data).unwrap();
    let found = file.symbols().find(|s| s.name() == Ok(symbol)).expect(symbol);
    let section = file.section_by_index(found.section_index().unwrap()).unwrap();
    DataSite {
        symbol: symbol.into(),
        module: Some(MODULE.into()),
        section: section.name().unwrap().into(),
        section_offset: found.address(),
        offset,
        width,
        fit: Fit::linear(1, 0, width),
        source: "kernel/test/target.c".into(),
    }
}

/// Addresses from where the module was loaded; `/proc/kallsyms` would say the
/// same and take a second in an emulated guest.
pub struct Loaded;

impl AddressOf for Loaded {
    fn address(&self, function: &Function) -> Result<Option<u64>, AddressError> {
        loaded_at(&function.section, function.text_offset)
    }

    fn data_address(&self, data: &DataSite) -> Result<Option<u64>, AddressError> {
        loaded_at(&data.section, data.section_offset)
    }
}

fn loaded_at(section: &str, offset: u64) -> Result<Option<u64>, AddressError> {
    let file = Path::new("/sys/module").join(MODULE).join("sections").join(section);
    if !file.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&file).map_err(|error| AddressError::Unreadable { file: file.clone(), error })?;
    let text = text.trim();
    let start = u64::from_str_radix(text.trim_start_matches("0x"), 16)
        .map_err(|_| AddressError::NotAnAddress { file, text: text.to_owned() })?;
    Ok(Some(start + offset))
}

/// The address of an object by the kernel's own list.
#[allow(dead_code)] // only used by the tests of data and of signatures
pub fn listed(name: &str) -> Result<u64, AddressError> {
    let file = Path::new("/proc/kallsyms");
    let unreadable = |error| AddressError::Unreadable { file: file.to_owned(), error };
    let text = fs::read_to_string(file).map_err(unreadable)?;
    let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(name));
    let address = &line.ok_or(NoAddress::NoSymbol(SymbolKind::Object))?[..16];
    u64::from_str_radix(address, 16)
        .map_err(|_| AddressError::NotAnAddress { file: file.to_owned(), text: address.to_owned() })
}
