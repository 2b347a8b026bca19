//! From a scope table to the structures that the kernel takes.

use xk_table::{CriticalSpan, DataSite, Fit, Form, Function, Range, Scope, ScopeTable, When};

use crate::abi::{self, Bytes, Plain};
use crate::backend::Backend;
use crate::error::{AddressError, Error, SignatureError, TableFault};

/// What the caller knows about a table: where it is in the running kernel, and who signed it.
pub trait AddressOf {
    /// The address of the first byte of `function`; `None` when its module is
    /// not loaded.
    ///
    /// # Errors
    /// [`AddressError`]: no such symbol, several that cannot be told apart.
    fn address(&self, function: &Function) -> Result<Option<u64>, AddressError>;

    /// The address of the first byte of the object of `data`, likewise.
    ///
    /// # Errors
    /// As [`AddressOf::address`].
    fn data_address(&self, data: &DataSite) -> Result<Option<u64>, AddressError>;

    /// The signature of what [`signable`] returns for `table`, if there is one.
    ///
    /// # Errors
    /// [`SignatureError`]: there is one that cannot be read.
    fn signature(&self, _table: &ScopeTable) -> Result<Option<Vec<u8>>, SignatureError> {
        Ok(None)
    }
}

/// What `XK_IOC_LOAD` takes, with the memory that it points to.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) load: abi::Load,
    // Behind the pointers in `load`.
    _table: Vec<u8>,
    _signature: Vec<u8>,
}

impl Request {
    /// `anchor` is where `_printk` is; with `signed`, the kernel asks for a signature.
    pub(crate) fn new(
        table: &ScopeTable,
        addresses: &dyn AddressOf,
        anchor: u64,
        signed: bool,
        backend: Backend,
    ) -> Result<Self, Error> {
        let wrong = |fault: TableFault| at_table(title(table), fault);
        table.check().map_err(|fault| wrong(fault.into()))?;
        if let (Some(reason), true) = (table.only_in_place(), backend != Backend::Patch) {
            return Err(wrong(TableFault::OnlyPatch { reason: reason.to_owned() }));
        }
        let (bytes, signature) = match signed {
            true => {
                (signable(table, addresses, anchor)?, addresses.signature(table).map_err(|error| wrong(error.into()))?)
            }
            false => (bytes_of(table, addresses, anchor)?, None),
        };
        let signature = signature.unwrap_or_default();
        if signature.len() > abi::MAX_SIGNATURE {
            return Err(wrong(TableFault::SignatureLength { length: signature.len() }));
        }
        let mut load = abi::Load::zeroed();
        load.size = size_of::<abi::Load>() as u32;
        load.abi = abi::ABI_VERSION;
        load.table = bytes.as_ptr() as u64;
        load.table_len = bytes.len() as u32;
        load.signature = signature.as_ptr() as u64;
        load.signature_len = signature.len() as u32;
        load.flags = backend.flags();
        Ok(Self { load, _table: bytes, _signature: signature })
    }
}

fn title(table: &ScopeTable) -> &str {
    table.constant.name.as_deref().unwrap_or(&table.constant.id)
}

fn at_table(name: &str, fault: TableFault) -> Error {
    Error::Table { name: name.to_owned(), fault: Box::new(fault) }
}

/// Without the addresses of modules.
struct Anywhere<'a>(&'a dyn AddressOf);

impl AddressOf for Anywhere<'_> {
    fn address(&self, function: &Function) -> Result<Option<u64>, AddressError> {
        if function.module.is_some() {
            Ok(None)
        } else {
            self.0.address(function)
        }
    }

    fn data_address(&self, data: &DataSite) -> Result<Option<u64>, AddressError> {
        if data.module.is_some() {
            Ok(None)
        } else {
            self.0.data_address(data)
        }
    }
}

