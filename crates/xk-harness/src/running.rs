//! Functions of the running kernel, as they are now.

use anyhow::{Context, Result};
use xk_kernel::Image;
use xk_runtime::{AddressError, AddressOf};
use xk_table::{hex, DataSite, Function, Scope, ScopeTable};

use crate::family::Loaded;

/// A function of vmlinux with its address; functions of modules are looked up as by
/// [`Loaded`].
#[derive(Debug, Clone)]
pub struct Running {
    symbol: String,
    address: u64,
    code: Vec<u8>,
}

impl Running {
    /// Reads it from memory.
    ///
    /// # Errors
    /// When there is none of this name, or it cannot be read.
    pub fn find(symbol: &str) -> Result<Self> {
        let image = Image::live()?;
        let found = image.symbols(symbol);
        let found = found.iter().find(|found| found.module.is_none()).with_context(|| format!("no {symbol}"))?;
        let code = image.read(found.address, found.size_hint as usize)?;
        Ok(Self { symbol: symbol.to_owned(), address: found.address, code })
    }

    /// Its bytes.
    #[must_use]
    pub fn code(&self) -> &[u8] {
        &self.code
    }

    /// The function as a table holds it. The kernel has already patched its code.
    #[must_use]
    pub fn function(&self) -> Function {
        Function {
            symbol: self.symbol.clone(),
            module: None,
            text_offset: 0,
            section: ".text".into(),
            bytes: hex(&self.code),
            mask: hex(&vec![0xff; self.code.len()]),
            source: String::new(),
        }
    }

    /// Makes the function a safe span, too.
    pub fn confine(&self, table: &mut ScopeTable) {
        let spans = (0..table.spans.len()).collect();
        let ranges = vec![[0, self.code.len() as u32]];
        table.scopes.push(Scope { function: table.functions.len(), ranges, spans, ..Scope::default() });
        table.functions.push(self.function());
    }
}

impl AddressOf for Running {
    fn address(&self, function: &Function) -> Result<Option<u64>, AddressError> {
        if function.module.is_none() && function.symbol == self.symbol {
            return Ok(Some(self.address));
        }
        Loaded.address(function)
    }

    fn data_address(&self, data: &DataSite) -> Result<Option<u64>, AddressError> {
        Loaded.data_address(data)
    }
}
