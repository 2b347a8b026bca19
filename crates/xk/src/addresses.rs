//! Addresses in the running kernel, and signatures in the folders of tables, for tables that are loaded.

use std::fs;

use xk_runtime::{AddressError, AddressOf, SignatureError, Symbols};
use xk_table::{DataSite, Function, ScopeTable};

use crate::context::Folders;
use crate::exit::{Failure, Result};

/// The symbols of the running kernel.
#[derive(Debug)]
pub struct Addresses(Symbols);

impl Addresses {
    /// Of the running kernel; only the symbols that `tables` name are kept.
    pub fn live<'a>(tables: impl Iterator<Item = &'a ScopeTable>) -> Result<Self> {
        Symbols::live(tables).map(Self).map_err(|error| Failure::error(error.to_string()))
    }

    /// What addresses of vmlinux in a signed table are counted from.
    pub fn anchor(&self) -> Result<u64> {
        self.0.anchor().map_err(|error| Failure::error(error.to_string()))
    }
}

impl AddressOf for Addresses {
    fn address(&self, function: &Function) -> std::result::Result<Option<u64>, AddressError> {
        Ok(self.0.function(function)?)
    }

    fn data_address(&self, data: &DataSite) -> std::result::Result<Option<u64>, AddressError> {
        Ok(self.0.object(data)?)
    }

    fn signature(&self, table: &ScopeTable) -> std::result::Result<Option<Vec<u8>>, SignatureError> {
        let file = Folders::new().signature_file(table)?;
        match fs::read(&file) {
            Ok(signature) => Ok(Some(signature)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SignatureError::Unreadable { file, error }),
        }
    }
}