/// What is signed of a table (`struct xk_table`): the same bytes for one build of the kernel, in every boot.
/// `anchor` is the address of `_printk` by the same account as `addresses`.
///
/// # Errors
/// [`Error::Table`] and [`Error::Address`].
pub fn signable(table: &ScopeTable, addresses: &dyn AddressOf, anchor: u64) -> Result<Vec<u8>, Error> {
    bytes_of(table, &Anywhere(addresses), anchor)
}

/// The part of a table that its other parts refer to by offset.
struct Tail {
    start: usize,
    bytes: Vec<u8>,
}

impl Tail {
    /// Where `bytes` lie then.
    fn push(&mut self, bytes: &[u8]) -> u64 {
        let at = self.start + self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        at as u64
    }
}

/// `struct xk_table`, with what follows it.
fn bytes_of(table: &ScopeTable, addresses: &dyn AddressOf, anchor: u64) -> Result<Vec<u8>, Error> {
    let wrong = |fault: TableFault| at_table(title(table), fault);
    table.check().map_err(|fault| wrong(fault.into()))?;
    let head = head(table).map_err(wrong)?;
    let values: Vec<u8> = table.values.compiled.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let (nr_sites, nr_scopes) = (table.spans.len() + table.data.len(), table.scopes.len());
    let arrays = values.len() + nr_sites * size_of::<abi::Site>() + nr_scopes * size_of::<abi::Scope>();
    let mut tail = Tail { start: size_of::<abi::Table>() + arrays, bytes: Vec::new() };

    let texts = table
        .functions
        .iter()
        .map(|function| text_of(function, addresses, anchor, &mut tail))
        .collect::<Result<Vec<_>, _>>()?;
    let code = table
        .spans
        .iter()
        .map(|span| site(span, &table.functions[span.function], &texts[span.function]).map_err(wrong));
    let data = table.data.iter().map(|data| {
        let address =
            addresses.data_address(data).map_err(|error| Error::Address { symbol: data.symbol.clone(), error })?;
        data_site(data, place(data.module.as_deref(), address, anchor)).map_err(wrong)
    });
    let sites = code.chain(data).collect::<Result<Vec<_>, _>>()?;
    let scopes = table
        .scopes
        .iter()
        .map(|from| scope(from, &table.functions[from.function], &texts[from.function], &mut tail).map_err(wrong))
        .collect::<Result<Vec<_>, _>>()?;
    let bytes =
        [abi::Table::bytes(&[head]), &values, abi::Site::bytes(&sites), abi::Scope::bytes(&scopes), &tail.bytes]
            .concat();
    if bytes.len() > abi::MAX_TABLE {
        return Err(wrong(TableFault::Length { length: bytes.len() }));
    }
    Ok(bytes)
}

fn head(table: &ScopeTable) -> Result<abi::Table, TableFault> {
    let nr_sites = table.spans.len() + table.data.len();
    if nr_sites > abi::MAX_SITES {
        return Err(TableFault::Sites { number: nr_sites });
    }
    if table.scopes.len() > abi::MAX_SCOPES {
        return Err(TableFault::Scopes { number: table.scopes.len() });
    }
    let Range { min, max } = table.values.proved.unwrap_or(Range::of(i64::MAX, i64::MIN));
    Ok(abi::Table {
        magic: abi::TABLE_MAGIC,
        abi: abi::ABI_VERSION,
        flags: if table.only_in_place().is_some() { abi::TABLE_IN_PLACE } else { 0 },
        // A path can be longer than the kernel's field; a name never is.
        name: abi::field(&table.constant.id)
            .or_else(|| abi::field(title(table)))
            .ok_or_else(|| TableFault::ConstantName { id: table.constant.id.clone() })?,
        default_value: table.constant.default,
        min,
        max,
        mode: abi::mode_number(table.mode),
        // The table is checked: there are not more than the kernel accepts, and they ascend.
        nr_values: table.values.compiled.len() as u32,
        nr_sites: nr_sites as u32,
        nr_scopes: table.scopes.len() as u32,
    })
}

/// Of vmlinux, the distance from `_printk`; of a module, where it is, or 0: the kernel looks for it.
fn place(module: Option<&str>, address: Option<u64>, anchor: u64) -> u64 {
    match (module, address) {
        (None, Some(address)) => address.wrapping_sub(anchor),
        (_, address) => address.unwrap_or(0),
    }
}

/// A function in the table.
#[derive(Debug)]
struct Text {
    address: u64,
    len: u32,
    bytes: u64,
    mask: u64,
}

fn text_of(function: &Function, addresses: &dyn AddressOf, anchor: u64, tail: &mut Tail) -> Result<Text, Error> {
    let wrong = |fault: TableFault| at_table(&function.symbol, fault);
    let address =
        addresses.address(function).map_err(|error| Error::Address { symbol: function.symbol.clone(), error })?;
    let bytes = function.text().map_err(|fault| wrong(fault.into()))?;
    if bytes.len() > abi::MAX_TEXT {
        return Err(wrong(TableFault::TextLength { length: bytes.len() }));
    }
    let mask = function.text_mask().map_err(|fault| wrong(fault.into()))?;
    let address = place(function.module.as_deref(), address, anchor);
    Ok(Text { address, len: bytes.len() as u32, bytes: tail.push(&bytes), mask: tail.push(&mask) })
}

fn iv(fit: &Fit) -> abi::Iv {
    let (form, by) = match fit.form {
        Form::Linear => (abi::FORM_LINEAR, 0),
        Form::Quotient(by) => (abi::FORM_QUOTIENT, by),
        // Beyond 63 all that is left is the sign.
        Form::Power(shift) => (abi::FORM_POWER, i64::from(shift.min(63))),
        Form::Log2 => (abi::FORM_LOG2, 0),
        Form::Inverse => (abi::FORM_INVERSE, 0),
    };
    abi::Iv { a: fit.a, b: fit.b, form, pad: [0; 7], by }
}

fn symbol_field(symbol: &str) -> Result<[u8; abi::SYMBOL_LEN], TableFault> {
    abi::field(symbol).ok_or_else(|| TableFault::SymbolName { symbol: symbol.to_owned() })
}

/// The name of a module as the kernel spells it; its file may have `-`.
fn module_field(module: Option<&str>) -> Result<[u8; abi::MODULE_LEN], TableFault> {
    let module = module.unwrap_or("").replace('-', "_");
    abi::field(&module).ok_or(TableFault::ModuleName { module })
}

fn data_site(data: &DataSite, address: u64) -> Result<abi::Site, TableFault> {
    let mut site = abi::Site::zeroed();
    site.address = address;
    site.symbol = symbol_field(&data.symbol)?;
    site.module = module_field(data.module.as_deref())?;
    site.offset = data.offset;
    site.insn_len = data.width;
    site.flags = abi::SITE_DATA;
    site.nr_ivs = 1;
    site.ivs[0] = iv(&data.fit);
    Ok(site)
}

fn scope(from: &Scope, function: &Function, text: &Text, tail: &mut Tail) -> Result<abi::Scope, TableFault> {
    let ranges: Vec<abi::Range> = from.ranges.iter().map(|&[start, end]| abi::Range { start, end }).collect();
    if ranges.len() > abi::MAX_RANGES {
        return Err(TableFault::Ranges { symbol: function.symbol.clone(), number: ranges.len() });
    }
    let mut scope = abi::Scope::zeroed();
    scope.address = text.address;
    scope.symbol = symbol_field(&function.symbol)?;
    scope.module = module_field(function.module.as_deref())?;
    scope.text_len = text.len;
    scope.nr_ranges = ranges.len() as u32;
    scope.text = text.bytes;
    scope.mask = text.mask;
    scope.ranges = tail.push(abi::Range::bytes(&ranges));
    Ok(scope)
}

fn site(span: &CriticalSpan, function: &Function, text: &Text) -> Result<abi::Site, TableFault> {
    let indirection = &span.indirection;
    let program = &indirection.program;
    let mut site = abi::Site::zeroed();

    site.address = text.address;
    site.symbol = symbol_field(&function.symbol)?;
    site.module = module_field(function.module.as_deref())?;
    site.offset = indirection.offset;
    site.insn_len = indirection.insn_len;
    site.when = match indirection.when {
        When::Before => abi::BEFORE,
        When::After => abi::AFTER,
        When::Instead => abi::INSTEAD,
    };
    site.nr_ops = program.ops.len() as u8;
    site.nr_ivs = span.ivs.len() as u8;
    site.flags = if program.stores() { abi::SITE_STORES } else { 0 };
    site.text_len = text.len;
    site.start = span.start;
    site.window = indirection.window;
    site.window_lead = indirection.window_lead;
    site.text = text.bytes;
    site.mask = text.mask;

    if span.ivs.len() > site.ivs.len() {
        return Err(TableFault::SiteValues { number: span.ivs.len() });
    }
    for (to, from) in site.ivs.iter_mut().zip(&span.ivs) {
        *to = iv(from);
    }
    let patches = span.in_place.as_ref().map_or(&[][..], |in_place| &in_place.patches);
    // The table is checked: there are not more.
    site.nr_patches = patches.len() as u8;
    for (to, from) in site.patches.iter_mut().zip(patches) {
        let xk_table::Patch { offset, insn_len, field, size, width, iv } = *from;
        *to = abi::Patch { offset, insn_len, field, size, width, iv: iv as u8, pad: [0; 3] };
    }
    for (to, from) in site.ops.iter_mut().zip(&program.ops) {
        *to = abi::Op {
            code: from.code as u8,
            width: from.width,
            dst: from.dst,
            a: from.a,
            b: from.b,
            c: from.c,
            pad: [0; 2],
            imm: from.imm,
        };
    }
    Ok(site)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use xk_harness::{empty_table, site};
    use xk_table::{InPlace, Mode, Patch, Range, Values};

    use super::*;

    struct Nowhere;

    impl AddressOf for Nowhere {
        fn address(&self, _: &Function) -> Result<Option<u64>, AddressError> {
            Ok(None)
        }

        fn data_address(&self, _: &DataSite) -> Result<Option<u64>, AddressError> {
            Ok(None)
        }
    }

    #[test]
    fn only_a_patch_is_loaded_where_others_would_see_an_update() {
        let mut table = empty_table("A", 32, Mode::Global);
        let mut span = site(0, 0, 5);
        let (bytes, mask) = ("90".repeat(5), "ff".repeat(5));
        table.functions = vec![Function {
            symbol: "f".into(),
            module: None,
            text_offset: 0,
            section: ".text".into(),
            bytes,
            mask,
            source: "f.c".into(),
        }];
        span.ivs = vec![Fit::linear(1, 0, 4)];
        (span.start, span.end) = (0, 5);
        table.values = Values::proved(1, 100);
        let patch = Patch { offset: 0, insn_len: 5, field: 1, size: 4, width: 4, iv: 0 };
        span.in_place = Some(InPlace { patches: vec![patch], range: Range::of(1, 100), proof: span.proof.clone() });
        table.spans = vec![span];
        let load = |table: &ScopeTable, backend| Request::new(table, &Nowhere, 0, false, backend).map(|_| ());
        load(&table, Backend::Kprobe).unwrap();
        table.spans[0].only_in_place = Some("other CPUs can access the memory".into());
        load(&table, Backend::Patch).unwrap();
        for backend in [Backend::Kprobe, Backend::Detour, Backend::Auto, Backend::AutoGlobal, Backend::PatchOrKprobe] {
            let refused = load(&table, backend).unwrap_err().to_string();
            assert!(refused.contains("only backend patch is possible: other CPUs can access the memory"), "{refused}");
        }
    }
}
